"""Replay: a cursor that returns past events at a chosen speed, up to a chosen revision.

    since 12:00, speed 60     an event of 12:30 is returned 30 s after the replay began
    until 4711                ReplayOver once every event up to revision 4711 has been returned
    neither                   as a WatchCursor

A replay with an end reads everything from the log, and does not depend on the events in memory. One without an end uses
a WatchCursor, which reads the past and continues with the present.

Invariant, as of WatchCursor: every event in scope up to ``revision`` has been returned, once, in order; no later event
has.
"""

from __future__ import annotations

import math
from collections import deque
from datetime import datetime
from typing import Protocol

import trio

from kubechronicle.eventlog.entries import Event
from kubechronicle.eventlog.views.cursors import HistorySource, WatchCursor, read_events


class ReplayOver(Exception):
    """Every event up to the replay's end has been returned."""


class WatchableViews(HistorySource, Protocol):
    """The views that a replay reads."""

    def watch(
        self,
        resource: str,
        *,
        after: int,
        namespace: str = "",
        name: str = "",
        field: tuple[str, str] | None = None,
    ) -> WatchCursor: ...


class Replay:
    """See the head of this file. The scope is as in ``Views.watch``.

    ``after``: the revision before the first one to return.
    ``since``: the time of that revision.
    ``until``: the last revision; None: no end.
    ``speed``: 60 replays an hour in a minute; None: as fast as the log is read.
    """

    def __init__(
        self,
        views: WatchableViews,
        resource: str,
        *,
        after: int,
        since: datetime,
        until: int | None = None,
        speed: float | None = None,
        namespace: str = "",
        name: str = "",
        field: tuple[str, str] | None = None,
    ) -> None:
        self._views = views
        self._erasures = views.erasures
        self._resource = resource
        self._namespace, self._name = namespace, name
        self._field = field
        self._cursor = views.watch(resource, after=after, namespace=namespace, name=name, field=field)
        self._read = after  # with an end: how far the log has been read
        self._since, self._until, self._speed = since, until, speed
        self._began = trio.current_time()
        self._not_due: deque[Event] = deque()
        self._ended = trio.Event()

    @property
    def revision(self) -> int:
        """Every event in scope up to and including this revision has been returned."""
        if self._not_due:
            return self._not_due[0].revision - 1
        return self._cursor.revision if self._until is None else self._read

    async def next_batch(self, deadline: float | None = None) -> list[Event]:
        """Return the next events, at least one; [] at the ``deadline`` (Trio's clock), or at once after ``end``.

        Raises ReplayOver, and the errors of WatchCursor.next_batch. Cancelling it neither loses nor repeats events.
        """
        latest = math.inf if deadline is None else deadline
        self._forget_erased()
        if not self._not_due:
            self._not_due.extend(await self._more(latest))
        while self._not_due:
            due = self._due_at(self._not_due[0])
            now = trio.current_time()
            if due <= now:
                await trio.lowlevel.checkpoint_if_cancelled()
                return self._take(now)
            with trio.move_on_at(min(due, latest)):
                await self._ended.wait()
            if self._ended.is_set() or trio.current_time() >= latest:
                break
            self._forget_erased()
            if not self._not_due:
                self._not_due.extend(await self._more(latest))
        return []

    def _forget_erased(self) -> None:
        """Read the events that are not due yet again if anything was erased since."""
        if self._erasures != self._views.erasures:
            self._erasures = self._views.erasures
            if self._not_due:
                self._read = self._not_due[0].revision - 1
                self._not_due.clear()
                self._cursor = self._views.watch(
                    self._resource, after=self._read, namespace=self._namespace, name=self._name, field=self._field
                )

    def end(self) -> None:
        self._ended.set()
        self._cursor.end()

    async def _more(self, latest: float) -> list[Event]:
        if self._until is None:
            return await self._cursor.next_batch(latest)
        with trio.move_on_at(latest):
            while self._read < self._until:
                if self._ended.is_set():
                    return []
                events, self._read = await read_events(
                    self._views,
                    self._resource,
                    after=self._read,
                    until=self._until,
                    namespace=self._namespace,
                    name=self._name,
                )
                if matching := [event for event in events if self._cursor.concerns(event)]:
                    return matching
            raise ReplayOver
        return []

    def _take(self, now: float) -> list[Event]:
        due = []
        while self._not_due and self._due_at(self._not_due[0]) <= now:
            due.append(self._not_due.popleft())
        return due

    def _due_at(self, event: Event) -> float:
        """Return when the event is due, on Trio's clock."""
        if self._speed is None:
            return -math.inf
        return self._began + (event.committed_at - self._since).total_seconds() / self._speed
