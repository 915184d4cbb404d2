"""Errors as clients see them: one constructor per error of k8s.io/apimachinery's ``api/errors``, with the code, reason,
message and details of a kube-apiserver.

This is the only error type of api/ that reaches a client. Nothing here knows HTTP beyond the code and Retry-After.

    not_found("deployments.apps", "web")  -> 404 NotFound, 'deployments.apps "web" not found',
                                             details {"name": "web", "group": "apps", "kind": "deployments"}

``details`` is None where Kubernetes leaves it out and ``{}`` where it answers an empty object: the two differ on the
wire. A resource is given as "plural" or "plural.group", or as anything with ``plural`` and ``group``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

from kubechronicle.api.errors.field_errors import Cause, aggregate, go_quote, shown


class NamesResource(Protocol):
    """A value with a group and a plural, such as a ResourceType."""

    @property
    def group(self) -> str: ...

    @property
    def plural(self) -> str: ...


GroupResource = str | NamesResource


class StatusError(Exception):
    """An answer that is a Status. Fields are those of meta/v1 Status; ``headers`` and ``warnings`` are sent with it."""

    def __init__(
        self,
        code: int,
        reason: str,
        message: str,
        *,
        details: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.message = message
        self.details = None if details is None else dict(details)
        self.headers = dict(headers or {})
        self.warnings: Sequence[str] = ()  # found before the rejection
        self.list_metadata: dict[str, Any] = {}  # a continue token to go on with, where an expired one is refused
        retry = (details or {}).get("retryAfterSeconds", 0)
        if retry > 0:
            self.headers.setdefault("Retry-After", str(retry))

    def body(self) -> dict[str, Any]:
        """Return the Status object, its fields in Kubernetes' order."""
        status: dict[str, Any] = {"kind": "Status", "apiVersion": "v1", "metadata": self.list_metadata}
        status["status"] = "Failure"
        if self.message:
            status["message"] = self.message
        if self.reason:
            status["reason"] = self.reason
        if self.details is not None:
            status["details"] = self.details
        status["code"] = self.code
        return status

    def with_message(self, message: str) -> StatusError:
        """Return the same error with another message (wrapped errors keep code, reason and details)."""
        return StatusError(self.code, self.reason, message, details=self.details, headers=self.headers)


def success(*, details: Mapping[str, Any] | None = None, code: int = 0) -> dict[str, Any]:
    """Return the Status of a success, as a finished deletion is answered. ``code`` 0 is left out."""
    status: dict[str, Any] = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}
    if details is not None:
        status["details"] = dict(details)
    if code:
        status["code"] = code
    return status


def split_resource(resource: GroupResource) -> tuple[str, str]:
    """Return (plural, group) of "plural" or "plural.group"."""
    if isinstance(resource, str):
        plural, _, group = resource.partition(".")
        return plural, group
    return resource.plural, resource.group


def resource_text(resource: GroupResource) -> str:
    """Return "plural" or "plural.group"."""
    plural, group = split_resource(resource)
    return f"{plural}.{group}" if group else plural


def kind_text(group: str, kind: str) -> str:
    """Return "Kind" or "Kind.group"."""
    return f"{kind}.{group}" if group else kind


def details_of(
    resource: GroupResource = "",
    name: str = "",
    *,
    uid: str = "",
    causes: Iterable[Cause] = (),
    retry_after: int = 0,
) -> dict[str, Any]:
    """Return StatusDetails in Kubernetes' order, without empty fields."""
    plural, group = split_resource(resource)
    listed = [cause.body() for cause in causes]
    pairs: tuple[tuple[str, Any], ...] = (
        ("name", name),
        ("group", group),
        ("kind", plural),
        ("uid", uid),
        ("causes", listed),
        ("retryAfterSeconds", retry_after),
    )
    return {key: value for key, value in pairs if value}


def _named(resource: GroupResource, name: str) -> str:
    return f"{resource_text(resource)} {go_quote(name)}"


# -- 4xx: the client's doing ------------------------------------------------------------------------------------------


def bad_request(message: str) -> StatusError:
    """400: the request makes no sense."""
    return StatusError(400, "BadRequest", message)


def unauthorized(message: str = "Unauthorized") -> StatusError:
    """401: the client is unknown."""
    return StatusError(401, "Unauthorized", message)


def forbidden(resource: GroupResource, name: str, why: str) -> StatusError:
    """403: rejected by authorization or admission. Without resource, "forbidden: why"; without name, "pods is …"."""
    if not any(split_resource(resource)):
        message = f"forbidden: {why}"
    elif not name:
        message = f"{resource_text(resource)} is forbidden: {why}"
    else:
        message = f"{_named(resource, name)} is forbidden: {why}"
    return StatusError(403, "Forbidden", message, details=details_of(resource, name))


def not_found(resource: GroupResource, name: str) -> StatusError:
    """404: no such object."""
    return StatusError(404, "NotFound", f"{_named(resource, name)} not found", details=details_of(resource, name))


def path_not_found() -> StatusError:
    """404: nothing is served at this path."""
    return StatusError(404, "NotFound", "the server could not find the requested resource", details={})


def method_not_supported(resource: GroupResource, action: str) -> StatusError:
    """405: this resource has no such verb."""
    message = f"{action} is not supported on resources of kind {go_quote(resource_text(resource))}"
    return StatusError(405, "MethodNotAllowed", message, details=details_of(resource))


def method_not_allowed() -> StatusError:
    """405: the path is served, but not with this HTTP method."""
    message = "the server does not allow this method on the requested resource"
    return StatusError(405, "MethodNotAllowed", message, details={})


