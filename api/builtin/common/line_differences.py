"""Unified diffs of lines, in about linear time.

Short texts are compared as by go-difflib, whose time is quadratic. Longer ones are compared only between lines that
occur once in each text and in the same order: mostly with the same result.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Sequence
from difflib import Match, SequenceMatcher
from typing import Final

CONTEXT: Final = 3
"""Unchanged lines shown around a change."""

MOST_LINES: Final = 1000
"""The longest texts that are compared as by go-difflib: in about 30 ms."""

MOST_BETWEEN: Final = 200
"""The most lines between two anchors that are compared as by go-difflib."""


def unified(old: Sequence[str], new: Sequence[str]) -> str:
    """Return the unified diff of two texts without its two header lines. Lines end with a newline."""
    matcher = SequenceMatcher(None, old, new) if max(len(old), len(new)) <= MOST_LINES else _anchored(old, new)
    shown: list[str] = []
    for group in matcher.get_grouped_opcodes(CONTEXT):
        first, last = group[0], group[-1]
        shown.append(f"@@ -{_range(first[1], last[2])} +{_range(first[3], last[4])} @@\n")
        for tag, start, end, new_start, new_end in group:
            if tag == "equal":
                shown += [f" {line}" for line in old[start:end]]
            else:
                shown += [f"-{line}" for line in old[start:end]]
                shown += [f"+{line}" for line in new[new_start:new_end]]
    return "".join(shown)


def _range(start: int, end: int) -> str:
    """Return a range of lines as "first,count": of an empty one the line before."""
    length = end - start
    if length == 1:
        return str(start + 1)
    return f"{start if not length else start + 1},{length}"


def _anchored(old: Sequence[str], new: Sequence[str]) -> SequenceMatcher[str]:
    found: list[Match] = []
    before, new_before = 0, 0
    for place, new_place in [*_anchors(old, new), (len(old), len(new))]:
        if place < before or new_place < new_before:
            continue  # within the lines after the anchor before
        found += _between(old, new, before, place, new_before, new_place)
        size = 0
        while place + size < len(old) and new_place + size < len(new) and old[place + size] == new[new_place + size]:
            size += 1
        if size:
            found.append(Match(place, new_place, size))
        before, new_before = place + size, new_place + size
    return _Matched([*_joined(found), Match(len(old), len(new), 0)])


class _Matched(SequenceMatcher[str]):
    """A comparison with known matches."""

    def __init__(self, found: list[Match]) -> None:
        super().__init__()
        self._found = found

    def get_matching_blocks(self) -> list[Match]:
        return self._found


def _anchors(old: Sequence[str], new: Sequence[str]) -> list[tuple[int, int]]:
    """Return the places of lines that occur once in each text: the longest series in the same order."""
    count, new_count = Counter(old), Counter(new)
    places = {line: place for place, line in enumerate(new) if new_count[line] == 1}
    pairs = [(place, places[line]) for place, line in enumerate(old) if count[line] == 1 and line in places]
    ends: list[int] = []  # the least last place of a series of each length
    holders: list[int] = []
    previous: list[int] = []
    for index, (_, place) in enumerate(pairs):
        length = bisect_left(ends, place)
        previous.append(holders[length - 1] if length else -1)
        if length == len(ends):
            ends.append(place)
            holders.append(index)
        else:
            ends[length], holders[length] = place, index
    series: list[tuple[int, int]] = []
    index = holders[-1] if holders else -1
    while index >= 0:
        series.append(pairs[index])
        index = previous[index]
    return series[::-1]


def _between(old: Sequence[str], new: Sequence[str], start: int, end: int, new_start: int, new_end: int) -> list[Match]:
    """Return the matches of two parts: the same lines at their ends, and those between if the parts are short."""
    tail = 0
    while end - tail > start and new_end - tail > new_start and old[end - tail - 1] == new[new_end - tail - 1]:
        tail += 1
    found: list[Match] = []
    stop, new_stop = end - tail, new_end - tail
    if max(stop - start, new_stop - new_start) <= MOST_BETWEEN:
        inner = SequenceMatcher(None, old[start:stop], new[new_start:new_stop])
        found = [Match(start + a, new_start + b, size) for a, b, size in inner.get_matching_blocks() if size]
    return [*found, Match(stop, new_stop, tail)] if tail else found


def _joined(found: Sequence[Match]) -> Iterator[Match]:
    """Yield the matches, those that touch as one."""
    held: Match | None = None
    for match in found:
        if held is not None and (held.a + held.size, held.b + held.size) == (match.a, match.b):
            held = Match(held.a, held.b, held.size + match.size)
            continue
        if held is not None:
            yield held
        held = match
    if held is not None:
        yield held
