"""The limits of priority levels: those of a kube-apiserver v1.36 with the same objects, and the allocation."""

from __future__ import annotations

import random

import pytest

from kubechronicle.api.builtin.flowcontrol import bootstrap
from kubechronicle.api.flow_control.limits import (
    Demand,
    Limits,
    SeatClaim,
    UnusableLimits,
    adjusted,
    allocate,
    level_spec,
    shared,
)

SPECS = [level_spec({"metadata": {"name": name}, "spec": spec}) for name, spec in bootstrap.level_specs().items()]

# apiserver_flowcontrol_{nominal,lower,upper,current}_limit_seats of an idle kube-apiserver with 3,000 seats.
OBSERVED = {
    "catch-all": (62, 62, 3062, 145),
    "global-default": (245, 122, 3245, 284),
    "leader-election": (123, 123, 3123, 287),
    "node-high": (490, 367, 3490, 856),
    "system": (368, 247, 3368, 576),
    "workload-high": (490, 245, 3490, 571),
    "workload-low": (1225, 122, 4225, 284),
}


def test_the_seats_are_those_of_kube_apiserver() -> None:
    limits = shared(SPECS, 3000)
    exempt = Demand(high=1)
    claims = {
        spec.name: SeatClaim(spec.exempt, limits[spec.name], exempt if spec.exempt else Demand()) for spec in SPECS
    }
    current, _ = adjusted(claims)
    assert {
        name: (limits[name].nominal, limits[name].lower, limits[name].upper, current[name]) for name in OBSERVED
    } == OBSERVED
    assert (limits["exempt"].nominal, limits["exempt"].upper, current["exempt"]) == (0, 3000, 1)


def test_one_request_takes_a_part_of_its_level() -> None:
    limits = shared(SPECS, 600)
    assert {name: limits[name].request for name in ("system", "global-default", "catch-all", "exempt")} == {
        "system": 12,
        "global-default": 8,
        "catch-all": 0,
        "exempt": 0,
    }


def test_demand_moves_seats() -> None:
    limits = {"busy": Limits(50, 25, 1050, 1), "idle": Limits(50, 25, 1050, 1), "exempt": Limits(0, 0, 1000, 0)}
    busy, idle = Demand(), Demand()
    busy.update({300: 10.0}, 300)
    idle.update({0: 10.0}, 0)
    current, _ = adjusted(
        {
            "busy": SeatClaim(False, limits["busy"], busy),
            "idle": SeatClaim(False, limits["idle"], idle),
            "exempt": SeatClaim(True, limits["exempt"], Demand(high=3)),
        }
    )
    assert current == {"busy": 75, "idle": 25, "exempt": 3}


def test_demand_falls_slowly_and_rises_at_once() -> None:
    demand = Demand()
    demand.update({10: 5.0, 20: 5.0}, 20)
    assert (demand.average, demand.deviation, demand.smoothed) == (15, 5, 20)
    demand.update({0: 10.0}, 0)
    assert demand.smoothed == pytest.approx(20 * 0.977)
    demand.update({100: 10.0}, 100)
    assert demand.smoothed == 100


def test_parts_are_within_their_bounds_and_proportional_between() -> None:
    draw = random.Random(11)
    for _ in range(500):
        bounds = []
        for _ in range(draw.randint(1, 8)):
            low = draw.uniform(0, 10)
            target = low + draw.uniform(0, 50)
            bounds.append((low, target, low + draw.uniform(0, 100)))
        least, most = sum(low for low, _, _ in bounds), sum(high for _, _, high in bounds)
        total = draw.uniform(least, most)
        parts, fraction = allocate(total, bounds)
        assert sum(parts) == pytest.approx(total, abs=1e-6)
        for part, (low, target, high) in zip(parts, bounds, strict=True):
            assert part == pytest.approx(max(low, min(high, fraction * max(target, 0.001))), abs=1e-6)


@pytest.mark.parametrize(
    ("name", "spec"),
    [
        ("a", {"type": "Limited"}),
        ("a", {"type": "Exempt", "exempt": {}}),
        ("exempt", {"type": "Limited", "limited": {"limitResponse": {"type": "Reject"}}}),
        ("a", {"type": "Limited", "limited": {"limitResponse": {"type": "Queue"}}}),
        ("a", {"type": "Limited", "limited": {"limitResponse": {"type": "Reject", "queuing": {}}}}),
    ],
)
def test_a_contradictory_level_is_unusable(name: str, spec: dict[str, object]) -> None:
    with pytest.raises(UnusableLimits):
        level_spec({"metadata": {"name": name}, "spec": spec})
