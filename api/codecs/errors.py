"""Errors of the codecs. The caller turns them into a Status; nothing here depends on HTTP.

Invariant: for any bytes, a codec of this package returns a value or raises one of these errors, and no other exception.
"""

from __future__ import annotations

from collections.abc import Sequence

__all__ = [
    "CodecError",
    "DecodeError",
    "EncodeError",
    "NotAcceptableError",
    "RefusedValueError",
    "TooManyPartsError",
    "UnsupportedMediaTypeError",
]


class CodecError(Exception):
    """Any error of this package. `str(error)` is Kubernetes' text."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class DecodeError(CodecError):
    """The bytes are not a well-formed document of the media type (400)."""


class RefusedValueError(DecodeError):
    """The document is well-formed, with an apiVersion and kind, but the format's decoder takes no such value (400)."""


class TooManyPartsError(CodecError):
    """The document is beyond the budget of lists, objects and keys (413)."""


class EncodeError(CodecError):
    """The object has no form in the media type: its kind has no message, or a value has the wrong type."""


class NotAcceptableError(CodecError):
    """No clause of the Accept header can be served (406).

    `accepted`: the media types that can.
    `at_route`: rejected by the router before the handler, with another text and a Status without details.
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
    """The body's Content-Type cannot be read (415). `accepted` and `at_route` as in `NotAcceptableError`."""

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
