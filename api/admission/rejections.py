"""Rejections of writes by webhooks, as clients see them.

Source: k8s.io/apiserver ``pkg/admission/plugin/webhook/errors/statuserror.go``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from kubechronicle.api.admission.reviews import MAX_TEXT, CallFailed
from kubechronicle.api.errors import status
from kubechronicle.api.errors.field_errors import Cause, go_quote
from kubechronicle.api.errors.status import StatusError


def calling_failed(name: str, error: CallFailed) -> StatusError:
    """Return the 500 of a webhook that gave no usable answer and may not be ignored."""
    return status.internal_error(f"failed calling webhook {go_quote(name)}: {error}")


def no_dry_run(name: str) -> StatusError:
    """Return the 400 of a dry run that a webhook with side effects would have to be asked about."""
    return status.bad_request(f"admission webhook {go_quote(name)} does not support dry run")


def not_modifiable(name: str) -> StatusError:
    """Return the 500 of a patch in the answer about a deletion."""
    what = "attempted to modify the object, which is not supported for this operation"
    return status.internal_error(f"admission webhook {go_quote(name)} {what}")


def denial(name: str, result: Mapping[str, Any]) -> StatusError:
    """Return the rejection by a webhook. Its code is 400 if the webhook has given none of an error."""
    denied = f"admission webhook {go_quote(name)} denied the request"
    message, reason = _shown(result.get("message")), _shown(result.get("reason"))
    code, details = result.get("code"), result.get("details")
    if not isinstance(code, int) or isinstance(code, bool) or not 400 <= code <= 999:
        code = 400
    text = f"{denied}: {message or reason}" if message or reason else f"{denied} without explanation"
    error = StatusError(code, reason, text, details=_details(details) if isinstance(details, dict) else None)
    error.list_metadata = _list_meta(result.get("metadata"))
    return error


def _list_meta(given: Any) -> dict[str, Any]:
    """Return the metadata of a Status, with the fields that have their type."""
    if not isinstance(given, dict):
        return {}
    found: dict[str, Any] = {name: text for name in _LIST_TEXTS if (text := _shown(given.get(name)))}
    remaining = given.get("remainingItemCount")
    if isinstance(remaining, int) and not isinstance(remaining, bool) and -(2**63) <= remaining < 2**63:
        found["remainingItemCount"] = remaining
    return found


_LIST_TEXTS: Final = ("selfLink", "resourceVersion", "continue")


def _shown(value: Any) -> str:
    return value[:MAX_TEXT] if isinstance(value, str) else ""


_DETAIL_TEXTS: Final = ("name", "group", "kind", "uid")
MAX_CAUSES: Final = 1000


def _details(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return StatusDetails with the fields that have their type."""
    found: dict[str, Any] = {name: text for name in _DETAIL_TEXTS if (text := _shown(given.get(name)))}
    causes = given.get("causes")
    if isinstance(causes, list):
        kept = [
            Cause(_shown(each.get("reason")), _shown(each.get("message")), _shown(each.get("field")))
            for each in causes[:MAX_CAUSES]
            if isinstance(each, dict)
        ]
        if kept:
            found["causes"] = [cause.body() for cause in kept]
    seconds = given.get("retryAfterSeconds")
    if isinstance(seconds, int) and not isinstance(seconds, bool) and 0 < seconds < 2**31:
        found["retryAfterSeconds"] = seconds
    return found


# -- image verdicts ----------------------------------------------------------------------------------------------------
#
# Answers to ImageReviews.


class ImageVerdict(NamedTuple):
    """The answer about the images of a pod.

    ``failure``: the error of a webhook that gave no usable answer, "" otherwise.
    """

    allowed: bool
    reason: str = ""
    annotations: Mapping[str, str] = {}
    failure: str = ""
