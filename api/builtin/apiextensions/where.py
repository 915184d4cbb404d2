"""Paths of fields in a definition, its list of causes and its patterns, all bounded for hostile definitions.

A schema may be 200 levels deep with names of kilobytes, so a path is joined to text only for a cause:

    str(Where.of("spec").child("versions").index(0)) == "spec.versions[0]"

A pattern of twenty bytes may take ten milliseconds to compile, and a definition has room for a hundred thousand. So the
instructions of all patterns are counted, and patterns beyond the bound are refused as too large. kube-apiserver has no
such bound; definitions in use have about a hundred instructions a pattern.
"""

from __future__ import annotations

from typing import Final

from kubechronicle.api.errors.field_errors import Path

# -- paths and causes -------------------------------------------------------------------------------------------------


class Where(Path):
    """An immutable path: the path above it, and its last part."""

    __slots__ = ("_above", "_part")

    def __init__(self, above: Where | None, part: str) -> None:
        self._above = above
        self._part = part

    @classmethod
    def of(cls, text: str) -> Where:
        """Return the path with this text."""
        return cls(None, text)

    def child(self, *names: str) -> Where:
        """Return the path of a named field below this one."""
        return Where(self, f".{'.'.join(names)}")

    def index(self, position: int) -> Where:
        """Return the path of a list's item."""
        return Where(self, f"[{position}]")

    def key(self, key: str) -> Where:
        """Return the path of a map's entry."""
        return Where(self, f"[{key}]")

    def __str__(self) -> str:
        parts: list[str] = []
        at: Where | None = self
        while at is not None:
            parts.append(at._part)
            at = at._above
        return "".join(reversed(parts))

    def __repr__(self) -> str:
        return f"Where({str(self)!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Where) and str(other) == str(self)

    def __hash__(self) -> int:
        return hash(str(self))


# -- patterns ---------------------------------------------------------------------------------------------------------

MOST_INSTRUCTIONS: Final = 2_000_000
"""Two or three seconds of work, in a thread."""
_REFUSED: Final = 50_000
"""Instructions that count for a pattern that is too large: RE2 made about as many."""
_TOO_LARGE: Final = "error parsing regexp: expression too large: ``"


class SchemaPatterns:
    """The patterns of one definition."""

    def __init__(self) -> None:
        self._left = MOST_INSTRUCTIONS

    def problem(self, pattern: str) -> str:
        """Return Go's error for an invalid pattern, empty for a valid one."""
        if self._left < 0:
            return _TOO_LARGE
        text, size = _compile(pattern)
        self._left -= size
        return text


def _compile(pattern: str) -> tuple[str, int]:
    """Return (the error, the number of instructions)."""
    from kubechronicle.api.cel.operations.patterns import PatternError, compiled

    try:
        return "", compiled(pattern).size
    except PatternError as error:
        text = str(error)
        return text, _REFUSED if text == _TOO_LARGE else 0
