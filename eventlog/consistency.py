"""ConsistentRead: how fresh the views must be before they answer a read.

No views' contents here. Another replica may have committed what our views do not show yet, so a read that must see
everything committed before it arrived asks the log for its head and waits until the views are there. One query serves
all readers that arrived before it was sent; never one that arrived later, because the head may have been read before
that reader's client saw another replica's answer:

    A arrives: query 1 is sent; B and C arrive while it is under way; query 1 answers 7: serves A only
               query 2 is sent for B and C, answers 8: B and C wait until the views are at 8

While this server is the only one that can append (sole.py), all of that is spared: what was acknowledged before a
reader came is in the views.

Invariant: every reader is served by a query sent after its arrival; at most one query is under way. The query is made
by one of the readers, and if that one is cancelled by another: there is no task that could be missing.
"""

from __future__ import annotations

import trio

from kubechronicle.eventlog.errors import LogUnavailable
from kubechronicle.eventlog.log import RevisionLog
from kubechronicle.eventlog.sole_appender import SoleAppender
from kubechronicle.eventlog.tail import Tail


class _Round:
    """Readers that one query will serve."""

    __slots__ = ("answer", "parked")

    def __init__(self) -> None:
        self.answer: int | LogUnavailable | None = None
        self.parked = trio.lowlevel.ParkingLot()


class ConsistentRead:
    """See the head of this file."""

    def __init__(self, log: RevisionLog, tail: Tail, sole: SoleAppender | None = None) -> None:
        self._log = log
        self._tail = tail
        self._sole = sole
        self._gathering: _Round | None = None  # those who arrived since the last query was sent
        self._orphaned: set[_Round] = set()  # those whose query was cancelled together with its asker
        self._under_way = False

    async def wait(self) -> int:
        """Return when the views hold all that was committed anywhere before this call; the applied revision.

        Raises LogUnavailable if the log cannot be asked. Waits for the views without limit: set a deadline outside.
        Where there is nothing to ask and to wait for, no other task runs before it returns.
        """
        if self._sole is not None and (required := self._sole.required_revision()) is not None:
            if self._tail.views.applied < required:
                await self._tail.reach(required)
            return self._tail.views.applied
        if self._gathering is None:
            self._gathering = _Round()
        mine = self._gathering
        while mine.answer is None:
            if self._under_way:
                await mine.parked.park()
            else:
                await self._ask(mine)
        if isinstance(mine.answer, LogUnavailable):
            raise LogUnavailable(str(mine.answer)) from mine.answer
        await self._tail.reach(mine.answer)
        return self._tail.views.applied

    async def wait_applied(self, revision: int, deadline: float) -> None:
        """Return when the views hold the revision; FutureRevision if they do not by the deadline (trio's clock)."""
        await self._tail.reach_asked(revision, deadline=deadline)

    async def _ask(self, mine: _Round) -> None:
        """Make the query for my round and for everybody else who is here already."""
        served = {mine, self._gathering or mine, *self._orphaned}
        self._gathering, self._orphaned, self._under_way = None, set(), True
        try:
            try:
                head = await self._log.head()
                self._tail.learn(head)
                answer: int | LogUnavailable = head.revision
            except LogUnavailable as error:
                answer = error
            for each in served:
                each.answer = answer
        finally:
            self._under_way = False
            self._hand_over(served)

    def _hand_over(self, served: set[_Round]) -> None:
        """Wake who has been served. If nobody has (the asker was cancelled), or others have gathered: wake one reader
        to ask next. It finds ``_under_way`` set again if a new reader was faster, and that is as good."""
        for each in served:
            if each.answer is not None:
                each.parked.unpark_all()
            elif each.parked:
                self._orphaned.add(each)
        for next_asker in (*self._orphaned, self._gathering):
            if next_asker is not None and next_asker.parked:
                next_asker.parked.unpark()
                return
