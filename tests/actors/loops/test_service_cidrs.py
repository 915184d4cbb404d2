"""ServiceCIDRs: ready while they are there, and no end while an address of theirs is in use."""

from __future__ import annotations

import ipaddress
from datetime import UTC, datetime, timedelta
from typing import Any

import trio
from in_process import InProcess, open_server
from services import CIDRS, SERVICES, cidr, open_services, service
from trio.testing import MockClock

from kubechronicle.actors.loops.services.service_cidrs import FINALIZER, IN_USE, READY, ServiceCIDRLoop, covers

MORE = f"{CIDRS}/more"


class Clock:
    """The wall clock, as the test sets it."""

    def __init__(self) -> None:
        self.ahead = timedelta()

    def __call__(self) -> datetime:
        return datetime.now(UTC) + self.ahead


async def condition(server: InProcess, target: str = MORE) -> dict[str, Any]:
    (found,) = (await server.get(target))["status"]["conditions"]
    assert found.pop("lastTransitionTime")
    return dict(found)


async def is_gone(server: InProcess, target: str = MORE) -> bool:
    return (await server.ask("GET", target)).status == 404


async def test_a_new_one_gets_a_finalizer_and_is_ready(autojump_clock: MockClock) -> None:
    async with open_services() as server:
        await server.post(CIDRS, cidr("more", "10.97.0.0/24"))
        loop = ServiceCIDRLoop(server.store)
        assert await loop.check_all() == 0
        assert (await server.get(MORE))["metadata"]["finalizers"] == [FINALIZER]
        assert await condition(server) == {"type": "Ready", "status": "True", "reason": "", "message": READY}
        before = server.log.store.revision
        assert await loop.check_all() == 0
        assert server.log.store.revision == before


async def test_one_that_nobody_needs_goes_after_a_while(autojump_clock: MockClock) -> None:
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


async def test_one_in_use_stays_until_it_is_not(autojump_clock: MockClock) -> None:
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


async def test_another_that_covers_it_lets_it_go(autojump_clock: MockClock) -> None:
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
        # The part holds the address now, and the whole would be needed for it no more.
        await server.post(CIDRS, cidr("whole", "10.97.0.0/16"))
        await loop.check_all()
        await server.delete(f"{CIDRS}/part")
        await loop.check_all()
        assert await is_gone(server, f"{CIDRS}/part")


async def test_two_that_end_do_not_cover_each_other(autojump_clock: MockClock) -> None:
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
