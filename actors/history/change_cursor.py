"""ChangeCursor: a watcher's position among the changes of one log or several.

The changes of several logs come as they arrive: each batch is in the order of times, but a later batch may have an
earlier time of another log. The resourceVersion of an event is its position (api/history/positions.py), so that a
client that comes back with it misses nothing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import trio
from msgspec import structs

from kubechronicle.actors.history.log_changes import Share, in_order, position_of
from kubechronicle.eventlog.entries import Entry, Event
from kubechronicle.eventlog.errors import LogUnavailable
from kubechronicle.eventlog.records import Operation, Record


class ChangeCursor:
    """A watcher's position (eventlog.views.cursors.WatchCursor). ``after``: the revision in the log of each share."""

    def __init__(self, shares: Sequence[Share], after: Sequence[int]) -> None:
        self._shares = shares
        self._reached = {share.changes: revision for share, revision in zip(shares, after, strict=True)}
        self._ended = False
        self._waiting = trio.CancelScope()

    @property
    def revision(self) -> int:
        return position_of(self._reached)

    async def next_batch(self, deadline: float | None = None) -> list[Event]:
        """Return the next events, as any cursor. Each watcher has queries of its own: there are few of them."""
        limit = math.inf if deadline is None else deadline
        while not self._ended:
            with trio.CancelScope(deadline=limit) as self._waiting:
                await self._wait_newer()
                try:
                    events = await self._read()
                finally:
                    self._shares[0].changes.turn.pause()  # a watch has a place only while it reads
                if events:
                    return events
            if self._waiting.cancelled_caught:
                return []
        await trio.lowlevel.checkpoint()
        return []

    async def _read(self) -> list[Event]:
        """Return the next changes of all logs, and move on. The position in a log that does not answer stays.

        LogUnavailable: one does not, and the others have nothing new.
        """
        found, ends, failure = list[tuple[Share, Record, Entry]](), dict(self._reached), None
        for share in self._shares:
            try:
                changes, ends[share.changes] = await share.changes.after(share.selected, self._reached[share.changes])
            except LogUnavailable as error:
                failure = error
                continue
            found += [(share, record, entry) for record, entry in changes]
        if failure is not None and not found:
            raise failure
        if len(self._shares) == 1:
            self._reached = ends
            return [_event(record, entry, record.revision) for _, record, entry in found]
        events = []
        for share, record, entry in in_order(found):
            self._reached[share.changes] = record.revision
            position = position_of(self._reached)
            events.append(_event(record, with_position(entry, position), position))
        self._reached = ends
        return events

    async def _wait_newer(self) -> None:
        """Return when one of the logs has newer revisions."""
        if len(self._shares) == 1:
            (share,) = self._shares
            await share.changes.wait_after(self._reached[share.changes])
            return
        async with trio.open_nursery() as nursery:

            async def wait(share: Share) -> None:
                await share.changes.wait_after(self._reached[share.changes])
                nursery.cancel_scope.cancel()

            for share in self._shares:
                nursery.start_soon(wait, share)

    def end(self) -> None:
        self._ended = True
        self._waiting.cancel()


def _event(record: Record, entry: Entry, position: int) -> Event:
    return Event(position, Operation.CREATE, entry, None, record.committed_at)


def with_position(entry: Entry, position: int) -> Entry:
    """Return a revision with a position as its resourceVersion, from which a client goes on in all logs."""
    own, new = (f'"resourceVersion":"{number}"'.encode() for number in (entry.revision, position))
    return structs.replace(entry, json=entry.json.replace(own, new, 1))
