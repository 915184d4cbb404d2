"""ServiceCIDRs: ready while they exist, kept while one of their addresses is in use."""

from __future__ import annotations

import ipaddress
from datetime import UTC, datetime, timedelta
from typing import Any

import trio
from in_process import InProcess, open_server
from services import CIDRS, SERVICES, cidr, open_services, service
from trio.testing import MockClock

from kubechronicle.actors.loops.service_cidrs import FINALIZER, IN_USE, READY, ServiceCIDRLoop, covers

MORE = f"{CIDRS}/more"


class Clock:
    """The wall clock, set by the test."""

    def __init__(self) -> None:
        self.ahead = timedelta()

    def __call__(self) -> datetime:
        return datetime.now(UTC) + self.ahead


async def condition(server: InProcess, target: str = MORE) -> dict[str, Any]:
    (condition,) = (await server.get(target))["status"]["conditions"]
    assert condition.pop("lastTransitionTime")
    return dict(condition)


async def is_gone(server: InProcess, target: str = MORE) -> bool:
    return (await server.ask("GET", target)).status == 404


async def test_a_new_range_gets_a_finalizer_and_is_ready(autojump_clock: MockClock) -> None:
    async with open_services() as server:
        await server.post(CIDRS, cidr("more", "10.97.0.0/24"))
        loop = ServiceCIDRLoop(server.store)
        assert await loop.check_all() == 0
        assert (await server.get(MORE))["metadata"]["finalizers"] == [FINALIZER]
        assert await condition(server) == {"type": "Ready", "status": "True", "reason": "", "message": READY}
        before = server.log.store.revision
        assert await loop.check_all() == 0
        assert server.log.store.revision == before


async def test_an_unused_range_is_removed_after_the_grace_period(autojump_clock: MockClock) -> None:
    async with open_services() as server:
        clock = Clock()
        loop = ServiceCIDRLoop(server.store, now=clock)
        await server.post(CIDRS, cidr("more", "10.97.0.0/24"))
        await loop.check_all()
        await server.delete(MORE)
        assert await loop.check_all() == 1
        assert not await is_gone(server)
        clock.ahead = timedelta(seconds=12)
        assert await loop.check_all() == 0
        assert await is_gone(server)


async def test_a_range_in_use_stays_until_it_is_unused(autojump_clock: MockClock) -> None:
    async with open_services("10.96.0.0/24") as server:
        clock = Clock()
        loop = ServiceCIDRLoop(server.store, now=clock)
        clock.ahead = timedelta(minutes=1)
        await server.post(CIDRS, cidr("more", "10.97.0.0/24"))
        await loop.check_all()
        await server.post(SERVICES, service(clusterIP="10.97.0.9"))
        await server.delete(MORE)
        for _ in range(2):
            assert await loop.check_all() == 1
        expected = {"type": "Ready", "status": "False", "reason": "Terminating", "message": IN_USE}
        assert await condition(server) == expected
        await server.delete(f"{SERVICES}/web")
        assert await loop.check_all() == 0
        assert await is_gone(server)


async def test_a_range_covered_by_another_is_removed(autojump_clock: MockClock) -> None:
    async with open_services("10.96.0.0/24") as server:
        clock = Clock()
        clock.ahead = timedelta(minutes=1)
        loop = ServiceCIDRLoop(server.store, now=clock)
        await server.post(CIDRS, cidr("more", "10.97.0.0/24"))
        await server.post(SERVICES, service(clusterIP="10.97.0.9"))
        await loop.check_all()
        await server.delete(MORE)
        assert await loop.check_all() == 1
        await server.post(CIDRS, cidr("part", "10.97.0.0/28"))
        assert await loop.check_all() == 0
        assert await is_gone(server)
        # The address is now in the part, so the whole is no longer needed for it.
        await server.post(CIDRS, cidr("whole", "10.97.0.0/16"))
        await loop.check_all()
        await server.delete(f"{CIDRS}/part")
        await loop.check_all()
        assert await is_gone(server, f"{CIDRS}/part")


async def test_two_ranges_in_deletion_do_not_cover_each_other(autojump_clock: MockClock) -> None:
    async with open_services("10.96.0.0/24") as server:
        clock = Clock()
        clock.ahead = timedelta(minutes=1)
        loop = ServiceCIDRLoop(server.store, now=clock)
        for name in ("more", "same"):
            await server.post(CIDRS, cidr(name, "10.97.0.0/24"))
        await server.post(SERVICES, service(clusterIP="10.97.0.9"))
        await loop.check_all()
        for name in ("more", "same"):
            await server.delete(f"{CIDRS}/{name}")
        assert await loop.check_all() == 2
        await server.delete(f"{SERVICES}/web")
        assert await loop.check_all() == 0


async def test_the_loop_keeps_the_default_range(autojump_clock: MockClock) -> None:
    async with open_server(loops=True, controllers=frozenset({"service-cidr"})) as server:
        await trio.sleep(1)
        target = f"{CIDRS}/kubernetes"
        assert (await server.get(target))["metadata"]["finalizers"] == [FINALIZER]
        assert (await condition(server, target))["message"] == "Kubernetes default Service CIDR is ready"
        await server.delete(target)
        await trio.sleep(30)
        assert (await condition(server, target))["reason"] == "Terminating"
        (await server.ask("POST", SERVICES, service())).refused(500)
        assert server.tree.restarts_total == 0


def test_covering() -> None:
    whole, part = ipaddress.ip_network("10.0.0.0/16"), ipaddress.ip_network("10.0.1.0/24")
    assert covers([whole], part)
    assert covers([part], part)
    assert not covers([part], whole)
    assert not covers([ipaddress.ip_network("fd00::/64")], part)
