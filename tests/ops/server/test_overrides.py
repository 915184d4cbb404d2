"""The setting --database-url-overrides: the resources that may have a database, and the guard of the layout."""

from __future__ import annotations

from uuid import UUID

import pytest
import trio

from kubechronicle.eventlog.layout import OVERRIDES, Layout, read_layout, write_layout
from kubechronicle.eventlog.memory.memory_log import MemoryLog
from kubechronicle.eventlog.memory.store import MemoryStore
from kubechronicle.eventlog.records import Key
from kubechronicle.eventlog.testing import commit, open_stack, put
from kubechronicle.ops.errors import OperatorError
from kubechronicle.ops.server.databases.agreement import LayoutGuard
from kubechronicle.ops.server.databases.overrides import Override, overrides_of
from kubechronicle.ops.settings.settings import load
from kubechronicle.ops.settings.shown import shown
from kubechronicle.ops.settings.types import DatabaseOverrides

LEASES = "leases.coordination.k8s.io"
ONE, TWO = "postgresql://one/x", "postgresql://two/x"


def test_resources_that_share_a_database() -> None:
    given = DatabaseOverrides((("coordination.k8s.io/leases", ONE), ("/events", ONE), ("events.k8s.io/events", ONE)))
    assert overrides_of(given) == (Override(ONE, ("events", LEASES)),)
    apart = DatabaseOverrides((("coordination.k8s.io/leases", ONE), ("/events", TWO)))
    assert overrides_of(apart) == (Override(ONE, (LEASES,)), Override(TWO, ("events",)))
    assert overrides_of(None) == ()


def test_resources_that_cannot_have_a_database() -> None:
    with pytest.raises(OperatorError, match=r"/pods: only /events, .* can be in another database"):
        overrides_of(DatabaseOverrides((("/pods", ONE),)))
    with pytest.raises(OperatorError, match="are the same objects: give one URL"):
        overrides_of(DatabaseOverrides((("/events", ONE), ("events.k8s.io/events", TWO))))


def test_the_shown_setting_has_no_password() -> None:
    flag = {"database-url-overrides": "/events#postgresql://u:secret@one/x"}
    assert shown(load(flag, environment={}))["database-url-overrides"] == "/events#postgresql://REDACTED@one/x"


async def problem_of(guard: LayoutGuard) -> str:
    with trio.fail_after(5), pytest.raises(OperatorError) as raised:
        await guard.run()
    return str(raised.value)


async def test_a_server_stops_when_the_layout_changes() -> None:
    store = MemoryStore()
    async with open_stack(MemoryLog(store)) as stack:
        guard = LayoutGuard(Layout(), stack.views)
        assert await write_layout(MemoryLog(store), Layout().moved(UUID(int=1), ["events"]), "test")
        assert "all servers need the same value" in await problem_of(guard)


async def test_a_server_stops_when_another_one_writes_to_the_main_database() -> None:
    store = MemoryStore()
    log = MemoryLog(store)
    await write_layout(log, Layout().moved(UUID(int=1), ["events"]), "test")
    async with open_stack(log) as stack:
        layout = await read_layout(log)
        assert stack.views[OVERRIDES.resource].count() == 1
        guard = LayoutGuard(layout, stack.views)
        commit(store, put(Key("pods", "default", "p"), expected=0))
        with trio.move_on_after(0.1) as waited:
            await guard.run()
        assert waited.cancelled_caught
        commit(store, put(Key("events", "default", "e"), expected=0))
        assert "a server without it writes" in await problem_of(guard)
