"""Positions: how far a reader of changes has come, as one number.

Where all changes are in one log, a position is a revision. With several logs (docs/databases.md), it has the revision
of each, because no log waits for the times of another. The first digit is 1, and each revision has 16 digits:

    41                                    revision 41 of the main log; in another log, the changes up to its time
    1 0000000000000041 0100000000000042   revision 41 of the main log, and revision 100000000000042 of the second

The positions of one list never go back. So clients may compare them as the resourceVersions of one resource (KEP-5504).

Revisions of one log never occur in another: each log has SPAN numbers, the main one the first.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

SPAN: Final = 10**14
DIGITS: Final = 16
"""Of a revision: two for the place of the log, 14 for the changes in it."""
MOST_LOGS: Final = 90
_GROUP: Final = 10**DIGITS


def place_of(revision: int) -> int:
    """Return the place of the log to which a revision belongs: 0 is the main log."""
    return (revision - 1) // SPAN if revision > 0 else 0


def is_joined(position: int) -> bool:
    """Tell whether a position has the revisions of several logs."""
    return position >= _GROUP**2


def joined(revisions: Mapping[int, int]) -> int:
    """Return the position at these revisions, by the places of their logs. One is a position as it is."""
    if len(revisions) == 1:
        return next(iter(revisions.values()))
    found = 1
    for place in sorted(revisions):
        # Before its first change, a log stands at the beginning of its numbers.
        found = found * _GROUP + max(revisions[place], place * SPAN)
    return found


def revisions_of(position: int) -> dict[int, int]:
    """Return the revisions of a position by the places of their logs; {}: it has none."""
    if not is_joined(position):
        return {place_of(position): position} if position else {}
    found: dict[int, int] = {}
    while position > 1:
        position, revision = divmod(position, _GROUP)
        found[revision // SPAN] = revision
    return found


def advanced(position: int, revisions: Iterable[int]) -> int:
    """Return a position after these changes. Of a joined position, they move on their own logs."""
    if not is_joined(position):
        return max([position, *revisions])
    found = revisions_of(position)
    for revision in revisions:
        place = place_of(revision)
        found[place] = max(found.get(place, 0), revision)
    return joined(found)


def covers(position: int, revision: int) -> bool:
    """Tell whether a position is at or behind a change."""
    if not is_joined(position):
        return revision <= position
    return revision <= revisions_of(position).get(place_of(revision), 0)


def parse_position(text: str) -> int | None:
    """Return the number of a joined position; None: the text is none."""
    groups, rest = divmod(len(text) - 1, DIGITS)
    if rest or not 2 <= groups <= MOST_LOGS or not text.isascii() or not text.isdigit() or text[0] != "1":
        return None
    return int(text)
