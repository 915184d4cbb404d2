"""Positions: rows of the log that are, or are not, the ones that were applied."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from kubechronicle.eventlog.errors import Diverged
from kubechronicle.eventlog.positions import Position, RowIdentity
from kubechronicle.eventlog.records import Key

THEN = datetime(2026, 1, 1, tzinfo=UTC)
ROW = RowIdentity(7, Key("pods", "a", "x"), "uid", 3, THEN, b"hash")


def test_a_row_of_our_own_is_recognised_and_its_hash_noted() -> None:
    position = Position(7, identity=ROW._replace(hash=b""))
    position.confirm(ROW, newest=9, compacted=0)
    with pytest.raises(Diverged):
        position.confirm(ROW._replace(hash=b"other"), newest=9, compacted=0)


@pytest.mark.parametrize(
    "change", [{"uid": "other"}, {"version": 4}, {"committed_at": datetime(2026, 1, 2, tzinfo=UTC)}]
)
def test_another_row_is_noticed(change: dict[str, object]) -> None:
    with pytest.raises(Diverged, match="does not hold revision 7"):
        Position(7, identity=ROW._replace(hash=b"")).confirm(ROW._replace(**change), newest=9, compacted=0)


def test_an_erased_name_is_no_difference() -> None:
    position = Position(7, identity=ROW._replace(hash=b""))
    position.confirm(ROW._replace(key=Key("pods", "a", "<erased>")), newest=9, compacted=0)


def test_a_missing_row_counts_unless_it_may_have_been_dropped() -> None:
    Position(7, hash=b"hash").confirm(None, newest=9, compacted=8)
    for newest, compacted in ((6, 8), (9, 6)):
        with pytest.raises(Diverged):
            Position(7, hash=b"hash").confirm(None, newest=newest, compacted=compacted)
