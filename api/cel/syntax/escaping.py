"""Names of properties as names in CEL, and back: ``__dot__``, ``__dash__``, ``__namespace__`` (KEP-2876).

Kubernetes' fields may be called what no name in an expression can be: with dots, dashes, slashes, or a reserved word.
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
"""Words of CEL that are no names."""

_NAME: Final = re.compile(r"[a-zA-Z_./-][a-zA-Z0-9_./-]*\Z")
_ESCAPED: Final = re.compile("__|[./-]")
_ESCAPES: Final = {"__": "__underscores__", ".": "__dot__", "-": "__dash__", "/": "__slash__"}
_SEQUENCE: Final = re.compile("__([^_]+)__")
_MEANINGS: Final = {"underscores": "__", "dot": ".", "dash": "-", "slash": "/"}


def escape(name: str) -> str | None:
    """Return the name an expression uses for a property; None if it cannot name it."""
    if name in RESERVED:
        return f"__{name}__"
    if _NAME.match(name) is None:
        return None
    return _ESCAPED.sub(lambda found: _ESCAPES[found.group()], name)


def unescape(name: str) -> str | None:
    """Return the property an expression means by a name; None if it has an escape sequence that means nothing."""
    word = _SEQUENCE.fullmatch(name)
    if word is not None and word[1] in RESERVED:
        return word[1]
    if any(found[1] not in _MEANINGS for found in _SEQUENCE.finditer(name)):
        return None
    return _SEQUENCE.sub(lambda found: _MEANINGS[found[1]], name)
