"""Positions: the revisions of several logs as one number."""

from __future__ import annotations

import pytest

from kubechronicle.api.history import positions
from kubechronicle.api.history.positions import (
    SPAN,
    advanced,
    covers,
    is_joined,
    joined,
    parse_position,
    place_of,
    revisions_of,
)
from kubechronicle.eventlog import layout

BOTH = joined({0: 41, 1: SPAN + 7})


def test_one_log_has_its_revisions_as_positions() -> None:
    assert joined({0: 41}) == 41
    assert revisions_of(41) == {0: 41}
    assert revisions_of(0) == {}
    assert not is_joined(41)
    assert advanced(41, [40, 44]) == 44
    assert covers(41, 41)
    assert not covers(41, 42)


def test_several_logs_are_one_number() -> None:
    assert str(BOTH) == "100000000000000410100000000000007"
    assert revisions_of(BOTH) == {0: 41, 1: SPAN + 7}
    assert parse_position(str(BOTH)) == BOTH
    assert advanced(BOTH, [SPAN + 9, 40]) == joined({0: 41, 1: SPAN + 9})
    assert covers(BOTH, 41)
    assert covers(BOTH, SPAN + 7)
    assert not covers(BOTH, 42)
    assert not covers(BOTH, SPAN + 8)
    assert not covers(BOTH, 2 * SPAN + 1)


def test_a_log_without_changes_keeps_its_place() -> None:
    begun = joined({0: 0, 1: SPAN, 3: 0})
    assert revisions_of(begun) == {0: 0, 1: SPAN, 3: 3 * SPAN}
    assert revisions_of(advanced(begun, [SPAN + 1])) == {0: 0, 1: SPAN + 1, 3: 3 * SPAN}


def test_later_positions_are_larger() -> None:
    later = [advanced(BOTH, [revision]) for revision in (SPAN + 8, 42)]
    assert BOTH < later[0] < later[1] < advanced(later[1], [SPAN + 10**13])


@pytest.mark.parametrize("text", ["", "41", "1" * 17, "2" + "0" * 32, "1" + "0" * 31, "-" + "0" * 32, "1" + "٠" * 32])
def test_other_texts_are_no_positions(text: str) -> None:
    assert parse_position(text) is None


def test_the_logs_have_the_places_that_positions_assume() -> None:
    """api and eventlog know nothing of each other."""
    assert positions.SPAN == layout.SPAN
    assert positions.MOST_LOGS == layout.MOST_LOGS + 1
    for revision in (0, 1, SPAN, SPAN + 1, 2 * SPAN, 2 * SPAN + 1):
        assert place_of(revision) == layout.place_of(revision)
