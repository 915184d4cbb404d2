"""Two replicas on one log against a tiny model: a list of the committed changes.

Writes go to either replica; connections break, replicas crash or stall, history is compacted. At all times:

- revisions are gapless, and the log holds the results that callers received, in that order;
- a view equals the replay of the log, and a past state the replay up to its revision;
- a watch returns exactly the later events in its scope, from any revision; list-then-watch misses none;
- compacted history raises Compacted, and nothing else does.

The Trio loop runs in a thread with a clock that jumps, so that Hypothesis can drive it rule by rule and shrink.
"""

from __future__ import annotations

import math
from contextlib import AsyncExitStack, ExitStack
from dataclasses import dataclass, field
from typing import Any

import pytest
import trio
import trio.testing
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from trio.testing import wait_all_tasks_blocked
from trio_thread import TrioThread

from kubechronicle.eventlog import tail
from kubechronicle.eventlog.errors import Compacted, FutureRevision, RejectedError
from kubechronicle.eventlog.memory import memory_log
from kubechronicle.eventlog.memory.memory_log import Fault, MemoryLog
from kubechronicle.eventlog.memory.store import MemoryStore
from kubechronicle.eventlog.records import Key, Operation, Record
from kubechronicle.eventlog.testing import Stack, delete, open_stack, put, transaction
from kubechronicle.eventlog.views import cursors, view
from kubechronicle.eventlog.views.cursors import WatchCursor

SMALL = {
    (view, "RECENT_EVENTS"): 16,
    (cursors, "HISTORY_CHUNK"): 3,
    (cursors, "CURSOR_BATCH"): 3,
    (tail, "READ_CHUNK"): 4,
    (memory_log, "LOAD_CHUNK"): 3,
}
KEYS = [Key("pods", namespace, name) for namespace in "ab" for name in "xyz"] + [Key("nodes", "", "n1")]
NODES = ["", "n1", "n2"]
SCOPES: list[dict[str, Any]] = [
    {},
    {"namespace": "a"},
    {"namespace": "b", "name": "x"},
    {"name": "y"},
    {"field": ("spec.nodeName", "n1")},
]
FAULTS = [None, None, *Fault]


@dataclass(frozen=True)
class Committed:
    revision: int
    operation: Operation
    key: Key
    node: str
    before: str  # its node before the change

    def concerns(self, scope: dict[str, Any]) -> bool:
        return (
            self.key.resource == "pods"
            and scope.get("namespace", self.key.namespace) == self.key.namespace
            and scope.get("name", self.key.name) == self.key.name
            and ("field" not in scope or scope["field"][1] in (self.node, self.before))
        )


@dataclass
class Watcher:
    cursor: WatchCursor
    after: int
    scope: dict[str, Any]
    delivered: list[int] = field(default_factory=list)
    compacted: Compacted | None = None

    async def take(self) -> bool:
        """Take one batch. False: no event within a second, or history is compacted."""
        try:
            batch = await self.cursor.next_batch(deadline=trio.current_time() + 1)
        except Compacted as error:
            self.compacted = error
            return False
        self.delivered += [event.revision for event in batch]
        return bool(batch)

    async def follow(self) -> None:
        while self.compacted is None:
            await self.take()


class Replica:
    """The log connection of one server and everything on it; may crash and restart."""

    def __init__(self, store: MemoryStore) -> None:
        self.log = MemoryLog(store)
        self.stack: Stack
        self.stalled = ExitStack()
        self._exit = AsyncExitStack()

    async def start(self) -> None:
        self.stack = await self._exit.enter_async_context(open_stack(self.log))

    async def crash(self) -> None:
        self.stalled.close()
        self.stack.nursery.cancel_scope.cancel()
        await self._exit.aclose()


