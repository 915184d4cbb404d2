"""The store against a dict as its model: two replicas, lost connections, restarts, pages, past lists, watches.

Hypothesis generates programs of operations. After each operation the answer must be the model's. At the end the events
of every watcher must lead from its start to the current state. The views keep few events, so that pages, past lists and
watches continue from the log.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Any

import trio
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from in_process import MAPS, InProcess, Stream, configmap, open_server
from trio.testing import MockClock

from kubechronicle.eventlog.memory.memory_log import Fault
from kubechronicle.eventlog.memory.store import MemoryStore
from kubechronicle.eventlog.views import view

NAMES, LABELS = "abcde", "xy"
SELECTOR = "labelSelector=app%3Dx"
State = dict[str, tuple[str, str, int]]
"""Name → (text, label, revision)."""

replica = st.integers(0, 1)
name = st.sampled_from(NAMES)
label = st.sampled_from(LABELS)
fault = st.sampled_from([None, None, None, *(one for one in Fault if one is not Fault.LOST_IN_FLIGHT)])
share = st.floats(0, 1)
PUT = st.tuples(st.just("put"), replica, name, label, fault)
PAGE = st.tuples(st.just("page"), replica, st.integers(1, 3))
OPERATIONS = st.one_of(
    PUT,
    PUT,  # more frequent than others, because the rest needs several objects
    PUT,
    PAGE,
    PAGE,
    st.tuples(st.just("patch"), replica, name, label, fault),
    st.tuples(st.just("delete"), replica, name, fault),
    st.tuples(st.just("stale"), replica, name),
    st.tuples(st.just("clear"), replica, st.booleans()),
    st.tuples(st.just("past"), replica, share),
    st.tuples(st.just("watch"), replica, share, st.booleans()),
    st.tuples(st.just("restart"), replica),
)


@dataclass
class Watcher:
    stream: Stream
    selected: bool
    state: dict[str, int]
    revision: int


@dataclass
class Run:
    store: MemoryStore
    stack: AsyncExitStack
    nursery: trio.Nursery
    servers: dict[int, InProcess] = field(default_factory=dict)
    stops: dict[int, tuple[trio.Event, trio.Event]] = field(default_factory=dict)
    state: State = field(default_factory=dict)
    history: dict[int, State] = field(default_factory=dict)
    watchers: list[Watcher] = field(default_factory=list)
    pages: tuple[int, str, list[str]] | None = None
    texts: Iterator[int] = field(default_factory=itertools.count)

    async def open(self, index: int) -> None:
        """Start the replica in place of the old one."""
        if index in self.stops:
            stop, stopped = self.stops[index]
            stop.set()
            await stopped.wait()
        self.stops[index] = stop, stopped = trio.Event(), trio.Event()

        async def run(*, task_status: trio.TaskStatus[InProcess]) -> None:
            async with open_server(self.store) as server:
                task_status.started(server)
                await stop.wait()
            stopped.set()

        self.servers[index] = await self.nursery.start(run)

    def note(self) -> None:
        self.history[self.store.revision] = dict(self.state)

    def expected(self, revision: int, *, selected: bool = False) -> State:
        """Return the state at a revision."""
        at = max(known for known in self.history if known <= revision)
        return {key: value for key, value in self.history[at].items() if not selected or value[1] == "x"}

    def revision_at(self, part: float) -> int:
        return 1 + round(part * (self.store.revision - 1))


def read(obj: Any) -> tuple[str, str, int]:
    metadata = obj["metadata"]
    return obj["data"]["text"], metadata["labels"]["app"], int(metadata["resourceVersion"])


def read_all(listed: Any) -> State:
    return {item["metadata"]["name"]: read(item) for item in listed["items"]}


async def put(run: Run, index: int, key: str, label: str, fault: Fault | None) -> None:
    server, text = run.servers[index], str(next(run.texts))
    body = configmap(key, labels={"app": label}, text=text)
    if fault is not None:
        server.log.fail_next("append", fault)
    if key in run.state:
        made = await server.put(f"{MAPS}/{key}", body)
    else:
        made = await server.post(MAPS, body)
    assert read(made) == (text, label, run.store.revision)
    run.state[key] = read(made)
    server.log._script.clear()


async def patch(run: Run, index: int, key: str, label: str, fault: Fault | None) -> None:
    server = run.servers[index]
    if fault is not None:
        server.log.fail_next("append", fault)
    change = {"metadata": {"labels": {"app": label}}}
    answer = await server.ask(
        "PATCH", f"{MAPS}/{key}", change, headers={"content-type": "application/merge-patch+json"}
    )
    server.log._script.clear()
    if key not in run.state:
        answer.refused(404)
        return
    text, old_label, revision = run.state[key]
    expected = (text, label, revision if label == old_label else run.store.revision)
    assert read(answer.ok()) == expected
    run.state[key] = expected


async def delete(run: Run, index: int, key: str, fault: Fault | None) -> None:
    server = run.servers[index]
    if fault is not None:
        server.log.fail_next("append", fault)
    answer = await server.ask("DELETE", f"{MAPS}/{key}")
    server.log._script.clear()
    if run.state.pop(key, None) is None:
        answer.refused(404)
    else:
        answer.ok()


async def stale(run: Run, index: int, key: str) -> None:
    """Writes with an old revision and creations of existing objects are rejected."""
    server = run.servers[index]
    body = configmap(key, labels={"app": "x"}, text="never")
    if key in run.state:
        (await server.ask("POST", MAPS, body)).refused(409)
        body["metadata"]["resourceVersion"] = "1"
        (await server.ask("PUT", f"{MAPS}/{key}", body)).refused(409)
    else:
        (await server.ask("PUT", f"{MAPS}/{key}", body)).refused(404)


async def clear(run: Run, index: int, selected: bool) -> None:
    await run.servers[index].delete(f"{MAPS}?{SELECTOR}" if selected else MAPS)
    run.state = {key: value for key, value in run.state.items() if selected and value[1] != "x"}


async def page(run: Run, index: int, limit: int) -> None:
    """Start or continue a list in pages, on any replica."""
    server = run.servers[index]
    token = f"&continue={run.pages[1]}" if run.pages else ""
    answer = await server.get(f"{MAPS}?limit={limit}{token}")
    revision, names = int(answer["metadata"]["resourceVersion"]), [item["metadata"]["name"] for item in answer["items"]]
    if run.pages:
        assert revision == run.pages[0]
        names = [*run.pages[2], *names]
    expected = sorted(run.expected(revision))
    assert names == expected[: len(names)]
    assert answer["metadata"].get("remainingItemCount", 0) == len(expected) - len(names)
    more = answer["metadata"].get("continue", "")
    assert bool(more) == (len(names) < len(expected))
    run.pages = (revision, more, names) if more else None


async def past(run: Run, index: int, part: float) -> None:
    revision = run.revision_at(part)
    listed = await run.servers[index].get(f"{MAPS}?resourceVersion={revision}&resourceVersionMatch=Exact")
    assert read_all(listed) == run.expected(revision)


async def watch(run: Run, index: int, part: float, selected: bool) -> None:
    revision = run.revision_at(part)
    query = f"&{SELECTOR}" if selected else ""
    stream = await run.stack.enter_async_context(
        run.servers[index].watch(f"{MAPS}?watch=1&resourceVersion={revision}&timeoutSeconds=1000000{query}")
    )
    began = {key: value[2] for key, value in run.expected(revision, selected=selected).items()}
    run.watchers.append(Watcher(stream, selected, began, revision))


async def restart(run: Run, index: int) -> None:
    """Replace a replica by a new process without memory. Watches of the old one have finished by then."""
    if not run.watchers:
        await run.open(index)


async def follow(run: Run, watcher: Watcher) -> None:
    """Assert that the watcher's events lead to the current state."""
    with trio.move_on_after(5):
        while True:
            kind, key, revision = await watcher.stream.event()
            assert revision > watcher.revision, "out of order or duplicate"
            watcher.revision = revision
            assert kind == {False: "ADDED", True: kind}[key in watcher.state]
            assert kind in ("ADDED", "MODIFIED", "DELETED")
            assert (kind == "ADDED") == (key not in watcher.state)
            if kind == "DELETED":
                del watcher.state[key]
            else:
                watcher.state[key] = revision
    expected = run.expected(run.store.revision, selected=watcher.selected)
    assert watcher.state == {key: value[2] for key, value in expected.items()}


