"""The bounds of the window of recent events: count, bytes and age."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import orjson
import pytest

from kubechronicle.api.selectors.field_selectors import describe
from kubechronicle.eventlog.entries import Event, entry_of
from kubechronicle.eventlog.records import Key, Operation, Record
from kubechronicle.eventlog.views.view import RECENT_AGE, SLACK, Window

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)


def event(revision: int, *, after: timedelta) -> Event:
    record = Record(
        revision=revision,
        key=Key("leases", "a", "x"),
        uid="u",
        create_revision=1,
        version=revision,
        previous_revision=revision - 1,
        operation=Operation.UPDATE,
        committed_at=BEGIN + after,
        body=orjson.dumps({"apiVersion": "v1", "kind": "X", "metadata": {"name": "x", "namespace": "a"}}),
    )
    return Event(revision, Operation.UPDATE, entry_of(record, describe), None, record.committed_at)


@pytest.mark.parametrize("step", [timedelta(seconds=1), timedelta(seconds=47), timedelta(hours=1)])
def test_an_added_event_drops_events_that_are_too_old(step: timedelta) -> None:
    window = Window()
    for revision in range(10, 1010):
        window.add(event(revision, after=step * revision))
        oldest = window.events[0]
        assert window.events[-1].committed_at - oldest.committed_at <= RECENT_AGE * (1 + 1 / SLACK)
        # Every event above held_since is in the window, and none below it.
        assert [one.revision for one in window.events] == list(range(max(10, window.held_since + 1), revision + 1))
    assert window.held_since > 0
    assert window.bytes == sum(len(one.entry.json) + 1024 for one in window.events)
    assert window.after(window.held_since) == 0


def test_a_quiet_resource_keeps_its_last_events() -> None:
    window = Window()
    window.add(event(5, after=timedelta()))
    window.add(event(6, after=RECENT_AGE))
    assert (len(window.events), window.held_since) == (2, 0)
    window.reset(6)
    window.add(event(7, after=RECENT_AGE * 3))
    assert (len(window.events), window.held_since) == (1, 6)
