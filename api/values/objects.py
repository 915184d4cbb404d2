"""Decoded objects: their type, and JSON and numbers as orjson and Go write them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final, TypeAlias

Object: TypeAlias = dict[str, Any]
"""A decoded JSON object: a Kubernetes object, or a part of one."""

ReadOnlyObject: TypeAlias = Mapping[str, Any]
"""The same where it is only read, so that any mapping will do."""


# -- numbers -----------------------------------------------------------------------------------------------------------
#
# Numbers and booleans as Go reads and writes them: it writes 1.0 as 1; orjson writes integers of at most 64 bits.


_LEAST: Final = -(2**63)
_BEYOND: Final = 2**64


def is_writable(value: int | float) -> bool:
    """Return whether an integer of this value has at most 64 bits, signed or not."""
    return _LEAST <= value < _BEYOND


def whole(value: Any) -> Any:
    """Return a float without a fraction as an integer, if it has at most 64 bits. Everything else stays.

    >>> whole(1.0), whole(1e19), whole(1e20), whole(0.5)
    (1, 10000000000000000000, 1e+20, 0.5)
    """
    return int(value) if value.__class__ is float and value.is_integer() and is_writable(value) else value


TRUE_WORDS: Final = frozenset(("1", "t", "T", "true", "TRUE", "True"))
FALSE_WORDS: Final = frozenset(("0", "f", "F", "false", "FALSE", "False"))


def parse_bool(text: str) -> bool:
    """Return the value of a boolean's text. ValueError with the words of Go's strconv.ParseBool for another text."""
    if text not in TRUE_WORDS | FALSE_WORDS:
        raise ValueError(f"strconv.ParseBool: parsing {json.dumps(text, ensure_ascii=False)}: invalid syntax")
    return text in TRUE_WORDS
