"""The patterns of a definition: they compile, within a bound for all of them.

A pattern of twenty bytes may take ten milliseconds to compile, and a definition has room for a hundred thousand. So the
instructions of all patterns are counted, and patterns beyond the bound are refused as too large. kube-apiserver has no
such bound; definitions in use have about a hundred instructions a pattern.
"""

from __future__ import annotations

from typing import Final

from kubechronicle.api.values.text_cache import cached

MOST_INSTRUCTIONS: Final = 2_000_000
"""Two or three seconds of work, in a thread."""
_REFUSED: Final = 50_000
"""Instructions that count for a pattern that is too large: RE2 made about as many."""
_TOO_LARGE: Final = "error parsing regexp: expression too large: ``"


class Patterns:
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


@cached(1024)
def _compile(pattern: str) -> tuple[str, int]:
    """Return (the error, the number of instructions)."""
    from kubechronicle.api.cel.operations.patterns import PatternError, compiled

    try:
        return "", compiled(pattern).size
    except PatternError as error:
        text = str(error)
        return text, _REFUSED if text == _TOO_LARGE else 0
