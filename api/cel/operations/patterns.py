"""Regular expressions of users: RE2's syntax, matched in linear time, with the errors of Go's ``regexp``.

Lives here: compiling, finding and testing. Not here: Kubernetes' own patterns, which use Python's ``re``.

At most CACHED compiled patterns are kept, each of at most MAX_MEMORY bytes and 100 KB of known texts.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final

import re2

from kubechronicle.api.values.caches import remembered

CACHED: Final = 256
MAX_MEMORY: Final = 2 << 20
MAX_KNOWN: Final = 256
"""Texts of at most MAX_KNOWN_LENGTH characters that a pattern is known to match."""

MAX_KNOWN_LENGTH: Final = 64

_WORDS: Final = (
    ("missing )", "missing closing )"),
    ("missing ]", "missing closing ]"),
    ("trailing \\", "trailing backslash at end of expression"),
    ("no argument for repetition operator", "missing argument to repetition operator"),
    ("invalid repetition size", "invalid repeat count"),
    ("bad repetition operator", "invalid nested repetition operator"),
    ("invalid perl operator", "invalid or unsupported Perl syntax"),
    ("invalid named capture group", "invalid named capture"),
    ("invalid character class range", "invalid character class range"),
    ("invalid character class", "invalid character class"),
    ("invalid escape sequence", "invalid escape sequence"),
    ("unexpected )", "unexpected )"),
    ("invalid UTF-8", "invalid UTF-8"),
    ("pattern too large - compile failed", "expression too large"),
)
"""RE2's error for a pattern, and Go's error for the same one (regexp/syntax)."""

_ANY_BYTE: Final = re.compile(r"(?:\\[^C]|[^\\])*\\C", re.DOTALL)


_UNANCHORED: Final = re2._Anchor.UNANCHORED
_NO_SPAN: Final = (-1, -1)


class PatternError(ValueError):
    """An invalid pattern. The text is that of Go's regexp.Compile."""


class Pattern:
    """A compiled pattern. Texts are str; matches are leftmost-first, as in Perl."""

    __slots__ = ("_compiled", "_known", "_search", "_spans")

    def __init__(self, compiled: re2._Regexp) -> None:
        self._compiled = compiled
        self._known: set[str] = set()
        self._search = compiled.search
        # The method below ``search``, which makes a generator and a match object for each text.
        self._spans = compiled._regexp.Match

    @property
    def size(self) -> int:
        """The number of instructions."""
        return int(self._compiled.programsize)

    def matches(self, text: str) -> bool:
        """Return whether the pattern is found anywhere in ``text``.

        Short texts that have matched are known: each update of an object brings most of them again.
        """
        if text in self._known:
            return True
        encoded = text.encode(errors="replace")
        if self._spans(_UNANCHORED, encoded, 0, len(encoded))[0] == _NO_SPAN:
            return False
        if len(text) <= MAX_KNOWN_LENGTH:
            if len(self._known) >= MAX_KNOWN:
                self._known = set()
            self._known.add(text)
        return True

    def all_match(self, texts: Iterable[str]) -> bool:
        """Return whether the pattern is found in each of these texts."""
        return self._known.issuperset(texts) or all(map(self.matches, texts))

    def find(self, text: str) -> str:
        """Return the first match, empty if there is none."""
        found = self._search(text.encode(errors="replace"))
        return "" if found is None else found.group().decode(errors="replace")

    def find_all(self, text: str, limit: int = -1) -> list[str]:
        """Return the non-overlapping matches: at most ``limit``, all if it is negative."""
        found: list[str] = []
        if limit == 0:
            return found
        for match in self._iterate(text):
            found.append(match)
            if len(found) == limit:
                break
        return found

    def _iterate(self, text: str) -> Iterator[str]:
        end = -1
        for match in self._compiled.finditer(text.encode(errors="replace").decode()):
            # As in Go, an empty match right behind another match does not count.
            if match.end() > match.start() or match.start() != end:
                yield match.group()
            end = match.end()


@remembered(CACHED)
def compiled(pattern: str) -> Pattern:
    """Return the compiled pattern. PatternError if it is invalid."""
    if "\\C" in pattern and _ANY_BYTE.match(pattern) is not None:
        raise PatternError("error parsing regexp: invalid escape sequence: `\\C`")
    options = re2.Options()
    options.log_errors = False
    options.max_mem = MAX_MEMORY
    try:
        return Pattern(re2.compile(pattern.encode(errors="replace").decode(), options))
    except re2.error as problem:
        raise PatternError(_go_words(problem)) from None


def _go_words(problem: Exception) -> str:
    message = problem.args[0]
    text = message.decode(errors="replace") if isinstance(message, bytes) else str(message)
    for own, go in _WORDS:
        if text.startswith(own):
            return f"error parsing regexp: {go}: `{text[len(own) :].removeprefix(': ')}`"
    return f"error parsing regexp: {text}"
