"""ConsistentRead: delays a read until the views are fresh enough to answer it.

No contents of views here. Another replica may have committed changes that our views do not show yet. So a read that
must see everything committed before its arrival queries the head of the log, and waits until the views have reached it.
One query serves all readers that arrived before it was sent. It never serves a later reader: the head may have been
read before that reader's client saw the answer of another replica.

    A arrives: query 1 is sent; B and C arrive while it is under way; query 1 returns 7: serves A only
               query 2 is sent for B and C, returns 8: B and C wait until the views are at 8

No query is needed while this server alone can append (below): every change acknowledged before a reader
arrived is in the views.

Invariant: every reader is served by a query sent after its arrival; at most one query is under way. One of the readers
makes the query, and another one if the first is cancelled, so it depends on no other task.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Protocol

import trio

from kubechronicle.eventlog.errors import LogError, LogUnavailable, unavailable_as
from kubechronicle.eventlog.log import RevisionLog
from kubechronicle.eventlog.postgres.postmaster_epoch import PostmasterEpoch
from kubechronicle.eventlog.request_parts import LOG, timed
from kubechronicle.eventlog.restarts import delays
from kubechronicle.eventlog.tail import Tail

# -- sole appender -----------------------------------------------------------------------------------------------------
#
# SoleAppender: while no other server can append, reads are answered without asking the log.
#
#     claim ──► the log returns its head as of the claim ──► the tail applies that head ──► reads use the claim while
#     every check of it succeeds
#
# A server that runs its own Postgres is the only server that has to append to it. It writes a claim into the row of
# `state`, under the lock of that row (migration 0010). While the claim holds, ConsistentRead answers with the applied
# state. No clock is involved, so a pause of the process or of the machine changes nothing. The proof:
#
# 1.  A change acknowledged before a read arrived is in the views. The appender waits until a batch is applied before it
#     reports the outcome (Appender._send: ``apply``, then ``_report``). This includes batches settled after their
#     connection was lost. Changes that others appended before the claim are at or below the head that the claim
#     returns.
# 2.  A write with an unknown outcome may be in the database but not in the views. Its client was not told that it
#     happened, so it may as well happen later, when it is applied. The exception is an answer about history, which
#     comes from the log itself. So a read waits for the newest revision in any answer of the log
#     (``RevisionLog.newest_seen_revision``).
# 3.  No other server appends. The functions append and append_change reject connections that have not set the token of
#     the claim, until the claim has ended. The claim contains the start time of the postmaster, so it ends with the
#     postmaster: it is void under a later postmaster and in a copy, and needs no cleanup. Otherwise this server
#     releases the claim, after it has stopped using it.
# 4.  No later postmaster runs while the claim is in use. This process launches the next one, and begins another
#     postmaster epoch before that (ops/postgres/embedded_postgres.py). A postmaster started by hand has to wait until
#     the last process of the old one has gone. By then the connection of the claim is closed, which every check sees.
#     (One assumption about the kernel: the close is visible before a later Postgres has answered its first client.)
# 5.  A read that is under way when the claim is lost has seen everything there was at its check, which was after its
#     arrival.
#
# Other writers of that row or of stored history, and why they do no harm:
#
#     settling (batches)    fences a batch of our own; the head does not move
#     retention, `compact`  moves the marks; the present state stays. Memory drops history below the marks at the
#                           notification, or a second later, as for reads at a revision without a claim
#     making partitions     decides where rows go
#     `erase`               appends, and the next read has to show it. It requests shared appends
#                           (postgres/locks.py): the server stops using the claim and releases it, `erase`
#                           appends, and the server claims again afterwards. The request is a lock that only roles with
#                           rights on the log can take; a notification alone ends no claim
#     `migrate`             has nothing to apply beside a server of its own version
#     another server        is rejected at its start (``check_may_append``), and by those functions if it already runs
#     statements by hand    append() rejects them; the operator must not update that row itself
#
# A client that reads the database itself (SQL, `verify`) may see a commit moments before the views have it.


logger = logging.getLogger(__name__)


class SoleAppender:
    """See the head of this file. ``run`` must be running for the claim to be made."""

    def __init__(
        self,
        log: RevisionLog,
        tail: Tail,
        postmaster_epoch: PostmasterEpoch,
        publish: Callable[[bool], None] = lambda in_use: None,
        *,
        stored: RevisionLog | None = None,
    ) -> None:
        """``publish``: called when the claim is used from now on, and before it may be released.

        ``stored``: the log below those that measure and decrypt: each read asks it for the newest revision seen.
        """
        self._publish = publish
        self._log, self._stored = log, stored or log
        self._tail = tail
        self._postmaster_epoch = postmaster_epoch
        self._claimed_in_epoch = -1
        self._connected: Callable[[], bool] | None = None  # set while the claim is in use

    def required_revision(self) -> int | None:
        """Return the revision that a read arriving now must show; None: the read must query the log."""
        connected = self._connected
        if connected is None or self._claimed_in_epoch != self._postmaster_epoch.number or not connected():
            return None
        return self._stored.newest_seen_revision

    async def run(self) -> None:
        """Claim to append alone; claim again when the claim was lost or released."""
        pauses = delays()
        while True:
            try:
                await self._claim()
            except LogError as error:
                logger.debug("appending alone could not be claimed: %s", error)
            if self.required_revision() is None:
                await trio.sleep(next(pauses))
                continue
            pauses = delays()
            await self._log.wait_claim_in_doubt()

    async def _claim(self) -> None:
        self._connected = None  # stop using the claim before it may be released for shared appends
        self._publish(False)
        epoch = self._postmaster_epoch.number
        claim = await self._log.claim()
        if claim is None:
            return
        self._tail.learn(claim.head)
        await self._tail.reach(claim.head.revision)
        self._claimed_in_epoch, self._connected = epoch, claim.connected
        if self.required_revision() is not None:
            self._publish(True)


QUERY = "the query for the newest revision"


class Sole(Protocol):
    """A claim to append alone: of this process (SoleAppender), or of the one that appends for it (sharing/)."""

    def required_revision(self) -> int | None: ...

    async def run(self) -> None: ...


class _Round:
    """The readers that one query serves."""

    __slots__ = ("readers", "result")

    def __init__(self) -> None:
        self.result: int | LogUnavailable | None = None
        self.readers = trio.lowlevel.ParkingLot()


class ConsistentRead:
    """See the head of this file."""

    def __init__(self, log: RevisionLog, tail: Tail, sole: Sole | None = None) -> None:
        self._log = log
        self._tail = tail
        self._progress = tail.views.progress
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
            if self._progress.applied < required:
                await self._tail.reach(required)
            return self._progress.applied
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
