"""SoleAppender: while nobody else can append, what was acknowledged is in the views, and a read asks nobody.

    claimed ──► the log answers its head as of then ──► the tail has applied that ──► it counts, as long as each look
    says so

A server that runs its Postgres itself is the only one that has to append to it. It claims to be, in the head row, under
the lock of that row (migration 0010). While that holds, ConsistentRead answers with what is applied. No clock is
involved, so pauses of the process or of the machine change nothing. Why it is right:

1.  What was acknowledged before a read came is in the views. The appender has a batch applied before it tells anybody
    how it went (Appender._send: ``apply``, then ``_answer``), also one settled after its connection was lost. What
    others appended before the claim is at or below the head that the claim answers.
2.  A write whose outcome is unknown may be in the database and not in the views. Nobody was told that it happened, so
    it may as well happen later, when it is applied. Unless somebody was told of it: by an answer from the log itself,
    about history. So a read waits for the newest revision that any answer of the log has told here (``told``).
3.  Nobody else appends. The functions that append (append, append_change) refuse who has not named the claim's token on
    its connection, until the claim has ended. It ends with the postmaster, whose start is in the claim: it means
    nothing to one that was started later, nor in a copy, and never has to be cleaned up. Or it is given up here, after
    it has ceased to count.
4.  There is no later postmaster while the claim counts. The next is launched by this process, which begins another
    reign before (ops/postgres/embedded_postgres.py). One that somebody starts by hand has to wait until the last process of the
    old one has gone; then the connection that the claim was made on is closed, which each look sees. (That it is seen
    before a Postgres started after that has answered its first client is assumed of the kernel.)
5.  A read that is under way when the claim is lost saw all there was when it looked, which was after it came.

What else changes the head row, or what is kept, and why it does no harm:

    settling (batches)    fences a batch of one's own; the head does not move
    retention, `compact`  moves the marks: what is now stays as it is. Memory forgets what is below them when the
                          notification comes, or a second later; so it was for reads at a revision in any case
    making partitions     says where rows go
    `erase`               appends, and the next read has to show it: it asks for room (``room``). The claim ceases to
                          count and is given up, `erase` appends; the claim is made again when that has ended
    `migrate`             has nothing to apply beside a server of its own version
    another server        is refused when it starts (``check_may_append``), and by those functions if it was there
    statements by hand    append() is refused; who updates the head row in another's name has asked for it

Whoever reads the database itself (SQL, `verify`) may see a commit moments before the views have it.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import trio

from kubechronicle.eventlog.backoff import delays
from kubechronicle.eventlog.errors import LogError, LogUnavailable
from kubechronicle.eventlog.log import RevisionLog
from kubechronicle.eventlog.postgres import sql
from kubechronicle.eventlog.postgres.listener import CHANNEL, MAKE_ROOM, NOTIFY
from kubechronicle.eventlog.postgres.postmaster_epoch import PostmasterEpoch
from kubechronicle.eventlog.postgres.session import Session
from kubechronicle.eventlog.tail import Tail

logger = logging.getLogger(__name__)

ROOM_LOCK = 0x6B63736F  # "kcso"; held, shared, by who appends beside
ROOM_PATIENCE = 10.0  # seconds; a server that runs makes room within a few milliseconds
ROOM_INTERVAL = 0.05


class SoleAppender:
    """See the head of this file. ``run`` must be running for the claim to be made."""

    def __init__(self, log: RevisionLog, tail: Tail, reign: PostmasterEpoch) -> None:
        self._log = log
        self._tail = tail
        self._reign = reign
        self._claimed_under = -1
        self._connected: Callable[[], bool] | None = None  # while claimed and applied

    def told(self) -> int | None:
        """The revision that a read coming now has to show, if it is certain that there is none above it to be seen;
        None: it has to ask the log."""
        connected = self._connected
        if connected is None or self._claimed_under != self._reign.number or not connected():
            return None
        return self._log.told

    async def run(self) -> None:
        """Claim, and claim again whenever the claim was lost or given up."""
        pauses = delays()
        while True:
            try:
                await self._claim()
            except LogError as error:
                logger.debug("appending alone could not be claimed: %s", error)
            if self.told() is None:
                await trio.sleep(next(pauses))
                continue
            pauses = delays()
            await self._log.wait_claim_shaken()

    async def _claim(self) -> None:
        self._connected = None  # before the claim is given up, where somebody has asked for room
        reign = self._reign.number
        claim = await self._log.claim()
        if claim is None:
            return
        self._tail.learn(claim.head)
        await self._tail.reach(claim.head.revision)
        self._claimed_under, self._connected = reign, claim.connected


@asynccontextmanager
async def room(session: Session) -> AsyncIterator[None]:
    """Within the block, append() is for anybody: a server that alone appends to the log is asked to let others.
    LogUnavailable: it does not."""
    await session.fetch("select pg_advisory_lock_shared($1)", ROOM_LOCK)
    try:
        with trio.move_on_after(ROOM_PATIENCE) as patience:
            while (await session.fetch(sql.CLAIMED))[0][0]:
                await session.fetch(NOTIFY, CHANNEL, MAKE_ROOM)
                await trio.sleep(ROOM_INTERVAL)
        if patience.cancelled_caught:
            raise LogUnavailable("the server that runs this database does not let others append; is it suspended?")
        yield
    finally:
        if not session.closed:
            await session.fetch("select pg_advisory_unlock_shared($1)", ROOM_LOCK)