def not_acceptable(accepted: Sequence[str]) -> StatusError:
    """406: none of the requested media types is supported. The argument lists those that are."""
    message = f"only the following media types are accepted: {', '.join(accepted)}"
    return not_acceptable_because(message)


def not_acceptable_because(message: str) -> StatusError:
    """406 with a reason of its own, such as a list requested for a single object."""
    return StatusError(406, "NotAcceptable", message)


def not_acceptable_representation(accepted: Sequence[str]) -> StatusError:
    """406 of a watch, which chooses the media type only while it writes the answer."""
    message = f"406: Not Acceptable\n\nAvailable representations: {', '.join(accepted)}"
    return StatusError(406, "NotAcceptable", message, details={})


def already_exists(resource: GroupResource, name: str) -> StatusError:
    """409: an object of that name exists."""
    message = f"{_named(resource, name)} already exists"
    return StatusError(409, "AlreadyExists", message, details=details_of(resource, name))


def generate_name_conflict(resource: GroupResource, name: str, retry_after: int = 1) -> StatusError:
    """409: every name tried for generateName is taken."""
    message = (
        f"{_named(resource, name)} already exists, the server was not able to generate a unique name for the object"
    )
    return StatusError(409, "AlreadyExists", message, details=details_of(resource, name, retry_after=retry_after))


MODIFIED = "the object has been modified; please apply your changes to the latest version and try again"


def conflict(resource: GroupResource, name: str, why: str = MODIFIED) -> StatusError:
    """409: the operation does not fit the object's present state; by default, because it has changed meanwhile."""
    message = f"Operation cannot be fulfilled on {_named(resource, name)}: {why}"
    return StatusError(409, "Conflict", message, details=details_of(resource, name))


def apply_conflict(causes: Sequence[Cause], message: str) -> StatusError:
    """409: other field managers own fields that an apply would change."""
    return StatusError(409, "Conflict", message, details=details_of(causes=causes))


def gone(message: str) -> StatusError:
    """410: the requested resource existed, and is gone for good."""
    return StatusError(410, "Gone", message)


def expired(message: str) -> StatusError:
    """410: the requested revision or continue token is older than the retained history."""
    return StatusError(410, "Expired", message)


def request_entity_too_large(message: str) -> StatusError:
    """413: the body is over the limit."""
    return StatusError(413, "RequestEntityTooLarge", f"Request entity too large: {message}")


def unsupported_media_type(accepted: Sequence[str]) -> StatusError:
    """415: the body's media type is none of those accepted."""
    message = "the body of the request was in an unknown format - accepted media types include: " + ", ".join(accepted)
    return StatusError(415, "UnsupportedMediaType", message)


def unsupported_media_type_generic() -> StatusError:
    """415 before the resource's codecs are considered: PATCH without a known patch type."""
    return StatusError(415, "UnsupportedMediaType", "415: Unsupported Media Type", details={})


def invalid(group: str, kind: str, name: str, causes: Sequence[Cause] = ()) -> StatusError:
    """422: the object breaks rules of its fields. ``causes`` in the order found; the message leaves out repetitions.

    Of very many causes, only the first are in the answer (see field_errors.shown).
    """
    message = f"{kind_text(group, kind)} {go_quote(name)} is invalid"
    if causes:
        message += f": {aggregate(causes)}"
    return StatusError(422, "Invalid", message, details=details_of(kind_text(group, kind), name, causes=shown(causes)))


def too_many_requests(message: str, retry_after: int = 1, *, causes: Sequence[Cause] = ()) -> StatusError:
    """429: retry after ``retry_after`` seconds."""
    return StatusError(429, "TooManyRequests", message, details=details_of(causes=causes, retry_after=retry_after))


# -- 5xx: the server's doing ------------------------------------------------------------------------------------------


def internal_error(message: str) -> StatusError:
    """500: the server failed."""
    return StatusError(
        500, "InternalError", f"Internal error occurred: {message}", details=details_of(causes=[Cause("", message)])
    )


def unknown(message: str) -> StatusError:
    """500 without a reason: Kubernetes' answer for an error that is not a Status."""
    return StatusError(500, "", message)


def service_unavailable(message: str) -> StatusError:
    """503: temporarily unavailable."""
    return StatusError(503, "ServiceUnavailable", message)


def timeout(message: str, retry_after: int = 0, *, causes: Sequence[Cause] = ()) -> StatusError:
    """504: the request ran out of time; its outcome may be unknown."""
    details = details_of(causes=causes, retry_after=retry_after)
    return StatusError(504, "Timeout", f"Timeout: {message}", details=details)


class RequestTimedOut(StatusError):
    """504: the time of the request itself is over. It may be unknown whether a change took effect."""

    def __init__(self) -> None:
        message = "Timeout: request did not complete within the allotted timeout"
        super().__init__(504, "Timeout", message, details={})


def server_timeout(resource: GroupResource, operation: str, retry_after: int = 0) -> StatusError:
    """500: the server gave up and suggests a retry."""
    text = resource_text(resource)
    message = f"The {operation} operation against {text} could not be completed at this time, please try again."
    return StatusError(500, "ServerTimeout", message, details=details_of(resource, operation, retry_after=retry_after))


TOO_LARGE_RETRY_SECONDS = 1
"""Seconds until a client retries a read of a future revision: this replica lags only a little."""


def too_large_resource_version(asked: int, current: int, *, cached: bool = True) -> StatusError:
    """504: this server has not reached the requested revision.

    ``cached``: kube-apiserver reads it from its cache, which may lag behind its store, and suggests a retry.
    """
    cause = Cause("ResourceVersionTooLarge", "Too large resource version")
    message = f"Too large resource version: {asked}, current: {current}"
    return timeout(message, TOO_LARGE_RETRY_SECONDS if cached else 0, causes=[cause])
