"""Errors of the codecs. The caller turns them into a Status; nothing here depends on HTTP.

Invariant: for any bytes, a codec of this package returns a value or raises one of these errors, and no other exception.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final


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


# -- complaints --------------------------------------------------------------------------------------------------------
#
# Strict errors of codecs: the repeated keys of a document.
#
# Kubernetes decodes JSON into a type, and reports repeated and unknown fields in the order of the document. A codec
# knows no types. So it hands over the whole document if a key is repeated; `api/schema/repeated_keys.py` reads that.


MAX_COMPLAINTS = 100
"""The most strict errors reported, as in sigs.k8s.io/json."""


class Complaints(list[str]):
    """Sentences about repeated keys, in the order of the document.

    ``document``: a JSON document with repeated keys, None for any other. Its objects are tuples of (key, value).
    ``source``: the bytes of a document in JSON or CBOR.
    ``small_integers``: no integer of the document has more than 53 bits; False also if that is not known.
    ``cbor``: ``source`` is CBOR, whose strict errors and wrong types have other texts.
    ``keys_sorted``: unknown fields are reported in the order of their names, as Kubernetes makes JSON of YAML.
    """

    document: Any = None
    source = b""
    cbor = False
    small_integers = False
    keys_sorted = False


# -- depth -------------------------------------------------------------------------------------------------------------
#
# The depth of JSON and YAML documents, for readers and writers.


MAX_DEPTH: Final = 250
"""Levels of a document. Go allows 10,000; json.py says why this one does not."""
