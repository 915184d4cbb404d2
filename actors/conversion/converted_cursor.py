"""A cursor whose events hold converted objects.

An event that cannot be converted is not passed over: the cursor stays before it, and tries again, until the watch ends.
So a client misses nothing when the webhook works again, and its bookmarks stay behind. kube-apiserver, whose cache
stops there, sends no events either.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime
from operator import attrgetter
from typing import Final

import trio

from kubechronicle.api.errors.status import StatusError
from kubechronicle.eventlog.entries import Entry, Event
from kubechronicle.eventlog.records import Operation
from kubechronicle.eventlog.watching.cursors import Cursor

PAUSE: Final = 1.0
"""Seconds until a failed conversion is tried again; doubled each time."""
LONGEST_PAUSE: Final = 30.0


class ConvertedCursor:
    """``convert``: converts an event. StatusError. ``failure``: ends the watch at once."""

    def __init__(self, cursor: Cursor, convert: Callable[[Event], Awaitable[Event]]) -> None:
        self.stored = cursor
        self.failure: StatusError | None = None
        self._convert = convert
        self._held: deque[Event] = deque()
        self._passed = 0
        self._ended = False
        self._waiting: trio.CancelScope | None = None

    def hold(self, initial: Sequence[Entry]) -> None:
        """Let objects that exist when the watch begins come before all other events, when they can be converted."""
        now = datetime.now(UTC)
        ordered = sorted(initial, key=attrgetter("revision"))
        self._held.extend(Event(entry.revision, Operation.CREATE, entry, None, now) for entry in ordered)

    @property
    def revision(self) -> int:
        """The revision up to which all events have been returned."""
        return self._passed if self._held else self.stored.revision

    async def next_batch(self, deadline: float | None = None) -> list[Event]:
        """Return the next events as a cursor does. StatusError: the watch ends."""
        if self.failure is not None:
            raise self.failure
        pause = PAUSE
        while True:
            if not self._held:
                self._passed = self.stored.revision
                self._held.extend(await self.stored.next_batch(deadline))
            events = await self._converted()
            if events or not self._held or not await self._wait(pause, deadline):
                return events
            pause = min(2 * pause, LONGEST_PAUSE)

    async def _converted(self) -> list[Event]:
        """Return the held events up to one that cannot be converted."""
        events: list[Event] = []
        while self._held:
            try:
                events.append(await self._convert(self._held[0]))
            except StatusError:
                break
            self._passed = self._held.popleft().revision
        return events

    async def _wait(self, pause: float, deadline: float | None) -> bool:
        """Wait before another attempt. Return False if the deadline comes before it, or the watch has ended."""
        if self._ended:
            return False
        until = trio.current_time() + pause
        with trio.CancelScope(deadline=until if deadline is None else min(until, deadline)) as self._waiting:
            await trio.sleep_forever()
        return not self._ended and (deadline is None or trio.current_time() < deadline)

    def end(self) -> None:
        self._ended = True
        if self._waiting is not None:
            self._waiting.cancel()
        self.stored.end()
