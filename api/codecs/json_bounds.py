"""The bound on the lists and objects of a JSON document, checked before it is decoded.

orjson holds the interpreter's lock while it decodes: 0.1 s for a million lists, in which nothing else runs. An object
that etcd takes has fewer than the bound, because each list or object in it belongs to a field or key with a name.
"""

from __future__ import annotations

import re
from typing import Final

MAX_CONTAINERS: Final = 200_000

_STRING = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)


def has_too_many_containers(data: bytes) -> bool:
    """Return True if a document has more than MAX_CONTAINERS lists and objects.

    >>> has_too_many_containers(b"[" * 200_001), has_too_many_containers(b'"' + b"[" * 200_001 + b'"')
    (True, False)
    """
    brackets = data.count(b"{") + data.count(b"[")
    if brackets > MAX_CONTAINERS:
        for string in _STRING.finditer(data):  # one by one, so that other threads run meanwhile
            text = string.group()
            brackets -= text.count(b"{") + text.count(b"[")
    return brackets > MAX_CONTAINERS
