"""Escaping of property names into CEL names, and back: ``__dot__``, ``__dash__``, ``__namespace__`` (KEP-2876).

Names of Kubernetes' fields may have dots, dashes and slashes or be reserved words, which no CEL name may.
"""

from __future__ import annotations

import re
from typing import Final

RESERVED: Final = frozenset(
    (
        *("true", "false", "null", "in", "as", "break", "const", "continue", "else", "for", "function", "if", "import"),
        *("let", "loop", "package", "namespace", "return", "var", "void", "while"),
    )
)
"""Reserved words of CEL, which cannot be names."""

_NAME: Final = re.compile(r"[a-zA-Z_./-][a-zA-Z0-9_./-]*\Z")
_ESCAPED: Final = re.compile("__|[./-]")
_ESCAPES: Final = {"__": "__underscores__", ".": "__dot__", "-": "__dash__", "/": "__slash__"}
_SEQUENCE: Final = re.compile("__([^_]+)__")
_MEANINGS: Final = {"underscores": "__", "dot": ".", "dash": "-", "slash": "/"}


def escape(name: str) -> str | None:
    """Return the CEL name of a property; None if it has none."""
    if name in RESERVED:
        return f"__{name}__"
    if _NAME.match(name) is None:
        return None
    return _ESCAPED.sub(lambda match: _ESCAPES[match.group()], name)


def unescape(name: str) -> str | None:
    """Return the property of a CEL name; None if the name has an unknown escape sequence."""
    word = _SEQUENCE.fullmatch(name)
    if word is not None and word[1] in RESERVED:
        return word[1]
    if any(match[1] not in _MEANINGS for match in _SEQUENCE.finditer(name)):
        return None
    return _SEQUENCE.sub(lambda match: _MEANINGS[match[1]], name)
