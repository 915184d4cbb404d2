"""The table from the server's own errors to Status errors. An error that is not in it is a bug (500)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from kubechronicle.actors.errors import ActorCrashed, MailboxFull
from kubechronicle.api.codecs.errors import NotAcceptableError, TooManyPartsError, UnsupportedMediaTypeError
from kubechronicle.api.errors import status
from kubechronicle.api.errors.status import StatusError
from kubechronicle.eventlog.errors import (
    BeforeHistory,
    Blocked,
    ChangesRefused,
    Compacted,
    FutureMoment,
    FutureRevision,
    LogError,
    LogUnavailable,
    OutcomeUnknown,
    OutcomeUnknownForNow,
    QueueFull,
    TransformError,
    UnknownMoment,
)
from kubechronicle.eventlog.queries.branches import BranchFull, BranchGone
from kubechronicle.http.messages import BodyTooLarge

UNAVAILABLE = "the database behind this server does not answer{}; nothing has been changed, please try again"
REFUSED = "the database behind this server takes no changes: {}; nothing has been changed"
BLOCKED = "the database behind this server {}; nothing has been changed, please try again"
OUT_OF_MEMORY = "this server is out of memory; whether a change took effect is not known, please read it again"
UNKNOWN = (
    "the connection to the database was lost while the change was committed, and whether it took effect is not known "
    "yet; read the object before trying again"
)


def _unavailable(cause: Exception) -> StatusError:
    reason = getattr(cause, "public", "")
    error = status.service_unavailable(UNAVAILABLE.format(f" ({reason})" if reason else ""))
    error.headers["Retry-After"] = "1"
    return error


def _blocked(cause: Blocked) -> StatusError:
    error = status.service_unavailable(BLOCKED.format(cause.public))
    error.headers["Retry-After"] = "1"
    return error


def _refused(cause: ChangesRefused) -> StatusError:
    """Return 503. (kube-apiserver has 500 with the text of etcd's NOSPACE alarm, and clients take it for a bug.)

    Retry-After makes clients try again by themselves, so it stands only where that may help.
    """
    if cause.blocked:
        error = status.service_unavailable(BLOCKED.format(cause.public))
    elif cause.public:
        error = status.service_unavailable(REFUSED.format(f"refused: {cause.public}"))
    else:
        error = _unavailable(cause)
    if cause.passes:
        error.headers["Retry-After"] = "1"
    return error


def _log_error(cause: LogError) -> StatusError:
    reason = f" ({cause.public})" if cause.public else ""
    return status.internal_error(f"the database refused this request{reason}; nothing has been changed")


def _not_acceptable(error: NotAcceptableError) -> StatusError:
    """Return one of an apiserver's two wordings: the router's or that of content negotiation."""
    if error.at_route:
        return status.not_acceptable_representation(error.accepted)
    return status.not_acceptable(error.accepted)


def _unsupported_media_type(error: UnsupportedMediaTypeError) -> StatusError:
    if error.at_route:
        return status.unsupported_media_type_generic()
    return status.unsupported_media_type(error.accepted)


TABLE: Mapping[type[Exception], Callable[[Any], StatusError]] = {
    LogUnavailable: _unavailable,
    Blocked: _blocked,
    ChangesRefused: _refused,
    ActorCrashed: _unavailable,
    OutcomeUnknown: lambda _: status.timeout(UNKNOWN),
    OutcomeUnknownForNow: lambda _: status.timeout(UNKNOWN),
    MailboxFull: lambda _: status.too_many_requests("Too many requests, please try again later."),
    QueueFull: lambda _: status.too_many_requests("Too many requests, please try again later."),
    BeforeHistory: lambda error: status.expired(str(error)),
    FutureMoment: lambda error: status.bad_request(str(error)),
    UnknownMoment: lambda error: status.expired(str(error)),
    Compacted: lambda error: status.expired(f"too old resource version: {error.requested} ({error.compacted + 1})"),
    FutureRevision: lambda error: status.too_large_resource_version(error.requested, error.current),
    TransformError: lambda error: status.internal_error(str(error)),
    MemoryError: lambda _: status.service_unavailable(OUT_OF_MEMORY),
    BranchFull: lambda error: status.request_entity_too_large(str(error)),
    BranchGone: lambda error: status.gone(str(error)),
    LogError: _log_error,
    NotAcceptableError: _not_acceptable,
    UnsupportedMediaTypeError: _unsupported_media_type,
    TooManyPartsError: lambda error: status.request_entity_too_large(error.message),
    BodyTooLarge: lambda error: status.request_entity_too_large(f"limit is {error.limit}"),
}


def as_status_error(error: Exception) -> StatusError | None:
    """Return the Status error for an error; None for an unexpected one."""
    for kind in type(error).__mro__:
        translate = TABLE.get(kind)
        if translate is not None:
            return translate(error)
    return None


def code_of(error: Exception) -> int:
    """Return the HTTP code of the answer to an error.

    A caller that kept the Status error in a variable would refer to itself through the traceback: the request's
    body would stay until a garbage collection.
    """
    known = error if isinstance(error, StatusError) else as_status_error(error)
    return 500 if known is None else known.code
