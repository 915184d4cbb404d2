"""Buckets filled in bulk agree with buckets filled one value at a time."""

from bisect import bisect_left
from random import Random

from kubechronicle.api.values import buckets

BOUNDS = (0.0, 0.5, 1.0, 2.0)


def test_fill_agrees_with_single_values() -> None:
    random = Random(1)
    filled: list[float] = [0] * (len(BOUNDS) + 1) + [0.0]
    single = list(filled)
    for number in (0, 1, 3, 100):
        values = [random.choice((0.0, 0.25, 0.5, 1.0, 1.75, 2.0, 2.25)) for _ in range(number)]
        for value in values:
            single[bisect_left(BOUNDS, value)] += 1
            single[-1] += value
        buckets.fill(filled, BOUNDS, values)
        assert values == []
        assert filled == single
