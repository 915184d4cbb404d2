"""ConsistentRead: delays a read until the views are fresh enough to answer it.

No contents of views here. Another replica may have committed changes that our views do not show yet. So a read that
must see everything committed before its arrival queries the head of the log, and waits until the views have reached it.
One query serves all readers that arrived before it was sent. It never serves a later reader: the head may have been
read before that reader's client saw the answer of another replica.

    A arrives: query 1 is sent; B and C arrive while it is under way; query 1 returns 7: serves A only
               query 2 is sent for B and C, returns 8: B and C wait until the views are at 8

No query is needed while this server alone can append (sole_appender.py): every change acknowledged before a reader
arrived is in the views.

Invariant: every reader is served by a query sent after its arrival; at most one query is under way. One of the readers
makes the query, and another one if the first is cancelled, so it depends on no other task.
"""

from __future__ import annotations

import trio

from kubechronicle.eventlog.errors import LogUnavailable, unavailable_as
from kubechronicle.eventlog.log import RevisionLog
from kubechronicle.eventlog.request_parts import LOG, timed
from kubechronicle.eventlog.sole_appender import SoleAppender
from kubechronicle.eventlog.tail import Tail

QUERY = "the query for the newest revision"


class _Round:
    """The readers that one query serves."""

    __slots__ = ("readers", "result")

    def __init__(self) -> None:
        self.result: int | LogUnavailable | None = None
        self.readers = trio.lowlevel.ParkingLot()


class ConsistentRead:
    """See the head of this file."""

    def __init__(self, log: RevisionLog, tail: Tail, sole: SoleAppender | None = None) -> None:
        self._log = log
        self._tail = tail
        self._sole = sole
        self._gathering: _Round | None = None  # readers that arrived since the last query was sent
        self._orphaned: set[_Round] = set()  # rounds whose query was cancelled with the reader that made it
        self._under_way = False

    async def wait(self) -> int:
        """Return the applied revision, once the views hold every change committed anywhere before this call.

        Raises LogUnavailable if the log does not answer. Waits for the views without limit: set a deadline outside.
        If it needs neither a query nor a wait, no other task runs before it returns.
        """
        if self._sole is not None and (required := self._sole.required_revision()) is not None:
            if self._tail.views.applied < required:
                await self._tail.reach(required)
            return self._tail.views.applied
        with timed(LOG, "Ask for the newest revision"):
            return await self._wait_queried()

    async def _wait_queried(self) -> int:
        if self._gathering is None:
            self._gathering = _Round()
        own = self._gathering
        while own.result is None:
            if self._under_way:
                await own.readers.park()
            else:
                await self._query(own)
        if isinstance(own.result, LogUnavailable):
            raise unavailable_as(own.result) from own.result
        await self._tail.reach(own.result)
        return self._tail.views.applied

    async def wait_applied(self, revision: int, deadline: float) -> None:
        """Return when the views hold the revision; FutureRevision if they do not by the deadline (trio's clock)."""
        await self._tail.reach_requested(revision, deadline=deadline)

    async def _query(self, own: _Round) -> None:
        """Query the head for this round, and for all other rounds that wait."""
        served = {own, self._gathering or own, *self._orphaned}
        self._gathering, self._orphaned, self._under_way = None, set(), True
        try:
            self._tail.availability.sent(QUERY)
            try:
                head = await self._log.head()
                self._tail.learn(head)
                result: int | LogUnavailable = head.revision
            except LogUnavailable as error:
                result = error
            for each in served:
                each.result = result
        finally:
            self._tail.availability.answered(QUERY)
            self._under_way = False
            self._hand_over(served)

    def _hand_over(self, served: set[_Round]) -> None:
        """Wake the readers of served rounds, and one reader of a round that waits for the next query.

        Rounds are unserved if the reader that made the query was cancelled. If a new reader was faster, the woken one
        finds ``_under_way`` set again and waits for that query.
        """
        for each in served:
            if each.result is not None:
                each.readers.unpark_all()
            elif each.readers:
                self._orphaned.add(each)
        for waiting in (*self._orphaned, self._gathering):
            if waiting is not None and waiting.readers:
                waiting.readers.unpark()
                return
