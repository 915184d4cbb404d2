"""TokenReviews and SubjectAccessReviews: the request to a webhook, and the checks of its answer.

An answer is read as in client-go. kind and apiVersion may be missing but not differ. A failure Status is an error. A
null means missing. A field of a wrong type makes the answer unusable.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

import orjson

from kubechronicle.http.outgoing.client import Answer, AskError

# Characters of a failed answer's body in an error (k8s.io/apimachinery/pkg/api/errors).
MAX_SHOWN: Final = 2048

FAILURES: Final[Mapping[int, str]] = {
    400: "the server rejected our request for an unknown reason",
    401: "the server has asked for the client to provide credentials",
    404: "the server could not find the requested resource",
    405: "the server does not allow this method on the requested resource",
    406: "the server was unable to respond with a content type that the client supports",
    409: "the server reported a conflict",
    410: "the server responded that the resource is gone",
    413: "the request is too large",
    415: "the body of the request was in an unknown format",
    422: "the server rejected our request due to an error in our request",
    429: "the server has received too many requests and has asked us to try again later",
    503: "the server is currently unable to handle the request",
    504: "the server was unable to return a response in the time allotted, but may still be processing the request",
}
"""Error texts by status code, for answers that are no Status (NewGenericServerResponse)."""


def review(kind: str, api_version: str, spec: Mapping[str, Any], status: Mapping[str, Any]) -> bytes:
    """Return the review to post. ``status``: an empty status as Kubernetes' encoder writes it."""
    value = {"kind": kind, "apiVersion": api_version, "metadata": {}, "spec": spec, "status": status}
    try:
        return orjson.dumps(value)
    except TypeError:  # bytes of a client that are not UTF-8: json.dumps escapes them
        return json.dumps(value).encode()


def status_of(answer: Answer, kind: str, api_version: str) -> Mapping[str, Any]:
    """Return the status of the review in an answer. Raises AskError."""
    value = _decoded(answer.body)
    if isinstance(value, dict) and value.get("kind") == "Status" and value.get("status") != "Success":
        message = value.get("message")
        raise AskError(message if isinstance(message, str) and message else f"unknown (status {answer.status})")
    if not 200 <= answer.status <= 206:
        raise AskError(failure(answer))
    if not isinstance(value, dict):
        raise AskError("the answer is no JSON object")
    for field, wanted in (("kind", kind), ("apiVersion", api_version)):
        if value.get(field) not in (None, "", wanted):
            raise AskError(f"the answer is no {kind} of {api_version}: its {field} is {str(value[field])[:80]!r}")
    status = value.get("status")
    if status is not None and not isinstance(status, dict):
        raise _wrong("status", "object")
    return status or {}


def _decoded(body: bytes) -> Any:
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError:
        return None


def failure(answer: Answer) -> str:
    message = FAILURES.get(answer.status)
    if message is not None:
        return message
    if answer.status >= 500:
        body = answer.body[:MAX_SHOWN].decode("utf-8", "replace").strip() or "unknown"
        quoted = json.dumps(body, ensure_ascii=False)
        return f"an error on the server ({quoted}) has prevented the request from succeeding"
    return f"the server responded with the status code {answer.status} but did not return more information"


def _wrong(field: str, type_: str) -> AskError:
    return AskError(f"the answer's {field} is no {type_}")


def flag(values: Mapping[str, Any], name: str) -> bool:
    value = values.get(name)
    if value is not None and not isinstance(value, bool):
        raise _wrong(f"status.{name}", "boolean")
    return bool(value)


def text(values: Mapping[str, Any], name: str) -> str:
    value = values.get(name)
    if value is not None and not isinstance(value, str):
        raise _wrong(f"status.{name}", "string")
    return value or ""


def texts(values: Mapping[str, Any], name: str) -> tuple[str, ...]:
    value = values.get(name)
    if value is None:
        return ()
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        raise _wrong(f"status.{name}", "list of strings")
    return tuple(value)


def mapping(values: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = values.get(name)
    if value is not None and not isinstance(value, dict):
        raise _wrong(f"status.{name}", "object")
    return value or {}
