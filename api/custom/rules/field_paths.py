"""The fieldPath of a rule: a path of properties and map entries below the rule's value.

    .spec.replicas        ['spec']['a.b']        .labels['app']

Source: ``ValidFieldPath`` in apiextensions-apiserver ``pkg/apiserver/schema/cel/validation.go``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from kubechronicle.api.errors.field_errors import Path

_ESCAPE: Final = re.compile(r"\\(.)")
_ESCAPED: Final[Mapping[str, str]] = {
    "a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v", "'": "'", "\\": "\\",
}  # fmt: skip


class FieldPathError(ValueError):
    """A text that is no path, or names no field of the schema."""


def field_path(text: str, schema: Mapping[str, Any], *, brackets: bool = True) -> tuple[str, Mapping[str, Any]]:
    """Return (the path as errors name it, the schema of the field). FieldPathError.

    ``brackets``: ``['name']`` is allowed.
    """
    path = Path()
    tokens = _tokens(text)
    for token in tokens:
        if token == "[":
            if not brackets:
                raise FieldPathError("array notation is not allowed")
            name = _unquoted(_next(tokens))
            path, schema = _below(path, schema, name)
            closing = _next(tokens)
            if closing != "]":
                raise FieldPathError(f"expected ] but got {closing}")
        elif token == ".":
            path, schema = _below(path, schema, _next(tokens))
        else:
            raise FieldPathError(f"expected [ or . but got: {token}")
    return ("" if path == Path() else str(path)), schema


def _below(path: Path, schema: Mapping[str, Any], name: str) -> tuple[Path, Mapping[str, Any]]:
    properties, values = schema.get("properties"), schema.get("additionalProperties")
    if properties:
        if name not in properties:
            raise FieldPathError("does not refer to a valid field")
        return path.child(name), properties[name]
    if values is None:
        raise FieldPathError("does not refer to a valid field")
    return path.key(name), values if isinstance(values, Mapping) else {}


def _tokens(text: str) -> Iterator[str]:
    """Return the delimiters, quoted texts and names. A quote without its end is the rest of the text."""
    at = 0
    while at < len(text):
        if text[at] in ".[]":
            end = at + 1
        elif text[at] == "'":
            end = at + 1
            while end < len(text) and (text[end] != "'" or text[end - 1] == "\\"):
                end += 1
            end = min(end + 1, len(text))
        else:
            end = at
            while end < len(text) and text[end] not in ".[]":
                end += 1
        yield text[at:end]
        at = end


def _next(tokens: Iterator[str]) -> str:
    token = next(tokens, None)
    if token is None:
        raise FieldPathError("unexpected end of JSON path")
    return token


def _unquoted(token: str) -> str:
    if len(token) < 2 or token[0] != "'" or token[-1] != "'":
        raise FieldPathError(f"expected single quoted string but got {token}")

    def character(match: re.Match[str]) -> str:
        if match[1] not in _ESCAPED:
            raise FieldPathError(f"invalid string literal: invalid escape char {match[0]}")
        return _ESCAPED[match[1]]

    return _ESCAPE.sub(character, token[1:-1])
