"""Watch cursors: scopes, waking, scrolled-out history, revisions of bookmarks, cancelling."""

from __future__ import annotations

import pytest
import trio
import trio.testing
from trio.testing import wait_all_tasks_blocked

from kubechronicle.eventlog.errors import Compacted, LogUnavailable
from kubechronicle.eventlog.memory.memory_log import Fault, MemoryLog
from kubechronicle.eventlog.memory.store import MemoryStore
from kubechronicle.eventlog.records import Key
from kubechronicle.eventlog.testing import Stack, commit, delete, open_stack, put
from kubechronicle.eventlog.views import cursors, view
from kubechronicle.eventlog.views.cursors import WatchCursor
from kubechronicle.eventlog.views.views import Event


class Writer:
    """Commits changes as another replica, and looks up the expected revisions itself."""

    def __init__(self, store: MemoryStore) -> None:
        self.store = store

    def put(self, name: str, *, namespace: str = "a", node: str = "", resource: str = "pods") -> int:
        key = Key(resource, namespace, name)
        current = self.store.current(key)
        return commit(self.store, put(key, expected=current.revision if current else 0, node=node))[0].revision

    def delete(self, name: str, *, namespace: str = "a", resource: str = "pods") -> int:
        key = Key(resource, namespace, name)
        current = self.store.current(key)
        assert current is not None
        return commit(self.store, delete(key, expected=current.revision))[0].revision


def summaries(events: list[Event]) -> list[tuple[int, str, str]]:
    return [(event.revision, event.operation.name, event.entry.key.name) for event in events]


async def drain(cursor: WatchCursor) -> list[Event]:
    """Return all events available; needs a clock that jumps."""
    found: list[Event] = []
    while batch := await cursor.next_batch(deadline=trio.current_time() + 1):
        found += batch
    return found


async def caught_up(stack: Stack, store: MemoryStore) -> None:
    await stack.tail.reach(store.revision)


async def test_a_cursor_returns_every_later_event_once(autojump_clock: trio.testing.MockClock) -> None:
    log = MemoryLog()
    writer = Writer(log.store)
    async with open_stack(log) as stack:
        cursor = stack.views.watch("pods", after=0)
        writer.put("x")
        writer.put("x", resource="nodes", namespace="")
        writer.put("y")
        writer.delete("x")
        await caught_up(stack, log.store)
        assert summaries(await drain(cursor)) == [(1, "CREATE", "x"), (3, "CREATE", "y"), (4, "DELETE", "x")]
        assert await drain(cursor) == []
        assert summaries(await drain(stack.views.watch("pods", after=3))) == [(4, "DELETE", "x")]


@pytest.mark.parametrize(
    ("scope", "names"),
    [
        ({}, ["x", "y", "x", "z", "z"]),
        ({"namespace": "a"}, ["x", "y", "z", "z"]),
        ({"namespace": "b"}, ["x"]),
        ({"namespace": "a", "name": "x"}, ["x"]),
        ({"name": "x"}, ["x", "x"]),
        ({"field": ("spec.nodeName", "n1")}, ["y", "z", "z"]),  # the second z: moved away to n2
        ({"field": ("spec.nodeName", "n2")}, ["z"]),
        ({"field": ("spec.nodeName", "")}, ["x", "x"]),
        ({"namespace": "b", "field": ("spec.nodeName", "n1")}, []),
        ({"namespace": "c"}, []),
    ],
)
@pytest.mark.parametrize("source", ["waiting", "memory", "log"])
async def test_a_scope_selects_the_same_events_waiting_from_memory_and_from_the_log(
    autojump_clock: trio.testing.MockClock, scope: dict[str, str], names: list[str], source: str
) -> None:
    log = MemoryLog()
    writer = Writer(log.store)
    async with open_stack(log) as stack:
        cursor = stack.views.watch("pods", after=0, **scope)  # type: ignore[arg-type]
        found: list[Event] = []

        async def follow() -> None:
            while batch := await cursor.next_batch(deadline=10):
                found.extend(batch)

        async with trio.open_nursery() as nursery:
            if source == "waiting":
                nursery.start_soon(follow)
                await wait_all_tasks_blocked()
            writer.put("x", namespace="a")
            writer.put("y", namespace="a", node="n1")
            writer.put("x", namespace="b")
            writer.put("z", namespace="a", node="n1")
            writer.put("z", namespace="a", node="n2")
            await caught_up(stack, log.store)
            if source == "log":
                stack.views["pods"].window.forget(5)
            if source != "waiting":
                nursery.start_soon(follow)
        assert [event.entry.key.name for event in found] == names
        assert cursor.revision == 5
        assert log.calls["read_resource"] == (1 if source == "log" else 0)
        for event in found:
            assert event.entry.object()["metadata"]["resourceVersion"] == str(event.revision)
            assert (event.previous.revision if event.previous else 0) == (4 if event.revision == 5 else 0)


