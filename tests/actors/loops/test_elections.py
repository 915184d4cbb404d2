"""Elections among LeaseCandidates: each step from the stored objects, and a whole election by two servers at once."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import trio
from in_process import InProcess, open_server
from trio.testing import MockClock

from kubechronicle.actors.loops import elections
from kubechronicle.actors.loops.elections import UNTIL_CHANGED, WAIT, ElectionLoop, ElectionStep, micro_time, next_step
from kubechronicle.api.builtin.coordination import OLDEST
from kubechronicle.api.features.gates import FeatureGates
from kubechronicle.api.registry.runtime_config import Emulation, registry_for
from kubechronicle.eventlog.memory.store import MemoryStore

NOW = datetime(2026, 11, 29, 12, tzinfo=UTC)
LEASES = "/apis/coordination.k8s.io/v1/namespaces/default/leases"
CANDIDATES = "/apis/coordination.k8s.io/v1beta1/namespaces/default/leasecandidates"
GATES = FeatureGates(given={elections.GATE: True})
REGISTRY = registry_for({"coordination.k8s.io/v1beta1": "true"}, Emulation(gates=GATES))
OTHER = {"features": GATES, "registry": REGISTRY}


def at(seconds: float | None) -> str | None:
    """Return the time so many seconds before NOW."""
    return None if seconds is None else micro_time(NOW - timedelta(seconds=seconds))


def candidate(
    name: str, *, renewed: float | None = 0, pinged: float | None = None, version: str = "1.37.0", **spec: Any
) -> dict[str, Any]:
    times = {"renewTime": at(renewed), "pingTime": at(pinged)}
    usual = {"leaseName": "x", "binaryVersion": "1.37.0", "emulationVersion": version, "strategy": OLDEST}
    held = {key: value for key, value in {**usual, **times, **spec}.items() if value is not None}
    return {"metadata": {"name": name, "namespace": "default"}, "spec": held}


def lease(holder: str = "a", *, renewed: float = 1) -> dict[str, Any]:
    return {"spec": {"holderIdentity": holder, "leaseDurationSeconds": 5, "renewTime": at(renewed), "strategy": OLDEST}}


SILENT, ASKED = candidate("s", renewed=60), candidate("s", renewed=60, pinged=2)
LATE, STALE = candidate("s", renewed=60, pinged=6), candidate("a", renewed=901)
STEPS: dict[str, tuple[list[dict[str, Any]], dict[str, Any] | None, ElectionStep]] = {
    "no candidate": ([], None, UNTIL_CHANGED),
    "an expired one": ([candidate("a", renewed=1801)], None, UNTIL_CHANGED),
    "one that never renewed": ([candidate("a", renewed=None)], None, UNTIL_CHANGED),
    "the best holds the Lease": ([candidate("a"), candidate("b", version="1.38.0")], lease(), WAIT),
    "nobody holds it": ([candidate("a")], None, ElectionStep(elected=(OLDEST, "a"))),
    "the holder is silent": ([candidate("b")], lease(renewed=6), ElectionStep(elected=(OLDEST, "b"))),
    "a better one": ([candidate("a"), candidate("b", version="1.36.0")], lease(), ElectionStep(elected=(OLDEST, "b"))),
    "an older program": (
        [candidate("a", binaryVersion="1.38.0"), candidate("b")], None, ElectionStep(elected=(OLDEST, "b")),
    ),
    "one that has to answer": ([candidate("a"), SILENT], None, ElectionStep(pinged=(SILENT,))),
    "one that was asked just now": ([candidate("a"), ASKED], None, WAIT),
    "one that has not answered": ([candidate("a"), LATE], None, ElectionStep(elected=(OLDEST, "a"))),
    "a renewal that is long ago": ([STALE], lease(), ElectionStep(pinged=(STALE,))),
    "another's strategy": (
        [candidate("a", strategy="example.com/s")],
        None,
        ElectionStep(elected=("example.com/s", None)),
    ),
    "two strategies": ([candidate("a"), candidate("b", strategy="example.com/s")], None, UNTIL_CHANGED),
    "the strategy of the newest": (
        [candidate("a"), candidate("b", strategy="example.com/s", binaryVersion="1.38.0")],
        None, ElectionStep(elected=("example.com/s", None)),
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", sorted(STEPS))
def test_the_next_step(case: str) -> None:
    candidates, held, step = STEPS[case]
    assert next_step(candidates, held, NOW) == step


def test_a_holder_is_asked_to_release_its_lease() -> None:
    changed = elections.changed_lease(lease("a"), OLDEST, "b", NOW)["spec"]
    assert (changed["holderIdentity"], changed["preferredHolder"]) == ("a", "b")
    changed = elections.changed_lease(
        {"spec": {**lease("a", renewed=6)["spec"], "preferredHolder": "c"}}, OLDEST, "b", NOW
    )
    assert changed["spec"]["holderIdentity"] == "b"
    assert "preferredHolder" not in changed["spec"]
    assert elections.changed_lease(lease("a"), OLDEST, None, NOW) == lease("a")


# -- the loop ---------------------------------------------------------------------------------------------------------


def clock() -> datetime:
    """Return a time that advances as trio's clock does."""
    return NOW + timedelta(seconds=trio.current_time())


async def serve_candidate(server: InProcess, name: str) -> None:
    """Answer pings as a component does, until cancelled."""
    while True:
        held = await server.get(f"{CANDIDATES}/{name}")
        if held["spec"].get("pingTime", "") > held["spec"]["renewTime"]:
            held["spec"]["renewTime"] = micro_time(clock())
            await server.put(f"{CANDIDATES}/{name}", held)
        await trio.sleep(1)


async def wait_until(server: InProcess, path: str, met: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    while True:
        answer = await server.ask("GET", path)
        if answer.status == 200 and met(answer.json()):
            return dict(answer.json())
        await trio.sleep(1)


async def test_two_servers_elect_one_leader_and_replace_it(autojump_clock: MockClock) -> None:
    store = MemoryStore()
    async with open_server(store, other=OTHER) as one, open_server(store, other=OTHER) as other:
        await one.post(CANDIDATES, candidate("a", renewed=60))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(ElectionLoop(one.store, now=clock).run)
            nursery.start_soon(ElectionLoop(other.store, now=clock).run)
            nursery.start_soon(serve_candidate, one, "a")
            with trio.fail_after(120):
                held = await wait_until(one, f"{LEASES}/x", lambda found: "holderIdentity" in found["spec"])
                assert (held["spec"]["holderIdentity"], held["spec"]["strategy"]) == ("a", OLDEST)
                await other.post(CANDIDATES, candidate("b", renewed=60, version="1.36.0"))
                nursery.start_soon(serve_candidate, other, "b")
                # a does not renew the Lease, so it expires, and b gets it
                await wait_until(one, f"{LEASES}/x", lambda found: found["spec"]["holderIdentity"] == "b")
            nursery.cancel_scope.cancel()


async def test_a_candidate_without_renewals_is_deleted(autojump_clock: MockClock) -> None:
    async with open_server(other=OTHER) as server:
        await server.post(CANDIDATES, candidate("a", renewed=1801))
        await server.post(CANDIDATES, candidate("b", renewed=60))
        with trio.move_on_after(60):
            await ElectionLoop(server.store, now=clock).run()
        assert [each["metadata"]["name"] for each in (await server.get(CANDIDATES))["items"]] == ["b"]
