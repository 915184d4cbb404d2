"""JSON objects with keys that CEL may spell as escaped identifiers (k8s.io/apiserver/pkg/cel: Escape, Unescape).

claims.kubernetes__dot__io.namespace  ==  claims["kubernetes.io"]["namespace"]
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

_ESCAPE: Final = re.compile("__([^_]+)__")
_MEANING: Final = {"underscores": "__", "dot": ".", "dash": "-", "slash": "/"}
_RESERVED: Final = frozenset(
    ["as", "break", "const", "continue", "else", "false", "for", "function", "if", "import", "in", "let", "loop",
     "namespace", "null", "package", "return", "true", "var", "void", "while"]
)  # fmt: skip


class Names(dict[str, Any]):
    """An object with look-ups by either spelling. Iteration yields the unescaped keys."""

    __slots__ = ()

    @classmethod
    def of(cls, value: Mapping[str, Any]) -> Names:
        """Convert an object and all objects within. Numbers become doubles, as in Go's JSON."""
        return cls((key, _converted(item)) for key, item in value.items())

    def __getitem__(self, key: str) -> Any:
        return super().__getitem__(unescaped(key))

    def get(self, key: str, default: Any = None) -> Any:
        return super().get(unescaped(key), default)

    def __contains__(self, key: object) -> bool:
        return super().__contains__(unescaped(key))


def _converted(value: Any) -> Any:
    if value.__class__ is int:
        return float(value)
    if value.__class__ is dict:
        return Names.of(value)
    if value.__class__ is list:
        return [_converted(item) for item in value]
    return value


def unescaped(key: Any) -> Any:
    """Return the unescaped key; the key itself if it is not escaped."""
    if key.__class__ is not str or "__" not in key:
        return key
    whole = _ESCAPE.fullmatch(key)
    if whole is not None and whole[1] in _RESERVED:
        return whole[1]
    if any(word not in _MEANING for word in _ESCAPE.findall(key)):
        return key
    return _ESCAPE.sub(lambda match: _MEANING[match[1]], key)
