"""What a codec raises: plain typed errors, which the caller turns into a Status.

Nothing here knows of HTTP. Invariant: whatever bytes come in, a codec of this package either returns a value or
raises one of these; no other exception leaves it.
"""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["CodecError", "DecodeError", "EncodeError", "NotAcceptableError", "UnsupportedMediaTypeError"]


class CodecError(Exception):
    """Any refusal of this package; `str(error)` is the text Kubernetes would show."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class DecodeError(CodecError):
    """The bytes are not a well-formed document of the media type (400)."""


class EncodeError(CodecError):
    """The object has no form in the media type asked for: no message of its kind, or a value of the wrong type."""


class NotAcceptableError(CodecError):
    """No clause of the Accept header can be served (406). `accepted` lists what can.

    `at_route`: refused while the route was looked for, before the handler; the words differ, and the Status has empty
    details.
    """

    def __init__(self, accepted: Sequence[str], *, at_route: bool = False) -> None:
        listed = ", ".join(accepted)
        super().__init__(
            f"406: Not Acceptable\n\nAvailable representations: {listed}"
            if at_route
            else f"only the following media types are accepted: {listed}"
        )
        self.accepted = tuple(accepted)
        self.at_route = at_route


class UnsupportedMediaTypeError(CodecError):
    """The body's Content-Type cannot be read (415). `accepted` lists what can; `at_route` as above."""

    def __init__(self, content_type: str, accepted: Sequence[str], *, at_route: bool = False) -> None:
        super().__init__(
            "415: Unsupported Media Type"
            if at_route
            else "the body of the request was in an unknown format - accepted media types include: "
            + ", ".join(accepted)
        )
        self.content_type = content_type
        self.accepted = tuple(accepted)
        self.at_route = at_route
