"""The budget of one document, whatever its format: how many lists, objects and keys its decoder may make.

Bytes do not tell the memory: `{}` has two bytes in JSON and an empty message two in protobuf, but 64 to 400 in Python.
And orjson holds the interpreter's lock while it decodes: 0.1 s for a million lists or 300,000 keys, in which nothing
else runs. An object that etcd takes has fewer than the bounds: each list or object in it belongs to a field or key with
a name, and each key to a value.

JSON is counted before it is decoded. YAML and protobuf count what they have made, container by container. JSON within
a protobuf message counts among the message's.
"""

from __future__ import annotations

import re
from typing import Final

from kubechronicle.api.codecs.errors import TooManyPartsError

MAX_CONTAINERS: Final = 200_000
MAX_KEYS: Final = 150_000
SMALL: Final = min(MAX_CONTAINERS, 3 * MAX_KEYS)
"""Bytes of a JSON document that is within the budget whatever it holds: a list has a byte, a key three."""

_STRING = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)


class Budget:
    """The lists, objects and keys that are left. Negative: too many were made."""

    __slots__ = ("containers", "keys")

    def __init__(self) -> None:
        self.containers = MAX_CONTAINERS
        self.keys = MAX_KEYS

    def check(self) -> None:
        """Raise TooManyPartsError if the budget is used up."""
        if self.containers < 0:
            raise TooManyPartsError(f"the body has more than {MAX_CONTAINERS} lists and objects")
        if self.keys < 0:
            raise TooManyPartsError(f"the body has more than {MAX_KEYS} keys")

    def take(self, containers: int, keys: int) -> None:
        """Count what was made. Raises TooManyPartsError."""
        self.containers -= containers
        self.keys -= keys
        if self.containers < 0 or self.keys < 0:
            self.check()

    def take_json(self, data: bytes) -> None:
        """Count a JSON document before it is decoded. Raises TooManyPartsError.

        >>> Budget().take_json(b'"' + b"[" * 200_001 + b'"')
        """
        containers, keys = _counts(data)
        if containers > self.containers or keys > self.keys:
            for string in _STRING.finditer(data):  # one by one, so that other threads run meanwhile
                more_containers, more_keys = _counts(string.group())
                containers -= more_containers
                keys -= more_keys
        self.take(containers, keys)


def require_within(data: bytes) -> None:
    """Check a JSON document, which is all of a body. Raises TooManyPartsError."""
    if len(data) > SMALL:
        Budget().take_json(data)


def _counts(text: bytes) -> tuple[int, int]:
    """Return the numbers of opening brackets and of keys. Blanks before a colon hide keys, but cost bytes."""
    return text.count(b"{") + text.count(b"["), text.count(b'":')
