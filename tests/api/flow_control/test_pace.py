"""The pace of the event loop: what one pass begins, and what waits for the next."""

from __future__ import annotations

import pytest

from kubechronicle.api.flow_control.pace import (
    BUDGET,
    FIRST_COST,
    LEAST_COST,
    LONG,
    MEASURED,
    MOST_COST,
    Pace,
    TicketPart,
)


def part(pace: Pace, share: float = 0.0) -> TicketPart:
    made = TicketPart(pace)
    made.share = share
    return made


def begun(one: TicketPart, seats: int = 1) -> int:
    """Return how many requests begin before one is held back."""
    for number in range(1000):
        if not one.begins(seats):
            return number
    return 1000


def test_without_passes_everything_begins() -> None:
    pace = Pace()
    assert begun(part(pace)) == 1000
    pace.begin_pass(1.0)
    pace.stop()
    assert begun(part(pace)) == 1000


def test_a_long_pass_admits_one_request_of_each_user() -> None:
    pace = Pace()
    pace.begin_pass(1.0)
    assert [pace.admits("admin", 1.0 + seconds) for seconds in (0.0, LONG / 2, 2 * LONG)] == [True, True, False]
    assert [pace.admits("other", 1.0 + 2 * LONG) for _ in range(2)] == [True, False]
    pace.begin_pass(2.0)
    assert [pace.admits("admin", 2.0 + 2 * LONG) for _ in range(2)] == [True, False]
    pace.stop()
    assert pace.admits("admin", 3.0)


def test_a_pass_begins_its_budget() -> None:
    pace = Pace()
    one = part(pace)
    for _ in range(3):
        pace.begin_pass(1.0)
        assert begun(one) == round(BUDGET / FIRST_COST)
        assert one.held_back
    pace.begin_pass(2.0)
    assert begun(one, 3) == round(BUDGET / FIRST_COST) // 3


def test_each_level_begins_something_and_its_part() -> None:
    pace = Pace()
    noisy, quiet, large = part(pace), part(pace), part(pace, share=0.5)
    pace.begin_pass(1.0)
    assert begun(noisy) == 6
    assert begun(quiet) == 1
    assert begun(large) == 3
    assert begun(large) == 0
    pace.begin_pass(1.005)
    assert begun(quiet) == 6


def test_the_cost_of_a_seat_is_measured_within_bounds() -> None:
    pace = Pace()
    one, now = part(pace, share=1.0), 0.0
    for seconds, expected in ((0.0002, 0.0002), (10.0, MOST_COST), (0.0, LEAST_COST)):
        for _ in range(300):
            pace.begin_pass(now)
            for _ in range(MEASURED):
                one.begins(1)
            now += seconds * MEASURED
        assert pace.cost == pytest.approx(expected, rel=0.02)
    pace.begin_pass(now)
    one.begins(1)
    pace.begin_pass(now + 5)  # it may have waited
    assert pace.cost == pytest.approx(LEAST_COST, rel=0.02)
