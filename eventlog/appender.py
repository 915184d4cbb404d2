"""The appender: combines waiting transactions into batches, and reports each outcome once it is certain.

No decisions about objects and no views here: the log checks expected revisions, the tail applies records. The next
batch gathers while one is under way, so a busier server sends larger batches. Beside writes that wait for webhooks it
gathers longer (``Siblings``). A batch never has a key twice. A transaction that touches a key of an earlier waiting one
goes to a later batch, and so do later ones on the same keys:

    waiting: T1(a) T2(b) T3(a) T4(a,c) T5(c)      batch: T1 T2      next: T3      next: T4      next: T5

Every transaction has exactly one outcome, which is never a guess:

    committed and applied to the local views    its Records
    rejected by the log                         RejectedError
    certainly not committed                     LogUnavailable
    not known at the caller's deadline          OutcomeUnknownForNow; settling continues without the caller

Invariant: a batch with an unknown outcome is settled before anything else is sent. Its transactions are sent again, in
a new batch, only after the log has guaranteed that the lost batch can never commit.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

import msgspec
import trio

from kubechronicle.eventlog.errors import (
    ChangesRefused,
    Diverged,
    LogCorrupt,
    LogError,
    LogUnavailable,
    OutcomeUnknown,
    OutcomeUnknownForNow,
    QueueFull,
    RejectedError,
    SetupError,
)
from kubechronicle.eventlog.log import RevisionLog
from kubechronicle.eventlog.records import Batch, BatchIds, BatchResult, Key, Record, Rejected, Transaction
from kubechronicle.eventlog.restarts import delays
from kubechronicle.eventlog.tail import Tail

BATCH_TRANSACTIONS = 256
"""15,000 to 34,000 changes per second at this size. Larger batches gained little, and each change waits for all."""

BATCH_BYTES = 4 * 1024 * 1024
"""Bytes of object JSON in a batch of several transactions: bounds a round trip and its copies of the data."""

WAITING_TRANSACTIONS = 4096
"""Length of the queue. Further callers wait outside it: they hold their objects in memory anyway, and gathering stays
cheap."""

LOOK_AHEAD = 4 * BATCH_TRANSACTIONS
"""Queue entries searched for a batch, so that a long queue on one key is not searched in full for each batch."""

ATTEMPTS = 6
"""Attempts to reach the database, with pauses of 0.05 to 0.8 s: a failover of 1.5 s goes unnoticed. A longer outage is
reported to the callers, which decide whether to retry."""

GATHERING = 0.005
"""Seconds that a batch waits for the transactions of siblings at most, while the event loop has work."""

QUIET = 0.001
"""Seconds without work, after which the event loop is quiet, and no answer is expected soon. epoll(7) waits for whole
milliseconds; without any pause, batches were hardly larger than before."""

SHUTDOWN_GRACE = 10.0
"""Seconds in which a stopping server waits for the outcome of the batch under way."""


class Pending(msgspec.Struct, eq=False):
    """A transaction in the queue.

    ``report``: called once, with the outcome.
    ``sent``: the log may have received the transaction.
    """

    transaction: Transaction
    deadline: float
    size: int
    report: Callable[[tuple[Record, ...] | LogError], None] = lambda _: None
    sent: bool = False
    outcome: tuple[Record, ...] | LogError | None = None

    def finish(self, outcome: tuple[Record, ...] | LogError) -> None:
        if self.outcome is None:
            self.outcome = outcome
            self.report(outcome)


@dataclass(slots=True, eq=False)
class Siblings:
    """Calls of webhooks that writes wait for, ``count`` of them: the transactions of these writes may come soon.

    The answers of webhooks arrive one by one, and would make small batches. A batch costs Postgres as much as ten of
    its changes. Postgres has commit_delay and commit_siblings for the same purpose.
    """

    count: int = 0


def gather(waiting: Collection[Pending]) -> list[Pending]:
    """Return the transactions for the next batch, in queue order."""
    if len(waiting) == 1:
        return list(waiting)
    taken: list[Pending] = []
    keys: set[Key] = set()  # of the transactions taken and skipped
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

    def __init__(self, log: RevisionLog, tail: Tail, siblings: Siblings | None = None) -> None:
        """``siblings``: the writes whose transactions a batch waits for, unless it and the last one have one each."""
        self._log = log
        self._tail = tail
        self._siblings = siblings or Siblings()
        self._waiting: dict[Pending, None] = {}  # the queue; a dict, because transactions leave from its middle
        self._under_way: list[Pending] = []
        self._room = trio.Semaphore(WAITING_TRANSACTIONS)
        self._parked: trio.lowlevel.Task | None = None
        self._ids = BatchIds()
        self._several = False  # in the last batch: then others probably follow the first transaction of the next one
        self._closing = True

    async def append(self, transaction: Transaction, *, deadline: float) -> tuple[Record, ...]:
        """Commit the changes together. Returns their Records once they are durable and in the local views.

        ``deadline``: on Trio's clock. Raises RejectedError (the views then show the reason), LogUnavailable (certainly
        not committed), OutcomeUnknownForNow. Cancelling withdraws a transaction that was not sent yet; one that was
        sent may still commit.
        """
        if self._closing:
            raise LogUnavailable("the server is not taking changes")
        done = trio.Event()
        pending = Pending(transaction, deadline, _size(transaction), lambda _: done.set())
        with trio.move_on_at(deadline):
            await self._room.acquire()
            try:
                await self._queue_and_wait(pending, done)
            finally:
                self._room.release()
        outcome = pending.outcome
        if isinstance(outcome, LogError):
            raise outcome
        if outcome is not None:
            return outcome
        if pending.sent:
            raise OutcomeUnknownForNow("the deadline passed before the outcome was known")
        raise self._late()

    def submit(
        self,
        transaction: Transaction,
        done: Callable[[tuple[Record, ...] | Rejected | Exception], None],
        *,
        deadline: float,
    ) -> None:
        """As ``append``, for a caller that must not wait: queue the transaction and return.

        The appender's task calls ``done`` once, with the Records, the rejection or the error. Raises QueueFull, or
        LogUnavailable when the server stops; then nothing was queued. ``deadline`` bounds the sending only: the outcome
        of a sent batch is awaited without limit.
        """
        if self._closing:
            raise LogUnavailable("the server is not taking changes")
        if len(self._waiting) >= WAITING_TRANSACTIONS:
            raise QueueFull(WAITING_TRANSACTIONS)

        def report(outcome: tuple[Record, ...] | LogError) -> None:
            done(outcome.rejected if isinstance(outcome, RejectedError) else outcome)

        self._waiting[Pending(transaction, deadline, _size(transaction), report)] = None
        self._wake()

    async def _queue_and_wait(self, pending: Pending, done: trio.Event) -> None:
        if self._closing:  # since the caller began to wait for room
            raise LogUnavailable("the server is not taking changes")
        self._waiting[pending] = None
        self._wake()
        try:
            await done.wait()
        finally:
            self._waiting.pop(pending, None)
            if not pending.sent:
                pending.finish(self._late())

    # The one task

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Send batches until cancelled. Then finish the one under way, within SHUTDOWN_GRACE, and reject the rest."""
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
        self._parked = trio.lowlevel.current_task()

        def abort(_: trio.lowlevel.RaiseCancelT) -> trio.lowlevel.Abort:
            self._parked = None
            return trio.lowlevel.Abort.SUCCEEDED

        await trio.lowlevel.wait_task_rescheduled(abort)

    def _wake(self) -> None:
        if self._parked is not None:
            trio.lowlevel.reschedule(self._parked)
            self._parked = None

    async def _close_when_cancelled(self, shielded: trio.CancelScope) -> None:
        try:
            await trio.sleep_forever()
        finally:
            self._closing = True
            self._wake()
            shielded.deadline = trio.current_time() + SHUTDOWN_GRACE

    def _abandon(self) -> None:
        """Fail all transactions: nothing will be sent or settled any more."""
        for pending in self._under_way:
            pending.finish(OutcomeUnknownForNow("the server stopped before the outcome was known"))
        for pending in self._waiting:
            pending.finish(LogUnavailable("the server stopped before the change was sent"))
        self._under_way = []
        self._waiting.clear()

    async def _send_waiting(self) -> None:
        while self._waiting and not self._closing:
            if self._siblings.count and (self._several or len(self._waiting) > 1):
                await self._wait_for_siblings()
                if self._closing:
                    return
            taken = gather(self._waiting)
            for pending in taken:
                del self._waiting[pending]
            self._under_way = taken
            await self._send()
            self._under_way = []
            self._several = len(taken) > 1
            if self._several:  # lets the callers continue: their next transactions form one batch, not several
                await trio.lowlevel.checkpoint()

    async def _wait_for_siblings(self) -> None:
        """Wait until the event loop is quiet, for GATHERING at most. A full batch does not wait."""
        # Imported here: where pytest is installed, trio.testing imports it, which takes 0.1 s of a start.
        from trio.testing import wait_all_tasks_blocked

        if len(self._waiting) < BATCH_TRANSACTIONS:
            with trio.move_on_after(GATHERING):
                await wait_all_tasks_blocked(QUIET)

    async def _send(self) -> None:
        """Send the transactions under way until their outcome is known, while their callers wait."""
        pauses: Iterator[float] | None = None  # made only if needed
        while True:
            self._under_way = self._in_time(self._under_way)
            if not self._under_way:
                return
            for pending in self._under_way:
                pending.sent = True
            batch = Batch(id=self._ids.next(), transactions=tuple([each.transaction for each in self._under_way]))
            result = await self._outcome(batch)
            if isinstance(result, BatchResult):
                try:
                    await self._tail.apply(result)
                except Diverged:
                    for pending in self._under_way:
                        pending.finish(OutcomeUnknownForNow("the database went back after the change was committed"))
                else:
                    for place, error in (result.failed or {}).items():
                        assert isinstance(error, LogError)
                        self._under_way[place].finish(error)
                    _report(self._under_way, result)
                return
            if isinstance(result, ChangesRefused):  # one attempt more would have the same answer
                self._fail_refused(result)
                return
            if not isinstance(result, LogUnavailable):
                await self._send_one_by_one(result)
                return
            for pending in self._under_way:
                pending.sent = False
            pauses = pauses or islice(delays(), ATTEMPTS - 1)
            pause = next(pauses, None)
            if pause is None or self._closing or not self._in_time(self._under_way):
                break
            await trio.sleep(pause)
        for pending in self._under_way:
            pending.finish(result)

    def _in_time(self, pendings: Sequence[Pending]) -> list[Pending]:
        """Return the transactions whose callers still wait; fail those past their deadline, which were not sent."""
        now = trio.current_time()
        for pending in pendings:
            if pending.deadline <= now:
                pending.finish(self._late())
        return [pending for pending in pendings if pending.outcome is None]

    def _late(self) -> LogUnavailable:
        """Return the error of a transaction that was not sent in time, with the reason if the database takes none."""
        late = LogUnavailable("the deadline passed before the change was sent")
        availability = self._log.availability
        return late if availability.refused_for is None else availability.refusal(late)

    def _fail_refused(self, error: ChangesRefused) -> None:
        """Fail the transactions under way; after a wait for a lock also those that have waited behind them."""
        for pending in self._under_way:
            pending.finish(error)
        if error.blocked:
            for pending in self._waiting:
                pending.finish(error)
            self._waiting.clear()

    async def _send_one_by_one(self, error: LogError) -> None:
        """Send each transaction alone: the log rejected the data of the batch, and nothing of it committed."""
        if len(self._under_way) == 1:
            self._under_way[0].finish(error)
            return
        whole = self._under_way
        for pending in whole:
            self._under_way = self._in_time([pending])
            if self._under_way:
                await self._send()
        self._under_way = []

    async def _outcome(self, batch: Batch) -> BatchResult | LogError:
        """Append the batch; return its result, or the reason why it has not committed and never will.

        Any error but LogUnavailable means that the log rejects these data, however often they are sent.
        """
        try:
            return await self._log.append(batch)
        except OutcomeUnknown as error:
            result = await self._settled(batch)
            if result is not None:
                return result
            lost = LogUnavailable(f"{error}; it did not commit")
            lost.sqlstate = error.sqlstate
            return self._log.availability.explained(lost)
        except LogCorrupt:
            raise
        except LogError as error:
            return error

    async def _settled(self, batch: Batch) -> BatchResult | None:
        """Settle the batch, with retries without limit. Nothing else is sent meanwhile, as it may depend on this
        batch."""
        for pause in delays():
            try:
                return await self._log.settle(batch)
            except (LogUnavailable, OutcomeUnknown, SetupError):  # as when the password is being changed
                await trio.sleep(pause)
        raise AssertionError("delays() is endless")


def _size(transaction: Transaction) -> int:
    changes = transaction.changes
    return len(changes[0].body) if len(changes) == 1 else sum(len(change.body) for change in changes)


def _report(pendings: Sequence[Pending], result: BatchResult) -> None:
    for pending, outcome in zip(pendings, result.outcomes, strict=True):
        pending.finish(outcome if isinstance(outcome, tuple) else RejectedError(outcome))
