"""The concurrency limits of priority levels, and their adjustment by demand (KEP-1040, "Dispatching").

nominal   the level's part of the server's seats, by its shares
lower     nominal without what it lends       (lendablePercent)
upper     nominal with what it may borrow     (borrowingLimitPercent; absent: all the server's seats)
current   what it has now: between lower and upper, set every PERIOD seconds by the demand of all levels
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

PERIOD: Final = 10.0
"""Seconds between two adjustments."""
SMOOTHING: Final = 0.977
"""The part of the former smoothed demand that counts in the new one: its half-life is five minutes."""
MAX_SEATS_PART: Final = 0.15
"""The part of a level's nominal seats that one request may take."""
_LEAST_TARGET: Final = 0.001
_EPSILON: Final = 1e-7


@dataclass(frozen=True, slots=True, kw_only=True)
class LevelSpec:
    """The spec of a priority level. ``queues`` 0: requests over the limit are rejected at once.

    ``borrowing``: percent of the nominal seats; None: without a limit of its own.
    """

    name: str
    uid: str
    exempt: bool
    shares: int
    lendable: int
    borrowing: int | None
    queues: int = 0
    hand_size: int = 1
    queue_length: int = 1


@dataclass(frozen=True, slots=True)
class Limits:
    """Seats of a level. ``request``: the most that one request may take; 0: unset."""

    nominal: int
    lower: int
    upper: int
    request: int


class UnusableLimits(Exception):
    """The spec of a priority level is contradictory. The text says where."""


def level_spec(obj: Mapping[str, Any]) -> LevelSpec:
    """Return the spec of a stored PriorityLevelConfiguration (v1). Raises Unusable."""
    name, uid, spec = obj["metadata"]["name"], obj["metadata"].get("uid", ""), obj.get("spec") or {}
    limited, exempt = spec.get("limited"), spec.get("exempt")
    if (spec.get("type") == "Limited") != (limited is not None) or (spec.get("type") == "Exempt") != (
        exempt is not None
    ):
        raise UnusableLimits("its type and its fields do not fit together")
    if (name == "exempt") != (exempt is not None):
        raise UnusableLimits("only the level named exempt is exempt")
    held = limited if limited is not None else exempt or {}
    shares, lendable = held.get("nominalConcurrencyShares"), held.get("lendablePercent") or 0
    if limited is None:
        return LevelSpec(name=name, uid=uid, exempt=True, shares=shares or 0, lendable=lendable, borrowing=None)
    response = limited.get("limitResponse") or {}
    queuing = response.get("queuing")
    if (response.get("type") == "Reject") != (queuing is None):
        raise UnusableLimits("the type and the fields of its limitResponse do not fit together")
    queuing = queuing or {}
    return LevelSpec(
        name=name,
        uid=uid,
        exempt=False,
        shares=30 if shares is None else shares,
        lendable=lendable,
        borrowing=limited.get("borrowingLimitPercent"),
        queues=queuing.get("queues", 0),
        hand_size=queuing.get("handSize", 1),
        queue_length=queuing.get("queueLengthLimit", 1),
    )


