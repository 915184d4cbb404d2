"""Crashes of every child of the tree while clients write: acknowledged writes are kept, rejected writes did not happen,
revisions have no gap, and the tree restarts or the server stops.

A saboteur runs each child and raises in it when the test demands it. The clock jumps; the log is in memory.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
import trio
from in_process import MAPS, InProcess, configmap, open_server, plan, without_listener
from trio.testing import MockClock, wait_all_tasks_blocked

from kubechronicle.actors import resource_actor
from kubechronicle.actors.errors import SupervisorGaveUp
from kubechronicle.actors.supervisor import ChildSpec, Supervisor
from kubechronicle.eventlog.errors import LogCorrupt
from kubechronicle.eventlog.memory.memory_log import MemoryLog
from kubechronicle.eventlog.records import Key, Operation
from kubechronicle.eventlog.restarts import CALM, LONGEST
from kubechronicle.ops.server.composition import assemble

LOG = ("tail", "appender", "resource actors")
OTHERS = ("outside", "loops", "http")
CHILDREN = (*LOG, *OTHERS)


class Injected(Exception):
    """The bug that strikes."""


class Saboteur:
    """Runs a child, and makes it crash with an Injected error on ``strike``."""

    def __init__(self, run: Any) -> None:
        self._run = run
        self._strike = trio.Event()
        self.runs = 0

    async def run(self, *, task_status: trio.TaskStatus[Any] = trio.TASK_STATUS_IGNORED) -> None:
        self.runs += 1
        self._strike = trio.Event()
        async with trio.open_nursery() as nursery:
            await nursery.start(lambda *, task_status: self._run(task_status=task_status))
            task_status.started()
            await self._strike.wait()
            raise self._error

    def strike(self, error: Exception | None = None) -> None:
        self._error = error or Injected()
        self._strike.set()


@dataclass
class Sabotaged:
    server: InProcess
    tree: Supervisor
    children: dict[str, Saboteur]


async def pretend_to_listen(*, task_status: trio.TaskStatus[None]) -> None:
    task_status.started()
    await trio.sleep_forever()


@asynccontextmanager
async def open_sabotaged(log: MemoryLog) -> AsyncIterator[Sabotaged]:
    assembly = assemble(log, plan(controllers=frozenset({"namespace"})))
    failures, children = assembly.tree.failures, dict[str, Saboteur]()

    def sabotaged(specs: Sequence[ChildSpec]) -> list[ChildSpec]:
        made = {spec.name: Saboteur(spec.run) for spec in specs}
        children.update(made)
        return [replace(spec, run=made[spec.name].run) for spec in specs]

    of_log, *others = without_listener(assembly, loops=True)._children
    parts = Supervisor("log", sabotaged(of_log.run.__self__._children), lasting=True, failures=failures)  # type: ignore[attr-defined]
    rest = sabotaged([*others, ChildSpec(name="http", run=pretend_to_listen)])
    tree = Supervisor("server", [replace(of_log, run=parts.run), *rest], lasting=True, failures=failures)
    assert tuple(children) == CHILDREN
    async with trio.open_nursery() as nursery:
        await nursery.start(lambda *, task_status: tree.run(task_status=task_status))
        yield Sabotaged(InProcess(assembly, log, tree, nursery), tree, children)
        nursery.cancel_scope.cancel()


@dataclass
class Results:
    """The results of a writer: revisions of acknowledged writes by text, and the texts of rejected and unknown ones."""

    acknowledged: dict[str, int] = field(default_factory=dict)
    refused: set[str] = field(default_factory=set)
    unknown: set[str] = field(default_factory=set)


async def write(server: InProcess, writer: int, results: Results, stop: Callable[[], bool]) -> None:
    """Create an object and write new texts into it until ``stop``. Delete it now and then."""
    name, round_ = f"w{writer}", 0
    while not stop():
        round_ += 1
        text = f"{writer}.{round_}"
        body = configmap(name, text=text)
        if round_ % 7 == 0:
            answer = await server.ask("DELETE", f"{MAPS}/{name}?timeout=20s")
            assert answer.status in (200, 404, 503, 504), answer
            continue
        answer = await server.ask("PUT", f"{MAPS}/{name}?timeout=20s", body)
        if answer.status == 404:
            answer = await server.ask("POST", f"{MAPS}?timeout=20s", body)
        if answer.status in (200, 201):
            results.acknowledged[text] = int(answer.json()["metadata"]["resourceVersion"])
        elif answer.status == 504:
            results.unknown.add(text)
        else:
            assert answer.status in (404, 409, 429, 503), answer
            results.refused.add(text)
        await trio.sleep(0.07 * (writer + 1))


def is_ours(key: Key) -> bool:
    """Return True for a ConfigMap of the test, False for one of the server."""
    return (key.resource, key.namespace) == ("configmaps", "default")


def check(log: MemoryLog, writers_results: list[Results]) -> None:
    rows = list(log.store.rows(after=0))
    assert [row.revision for row in rows] == list(range(1, len(rows) + 1))
    texts: dict[str, list[int]] = {}
    for row in rows:
        if is_ours(row.key) and row.operation is not Operation.DELETE:
            texts.setdefault(json.loads(row.body)["data"]["text"], []).append(row.revision)
    assert all(len(revisions) == 1 for revisions in texts.values()), "a write happened twice"
    for each in writers_results:
        for text, revision in each.acknowledged.items():
            assert texts.get(text) == [revision], f"{text} was acknowledged as {revision}"
        assert not each.refused & texts.keys(), "a refused write happened"
    assert sum(len(each.acknowledged) for each in writers_results) > 20, "too few writes succeeded"


@pytest.mark.parametrize("victim", CHILDREN)
@pytest.mark.parametrize("moment", ["", "append", "append.committed", "read", "head.read"])
async def test_a_child_crashes_while_clients_write(autojump_clock: MockClock, victim: str, moment: str) -> None:
    log = MemoryLog()
    writers_results = [Results() for _ in range(4)]
    stopped = False
    async with open_sabotaged(log) as sabotaged:
        server = sabotaged.server
        async with trio.open_nursery() as writers:
            for number, each in enumerate(writers_results):
                writers.start_soon(write, server, number, each, lambda: stopped)
            for _ in range(3):
                await trio.sleep(0.05)
                if moment:
                    with log.hold(moment) as gate:
                        with trio.move_on_after(1):
                            await gate.wait_arrived()
                        sabotaged.children[victim].strike()
                        await trio.sleep(0.001)
                else:
                    sabotaged.children[victim].strike()
                await trio.sleep(4)
                assert all(not child._strike.is_set() for child in sabotaged.children.values()), "not up again"
            await trio.sleep(1)
            stopped = True
        assert sabotaged.tree.restarts_total == 3
        runs = {name: child.runs for name, child in sabotaged.children.items()}
        group = LOG if victim in LOG else OTHERS  # requests and loops outlive a crash in the log
        restarted = group[group.index(victim) :]
        assert runs == {name: 4 if name in restarted else 1 for name in CHILDREN}
        check(log, writers_results)
        # The views equal the log.
        listed = await server.get(MAPS)
        live = {key.name: row.revision for row in log.store.live() if is_ours(key := row.key)}
        shown = {item["metadata"]["name"]: int(item["metadata"]["resourceVersion"]) for item in listed["items"]}
        assert shown == live
        await trio.sleep(2 * CALM)
        assert (await server.ask("GET", "/readyz")).status == 200


async def test_several_children_crash_at_once(autojump_clock: MockClock) -> None:
    log = MemoryLog()
    writers_results = [Results() for _ in range(3)]
    stopped = False
    async with open_sabotaged(log) as sabotaged:
        async with trio.open_nursery() as writers:
            for number, each in enumerate(writers_results):
                writers.start_soon(write, sabotaged.server, number, each, lambda: stopped)
            await trio.sleep(0.05)
            for victims in (("tail", "http"), ("http", "tail"), ("appender", "resource actors", "loops")):
                for victim in victims:
                    sabotaged.children[victim].strike()
                await trio.sleep(5)
            stopped = True
        check(log, writers_results)
        assert sabotaged.tree.restarts_total <= 7


@pytest.mark.parametrize("victim", CHILDREN)
async def test_a_child_that_keeps_crashing_is_named_and_restarted_with_growing_pauses(
    autojump_clock: MockClock, victim: str
) -> None:
    async with open_sabotaged(MemoryLog()) as sabotaged:
        server = sabotaged.server
        for _ in range(50):
            sabotaged.children[victim].strike()
            await trio.sleep(3)
        assert 8 < server.tree.failures.totals[victim] < 20
        answer = await server.ask("GET", "/readyz?verbose")
        assert answer.status == 500  # all of them are essential; the tasks of outside and loops are not
        assert f"[-]task/{victim} failed: reason withheld".encode() in answer.body
        await trio.sleep(2 * LONGEST + CALM)
        assert (await server.ask("GET", "/readyz?verbose")).status == 200
        await server.post(MAPS, configmap("a"))


async def test_a_log_that_stays_corrupt_stops_the_server(autojump_clock: MockClock) -> None:
    with pytest.raises(BaseExceptionGroup) as raised:  # noqa: PT012
        async with open_sabotaged(MemoryLog()) as sabotaged:
            for _ in range(50):
                sabotaged.children["tail"].strike(LogCorrupt("revision 7 is missing"))
                await trio.sleep(3)
            raise AssertionError("it was restarted for ever")
    group = raised.value.subgroup(SupervisorGaveUp)
    assert group is not None
    assert "tail was restarted 9 times" in str(leaf(group))


async def test_occasional_crashes_do_not_stop_the_server(autojump_clock: MockClock) -> None:
    async with open_sabotaged(MemoryLog()) as sabotaged:
        for _ in range(30):
            sabotaged.children["tail"].strike()
            await trio.sleep(20)
        assert sabotaged.tree.restarts_total == 30
        await sabotaged.server.post(MAPS, configmap("a"))


def leaf(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


# -- a resource actor -------------------------------------------------------------------------------------------------


async def test_an_actor_that_crashes_in_a_decision_is_restarted(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next incarnation decides the pending write; the client notices nothing."""
    real, crashes = resource_actor.decide, 3

    def decide(state: Any, expected: int) -> Any:
        nonlocal crashes
        if crashes:
            crashes -= 1
            raise Injected
        return real(state, expected)

    async with open_server() as server:
        monkeypatch.setattr(resource_actor, "decide", decide)
        await server.post(MAPS, configmap("a"))
        assert crashes == 0
        assert server.tree.failures.totals["actor of configmaps"] == server.tree.restarts_total == 3