async def test_history_is_read_in_chunks_and_continued_from_memory(
    autojump_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cursors, "HISTORY_CHUNK", 4)
    monkeypatch.setattr(cursors, "CURSOR_BATCH", 3)
    monkeypatch.setattr(view, "RECENT_EVENTS", 16)
    log = MemoryLog()
    writer = Writer(log.store)
    async with open_stack(log) as stack:
        for number in range(50):
            writer.put("x" if number % 3 else "y")
            writer.put("other", resource="leases")
            await caught_up(stack, log.store)
        every = stack.views.watch("pods", after=0)
        one = stack.views.watch("pods", after=10, namespace="a", name="y")
        assert [event.revision for event in await drain(every)] == list(range(1, 100, 2))
        assert [event.revision for event in await drain(one)] == list(range(13, 100, 6))
        assert every.revision == one.revision == 100


async def test_events_that_scroll_out_while_the_log_is_read_are_neither_lost_nor_repeated(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(view, "RECENT_EVENTS", 4)
    log = MemoryLog()
    writer = Writer(log.store)
    async with open_stack(log) as stack:
        for _ in range(12):
            writer.put("x")
        await caught_up(stack, log.store)
        cursor = stack.views.watch("pods", after=0)
        found: list[Event] = []
        with log.hold("read_resource") as gate:

            async def follow() -> None:
                while len(found) < 24:
                    found.extend(await cursor.next_batch())

            stack.nursery.start_soon(follow)
            await gate.wait_arrived()
            for _ in range(12):
                writer.put("x")
            await caught_up(stack, log.store)
        await wait_all_tasks_blocked()
        assert [event.revision for event in found] == list(range(1, 25))


async def test_compacted_history_is_gone() -> None:
    log = MemoryLog()
    writer = Writer(log.store)
    async with open_stack(log) as stack:
        for _ in range(6):
            writer.put("x")
        await caught_up(stack, log.store)
        log.store.compact(4)
        await wait_all_tasks_blocked()  # the tail reads the new marks
        with pytest.raises(Compacted):
            await stack.views.watch("pods", after=3).next_batch()
        assert len(await stack.views.watch("pods", after=4).next_batch()) == 2


async def test_a_cursor_can_be_retried_after_the_log_was_unavailable() -> None:
    log = MemoryLog()
    writer = Writer(log.store)
    async with open_stack(log) as stack:
        writer.put("x")
        await caught_up(stack, log.store)
        stack.views["pods"].window.forget(1)
        cursor = stack.views.watch("pods", after=0)
        log.fail_next("read_resource", Fault.UNAVAILABLE)
        with pytest.raises(LogUnavailable):
            await cursor.next_batch()
        assert summaries(await cursor.next_batch()) == [(1, "CREATE", "x")]


async def test_a_waiting_cursor_never_reads_the_log_when_events_scroll_out(
    monkeypatch: pytest.MonkeyPatch, nursery: trio.Nursery
) -> None:
    monkeypatch.setattr(view, "RECENT_EVENTS", 8)
    log = MemoryLog()
    writer = Writer(log.store)
    async with open_stack(log) as stack:
        cursor = stack.views.watch("pods", after=0, field=("spec.nodeName", "n1"))
        found: list[Event] = []

        async def follow() -> None:
            found.extend(await cursor.next_batch())

        stack.nursery.start_soon(follow)
        await wait_all_tasks_blocked()
        for number in range(100):
            writer.put("x", node=f"m{number}")
            await caught_up(stack, log.store)
        assert cursor.revision == 100  # the revision for a bookmark
        assert found == []
        writer.put("x", node="n1")
        await caught_up(stack, log.store)
        await wait_all_tasks_blocked()
        assert summaries(found) == [(101, "UPDATE", "x")]
        assert log.calls["read_resource"] == 0


async def test_only_the_cursors_concerned_are_woken() -> None:
    log = MemoryLog()
    writer = Writer(log.store)
    async with open_stack(log) as stack:
        view = stack.views["pods"]
        woken: list[str] = []

        async def follow(label: str, cursor: WatchCursor) -> None:
            await cursor.next_batch()
            woken.append(label)

        for number in range(5):
            scope = stack.views.watch("pods", after=0, field=("spec.nodeName", f"n{number}"))
            stack.nursery.start_soon(follow, f"n{number}", scope)
        stack.nursery.start_soon(follow, "a", stack.views.watch("pods", after=0, namespace="a"))
        stack.nursery.start_soon(follow, "b/x", stack.views.watch("pods", after=0, namespace="b", name="x"))
        await wait_all_tasks_blocked()
        assert len(view.watchers) == 7
        writer.put("x", namespace="b", node="n3")
        await caught_up(stack, log.store)
        assert len(view.watchers) == 5
        await wait_all_tasks_blocked()
        assert sorted(woken) == ["b/x", "n3"]


async def test_a_pod_that_leaves_a_node_wakes_that_nodes_cursor() -> None:
    log = MemoryLog()
    writer = Writer(log.store)
    async with open_stack(log) as stack:
        writer.put("x", node="n1")
        await caught_up(stack, log.store)
        cursor = stack.views.watch("pods", after=1, field=("spec.nodeName", "n1"))
        found: list[Event] = []

        async def follow() -> None:
            found.extend(await cursor.next_batch())

        stack.nursery.start_soon(follow)
        await wait_all_tasks_blocked()
        writer.put("x", node="n2")
        await caught_up(stack, log.store)
        await wait_all_tasks_blocked()
        assert summaries(found) == [(2, "UPDATE", "x")]


async def test_many_changes_of_one_batch_wake_a_cursor_once() -> None:
    log = MemoryLog()
    async with open_stack(log) as stack:
        wakes: list[int] = []

        async def follow() -> None:
            cursor = stack.views.watch("pods", after=0)
            while True:
                wakes.append(len(await cursor.next_batch()))

        for _ in range(10):
            stack.nursery.start_soon(follow)
        await wait_all_tasks_blocked()
        commit(log.store, *(put(Key("pods", "a", str(number)), expected=0) for number in range(7)))
        await caught_up(stack, log.store)
        await wait_all_tasks_blocked()
        assert wakes == [7] * 10


async def test_a_deadline_ends_the_wait_and_the_revision_moves_on(autojump_clock: trio.testing.MockClock) -> None:
    log = MemoryLog()
    writer = Writer(log.store)
    async with open_stack(log) as stack:
        cursor = stack.views.watch("pods", after=0)

        async def write_elsewhere() -> None:
            await trio.sleep(1)
            writer.put("x", resource="nodes", namespace="")
            await caught_up(stack, log.store)

        stack.nursery.start_soon(write_elsewhere)
        assert await cursor.next_batch(deadline=trio.current_time() + 5) == []
        assert trio.current_time() == 5
        assert cursor.revision == 1
        assert len(stack.views["pods"].watchers) == 0


async def test_an_event_applied_between_the_deadline_and_the_waking_is_not_lost() -> None:
    log = MemoryLog()
    async with open_stack(log) as stack:
        cursor = stack.views.watch("pods", after=0)
        with trio.CancelScope() as scope:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(cursor.next_batch)
                await wait_all_tasks_blocked()
                scope.cancel()  # the wait of the cursor ends now; its task runs later
                record = commit(log.store, put(Key("pods", "a", "x"), expected=0))
                stack.views.apply(record)
        assert cursor.revision == 0
        assert summaries(await cursor.next_batch()) == [(1, "CREATE", "x")]


async def test_a_cursor_ahead_of_the_views_returns_no_event_below_its_revision() -> None:
    log = MemoryLog()
    writer = Writer(log.store)
    async with open_stack(log) as stack:
        cursor = stack.views.watch("pods", after=2)
        found: list[Event] = []

        async def follow() -> None:
            found.extend(await cursor.next_batch())

        stack.nursery.start_soon(follow)
        for _ in range(3):
            await wait_all_tasks_blocked()
            writer.put("x")
            await caught_up(stack, log.store)
        await wait_all_tasks_blocked()
        assert [event.revision for event in found] == [3]


async def test_ending_one_cursor_leaves_the_others_waiting() -> None:
    """A draining server ends its clients' watches, not the cursors of its own loops. An ended cursor returns at once,
    so its loop would spin and keep the server from stopping."""
    async with open_stack(MemoryLog(MemoryStore())) as stack:
        ended, kept = stack.views.watch("pods", after=0), stack.views.watch("pods", after=0)
        batches: dict[str, list[Event]] = {}

        async def read(name: str, cursor: WatchCursor) -> None:
            batches[name] = await cursor.next_batch()

        stack.nursery.start_soon(read, "ended", ended)
        stack.nursery.start_soon(read, "kept", kept)
        await wait_all_tasks_blocked()
        ended.end()
        await wait_all_tasks_blocked()
        assert batches == {"ended": []}
        assert await ended.next_batch() == []
        commit(stack.log.store, put(Key("pods", "a", "p"), expected=0))
        await wait_all_tasks_blocked()
        assert [event.revision for event in batches["kept"]] == [1]
        assert [event.revision for event in await ended.next_batch()] == [1]


async def test_history_is_searched_in_ranges(monkeypatch: pytest.MonkeyPatch) -> None:
    """No single query searches all revisions, even if most concern other namespaces."""
    monkeypatch.setattr(cursors, "HISTORY_RANGE", 10)
    store = MemoryStore()
    commit(store, put(Key("pods", "a", "x"), expected=0))
    for number in range(2, 52):
        commit(store, put(Key("pods", "b", "y"), expected=number - 1 if number > 2 else 0))
    commit(store, put(Key("pods", "a", "x"), expected=1))
    log = MemoryLog(store)
    async with open_stack(log) as stack:
        cursor = stack.views.watch("pods", after=0, namespace="a")
        assert [event.revision for event in await cursor.next_batch()] == [1]
        assert [event.revision for event in await cursor.next_batch()] == [52]
    assert log.calls["read_resource"] == 6
