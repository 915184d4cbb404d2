"""The bounds on the lists, objects and keys of a JSON document, checked before it is decoded.

orjson holds the interpreter's lock while it decodes: 0.1 s for a million lists or 300,000 keys, in which nothing else
runs. An object that etcd takes has fewer than the bounds: each list or object in it belongs to a field or key with a
name, and each key to a value.
"""

from __future__ import annotations

import re
from typing import Final

MAX_CONTAINERS: Final = 200_000
MAX_KEYS: Final = 150_000

_STRING = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)


def excess(data: bytes) -> str:
    """Return the bound that a document breaks, as text; "" if it breaks none.

    >>> excess(b"[" * 200_001), excess(b'"' + b"[" * 200_001 + b'"')
    ('200000 lists and objects', '')
    """
    brackets, keys = _counts(data)
    if brackets > MAX_CONTAINERS or keys > MAX_KEYS:
        for string in _STRING.finditer(data):  # one by one, so that other threads run meanwhile
            more_brackets, more_keys = _counts(string.group())
            brackets -= more_brackets
            keys -= more_keys
    if brackets > MAX_CONTAINERS:
        return f"{MAX_CONTAINERS} lists and objects"
    return f"{MAX_KEYS} keys" if keys > MAX_KEYS else ""


def _counts(text: bytes) -> tuple[int, int]:
    """Return the numbers of opening brackets and of keys. Blanks before a colon hide keys, but cost bytes."""
    return text.count(b"{") + text.count(b"["), text.count(b'":')
