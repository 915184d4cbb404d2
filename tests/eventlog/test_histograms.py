"""Histograms whose values are noted first and counted later."""

from __future__ import annotations

from bisect import bisect_left

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubechronicle.eventlog.measures import MOST_NOTED, Histogram

BOUNDS = (0.0, 0.5, 1.0, 10.0)
VALUES = st.lists(st.sampled_from((-1.0, 0.0, 0.25, 0.5, 0.75, 1.0, 9.0, 10.0, 11.0)))


def counted(values: list[float]) -> list[float]:
    counts = [0.0] * (len(BOUNDS) + 1)
    for value in values:
        counts[bisect_left(BOUNDS, value)] += 1
    return counts


def of(values: list[float]) -> Histogram:
    histogram = Histogram(BOUNDS)
    for value in values:
        histogram.note(value)
    return histogram


@given(VALUES, VALUES)
def test_values_are_counted_as_one_by_one(first: list[float], second: list[float]) -> None:
    histogram = of(first)
    assert histogram.counts == counted(first)
    for value in second:
        histogram.note(value)
    assert histogram.counts == counted(first + second)
    assert histogram.total == pytest.approx(sum(first + second))


@given(VALUES, VALUES, VALUES)
def test_histograms_are_merged_and_values_replaced(ours: list[float], before: list[float], after: list[float]) -> None:
    histogram = of(ours)
    histogram.merge(of(before))
    assert histogram.counts == counted(ours + before)
    histogram.replace(of(before), of(after))
    assert histogram.counts == counted(ours + after)
    assert histogram.total == pytest.approx(sum(ours + after))


def test_few_values_wait_to_be_counted() -> None:
    histogram = Histogram(BOUNDS)
    for _ in range(MOST_NOTED * 3 + 1):
        histogram.add(1.0)
        assert len(histogram._noted) < MOST_NOTED
    assert sum(histogram.counts) == MOST_NOTED * 3 + 1
