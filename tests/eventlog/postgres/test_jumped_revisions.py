"""Revisions that a restore has passed over: clients that know them list again, all others go on."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import trio
from log_changes import create, open_session_of, put

from kubechronicle.eventlog.errors import Compacted
from kubechronicle.eventlog.testing import describe_simply, open_stack
from kubechronicle.eventlog.transfer.ends import bump_revisions
from kubechronicle.eventlog.views import cursors

Opener = Callable[[], Awaitable[Any]]


async def test_a_watch_from_a_lost_revision_is_expired_and_an_older_one_goes_on(
    replicas: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cursors, "HISTORY_RANGE", 300)  # the jump is longer than one read of history
    log = await replicas()
    for name in ("a", "b"):
        await put(log, create(name))
    async with open_session_of(log) as session:
        assert (await bump_revisions(session, 5000)).last == 5002
    async with open_stack(log, describe=describe_simply) as stack:
        after = await put(log, create("c"))
        await stack.tail.reach(after.revision)
        assert after.revision == 5003
        for lost in (3, 4000, 5001):
            with pytest.raises(Compacted):
                await stack.views.watch("pods", after=lost).next_batch()
            with pytest.raises(Compacted):
                await log.list_at("pods", revision=lost, limit=10)
        for known, names in ((1, ["b", "c"]), (2, ["c"]), (5002, ["c"])):
            cursor, found = stack.views.watch("pods", after=known), []
            with trio.fail_after(30):
                while len(found) < len(names):
                    found += [event.entry.key.name for event in await cursor.next_batch()]
            assert found == names
        assert [record.key.name for record in await log.list_at("pods", revision=2, limit=10)] == ["a", "b"]
    assert (await log.verify()).problem is None
