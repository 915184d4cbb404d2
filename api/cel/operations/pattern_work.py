"""The work that a pattern makes, estimated from its text before RE2 sees it.

RE2 parses, simplifies and compiles under the interpreter's lock, in one piece. A repetition multiplies what it repeats,
and repetitions nest: 13 characters may become 4,500 instructions, and 9,000 characters a million nodes.

    a{3}b?          3 + 2 instructions
    (a?){0,900}     900 × 5 instructions: 5 ms
    \\p{L}{63}       63 × 1,200 instructions for the bytes of letters: 55 ms

Lives here: a reader of the syntax that counts, and accepts everything. Not here: whether the syntax is right (RE2).
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

_ANY: Final = 9
"""Instructions of ``.``, and of a negated class: the ranges of bytes of UTF-8."""
_CATEGORIES: Final = {"L": 1200, "M": 800, "N": 480, "P": 580, "S": 560, "Z": 40, "C": 110}
"""Instructions of a Unicode class of a category, or of what is not in it, by the first letter of its name."""
_SCRIPT: Final = 410
"""Those of a script: as many as the largest one, Common, has."""
_LARGEST_CLASS: Final = 3000
_RANGE: Final = 8
"""Instructions of a range beyond ASCII."""
_FOLDED: Final = 3
"""Forms of a character beyond ASCII without case."""
MOST_DEPTH: Final = 1000
"""Nested groups and repetitions, as in Go (regexp/syntax maxHeight)."""
_CAPTURE: Final = 2

_TOKEN: Final = re.compile(
    r"""(?P<quoted>\\Q.*?(?:\\E|\Z))
    |   (?P<property>\\[pP](?:\{[^}]*\}|.?))
    |   (?P<code>\\x\{[0-9A-Fa-f]*\}|\\x..|\\[0-7]{1,3})
    |   (?P<escape>\\.?)
    |   (?P<class>\[\^?\]?(?:\[:\^?\w*:\]|\\[pPx]\{[^}]*\}|\\.|[^\]\\])*\]?)
    |   (?P<flags>\(\?[A-Za-z-]*\))
    |   (?P<open>\((?:\?(?:P?<\w*>|[A-Za-z-]*:)?)?)
    |   (?P<close>\))
    |   (?P<or>\|)
    |   (?P<repeat>[*+?]|\{(?P<least>\d{1,6})(?P<more>,(?P<most>\d{0,6}))?\})
    |   (?P<char>.)""",
    re.DOTALL | re.VERBOSE,
)
_IN_CLASS: Final = re.compile(r"\[:\^?\w*:\]|\\[pP](?:\{[^}]*\}|.?)|\\x\{[0-9A-Fa-f]*\}|\\.|.", re.DOTALL)


MOST_REPEATS: Final = 1000
"""The count of a repetition, multiplied with those in it, as in Go and RE2."""


class PatternRefused(ValueError):
    """A pattern that is not to be compiled. The text is that of Go's error."""


class PatternWork(NamedTuple):
    """Instructions: of classes and of characters beyond ASCII (``wide``), of optional repetitions (``optional``), which
    nest in each other, and all others (``plain``). ``repeats``: the largest count of a repetition."""

    plain: float = 0.0
    wide: float = 0.0
    optional: float = 0.0
    repeats: int = 1

    @property
    def seconds(self) -> float:
        """The time of the compilation. Optional repetitions take longer, the more there are."""
        return 1e-6 * (0.65 * self.wide + 0.5 * self.plain + self.optional * (0.9 + self.optional / 9000))

    @property
    def instructions(self) -> float:
        return self.plain + self.wide + self.optional

    def plus(self, other: PatternWork) -> PatternWork:
        return PatternWork(
            self.plain + other.plain,
            self.wide + other.wide,
            self.optional + other.optional,
            max(self.repeats, other.repeats),
        )

    def times(self, times: float) -> PatternWork:
        return PatternWork(self.plain * times, self.wide * times, self.optional * times, self.repeats)


