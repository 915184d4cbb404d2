"""Replay: a cursor that tells the past at a pace of its own, and ends where it is asked to.

    since 12:00, speed 60     what happened at 12:30 is told 30 s after the replay began
    until 4711                ReplayOver once everything up to revision 4711 has been told
    neither                   a WatchCursor would do the same

With an end everything is read from the log: what is bounded need not know what the views hold. Without one, a cursor
over the views reads the past and goes on with the present.

Invariant: as a WatchCursor's: every event in scope up to ``revision`` has been told, once, in order; none above has.
"""

from __future__ import annotations

import math
from collections import deque
from datetime import datetime

import trio

from kubechronicle.eventlog.entries import Event
from kubechronicle.eventlog.views.views import Views
from kubechronicle.eventlog.watching.cursors import read_events


class ReplayOver(Exception):
    """Everything up to the replay's end has been told."""


class Replay:
    """``after``: tell what follows this revision; ``since``: its time. ``until``: the last revision, None for no end;
    ``speed``: times as fast as it happened, None for as fast as it is read. The scope is as in ``Views.watch``."""

    def __init__(
        self,
        views: Views,
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
        self._waiting: deque[Event] = deque()
        self._ended = trio.Event()

    @property
    def revision(self) -> int:
        """Everything in scope up to and including this revision has been told."""
        if self._waiting:
            return self._waiting[0].revision - 1
        return self._cursor.revision if self._until is None else self._read

    async def next_batch(self, deadline: float | None = None) -> list[Event]:
        """The next events, at least one; [] when ``deadline`` (trio's clock) comes first, or at once after ``end``.

        Raises ReplayOver, and what WatchCursor.next_batch raises. Cancelled, it loses and repeats nothing."""
        latest = math.inf if deadline is None else deadline
        self._forget_erased()
        if not self._waiting:
            self._waiting.extend(await self._more(latest))
        while self._waiting:
            due = self._due_at(self._waiting[0])
            now = trio.current_time()
            if due <= now:
                await trio.lowlevel.checkpoint_if_cancelled()
                return self._take(now)
            with trio.move_on_at(min(due, latest)):
                await self._ended.wait()
            if self._ended.is_set() or trio.current_time() >= latest:
                break
            self._forget_erased()
            if not self._waiting:
                self._waiting.extend(await self._more(latest))
        return []

    def _forget_erased(self) -> None:
        """If anything was erased since: read again what waits to be told."""
        if self._erasures != self._views.erasures:
            self._erasures = self._views.erasures
            if self._waiting:
                self._read = self._waiting[0].revision - 1
                self._waiting.clear()
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
                if found := [event for event in events if self._cursor.concerns(event)]:
                    return found
            raise ReplayOver
        return []

    def _take(self, now: float) -> list[Event]:
        found = []
        while self._waiting and self._due_at(self._waiting[0]) <= now:
            found.append(self._waiting.popleft())
        return found

    def _due_at(self, event: Event) -> float:
        """On trio's clock."""
        if self._speed is None:
            return -math.inf
        return self._began + (event.committed_at - self._since).total_seconds() / self._speed