async def test_an_actor_that_keeps_crashing_fails_the_writes_of_its_resource_alone(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    def decide(state: Any, expected: int) -> Any:
        raise Injected

    real = resource_actor.decide
    async with open_server() as server:
        monkeypatch.setattr(resource_actor, "decide", decide)
        for _ in range(20):
            answer = await server.ask("POST", f"{MAPS}?timeout=10s", configmap("a"))
            assert answer.status in (503, 504)
        assert server.log.store.revision == 1
        answer = await server.ask("GET", "/readyz?verbose")
        assert answer.status == 500
        assert b"[-]task/actor of configmaps failed: reason withheld" in answer.body
        monkeypatch.setattr(resource_actor, "decide", real)
        await server.post(MAPS, configmap("a"))


async def test_other_actors_continue_while_one_crashes(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_server() as server:
        pods = "/api/v1/namespaces"
        await server.post(MAPS, configmap("warm"))
        actor = server.assembly.actors._actors["configmaps"]
        real = actor._current_revision

        def current(namespace: str, name: str) -> int:
            monkeypatch.setattr(actor, "_current_revision", real)
            raise Injected

        with server.log.hold("append.committed") as gate:
            in_flight: list[Any] = []

            async def create(target: str, body: Any) -> None:
                in_flight.append(await server.ask("POST", target, body))

            server.nursery.start_soon(create, MAPS, configmap("in-flight"))
            await gate.wait_arrived()
            monkeypatch.setattr(actor, "_current_revision", current)
            server.nursery.start_soon(create, MAPS, configmap("crashing"))
            server.nursery.start_soon(create, pods, {"metadata": {"name": "other"}})
            await wait_all_tasks_blocked(0.0001)
            gate.release()
        await trio.sleep(1)
        assert [answer.status for answer in in_flight] == [201, 201, 201]
        assert server.tree.failures.totals["actor of configmaps"] == 1
