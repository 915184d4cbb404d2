"""The buckets of a histogram, filled with many values at once."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence


def fill(buckets: list[float], bounds: Sequence[float], values: list[float]) -> None:
    """Count values in the buckets with these upper bounds, add their sum to the last element, and remove them.

    ``buckets``: a number for each bound, the number above all bounds, and the sum.
    """
    if not values:
        return
    buckets[-1] += sum(values)
    values.sort()
    below = 0
    for bucket, bound in enumerate(bounds):
        upto = bisect_right(values, bound)
        buckets[bucket] += upto - below
        below = upto
    buckets[-2] += len(values) - below
    values.clear()
