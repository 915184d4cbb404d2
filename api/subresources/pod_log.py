"""GET …/pods/NAME/log: its options, the container they mean, and the request to the kubelet.

Source: k8s.io/kubernetes pkg/registry/core/pod (LogLocation), pkg/apis/core/validation (ValidatePodLogOptions).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlencode

from kubechronicle.api.errors import field_errors, status
from kubechronicle.api.errors.field_errors import Cause, go_quote
from kubechronicle.api.errors.status import StatusError
from kubechronicle.api.meta.options import boolean, integer
from kubechronicle.api.schema import values
from kubechronicle.api.schema.values import ValueDecodeError
from kubechronicle.api.values.objects import Object

SPLIT_STREAMS: Final = "PodLogsQuerySplitStreams"
"""The gate that lets clients ask for stdout or stderr alone (KEP-3288)."""
ALL: Final = "All"
STREAMS: Final = (ALL, "Stderr", "Stdout")
CONTAINER_LISTS: Final = ("initContainers", "containers", "ephemeralContainers")
_POSITIVE: Final = "must be greater than 0"


@dataclass(frozen=True, slots=True, kw_only=True)
class PodLogOptions:
    """The options (v1 PodLogOptions).

    ``since_time``: RFC 3339 in UTC; "" if not given.
    ``stream``: None if not given while streams cannot be chosen, otherwise All.
    """

    container: str
    follow: bool
    previous: bool
    since_seconds: int | None
    since_time: str
    timestamps: bool
    tail_lines: int | None
    limit_bytes: int | None
    insecure: bool
    stream: str | None


def parse(query: Mapping[str, Sequence[str]], *, split: bool = False) -> PodLogOptions:
    """Return the options of a query. ``split``: the gate SPLIT_STREAMS. StatusError 400."""
    first = {name: given[0] for name, given in query.items() if given}
    return PodLogOptions(
        container=first.get("container", ""),
        follow=bool(boolean(query, "follow")),
        previous=bool(boolean(query, "previous")),
        since_seconds=integer(query, "sinceSeconds"),
        since_time=_time(first.get("sinceTime", "")),
        timestamps=bool(boolean(query, "timestamps")),
        tail_lines=integer(query, "tailLines"),
        limit_bytes=integer(query, "limitBytes"),
        insecure=bool(boolean(query, "insecureSkipTLSVerifyBackend")),
        stream=first.get("stream", ALL if split else None),
    )


def _time(text: str) -> str:
    if not text:
        return ""
    try:
        return values.time(text) or ""
    except ValueDecodeError as error:
        raise status.bad_request(str(error)) from None


def validate(options: PodLogOptions, name: str, *, split: bool = False) -> None:
    """StatusError 422 for options that exclude one another or are out of range. ``split``: the gate SPLIT_STREAMS."""
    causes = _causes(options, split=split)
    if causes:
        raise status.invalid("", "PodLogOptions", name, causes)


def _causes(options: PodLogOptions, *, split: bool) -> list[Cause]:
    causes = []
    if options.tail_lines is not None and options.tail_lines < 0:
        causes.append(field_errors.invalid_value("tailLines", options.tail_lines, "must be greater than or equal to 0"))
    if options.limit_bytes is not None and options.limit_bytes < 1:
        causes.append(field_errors.invalid_value("limitBytes", options.limit_bytes, _POSITIVE))
    if options.since_seconds is not None and options.since_time:
        causes.append(field_errors.forbidden("", "at most one of `sinceTime` or `sinceSeconds` may be specified"))
    elif options.since_seconds is not None and options.since_seconds < 1:
        causes.append(field_errors.invalid_value("sinceSeconds", options.since_seconds, _POSITIVE))
    if not split:
        return causes if options.stream is None else [*causes, field_errors.forbidden("stream", "may not be specified")]
    if options.stream not in STREAMS:
        causes.append(field_errors.not_supported("stream", options.stream, STREAMS))
    if options.stream != ALL and options.tail_lines is not None:
        message = "`tailLines` and specific `stream` are mutually exclusive for now"
        causes.append(field_errors.forbidden("", message))
    return causes


def place_of(pod: Object, options: PodLogOptions) -> tuple[str, str]:
    """Return the pod's node, "" if it has none, and the path and query at its kubelet. StatusError 400."""
    container = container_of(pod, options.container)
    return pod["spec"].get("nodeName", ""), kubelet_target(pod, container, options)


def container_of(pod: Object, wanted: str) -> str:
    """Return the container that is meant: the wanted one, or the only one. StatusError 400."""
    spec, name = pod["spec"], pod["metadata"]["name"]
    names = [each["name"] for kind in CONTAINER_LISTS for each in spec.get(kind) or ()]
    if wanted:
        if wanted not in names:
            raise status.bad_request(f"container {wanted} is not valid for pod {name}")
        return wanted
    ordinary = spec.get("containers") or []
    if len(ordinary) == 1:
        return str(ordinary[0]["name"])
    choices = f", choose one of: [{' '.join(names)}]" if ordinary else ""
    raise status.bad_request(f"a container name must be specified for pod {name}{choices}")


def kubelet_target(pod: Object, container: str, options: PodLogOptions) -> str:
    """Return the path and query at the kubelet."""
    meta = pod["metadata"]
    parameters = {
        "follow": "true" if options.follow else "",
        "previous": "true" if options.previous else "",
        "timestamps": "true" if options.timestamps else "",
        "sinceSeconds": options.since_seconds,
        "sinceTime": options.since_time,
        "tailLines": options.tail_lines,
        "limitBytes": options.limit_bytes,
        "stream": options.stream,
    }
    query = urlencode(sorted((name, value) for name, value in parameters.items() if value not in ("", None)))
    return f"/containerLogs/{meta['namespace']}/{meta['name']}/{container}?{query}"


# The messages of answers without details of their own, by their code, and their reasons
# (apimachinery api/errors: NewGenericServerResponse).
_ANSWERS: Final[Mapping[int, tuple[str, str]]] = {
    401: ("Unauthorized", "the server has asked for the client to provide credentials"),
    404: ("NotFound", "the server could not find the requested resource"),
    405: ("MethodNotAllowed", "the server does not allow this method on the requested resource"),
    409: ("Conflict", "the server reported a conflict"),
    422: ("Invalid", "the server rejected our request due to an error in our request"),
    429: ("TooManyRequests", "the server has received too many requests and has asked us to try again later"),
    503: ("ServiceUnavailable", "the server is currently unable to handle the request"),
    504: (
        "Timeout",
        "the server was unable to return a response in the time allotted, but may still be processing the request",
    ),
}


def kubelet_error(code: int, text: str, name: str) -> StatusError:
    """Return the answer to a client for an error of the kubelet. ``text``: the body that the kubelet sent."""
    if code == 500:
        return status.internal_error(text)
    if code == 400:
        return status.bad_request(text)
    if code in _ANSWERS:
        reason, message = _ANSWERS[code]
    elif code in (403, 406, 415):
        reason, message = {403: "Forbidden", 406: "NotAcceptable", 415: "UnsupportedMediaType"}[code], text
    elif code > 500:
        reason = "InternalError"
        message = f"an error on the server ({go_quote(text)}) has prevented the request from succeeding"
    else:
        reason = "Unknown"
        message = f"the server responded with the status code {code} but did not return more information"
    details = status.details_of("pods/log", name)
    return StatusError(code, reason, f"{message} ( pods/log {name})", details=details)