def shared(specs: Sequence[LevelSpec], seats: int) -> dict[str, Limits]:
    """Share the server's seats among the levels, by their shares. Each level's part is rounded up."""
    total = sum(spec.shares for spec in specs) or 1
    limits = {}
    for spec in specs:
        nominal = math.ceil(seats * spec.shares / total)
        lent = _rounded(nominal * spec.lendable / 100)
        borrowed = seats if spec.borrowing is None else _rounded(nominal * spec.borrowing / 100)
        request = 0
        if spec.queues:
            request = max(1, min(math.ceil(nominal * MAX_SEATS_PART), nominal // spec.hand_size))
        limits[spec.name] = Limits(nominal, nominal - lent, nominal + borrowed, request)
    return limits


def _rounded(value: float) -> int:
    """Round half up, as Go does for positive numbers."""
    return math.floor(value + 0.5)


@dataclass(slots=True)
class Demand:
    """The demand of a level in seats, in the last period. ``smoothed`` falls slowly and rises at once."""

    average: float = 0.0
    deviation: float = 0.0
    high: int = 0
    smoothed: float = 0.0

    def update(self, times: Mapping[int, float], high: int) -> None:
        """Take the demand of a period: the seconds at each number of seats, and the highest number."""
        self.high = high
        total = sum(times.values())
        if total <= 0:
            return
        self.average = sum(seats * seconds for seats, seconds in times.items()) / total
        squares = sum(seats * seats * seconds for seats, seconds in times.items()) / total
        self.deviation = math.sqrt(max(0.0, squares - self.average**2))
        envelope = self.average + self.deviation
        self.smoothed = max(envelope, SMOOTHING * self.smoothed + (1 - SMOOTHING) * envelope)


@dataclass(frozen=True, slots=True)
class SeatClaim:
    """The request of one level to the adjustment."""

    exempt: bool
    limits: Limits
    demand: Demand

    @property
    def least(self) -> int:
        """The seats that it keeps in any case: what it used at most, within its lower and nominal limit."""
        if self.exempt:
            return max(self.limits.lower, self.demand.high)
        return max(self.limits.lower, min(self.limits.nominal, self.demand.high))


def adjusted(claims: Mapping[str, SeatClaim]) -> tuple[dict[str, int], float]:
    """Return the current limit of each level by the demand of all, and the fair fraction of the targets."""
    seats = sum(claim.limits.nominal for claim in claims.values())
    remaining = seats - sum(claim.least for claim in claims.values() if claim.exempt)
    limited = {name: claim for name, claim in claims.items() if not claim.exempt}
    current = {name: claim.least for name, claim in claims.items() if claim.exempt}
    lower, least = (
        sum(claim.limits.lower for claim in limited.values()),
        sum(claim.least for claim in limited.values()),
    )
    if remaining <= lower:
        return current | {name: claim.limits.lower for name, claim in limited.items()}, 0.0
    if remaining <= least:
        part = (remaining - lower) / (least - lower)
        return current | {
            name: claim.limits.lower + _rounded((claim.least - claim.limits.lower) * part)
            for name, claim in limited.items()
        }, 0.0
    bounds = [
        (float(claim.least), max(float(claim.least), claim.demand.smoothed), float(claim.limits.upper))
        for claim in limited.values()
    ]
    parts, fraction = allocate(seats, bounds)
    return current | dict(zip(limited, map(_rounded, parts), strict=True)), fraction


def allocate(total: float, bounds: Sequence[tuple[float, float, float]]) -> tuple[list[float], float]:
    """Share ``total`` among classes of (lower bound, target, upper bound), and return the parts and a fraction F.

    A part is F times the class's target, within its bounds. F is the one for which the parts add up to ``total``; if no
    F does, the parts are the nearest bounds. Each change of F's effect is at a bound, so the bounds are tried in order.
    """
    targets = [max(target, _LEAST_TARGET) for _, target, _ in bounds]

    def parts(fraction: float) -> list[float]:
        return [max(low, min(high, fraction * target)) for (low, _, high), target in zip(bounds, targets, strict=True)]

    if not bounds or total <= 0:
        return [0.0] * len(bounds), 0.0
    stops = sorted(
        {0.0}
        | {low / target for (low, _, _), target in zip(bounds, targets, strict=True)}
        | {high / target for (_, _, high), target in zip(bounds, targets, strict=True)}
    )
    below = stops[0]
    for stop in stops:
        if sum(parts(stop)) >= total - _EPSILON:
            break
        below = stop
    else:
        return parts(stops[-1]), stops[-1]  # all upper bounds together are less
    at_below, at_stop = sum(parts(below)), sum(parts(stop))
    if at_stop - at_below <= _EPSILON:
        return parts(stop), stop
    fraction = below + (stop - below) * (total - at_below) / (at_stop - at_below)
    return parts(fraction), fraction
