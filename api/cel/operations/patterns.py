"""Regular expressions of users: RE2's syntax, matched in linear time, with the errors of Go's ``regexp``.

Lives here: compiling, finding and testing: the one place that compiles patterns of clients. Not here: Kubernetes' own
patterns, which use Python's ``re``; the estimate of the work (pattern_work.py).

RE2 compiles in one piece, which holds the interpreter's lock. So a pattern is compiled only if that takes at most
LONGEST_COMPILATION, and within the allowance of the decision. Matching releases the lock, and takes at most as long as
MOST_WORK. Both are refused beyond, as Go refuses patterns beyond its own limits.

Compiled patterns live in PATTERNS alone, within a bound of bytes: those who need one look it up by its text each time.
"""

from __future__ import annotations

import contextlib
import re
from collections import OrderedDict
from collections.abc import Iterator
from typing import Final

import re2

from kubechronicle.api.cel.operations.pattern_work import PatternRefused, work_of
from kubechronicle.api.values.allowance import ALLOWANCE, Allowance
from kubechronicle.api.values.caches import CACHES

LONGEST_COMPILATION: Final = 0.075
"""Seconds, as estimated. Usual patterns take less than a hundredth of it, ``[\\p{L}\\p{N}]{1,63}`` almost all of it."""

MOST_CHARACTERS: Final = 100_000
"""Characters of a pattern: as many as CEL allows in an expression."""

MOST_WORK: Final = 1_000_000_000
"""Bytes of a text times instructions of a pattern: five seconds at worst."""

NOTABLE_WORK: Final = 10_000
"""The same product from which a match looks at the clock."""

WORK_SECONDS: Final = 5e-9
"""Seconds of one byte and instruction at worst, when RE2 has no room for the states of its automaton."""

MOST_BYTES: Final = 64 << 20
"""Bytes of all compiled patterns, with the states of their automata: 500 usual ones."""

LEAST_MEMORY: Final = 128 << 10
MEMORY_OF_INSTRUCTION: Final = 40
MAX_MEMORY: Final = 4 << 20
"""Bytes that RE2 may use for a pattern: at least, for each instruction, and at most."""

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

    __slots__ = ("_compiled", "_known", "_quick", "_search", "_spans", "memory")

    def __init__(self, compiled: re2._Regexp, memory: int = 0) -> None:
        """``memory``: the most bytes that it takes."""
        self.memory = memory
        self._compiled = compiled
        self._quick = NOTABLE_WORK // max(self.size, 1)
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
        if len(encoded) > self._quick:
            with self._allowed(len(encoded)):
                spans = self._spans(_UNANCHORED, encoded, 0, len(encoded))
        else:
            spans = self._spans(_UNANCHORED, encoded, 0, len(encoded))
        if spans[0] == _NO_SPAN:
            return False
        if len(text) <= MAX_KNOWN_LENGTH:
            if len(self._known) >= MAX_KNOWN:
                self._known = set()
            self._known.add(text)
        return True

    def _allowed(self, size: int) -> Allowance:
        """Look at the clock before a long match, and return the allowance. PatternError if it takes too long."""
        work = size * self.size
        if work > MOST_WORK:
            raise PatternError(f"expression too large for a text of {size} bytes")
        allowance = ALLOWANCE.get()
        allowance.check(work * WORK_SECONDS)
        return allowance

    def find(self, text: str) -> str:
        """Return the first match, empty if there is none."""
        encoded = text.encode(errors="replace")
        if len(encoded) > self._quick:
            with self._allowed(len(encoded)):
                found = self._search(encoded)
        else:
            found = self._search(encoded)
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
        end, allowance = -1, ALLOWANCE.get()
        encoded = text.encode(errors="replace")
        if len(encoded) > self._quick:
            self._allowed(len(encoded))
        for match in self._compiled.finditer(encoded.decode()):
            allowance.walk(10)
            # As in Go, an empty match right behind another match does not count.
            if match.end() > match.start() or match.start() != end:
                yield match.group()
            end = match.end()


class Patterns:
    """The compiled patterns of a process, by their texts; the least recently used one goes first.

    ``bytes``: the most bytes that they take. Threads may share them.
    """

    __slots__ = ("__weakref__", "_kept", "bytes")

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Forget all patterns, with the texts that they are known to match."""
        self._kept: OrderedDict[str, Pattern] = OrderedDict()
        self.bytes = 0

    def __len__(self) -> int:
        return len(self._kept)

    def compiled(self, pattern: str) -> Pattern:
        """Return the compiled pattern. PatternError if it is invalid or too large."""
        kept = self._kept
        known = kept.get(pattern)
        if known is None:
            known = _compile(pattern)
            self._keep(pattern, known)
        elif self.bytes > MOST_BYTES // 2:  # the order matters once some must go
            with contextlib.suppress(KeyError):
                kept.move_to_end(pattern)
        return known

    def _keep(self, text: str, pattern: Pattern) -> None:
        with contextlib.suppress(KeyError):  # another thread may empty it meanwhile
            while self._kept and self.bytes + pattern.memory > MOST_BYTES:
                _, dropped = self._kept.popitem(last=False)
                self.bytes -= dropped.memory
        if self._kept.setdefault(text, pattern) is pattern:
            self.bytes += pattern.memory


PATTERNS: Final = CACHES.add("patterns", Patterns())
compiled: Final = PATTERNS.compiled


def _compile(pattern: str) -> Pattern:
    if len(pattern) > MOST_CHARACTERS:
        raise PatternError(TOO_LARGE)
    allowance = ALLOWANCE.get()
    allowance.charge(len(pattern) * _ESTIMATE_SECONDS)
    try:
        work = work_of(pattern)
    except PatternRefused as problem:
        raise PatternError(f"error parsing regexp: {problem}") from None
    seconds = work.seconds
    if seconds > LONGEST_COMPILATION:
        raise PatternError(TOO_LARGE)
    allowance.charge(seconds)
    if "\\C" in pattern and _ANY_BYTE.match(pattern) is not None:
        raise PatternError("error parsing regexp: invalid escape sequence: `\\C`")
    memory = min(LEAST_MEMORY + int(work.instructions * MEMORY_OF_INSTRUCTION), MAX_MEMORY)
    options = re2.Options()
    options.log_errors = False
    options.max_mem = memory
    options.never_capture = True  # only whole matches count, and groups would be copied for each byte of a text
    try:
        made = re2._Regexp(pattern.encode(errors="replace").decode(), options)
    except re2.error as problem:
        raise PatternError(_go_words(problem)) from None
    return Pattern(made, memory)


TOO_LARGE: Final = "error parsing regexp: expression too large: ``"
_ESTIMATE_SECONDS: Final = 4e-6
"""Seconds of estimating the work of a character."""


def _go_words(problem: Exception) -> str:
    message = problem.args[0]
    text = message.decode(errors="replace") if isinstance(message, bytes) else str(message)
    for own, go in _WORDS:
        if text.startswith(own):
            return f"error parsing regexp: {go}: `{text[len(own) :].removeprefix(': ')}`"
    return f"error parsing regexp: {text}"
