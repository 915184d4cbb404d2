"""The garbage collector under random programs: every write of the collector is right by the log.

Programs create ConfigMaps with earlier ones as owners (existing or not), perhaps with a foreign finalizer. They change
owners, delete with every policy, and stop servers, mostly without waiting for the collector. In the end, no object
without an existing owner remains. Every write of the collector is checked against the state before it, replayed from
the log.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from typing import Any, NamedTuple

import trio
from hypothesis import HealthCheck, given, settings, target
from hypothesis import strategies as st
from in_process import InProcess, configmap, open_server
from trio.testing import MockClock

from kubechronicle.eventlog.memory.memory_log import MemoryLog
from kubechronicle.eventlog.records import Operation, Record, Who
from kubechronicle.eventlog.views import view

MAPS = "/api/v1/namespaces/default/configmaps"
HOLD = "example.com/hold"
CALM = 300.0  # virtual seconds
Object = dict[str, Any]

OBJECT = st.integers(0, 7)
OPERATIONS = st.one_of(
    st.tuples(st.just("create"), st.lists(st.tuples(OBJECT, st.booleans()), max_size=3), st.just(False)),
    st.tuples(st.just("create"), st.lists(st.tuples(OBJECT, st.booleans()), max_size=3), st.booleans()),
    st.tuples(st.just("refer"), OBJECT, OBJECT, st.booleans()),
    st.tuples(st.just("let_go"), OBJECT),
    st.tuples(st.just("unrefer"), OBJECT),
    st.tuples(st.just("delete"), OBJECT, st.sampled_from(["Background", "Foreground", "Orphan"])),
    st.tuples(st.just("delete"), OBJECT, st.sampled_from(["Background", "Foreground", "Orphan"])),
    st.tuples(st.just("pause"), st.sampled_from([0.0, 0.001, 1.0, CALM])),
    st.tuples(st.just("restart")),
)


class Made(NamedTuple):
    name: str
    uid: str


class Program:
    """Operations on one server after another, all on one log."""

    def __init__(self) -> None:
        self.log = MemoryLog()
        self.made: list[Made] = []

    async def perform(self, operations: list[tuple[Any, ...]]) -> None:
        remaining = list(operations)
        while remaining:
            async with open_server(self.log, loops=True, controllers=frozenset({"garbage-collector"})) as server:
                while remaining:
                    name, *arguments = remaining.pop(0)
                    if name == "restart":
                        break
                    await getattr(self, name)(server, *arguments)
                if not remaining:
                    for index in range(len(self.made)):
                        await self.let_go(server, index)
                    await trio.sleep(CALM)
                assert server.tree.restarts_total == 0

    def references(self, server: InProcess, wanted: list[tuple[int, bool]]) -> list[Object]:
        """Return references to objects that stay or are deleted. A reference to one in deletion may come too late."""
        references: dict[str, Object] = {}
        for index, blocks in wanted:
            if not self.made:
                break
            one = self.made[index % len(self.made)]
            entry = server.store.reads.peek("configmaps", "default", one.name)
            if entry is None or "deletionTimestamp" not in entry.object()["metadata"]:
                references[one.uid] = {
                    "apiVersion": "v1",
                    "kind": "ConfigMap",
                    "name": one.name,
                    "uid": one.uid,
                    "blockOwnerDeletion": blocks,
                }
        return list(references.values())

    async def create(self, server: InProcess, owners: list[tuple[int, bool]], held: bool) -> None:
        body = configmap(f"m{len(self.made)}")
        body["metadata"]["ownerReferences"] = self.references(server, owners)
        body["metadata"]["finalizers"] = [HOLD] if held else []
        made = await server.post(MAPS, body)
        self.made.append(Made(made["metadata"]["name"], made["metadata"]["uid"]))

    async def refer(self, server: InProcess, index: int, owner: int, blocks: bool) -> None:
        added = self.references(server, [(owner, blocks)])
        if added:
            await self._change(server, index, {"metadata": {"ownerReferences": [{"$patch": "replace"}, *added]}})

    async def unrefer(self, server: InProcess, index: int) -> None:
        await self._change(server, index, {"metadata": {"ownerReferences": None}})

    async def let_go(self, server: InProcess, index: int) -> None:
        await self._change(server, index, {"metadata": {"$deleteFromPrimitiveList/finalizers": [HOLD]}})

    async def _change(self, server: InProcess, index: int, patch: Object) -> None:
        if self.made:
            headers = {"content-type": "application/strategic-merge-patch+json"}
            path = f"{MAPS}/{self.made[index % len(self.made)].name}"
            assert (await server.ask("PATCH", path, patch, headers=headers)).status in (200, 404)

    async def delete(self, server: InProcess, index: int, policy: str) -> None:
        if self.made:
            path = f"{MAPS}/{self.made[index % len(self.made)].name}"
            assert (await server.ask("DELETE", path, {"propagationPolicy": policy})).status in (200, 404)

    async def pause(self, server: InProcess, seconds: float) -> None:
        await trio.sleep(seconds)


# -- the checks -------------------------------------------------------------------------------------------------------


def owners(metadata: Object) -> list[tuple[str, str]]:
    return [(one["name"], one["uid"]) for one in metadata.get("ownerReferences", ())]


def is_waiting(metadata: Object, finalizer: str) -> bool:
    return "deletionTimestamp" in metadata and finalizer in metadata.get("finalizers", ())


class Checker:
    """The ConfigMaps by name, as metadata, folded from the log."""

    def __init__(self) -> None:
        self.state: dict[str, Object] = {}
        self.waited: set[str] = set()  # uids of objects that wait in the foreground, or did until their last write
        self.writes = 0  # the collector's

    def fold(self, row: Record, who: Who) -> None:
        now = json.loads(row.body)["metadata"]
        before = self.state.get(row.key.name)
        if who.user_agent == "kubechronicle/garbage-collector":
            self.writes += 1
            assert before is not None, "the collector creates nothing here"
            if "deletionTimestamp" not in before and (row.operation is Operation.DELETE or "deletionTimestamp" in now):
                self.check_end(before)
            elif row.operation is Operation.DELETE or now.get("finalizers") != before.get("finalizers"):
                self.check_release(before)
            else:
                self.check_change(before, now)
        if is_waiting(now, "foregroundDeletion"):
            self.waited.add(now["uid"])
        if row.operation is Operation.DELETE:
            self.state.pop(row.key.name)
        else:
            self.state[row.key.name] = now

    def there(self, name: str, uid: str) -> Object | None:
        owner = self.state.get(name)
        return owner if owner is not None and owner["uid"] == uid else None

    def may_stay(self, name: str, uid: str) -> bool:
        return self.there(name, uid) is not None and uid not in self.waited

    def check_end(self, metadata: Object) -> None:
        assert owners(metadata), "it had no owners"
        assert not any(self.may_stay(*owner) for owner in owners(metadata)), "it had an owner"

    def check_release(self, metadata: Object) -> None:
        """Check that an object in deletion no longer had to wait for its dependents."""
        dependents = [
            reference
            for other in self.state.values()
            for reference in other.get("ownerReferences", ())
            if reference["uid"] == metadata["uid"]
        ]
        if is_waiting(metadata, "orphan"):
            assert not dependents, "a dependent was not orphaned"
        else:
            assert is_waiting(metadata, "foregroundDeletion")
            assert not any(reference["blockOwnerDeletion"] for reference in dependents), "a dependent still exists"

    def check_change(self, before: Object, now: Object) -> None:
        for owner in set(owners(before)) - set(owners(now)):
            state = self.there(*owner)
            assert not self.may_stay(*owner) or (state is not None and is_waiting(state, "orphan")), "it had this owner"
        assert set(owners(now)) <= set(owners(before))

    def check_rest(self) -> None:
        """Check the final state."""
        for metadata in self.state.values():
            missing = [owner for owner in owners(metadata) if self.there(*owner) is None]
            if "deletionTimestamp" not in metadata:
                assert not missing, "an owner does not exist"
                continue
            assert metadata["finalizers"] == ["foregroundDeletion"]
            blocking = [
                other["name"]
                for other in self.state.values()
                for one in other.get("ownerReferences", ())
                if one["uid"] == metadata["uid"] and one["blockOwnerDeletion"]
            ]
            assert blocking, "it waits for no dependent"
            assert metadata["name"] in blocking, "it does not wait for itself"


@contextlib.contextmanager
def little_memory() -> Iterator[None]:
    """Keep so few events in memory that the collector reads some of them from the log."""
    held, slack = view.RECENT_EVENTS, view.SLACK
    view.RECENT_EVENTS, view.SLACK = 4, 4
    try:
        yield
    finally:
        view.RECENT_EVENTS, view.SLACK = held, slack


@settings(max_examples=25, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(OPERATIONS, min_size=20, max_size=50))
def test_every_write_of_the_collector_is_right(operations: list[tuple[Any, ...]]) -> None:
    program, checker = Program(), Checker()
    with little_memory():
        trio.run(program.perform, operations, clock=MockClock(autojump_threshold=0))
    for row in program.log.store.rows(after=0):
        if row.key.resource == "configmaps":
            checker.fold(row, program.log.store.who[row.revision])
    checker.check_rest()
    target(checker.writes)
