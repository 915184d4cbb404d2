"""Header blocks as a client of HTTP/2 has them: requests encoded, answers decoded (RFC 9113 §8.3).

A client that sets its table to size 0 receives the same block for the same fields. So a block is decoded once, and
those of most answers of a server only change with the Date.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

from kubechronicle.http.wire.http2.headers import (
    CONNECTION_FIELDS,
    MALFORMED,
    BlockDecoder,
    Entry,
    Malformed,
    encode_fields,
)

STATUS: Final = ":status"
BLOCKS: Final = 16
BLOCK_BYTES: Final = 1024
"""Number and maximum bytes of the header blocks that a connection remembers."""


class AnswerHead(NamedTuple):
    """The head of an answer: status, fields by name (the last of equal names), declared length of the body."""

    status: int
    headers: Mapping[str, str]
    length: int | None


class AnswerDecoder:
    """One per connection. ``limit``: bytes of a header list, as in RFC 9113 §10.5.1."""

    def __init__(self, limit: int) -> None:
        self._blocks = BlockDecoder(limit)
        self._known: dict[bytes, AnswerHead] = {}

    def head(self, block: bytes) -> AnswerHead:
        """Decode the head of an answer. Raises ConnectionFailed, HeadersTooLarge, Malformed."""
        known = self._known.get(block)
        if known is not None:
            return known
        try:
            found = self._decoded(block)
        finally:
            if self._blocks.changed:
                self._known.clear()
        if not self._blocks.changed and len(block) <= BLOCK_BYTES:
            if len(self._known) >= BLOCKS:
                self._known.clear()
            self._known[block] = found
        return found

    def trailer(self, block: bytes) -> list[Entry]:
        """Decode fields after a body. Raises ConnectionFailed, HeadersTooLarge."""
        fields = self._blocks.fields(block)
        if self._blocks.changed:
            self._known.clear()
        return fields

    def _decoded(self, block: bytes) -> AnswerHead:
        headers: dict[str, str] = {}
        status = ""
        for (name, value), _, kind in self._blocks.fields(block):
            if name == STATUS:
                if status or headers:
                    raise Malformed
                status = value
            elif kind != MALFORMED:
                headers[name] = value
            elif name not in CONNECTION_FIELDS:
                raise Malformed
        if not (status.isascii() and status.isdigit() and len(status) == 3):
            raise Malformed
        length = headers.get("content-length", "")
        return AnswerHead(
            int(status),
            MappingProxyType(headers),
            int(length) if length.isascii() and length.isdigit() and len(length) <= 18 else None,
        )


def encode_request(method: str, authority: str, path: str, fields: Mapping[str, str]) -> bytes:
    """Return the block of a request over TLS without its content-length. ``fields``: names in lower case."""
    pseudo = ((":method", method), (":scheme", "https"), (":authority", authority), (":path", path))
    return encode_fields((name.encode(), value.encode("latin-1")) for name, value in (*pseudo, *fields.items()))


def encode_length(size: int) -> bytes:
    """Return the field content-length, for the end of a block."""
    digits = b"%d" % size
    return b"%b%c%b" % (_LENGTH, len(digits), digits)


_LENGTH: Final = encode_fields([(b"content-length", b"0")])[:-2]
"""The name of the field, before the length of its value and the value."""
