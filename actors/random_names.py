"""Random identifiers: uids of objects and reviews, and the ends of generated names."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Final

from kubechronicle.api.meta.metadata import NAME_ALPHABET

DRAWN: Final = 256
"""Uids that are made at once: each alone would take a system call, and four times as long."""

_VARIANTS: Final = {digit: "89ab"[int(digit, 16) & 3] for digit in "0123456789abcdef"}

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
    digits = os.urandom(16 * DRAWN).hex()
    for at in range(0, len(digits), 32):
        d = digits[at : at + 32]
        yield f"{d[:8]}-{d[8:12]}-4{d[13:16]}-{_VARIANTS[d[16]]}{d[17:20]}-{d[20:]}"


def name_suffix() -> str:
    """Return five random characters for generateName. Slightly unequal probabilities do no harm."""
    return "".join([NAME_ALPHABET[byte % len(NAME_ALPHABET)] for byte in os.urandom(5)])
