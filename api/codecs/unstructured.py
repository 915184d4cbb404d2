"""JSON of custom objects: the bytes that kube-apiserver writes for objects without a Go type.

Go sorts the keys of a map, escapes <, > and &, so that the text can stand in HTML, and writes floats below 1e21 without
an exponent. Only floats between 1e-6 and 1e-5 have another form here: 2e-6, in Go 0.000002.
Source: apimachinery ``unstructured.UnstructuredJSONScheme``, Go's encoding/json.
"""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Any, Final

import orjson

_ESCAPES: Final = ((b"<", b"\\u003c"), (b">", b"\\u003e"), (b"&", b"\\u0026"))
_BEYOND_ASCII: Final = (("\u2028".encode(), b"\\u2028"), ("\u2029".encode(), b"\\u2029"))
_LARGE: Final = re.compile(rb"e\+(?:1[0-9]|20)[],}\n]").search
"""Floats that Go writes without an exponent, or texts that look like them."""


def encode(value: Any, *, pretty: bool = False) -> bytes:
    """Return compact or indented JSON, without a newline at the end. TypeError for values that JSON cannot hold."""
    return _encode(value, orjson.OPT_SORT_KEYS | orjson.OPT_INDENT_2 if pretty else orjson.OPT_SORT_KEYS)


def encode_typed(value: Any, *, pretty: bool = False) -> bytes:
    """Return the JSON of a table or of metadata, which have Go types, so that their keys keep their order."""
    return _encode(value, orjson.OPT_INDENT_2 if pretty else 0)


def in_order(value: Any) -> Any:
    """Return a copy of a value, with sorted keys."""
    return orjson.loads(orjson.dumps(value, option=orjson.OPT_SORT_KEYS))


def _encode(value: Any, option: int) -> bytes:
    text = orjson.dumps(value, option=option)
    if b"+" in text and _LARGE(text) is not None:
        text = orjson.dumps(_without_exponents(value), option=option)
    for character, escape in _ESCAPES:
        if character in text:
            text = text.replace(character, escape)
    if not text.isascii():
        for character, escape in _BEYOND_ASCII:
            text = text.replace(character, escape)
    return text


def _without_exponents(value: Any) -> Any:
    if value.__class__ is dict:
        return {key: _without_exponents(item) for key, item in value.items()}
    if value.__class__ is list:
        return [_without_exponents(item) for item in value]
    if value.__class__ is float and 1e15 < abs(value) < 1e21:
        return orjson.Fragment(str(int(Decimal(repr(value)))))  # the shortest digits, then zeros
    return value