DO = {
    "put": put,
    "patch": patch,
    "delete": delete,
    "stale": stale,
    "clear": clear,
    "page": page,
    "past": past,
    "watch": watch,
    "restart": restart,
}


async def perform(program: list[tuple[Any, ...]]) -> None:
    store = MemoryStore()
    async with trio.open_nursery() as nursery, AsyncExitStack() as stack:
        run = Run(store, stack, nursery)
        await run.open(0)
        await run.open(1)
        run.note()
        for operation, *arguments in program:
            before = run.store.revision
            await DO[operation](run, *arguments)  # type: ignore[operator]
            if operation == "clear":
                # one revision per object: the states in between are those of key order
                gone = [key for key in sorted(run.history[max(run.history)]) if key not in run.state]
                for revision, key in enumerate(gone, before + 1):
                    run.history[revision] = {
                        name: value for name, value in run.history[revision - 1].items() if name != key
                    }
            run.note()
            listed = read_all(await run.servers[arguments[0]].get(MAPS))
            assert listed == run.state, operation
        for watcher in run.watchers:
            await follow(run, watcher)
        nursery.cancel_scope.cancel()


@contextlib.contextmanager
def little_memory() -> Iterator[None]:
    held, slack = view.RECENT_EVENTS, view.SLACK
    view.RECENT_EVENTS, view.SLACK = 4, 4
    try:
        yield
    finally:
        view.RECENT_EVENTS, view.SLACK = held, slack


@settings(max_examples=60, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(OPERATIONS, min_size=15, max_size=50))
def test_every_program_ends_as_the_model_does(program: list[tuple[Any, ...]]) -> None:
    with little_memory():
        trio.run(perform, program, clock=MockClock(autojump_threshold=0))
