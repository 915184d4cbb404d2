"""Random identifiers: uids of objects and reviews, and the ends of generated names."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from typing import Final

from kubechronicle.api.meta.metadata import NAME_ALPHABET

DRAWN: Final = 256
"""Uids that are made at once: each alone would take a system call, and four times as long."""

_VERSION: Final = bytes(0x40 | byte & 0x0F for byte in range(256))
_VARIANT: Final = bytes(0x80 | byte & 0x3F for byte in range(256))
"""The bytes of a UUID that tell its version and variant, by the random ones there."""
_PARTS: Final = re.compile("(.{8})(.{4})(.{4})(.{4})(.{12})")

_unused: Final[list[str]] = []
os.register_at_fork(after_in_child=_unused.clear)


def new_uid() -> str:
    """Return a random UUID (RFC 9562, version 4). May be called in any thread."""
    while True:
        try:
            return _unused.pop()
        except IndexError:
            _unused.extend(_random_uids())


def _random_uids() -> Iterator[str]:
    drawn = bytearray(os.urandom(16 * DRAWN))
    drawn[6::16] = drawn[6::16].translate(_VERSION)
    drawn[8::16] = drawn[8::16].translate(_VARIANT)
    return map("-".join, _PARTS.findall(drawn.hex()))


def name_suffix() -> str:
    """Return five random characters for generateName. Slightly unequal probabilities do no harm."""
    return "".join([NAME_ALPHABET[byte % len(NAME_ALPHABET)] for byte in os.urandom(5)])
