"""Ranges of a file that a client asks for (RFC 9110 §14): pure functions.

One range is answered. Several at once would need a multipart answer. A server may ignore them, and send the whole file.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

_RANGE: Final = re.compile(r"\s*(\d*)\s*-\s*(\d*)\s*", re.ASCII)
_MAX_DIGITS: Final = 18  # as many fit into 64 bits


class Range(NamedTuple):
    """A part of a file. Of an empty one, ``start`` is the size of the file."""

    start: int
    length: int

    def content_range(self, size: int) -> str:
        """Return the value of Content-Range for a file of this size."""
        return f"bytes {self.start}-{self.start + self.length - 1}/{size}"


class RangeError(Exception):
    """The field is malformed, or its range begins behind the end of the file. The text is that of Go's net/http."""


def requested_range(field: str, size: int) -> Range | None:
    """Return the range that a Range field asks of a file of this size; None for the whole file. Raises RangeError.

    >>> requested_range("bytes=2-", 10), requested_range("bytes=-3", 10), requested_range("bytes=0-99", 10)
    (Range(start=2, length=8), Range(start=7, length=3), Range(start=0, length=10))
    """
    if not field:
        return None
    unit, _, text = field.partition("=")
    if unit != "bytes":
        raise RangeError("invalid range")
    wanted = [_parsed(part, size) for part in text.split(",") if part.strip()]
    found = [part for part in wanted if part is not None]
    if wanted and not found and size:
        raise RangeError("invalid range: failed to overlap")
    return found[0] if len(found) == 1 else None


def _parsed(text: str, size: int) -> Range | None:
    """Return one range; None if it begins behind the end."""
    match = _RANGE.fullmatch(text)
    if match is None or max(map(len, match.groups())) > _MAX_DIGITS:
        raise RangeError("invalid range")
    first, last = match.groups()
    if not first:
        if not last:
            raise RangeError("invalid range")
        length = min(int(last), size)
        return Range(size - length, length)
    start, end = int(first), int(last or size)
    if start >= size:
        return None
    if last and start > end:
        raise RangeError("invalid range")
    return Range(start, min(end, size - 1) - start + 1)
