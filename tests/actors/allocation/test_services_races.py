"""No address or port is allocated twice: two servers on one log, concurrent Services, a failing log."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from random import Random

import postgres_fixture
import pytest
import trio
from in_process import Answer, InProcess
from services import SERVICES, causes, has, held, open_services, service
from trio.testing import MockClock

from kubechronicle.eventlog.memory.memory_log import Fault
from kubechronicle.eventlog.memory.store import MemoryStore
from kubechronicle.eventlog.postgres.connection import migrate
from kubechronicle.eventlog.postgres_log import open_postgres_log

Replicas = tuple[InProcess, InProcess]
SMALL = "10.96.0.0/27"
FEW = range(31000, 31020)


@asynccontextmanager
async def two(*ranges: str, node_ports: range = FEW) -> AsyncIterator[Replicas]:
    store = MemoryStore()
    async with (
        open_services(*ranges, store=store, node_ports=node_ports) as one,
        open_services(*ranges, store=store, node_ports=node_ports) as other,
    ):
        await other.get(SERVICES)
        yield one, other


@pytest.fixture(scope="module")
def database() -> Iterator[str]:
    """URL of a migrated database on a real Postgres."""
    if postgres_fixture.binaries() is None:
        pytest.skip("no Postgres on this machine")
    with postgres_fixture.running("fsync=off") as server:
        trio.run(migrate, server.url)
        yield server.url


@asynccontextmanager
async def two_on_postgres(url: str) -> AsyncIterator[Replicas]:
    async with (
        open_postgres_log(url, instance="one") as first,
        open_postgres_log(url, instance="other") as second,
        open_services(SMALL, store=first, node_ports=FEW) as one,
        open_services(SMALL, store=second, node_ports=FEW) as other,
    ):
        await other.get(SERVICES)
        yield one, other


async def make_all(replicas: Replicas, bodies: list[dict[str, object]]) -> list[Answer]:
    """Post all bodies at once, alternating between the servers."""
    answers: list[Answer] = []

    async def make(server: InProcess, body: dict[str, object]) -> None:
        answers.append(await server.ask("POST", SERVICES, body))

    async with trio.open_nursery() as nursery:
        for index, body in enumerate(bodies):
            nursery.start_soon(make, replicas[index % 2], body)
    return answers


async def given_once(server: InProcess) -> None:
    """Assert that the allocations are those of all Services, each of one Service."""
    items = (await server.get(SERVICES))["items"]
    allocated = Counter(value for item in items for value in has(item))
    assert all(count == 1 for count in allocated.values())
    assert held(server) == {value: item["metadata"]["name"] for item in items for value in has(item)}


async def race_for_one(replicas: Replicas, *, name: str, address: str, port: int) -> None:
    spec = {"type": "NodePort", "clusterIP": address, "ports": [{"port": 80, "nodePort": port}]}
    answers = await make_all(replicas, [service(f"{name}-{number}", **spec) for number in range(6)])
    assert sorted(answer.status for answer in answers) == [201, *[422] * 5]
    for answer in answers:
        if answer.status == 422:
            ((field, message),) = causes(answer.refused(422))
            assert field == "spec.clusterIPs"
            assert message.endswith("provided IP is already allocated")
    await given_once(replicas[0])


async def race_for_all(replicas: Replicas, *, services: int, addresses: int) -> None:
    bodies = [service(f"s{number}") for number in range(services)]
    answers = await make_all(replicas, bodies)
    assert Counter(answer.status for answer in answers) == {201: addresses, 500: services - addresses}
    for answer in answers:
        if answer.status == 500:
            assert answer.json()["message"].endswith("failed to allocate a serviceIP: range is full")
    for server in replicas:
        await given_once(server)


async def test_one_of_many_services_gets_a_requested_address_and_port(autojump_clock: MockClock) -> None:
    async with two(node_ports=range(30000, 32768)) as replicas:
        for number in range(1, 6):
            await race_for_one(replicas, name=f"s{number}", address=f"10.96.0.{number}", port=30000 + number)


async def test_one_of_many_services_gets_a_requested_port(autojump_clock: MockClock) -> None:
    async with two() as replicas:
        spec = {"type": "NodePort", "ports": [{"port": 80, "nodePort": 31007}]}
        answers = await make_all(replicas, [service(f"s{number}", **spec) for number in range(8)])
        assert sorted(answer.status for answer in answers) == [201, *[422] * 7]
        await given_once(replicas[1])


async def test_every_address_of_a_range_is_allocated(autojump_clock: MockClock) -> None:
    async with two(SMALL) as replicas:
        await race_for_all(replicas, services=50, addresses=30)


async def test_every_port_is_allocated(autojump_clock: MockClock) -> None:
    async with two("10.96.0.0/24") as replicas:
        answers = await make_all(replicas, [service(f"s{number}", type="NodePort") for number in range(30)])
        assert Counter(answer.status for answer in answers) == {201: 20, 500: 10}
        await given_once(replicas[0])


async def test_released_values_can_be_allocated_at_once(autojump_clock: MockClock) -> None:
    async with two("10.96.0.0/29") as replicas:
        for number in range(6):
            await replicas[0].post(SERVICES, service(f"old{number}"))

        async def replace(server: InProcess, number: int) -> None:
            await server.delete(f"{SERVICES}/old{number}")
            await server.post(SERVICES, service(f"new{number}"))

        async with trio.open_nursery() as nursery:
            for number in range(6):
                nursery.start_soon(replace, replicas[number % 2], number)
        await given_once(replicas[0])
        assert len(held(replicas[0])) == 6


async def test_a_second_family_is_allocated_once(autojump_clock: MockClock) -> None:
    async with two("10.96.0.0/24", "fd00:96::/125") as replicas:
        for number in range(10):
            await replicas[0].post(SERVICES, service(f"s{number}"))
        codes: list[int] = []

        async def widen(server: InProcess, number: int) -> None:
            headers = {"content-type": "application/merge-patch+json"}
            body = {"spec": {"ipFamilyPolicy": "RequireDualStack"}}
            codes.append((await server.ask("PATCH", f"{SERVICES}/s{number}", body, headers=headers)).status)

        async with trio.open_nursery() as nursery:
            for number in range(10):
                nursery.start_soon(widen, replicas[number % 2], number)
        assert Counter(codes) == {200: 7, 500: 3}
        await given_once(replicas[1])


@pytest.mark.parametrize("fault", list(Fault))
async def test_a_failing_log_leaves_no_partial_allocation(fault: Fault, autojump_clock: MockClock) -> None:
    async with open_services(SMALL, node_ports=FEW) as server:
        for number in range(8):
            server.log.fail_next("append", *[fault] * (number % 2))
            await server.ask("POST", SERVICES, service(f"s{number}", type="NodePort"))
            server.log.fail_next("append", *[fault] * (number % 3 == 0))
            await server.ask("DELETE", f"{SERVICES}/s{number - 1}")
            await trio.sleep(30)  # pending commits are finished by then
            await given_once(server)


TYPES = (
    {"type": "ClusterIP"},
    {"type": "NodePort"},
    {"type": "LoadBalancer", "externalTrafficPolicy": "Local"},
    {"type": "LoadBalancer", "externalTrafficPolicy": "Cluster"},
    {"type": "ExternalName", "externalName": "x.org"},
)
POLICIES = ("SingleStack", "PreferDualStack", "RequireDualStack")


async def anything(server: InProcess, random: Random) -> None:
    """Send a random request for one of a few Services. Most succeed, some are rejected."""
    target = f"{SERVICES}/s{random.randrange(4)}"
    name = target.rpartition("/")[2]
    ports = [{"name": f"p{port}", "port": port} for port in range(1, random.randrange(2, 4))]
    if random.random() < 0.3:
        ports[0]["nodePort"] = random.choice(FEW)
    spec: dict[str, object] = {**random.choice(TYPES), "ports": ports}
    if spec["type"] != "ExternalName":
        spec["ipFamilyPolicy"] = random.choice(POLICIES)
    if spec["type"] in ("ClusterIP", "ExternalName"):
        ports[0].pop("nodePort", None)
    body = service(name, **spec)
    method = random.choice(("POST", "PUT", "PATCH", "DELETE"))
    headers = {"content-type": "application/merge-patch+json"} if method == "PATCH" else None
    place = SERVICES if method == "POST" else target
    answer = await server.ask(method, place, None if method == "DELETE" else body, headers=headers)
    assert answer.status in (200, 201, 404, 409, 422, 500), answer.body
    if answer.status == 500:
        assert b"range is full" in answer.body or b"already allocated" in answer.body, answer.body


@pytest.mark.parametrize("seed", range(4))
async def test_random_requests_lose_and_duplicate_no_allocation(seed: int, autojump_clock: MockClock) -> None:
    random = Random(seed)
    async with two("10.96.0.0/29", "fd00:96::/125", node_ports=range(31000, 31012)) as replicas:
        for _ in range(60):
            async with trio.open_nursery() as nursery:
                for _ in range(random.randrange(1, 4)):
                    nursery.start_soon(anything, random.choice(replicas), Random(random.random()))
            for server in replicas:
                await given_once(server)


async def test_two_servers_on_postgres(database: str) -> None:
    async with two_on_postgres(database) as replicas:
        await race_for_one(replicas, name="one", address="10.96.0.7", port=31007)
        await race_for_all(replicas, services=36, addresses=29)
        await replicas[0].delete(SERVICES)
        await replicas[1].get(SERVICES)
        assert held(replicas[1]) == {}
