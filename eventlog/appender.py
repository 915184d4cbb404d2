"""The appender: puts transactions that wait at the same time into one batch, and answers when it is safe to.

No decisions about objects and no views here: the log checks expectations, the tail applies. While a batch is under way
the next one gathers, so the busier the server, the larger its batches. A batch never has a key twice: a transaction
that touches a key of an earlier one waiting goes to a later batch, and so does everything behind it on the same keys:

    waiting: T1(a) T2(b) T3(a) T4(a,c) T5(c)      batch: T1 T2      next: T3      next: T4      next: T5

Every transaction ends in exactly one of these, and never in a guess:

    committed and applied to the local views   its Records
    refused by the log                         RefusedError
    certainly not committed                    LogUnavailable
    not known by the caller's deadline         OutcomeUnknownForNow; settling goes on without the caller

Invariant: a batch whose outcome is unknown is settled before anything else is sent; its transactions are sent again (in
a new batch) only when the log has promised that the lost one can never commit.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

import trio

from kubechronicle.eventlog.backoff import delays
from kubechronicle.eventlog.batch_ids import BatchIds
from kubechronicle.eventlog.errors import (
    LogCorrupt,
    LogError,
    LogUnavailable,
    NotSoleAppender,
    OutcomeUnknown,
    OutcomeUnknownForNow,
    QueueFull,
    RefusedError,
    SetupError,
)
from kubechronicle.eventlog.log import RevisionLog
from kubechronicle.eventlog.records import Batch, BatchResult, Key, Record, Refused, Transaction
from kubechronicle.eventlog.tail import Tail

logger = logging.getLogger(__name__)

BATCH_TRANSACTIONS = 256
"""15,000 to 34,000 changes per second at this size; more gained little, and each waits for the slowest."""

BATCH_BYTES = 4 * 1024 * 1024
"""Of object JSON in one batch, if it has more than one transaction: bounds a round trip and the copies made for it."""

WAITING_TRANSACTIONS = 4096
"""Beyond these, callers wait to get in line: they hold their objects in memory anyway, but gathering stays cheap."""

LOOK_AHEAD = 4 * BATCH_TRANSACTIONS
"""How far to look for transactions on other keys, so that a long line on one key is not gone through for each batch."""

ATTEMPTS = 6
"""To reach a database that refuses, with pauses of 0.05 to 0.8 s: a failover of 1.5 s goes unnoticed; a longer outage
is told to the callers, who know best whether to try again."""

SHUTDOWN_GRACE = 10.0
"""Seconds for the batch under way when the server stops: its outcome should be known and answered."""


@dataclass(slots=True, eq=False)
class Pending:
    """A transaction in line. ``outcome`` is set once, and told by ``tell``; ``sent`` while the log may have it."""

    transaction: Transaction
    deadline: float
    size: int
    tell: Callable[[tuple[Record, ...] | LogError], None] = lambda _: None
    sent: bool = False
    outcome: tuple[Record, ...] | LogError | None = None

    def finish(self, outcome: tuple[Record, ...] | LogError) -> None:
        if self.outcome is None:
            self.outcome = outcome
            self.tell(outcome)


def gather(waiting: Collection[Pending]) -> list[Pending]:
    """Of those in line, in order: what the next batch may hold."""
    if len(waiting) == 1:
        return list(waiting)
    taken: list[Pending] = []
    keys: set[Key] = set()  # of those taken and of those passed over
    size = 0
    for pending in islice(waiting, LOOK_AHEAD):
        if len(taken) == BATCH_TRANSACTIONS or (taken and size + pending.size > BATCH_BYTES):
            break
        own = {change.key for change in pending.transaction.changes}
        if keys.isdisjoint(own):
            taken.append(pending)
            size += pending.size
        keys |= own
    return taken


class Appender:
    """See the head of this file. ``run`` must be running; it may be started again after it ended."""

    def __init__(self, log: RevisionLog, tail: Tail) -> None:
        self._log = log
        self._tail = tail
        self._waiting: dict[Pending, None] = {}  # in order; a dict, because some leave from the middle
        self._under_way: list[Pending] = []
        self._room = trio.Semaphore(WAITING_TRANSACTIONS)
        self._asleep: trio.lowlevel.Task | None = None
        self._ids = BatchIds()
        self._warned = False  # of what only an operator can mend, since the last batch that went through
        self._closing = True

    async def append(self, transaction: Transaction, *, deadline: float) -> tuple[Record, ...]:
        """Commit the changes together. Returns their Records once they are durable and in the local views.

        ``deadline``: trio's clock. Raises RefusedError (the views show the reason by then), LogUnavailable (certainly
        not committed), OutcomeUnknownForNow. Cancelled before its batch is sent, the transaction is withdrawn;
        cancelled later, it takes its course.
        """
        if self._closing:
            raise LogUnavailable("the server is not taking changes")
        done = trio.Event()
        pending = Pending(transaction, deadline, _size(transaction), lambda _: done.set())
        with trio.move_on_at(deadline):
            await self._room.acquire()
            try:
                await self._stand_in_line(pending, done)
            finally:
                self._room.release()
        outcome = pending.outcome
        if isinstance(outcome, LogError):
            raise outcome
        if outcome is not None:
            return outcome
        if pending.sent:
            raise OutcomeUnknownForNow("the deadline passed before the outcome was known")
        raise LogUnavailable("the deadline passed before the change was sent")

    def submit(
        self,
        transaction: Transaction,
        done: Callable[[tuple[Record, ...] | Refused | Exception], None],
        *,
        deadline: float,
    ) -> None:
        """As ``append``, for a caller that must not wait: takes its place in line now, and ``done`` is called once,
        from the appender's task, with the Records, the refusal, or the error that tells what is known by then.

        Raises QueueFull at the bound, LogUnavailable when the server stops; then nothing has happened. ``deadline``
        bounds the sending, not the answer: a batch that was sent is waited for until its outcome is known.
        """
        if self._closing:
            raise LogUnavailable("the server is not taking changes")
        if len(self._waiting) >= WAITING_TRANSACTIONS:
            raise QueueFull(WAITING_TRANSACTIONS)

        def tell(outcome: tuple[Record, ...] | LogError) -> None:
            done(outcome.refused if isinstance(outcome, RefusedError) else outcome)

        self._waiting[Pending(transaction, deadline, _size(transaction), tell)] = None
        self._kick()

    async def _stand_in_line(self, pending: Pending, done: trio.Event) -> None:
        if self._closing:  # while waiting for room
            raise LogUnavailable("the server is not taking changes")
        self._waiting[pending] = None
        self._kick()
        try:
            await done.wait()
        finally:
            self._waiting.pop(pending, None)
            if not pending.sent:
                pending.finish(LogUnavailable("the deadline passed before the change was sent"))

    # The one task

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Send batches until cancelled; then finish the one under way, within SHUTDOWN_GRACE, and refuse the rest."""
        self._closing = False
        try:
            async with trio.open_nursery() as nursery:
                with trio.CancelScope(shield=True) as shielded:
                    nursery.start_soon(self._close_when_cancelled, shielded)
                    task_status.started()
                    while not self._closing:
                        await self._wait_for_work()
                        await self._send_waiting()
        finally:
            self._closing = True
            self._abandon()

    async def _wait_for_work(self) -> None:
        if self._waiting or self._closing:
            return
        self._asleep = trio.lowlevel.current_task()

        def abort(_: trio.lowlevel.RaiseCancelT) -> trio.lowlevel.Abort:
            self._asleep = None
            return trio.lowlevel.Abort.SUCCEEDED

        await trio.lowlevel.wait_task_rescheduled(abort)

    def _kick(self) -> None:
        if self._asleep is not None:
            trio.lowlevel.reschedule(self._asleep)
            self._asleep = None

    async def _close_when_cancelled(self, shielded: trio.CancelScope) -> None:
        try:
            await trio.sleep_forever()
        finally:
            self._closing = True
            self._kick()
            shielded.deadline = trio.current_time() + SHUTDOWN_GRACE

    def _abandon(self) -> None:
        """Nobody will send or settle any more: tell those who wait."""
        for pending in self._under_way:
            pending.finish(OutcomeUnknownForNow("the server stopped before the outcome was known"))
        for pending in self._waiting:
            pending.finish(LogUnavailable("the server stopped before the change was sent"))
        self._under_way = []
        self._waiting.clear()

    async def _send_waiting(self) -> None:
        while self._waiting and not self._closing:
            taken = gather(self._waiting)
            for pending in taken:
                del self._waiting[pending]
            self._under_way = taken
            await self._send()
            self._under_way = []
            if len(taken) > 1:  # whose callers come back now: what they bring next goes into one batch, not several
                await trio.lowlevel.checkpoint()

    async def _send(self) -> None:
        """Send what is under way until its outcome is known; attempts are only made while callers wait for them."""
        pauses: Iterator[float] | None = None  # few need any
        while True:
            self._under_way = _in_time(self._under_way)
            if not self._under_way:
                return
            for pending in self._under_way:
                pending.sent = True
            batch = Batch(id=self._ids.next(), transactions=tuple([each.transaction for each in self._under_way]))
            result = await self._outcome(batch)
            if isinstance(result, BatchResult):
                self._warned = False
                await self._tail.apply(result)
                _answer(self._under_way, result)
                return
            if not isinstance(result, LogUnavailable):
                await self._send_one_by_one(result)
                return
            for pending in self._under_way:
                pending.sent = False
            pauses = pauses or islice(delays(), ATTEMPTS - 1)
            pause = next(pauses, None)
            if pause is None or self._closing or not _in_time(self._under_way):
                break
            await trio.sleep(pause)
        for pending in self._under_way:
            pending.finish(LogUnavailable(str(result)))

    async def _send_one_by_one(self, error: LogError) -> None:
        """The log refused the batch's data, and nothing of it committed: whose data it was shows when each is alone."""
        if len(self._under_way) == 1:
            self._under_way[0].finish(error)
            return
        whole = self._under_way
        for pending in whole:
            self._under_way = _in_time([pending])
            if self._under_way:
                await self._send()
        self._under_way = []

    async def _outcome(self, batch: Batch) -> BatchResult | LogError:
        """What became of the batch, for certain: its result, or why it never committed and never will. Anything but
        LogUnavailable means that the log will not take these data, however often they are sent."""
        try:
            return await self._log.append(batch)
        except OutcomeUnknown as error:
            result = await self._settled(batch)
            return LogUnavailable(f"{error}; it did not commit") if result is None else result
        except LogCorrupt:
            raise
        except LogError as error:
            if isinstance(error, SetupError | NotSoleAppender) and not self._warned:  # clients are not told why
                self._warned = True
                logger.warning("Every change is refused: %s", error)
            return error

    async def _settled(self, batch: Batch) -> BatchResult | None:
        """Ask until the log tells; nothing else is sent meanwhile, because it may stand on this batch."""
        for pause in delays():
            try:
                return await self._log.settle(batch)
            except (LogUnavailable, OutcomeUnknown):
                await trio.sleep(pause)
        raise AssertionError("delays() is endless")


def _size(transaction: Transaction) -> int:
    return sum(len(change.body) for change in transaction.changes)


def _in_time(pendings: Sequence[Pending]) -> list[Pending]:
    """Those whose caller still waits; the others are told, or have gone, and certainly have not been sent."""
    now = trio.current_time()
    for pending in pendings:
        if pending.deadline <= now:
            pending.finish(LogUnavailable("the deadline passed before the change was sent"))
    return [pending for pending in pendings if pending.outcome is None]


def _answer(pendings: Sequence[Pending], result: BatchResult) -> None:
    for pending, outcome in zip(pendings, result.outcomes, strict=True):
        pending.finish(outcome if isinstance(outcome, tuple) else RefusedError(outcome))