class TwoReplicas(RuleBasedStateMachine):
    @initialize()
    def begin(self) -> None:
        self.patch = pytest.MonkeyPatch()
        for (module, name), value in SMALL.items():
            self.patch.setattr(module, name, value)
        self.store = MemoryStore()
        self.model: list[Committed] = []
        self.watchers: list[tuple[int, Watcher]] = []
        self.waiting_watchers: list[tuple[int, Watcher]] = []
        self.loop = TrioThread()
        self.replicas = self.loop.run(self._start)

    async def _start(self) -> list[Replica]:
        replicas = [Replica(self.store), Replica(self.store)]
        for replica in replicas:
            await replica.start()
        return replicas

    def teardown(self) -> None:
        if hasattr(self, "loop"):
            self.loop.run(self._stop)
            self.loop.close()
            self.patch.undo()

    async def _stop(self) -> None:
        for replica in reversed(self.replicas):
            await replica.crash()

    # The model

    def current(self, key: Key) -> Committed | None:
        last = next((each for each in reversed(self.model) if each.key == key), None)
        return last if last is not None and last.operation is not Operation.DELETE else None

    def replay(self, revision: int, resource: str = "pods") -> list[tuple[Key, int]]:
        state: dict[Key, int] = {}
        for each in self.model[:revision]:
            if each.key.resource == resource:
                state[each.key] = each.revision
                if each.operation is Operation.DELETE:
                    del state[each.key]
        return sorted(state.items())

    def remember(self, record: Record, node: str) -> None:
        before = self.current(record.key)
        assert record.revision == len(self.model) + 1
        assert record.previous_revision == (before.revision if before else 0)
        self.model.append(Committed(record.revision, record.operation, record.key, node, before.node if before else ""))

    # Rules

    @rule(
        at=st.integers(0, 1),
        key=st.sampled_from(KEYS),
        node=st.sampled_from(NODES),
        remove=st.booleans(),
        stale=st.integers(0, 5),
        fault=st.sampled_from(FAULTS),
    )
    def write(self, *, at: int, key: Key, node: str, remove: bool, stale: int, fault: Fault | None) -> None:
        before = self.current(key)
        actual = before.revision if before else 0
        expected = actual if stale else actual + 1
        deleting = remove and actual > 0
        change = delete(key, expected=expected, node=node) if deleting else put(key, expected=expected, node=node)
        replica = self.replicas[at]

        async def append() -> tuple[Record, ...] | RejectedError:
            replica.stalled.close()
            if fault is not None:
                replica.log.fail_next("append", fault)
            try:
                return await replica.stack.appender.append(transaction(change), deadline=math.inf)
            except RejectedError as error:
                return error
            finally:
                for straggler in self.store.stragglers:
                    assert not self.store.deliver_straggler(straggler)

        outcome = self.loop.run(append)
        if isinstance(outcome, RejectedError):
            assert not stale
            assert (outcome.rejected.expected, outcome.rejected.actual) == (expected, actual)
        else:
            assert stale
            self.remember(outcome[0], node)
        assert replica.stack.views.applied >= len(self.model)

    @rule(key=st.sampled_from(KEYS), also=st.sampled_from(KEYS))
    def both_write(self, key: Key, also: Key) -> None:
        """Both replicas change the same key at once, one of them together with another key: one transaction wins."""
        before, other = self.current(key), self.current(also)
        ours = put(key, expected=before.revision if before else 0, node="n1")
        second = [put(also, expected=other.revision if other else 0, node="n2")] if also != key else []
        outcomes: list[tuple[Record, ...]] = []
        rejections: list[RejectedError] = []

        async def append(replica: Replica, *changes: Any) -> None:
            try:
                outcomes.append(await replica.stack.appender.append(transaction(*changes), deadline=math.inf))
            except RejectedError as error:
                rejections.append(error)

        async def both() -> None:
            for replica in self.replicas:
                replica.stalled.close()
            async with trio.open_nursery() as nursery:
                nursery.start_soon(append, self.replicas[0], ours)
                nursery.start_soon(append, self.replicas[1], ours, *second)

        self.loop.run(both)
        assert (len(outcomes), len(rejections)) == (1, 1)
        assert rejections[0].rejected.key == key
        for record, node in zip(outcomes[0], ("n1", "n2"), strict=False):
            self.remember(record, node)

    @rule(at=st.integers(0, 1), back=st.integers(0, 40), scope=st.sampled_from(SCOPES), wait=st.booleans())
    def watch(self, at: int, back: int, scope: dict[str, Any], wait: bool) -> None:
        after = max(0, len(self.model) - back)
        self._watch(at, after, scope, wait=wait)

    def _watch(self, at: int, after: int, scope: dict[str, Any], *, wait: bool) -> None:
        stack = self.replicas[at].stack
        watcher = Watcher(stack.views.watch("pods", after=after, **scope), after, scope)
        if wait:
            self.waiting_watchers.append((at, watcher))

            async def start() -> None:
                stack.nursery.start_soon(watcher.follow)

            self.loop.run(start)
        else:
            self.watchers.append((at, watcher))

    @rule(at=st.integers(0, 1), wait=st.booleans())
    def list_then_watch(self, at: int, *, wait: bool) -> None:
        replica = self.replicas[at]

        async def read() -> tuple[int, list[tuple[Key, int]]]:
            replica.stalled.close()
            revision = await replica.stack.reads.wait()
            return revision, [(each.key, each.revision) for each in replica.stack.views["pods"].entries()]

        revision, listed = self.loop.run(read)
        assert revision == len(self.model)
        assert listed == self.replay(revision)
        self._watch(at, revision, {}, wait=wait)

    @precondition(lambda self: self.watchers)
    @rule(number=st.integers(0, 100))
    def poll_a_slow_watcher(self, number: int) -> None:
        _, watcher = self.watchers[number % len(self.watchers)]
        if watcher.compacted is None:
            self.loop.run(watcher.take)

    @rule(back=st.integers(0, 20), resource=st.sampled_from(["", "pods", "nodes"]))
    def compact(self, back: int, resource: str) -> None:
        revision = max(0, len(self.model) - back)

        async def compact() -> None:
            self.store.compact(revision, resource=resource)

        self.loop.run(compact)

    @rule(at=st.integers(0, 1), back=st.integers(-1, 25))
    def read_the_past(self, at: int, back: int) -> None:
        revision = len(self.model) - back
        replica = self.replicas[at]

        async def read() -> list[tuple[Key, int]] | Exception:
            try:
                found = await replica.log.list_at("pods", revision=revision, limit=1000)
                return [(record.key, record.revision) for record in found]
            except (Compacted, FutureRevision) as error:
                return error

        if revision >= 0:
            answer = self.loop.run(read)
            if back < 0:
                assert isinstance(answer, FutureRevision)
            elif revision < self.store.head().compacted_for("pods"):
                assert isinstance(answer, Compacted)
            else:
                assert answer == self.replay(revision)

    @rule(at=st.integers(0, 1))
    def stall(self, at: int) -> None:
        """Let the replica's read connection hang until it writes or crashes."""
        replica = self.replicas[at]

        async def hold() -> None:
            replica.stalled.close()
            replica.stalled.enter_context(replica.log.hold("read"))

        self.loop.run(hold)

    @rule(at=st.integers(0, 1))
    def crash(self, at: int) -> None:
        """Restart the replica: memory is lost, acknowledged changes are not."""

        async def restart() -> None:
            # The loop's one task opened the replicas' nurseries, and must close them in reverse.
            for replica in reversed(self.replicas[at:]):
                await replica.crash()
            for number in range(at, 2):
                self.replicas[number] = Replica(self.store)
                await self.replicas[number].start()

        self.loop.run(restart)
        self.watchers = [each for each in self.watchers if each[0] < at]
        self.waiting_watchers = [each for each in self.waiting_watchers if each[0] < at]

    # Invariants

    @invariant()
    def replicas_equal_the_model(self) -> None:
        if hasattr(self, "loop"):
            self.loop.run(wait_all_tasks_blocked)
            assert self.store.revision == len(self.model)
            for replica in self.replicas:
                self._check_views(replica)
            for _, watcher in self.watchers + self.waiting_watchers:
                self._check_watcher(watcher)

    def _check_views(self, replica: Replica) -> None:
        views = replica.stack.views
        stalled = "read" in replica.log._gates
        assert stalled or views.applied == len(self.model)
        for resource in ("pods", "nodes"):
            view = views[resource]
            assert [(each.key, each.revision) for each in view.entries()] == self.replay(views.applied, resource)
            for revision in range(max(0, view.held_since - 1), views.applied + 1):
                snapshot = view.snapshot(revision)
                if revision < view.held_since:
                    assert snapshot is None
                else:
                    assert snapshot is not None
                    assert [(each.key, each.revision) for each in snapshot] == self.replay(revision, resource)

    def _check_watcher(self, watcher: Watcher) -> None:
        reached = watcher.cursor.revision
        assert watcher.delivered == [
            each.revision for each in self.model[watcher.after : reached] if each.concerns(watcher.scope)
        ]
        if watcher.compacted is not None:
            assert reached < watcher.compacted.compacted <= self.store.head().compacted_for("pods")


TestTwoReplicas = TwoReplicas.TestCase
TestTwoReplicas.settings = settings(
    max_examples=60,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