_NOTHING: Final = PatternWork()


def work_of(pattern: str) -> PatternWork:
    """Return the work of compiling a pattern. Refused: it nests too deeply, or repeats too often."""
    groups: list[tuple[PatternWork, bool, int]] = []  # before each open group: the work, folding; the group's own work
    before, last, folds = _NOTHING, _NOTHING, False  # ``last``: of the last part, which a repetition may follow
    for found in _TOKEN.finditer(pattern):
        kind, text = found.lastgroup or "", found.group()
        if found["repeat"] is not None:
            last = _repeated(found, last)
            continue
        before, last = before.plus(last), _NOTHING
        if kind == "open":
            if len(groups) >= MOST_DEPTH:
                raise PatternRefused("expression nests too deeply: ``")
            groups.append((before, folds, 0 if text.endswith(":") else _CAPTURE))
            before, folds = _NOTHING, _folds(text, folds)
        elif kind == "close":
            if groups:
                outer, folds, own = groups.pop()
                before, last = outer, before.plus(PatternWork(own))
        elif kind == "flags":
            folds = _folds(text, folds)
        else:
            last = _single(kind, text, folds)
    total = before.plus(last)
    for outer, _, own in groups:
        total = total.plus(outer).plus(PatternWork(own))
    return total


def _folds(text: str, before: bool) -> bool:
    on, _, off = text.removeprefix("(?").partition("-")
    return "i" not in off and (before or ("i" in on and "<" not in on))


def _repeated(found: re.Match[str], one: PatternWork) -> PatternWork:
    if found["least"] is None:
        return one.plus(PatternWork(1))
    least, most = int(found["least"]), int(found["most"] or 0)
    repeats = one.repeats * max(least, most, 1)
    if repeats > MOST_REPEATS:
        raise PatternRefused(f"invalid repeat count: `{found.group()}`")
    one = one._replace(repeats=repeats)
    if not found["more"] or not found["most"]:
        return one.plus(PatternWork(1 if found["more"] else 0)).times(max(least, 1))
    optional = max(most - least, 0)
    return one.times(least).plus(PatternWork(0, one.wide * optional, (one.plain + one.optional + 1) * optional))


def _single(kind: str, text: str, folds: bool) -> PatternWork:
    """Return the instructions of a token without parts."""
    if kind == "class":
        return PatternWork(1, _class(text, folds))
    if kind == "property":
        return PatternWork(0, _property(text))
    if kind == "quoted":
        return PatternWork(len(text), sum(_char(each, folds) for each in text if each > "\x7f"))
    if kind == "code":
        return PatternWork(1, 4 * (_FOLDED if folds else 1))
    if kind == "escape":
        return PatternWork(1, _ANY if text[1:] in ("D", "W", "S") else 4)
    if kind == "or":
        return PatternWork(1, 0)
    if text == ".":
        return PatternWork(0, _ANY)
    return PatternWork(1, _char(text, folds))


def _property(text: str) -> float:
    name = text[2:].strip("{^}")
    return _CATEGORIES.get(name[:1], _SCRIPT) if len(name) <= 2 else _SCRIPT


def _char(char: str, folds: bool) -> float:
    return 0 if char <= "\x7f" and not folds else 4.0 * (_FOLDED if folds else 1)


def _class(text: str, folds: bool) -> float:
    """Return the instructions of a class, by its ranges."""
    size = float(_ANY if text.startswith("[^") else 0)
    for found in _IN_CLASS.finditer(text, 1):
        item = found.group()
        if item[:2] in ("\\p", "\\P"):
            size += _property(item)
        elif item[:2] == "\\x" or item[:1] > "\x7f":
            size += _RANGE * (_FOLDED if folds else 1)
        elif item[:1] == "\\" or item[:2] == "[:":
            size += _ANY if item[1:2] in ("D", "W", "S") or item.startswith("[:^") else 4
        else:
            size += 2 if folds else 1
    return min(size, _LARGEST_CLASS)
