"""The layout: where the main log says that other logs are, and the move of objects from one log to another."""

from __future__ import annotations

from uuid import UUID, uuid4

import pytest
from msgspec import structs

from kubechronicle.eventlog.errors import LogUnavailable
from kubechronicle.eventlog.layout import (
    MOST_LOGS,
    SPAN,
    Layout,
    has_objects,
    place_of,
    read_layout,
    read_main_id,
    write_layout,
    write_main_id,
)
from kubechronicle.eventlog.memory.memory_log import MemoryLog
from kubechronicle.eventlog.memory.store import MemoryStore
from kubechronicle.eventlog.moving import copy_objects, delete_objects
from kubechronicle.eventlog.records import Key, Record
from kubechronicle.eventlog.testing import commit, put

ONE, TWO = UUID(int=1), UUID(int=2)
LEASES = "leases.coordination.k8s.io"
A, B, C = (Key(LEASES, "default", name) for name in "abc")


def test_each_log_has_revisions_of_its_own() -> None:
    assert [place_of(revision) for revision in (0, 1, SPAN, SPAN + 1, 2 * SPAN, 2 * SPAN + 1)] == [0, 0, 0, 1, 1, 2]
    layout = Layout().moved(ONE, ["events"]).moved(TWO, [LEASES])
    assert [(log.id, log.first, log.resources) for log in layout.logs] == [
        (ONE, SPAN, ("events",)),
        (TWO, 2 * SPAN, (LEASES,)),
    ]
    assert layout.resources == {"events", LEASES}
    assert (layout.holder(LEASES), layout.holder("pods")) == (layout.logs[1], None)


def test_a_log_that_was_given_up_keeps_its_revisions() -> None:
    layout = Layout().moved(ONE, ["events"]).moved(TWO, ["events"])
    assert [(log.first, log.resources) for log in layout.logs] == [(SPAN, ()), (2 * SPAN, ("events",))]
    for _ in range(MOST_LOGS - 2):
        layout = layout.moved(uuid4(), ["events"])
    with pytest.raises(ValueError, match="databases were used"):
        layout.moved(uuid4(), ["events"])
    assert layout.moved(ONE, ["events"]).logs[0].first == SPAN


async def test_only_one_of_two_servers_records_a_layout() -> None:
    store = MemoryStore()
    log, other = MemoryLog(store), MemoryLog(store)
    assert await read_layout(log) == Layout()
    first = await read_layout(other)
    assert await write_layout(log, Layout().moved(ONE, ["events"]), "test")
    assert not await write_layout(other, first.moved(TWO, [LEASES]), "test")
    read = await read_layout(other)
    assert read.logs == Layout().moved(ONE, ["events"]).logs
    assert await write_layout(other, read.moved(ONE, ["events", LEASES]), "test")
    assert (await read_layout(log)).resources == {"events", LEASES}


async def test_the_other_log_names_its_main_log() -> None:
    log = MemoryLog(MemoryStore())
    assert await read_main_id(log) is None
    assert await write_main_id(log, ONE, "test")
    assert not await write_main_id(log, TWO, "test")
    assert await read_main_id(log) == ONE


def states(store: MemoryStore) -> dict[str, tuple[str, bytes]]:
    return {record.key.name: (record.uid, record.body) for record in store.live() if record.key.resource == LEASES}


def created(store: MemoryStore, key: Key, text: str) -> Record:
    return commit(store, put(key, expected=0, text=text))[0]


async def test_a_copy_has_exactly_the_objects_of_the_source() -> None:
    source, target = MemoryStore(), MemoryStore()
    commit(source, put(Key("pods", "default", "p"), expected=0))
    created(source, A, "new")
    created(source, B, "same")
    created(target, A, "old")
    created(target, C, "gone")
    one, two = MemoryLog(source), MemoryLog(target)
    assert await copy_objects(one, two, LEASES, "test", exactly=True) == 2
    assert states(target) == states(source)
    before = target.revision
    assert await copy_objects(one, two, LEASES, "test", exactly=True) == 2
    assert target.revision == before  # an interrupted move is simply repeated
    assert await delete_objects(one, LEASES, "test") == 2
    assert not await has_objects(one, LEASES)
    assert await has_objects(one, "pods")


async def test_a_copy_of_an_object_that_was_created_anew() -> None:
    source, target = MemoryStore(), MemoryStore()
    created(target, A, "x")
    commit(source, structs.replace(put(A, expected=0, text="x"), uid="another"))
    await copy_objects(MemoryLog(source), MemoryLog(target), LEASES, "test", exactly=True)
    assert states(target) == states(source)


async def test_many_objects_are_moved_in_batches() -> None:
    source, target = MemoryStore(), MemoryStore()
    for number in range(1203):
        created(source, Key(LEASES, "default", f"l{number}"), "x")
    assert await copy_objects(MemoryLog(source), MemoryLog(target), LEASES, "test", exactly=False) == 1203
    assert states(target) == states(source)
    assert await delete_objects(MemoryLog(source), LEASES, "test") == 1203


async def test_another_writer_ends_a_move() -> None:
    source, target = MemoryStore(), MemoryStore()
    created(source, A, "x")
    log = MemoryLog(target)
    append = log.append

    async def append_late(batch):  # type: ignore[no-untyped-def]
        if A not in {record.key for record in target.live()}:
            created(target, A, "other")
        return await append(batch)

    log.append = append_late  # type: ignore[method-assign]
    with pytest.raises(LogUnavailable, match="another process has changed"):
        await copy_objects(MemoryLog(source), log, LEASES, "test", exactly=True)
