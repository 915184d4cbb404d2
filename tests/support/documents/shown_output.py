"""Comparison of an output that a page shows with that of a real run.

Times, ages, revisions, digests, addresses and versions differ from run to run, so any such value stands for any other
of its kind. Columns may be wider. `…` in a line is a cut within the line, and a line `…` is a cut of any lines.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

_CLOCK = r"\d\d:\d\d(?::\d\d(?:\.\d+)?)?"
# Kinds of values, the first that matches counts.
KINDS = {
    "log": r"[IWE]\d{4} \d\d:\d\d:\d\d\.\d+ +\d+ \w+\.py:\d+\]",
    "date": r"(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun) [A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d \d{4}",
    "numbered": r"(?<=\bread )\d+|(?<=\brevision )\d+|(?<=\brevisions )\d+",
    "time": rf"\d{{4}}-\d\d-\d\d[T ]{_CLOCK}(?: ?[+-]\d\d:?\d\d|Z)?|(?<![\d:]){_CLOCK}(?![\d:])",
    "uid": r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}",
    "axis": r"[─·●!]{8,}",
    "address": r"\d+\.\d+\.\d+\.\d+(?::\d+)?",
    "secret": r"(?<!\w)(?=[\w/+-]*\d)(?=[\w/+-]*[A-Z])(?=[\w/+-]*[a-z])[\w/+-]{30,}={0,2}",
    "digest": r"\b(?=[a-f]*\d)(?=\d*[a-f])[0-9a-f]{7,}",
    "version": r"\bv?\d+\.\d+\.\d+[-+\w.]*|\bv\d+\.\d+\b",
    "age": r"(?<![\w.-])(?:\d+(?:\.\d+)?(?:ms|d|h|m|s))+(?!\w)",
    "size": r"\b\d+(?:\.\d+)? (?:B|kB|MB)\b",
    "number": r"(?<![\w.])\d{3,}(?!\w)|(?<![\w.])\d{1,3}(?:,\d{3})+(?!\w)",
}
VALUE = re.compile("|".join(f"(?P<{kind}>{pattern})" for kind, pattern in KINDS.items()))
# A cut within a line, the space of a column, or the text between them.
_PIECE = re.compile(r"(?P<cut>…)|(?P<space> {2,}|^ +)|" + VALUE.pattern)
TYPED = ("time", "numbered", "number", "uid", "digest")
"""Kinds of values that a reader copies from an output into a later command."""


@dataclass
class _Pattern:
    """The regular expression for a shown output. ``pieces``: for each line its texts, and numbers of groups."""

    expression: str = ""
    pieces: list[list[str | int]] = field(default_factory=list)
    kinds: dict[int, tuple[str, str]] = field(default_factory=dict)

    def group(self, pattern: str, kind: str, shown: str) -> int:
        number = len(self.kinds) + 1
        self.kinds[number] = (kind, shown)
        self.expression += "(" + pattern + ")"
        return number

    def add(self, line: str) -> None:
        pieces: list[str | int] = []
        self.pieces.append(pieces)
        if line.strip() == "…":
            self.expression += r"(?:.*\n)*?"
            pieces.append(line)
            return
        end = 0
        for found in _PIECE.finditer(line):
            pieces.append(line[end : found.start()])
            self.expression += re.escape(line[end : found.start()])
            kind, end = found.lastgroup or "", found.end()
            if kind == "cut":
                self.expression += ".*"
                pieces.append("…")
            elif kind == "space":
                pieces.append(self.group(" +", kind, found[0]))
            else:
                pieces.append(self.group(KINDS[kind], kind, found[0]))
        pieces.append(line[end:])
        self.expression += re.escape(line[end:]) + r" *\n"


@dataclass(frozen=True)
class Match:
    """A real output that is as shown. ``values``: the real values of the shown ones. ``lines``: the shown lines with
    the values and columns of the real output."""

    values: dict[str, str]
    lines: tuple[str, ...]


def compare(shown: tuple[str, ...], real: str) -> Match | None:
    """Return the match of a real output with the lines that a page shows; None if they differ."""
    pattern = _Pattern()
    for line in shown:
        pattern.add(line)
    text = "".join(line.rstrip() + "\n" for line in real.splitlines())
    found = re.fullmatch(pattern.expression, text)
    if found is None:
        return None
    values: dict[str, str] = {}
    for number, (kind, value) in pattern.kinds.items():
        if kind in TYPED:
            values.setdefault(value, found[number])
    lines = (
        "".join(piece if isinstance(piece, str) else found[piece] for piece in pieces).rstrip()
        for pieces in pattern.pieces
    )
    return Match(values, tuple(lines))


def retyped(command: str, values: dict[str, str]) -> str:
    """Return a command of a page with the values of the real run in the places of the shown ones."""
    return VALUE.sub(lambda found: values.get(found[0], found[0]), command)
