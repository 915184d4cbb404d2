"""LogHub: follows a log, and appends to it, for all worker processes of a server.

No objects here: each worker has its own views. The hub has a tail, whose records go to all workers, and an appender,
which combines the transactions of all workers into batches. So a change by one worker costs the others and Postgres no
query, and a batch is as large as one process would make it.

    worker A ── Submit ──►  appender ──► log.append ──►  page: records, HEAD ──►  Answer to A, Look to B and C
                            tail     ──► log.read  (commits of other servers)  ──►  page  ──►  Look to A, B, C

Records are written once, into memory that all processes map (page.py). A Look wakes a worker; a busy hub sends one each
PULSE, so that a worker takes the records of that time together: to be woken costs it ten times as much as a record.

Invariants: HEAD is written before an Answer leaves, so a worker whose client knows of a change finds it there. Records
are written in revision order, each before its HEAD; a worker that does not take them in time reads the log itself.
Answers are never left out.

A worker that dies leaves transactions behind that commit or not, as with a connection that breaks; nobody had an
answer. If this process dies, the workers end.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final

import trio

from kubechronicle.eventlog.appender import Appender
from kubechronicle.eventlog.consistency import SoleAppender
from kubechronicle.eventlog.entries import Entry
from kubechronicle.eventlog.errors import LogCorrupt, LogError
from kubechronicle.eventlog.integrity import erasures
from kubechronicle.eventlog.log import RevisionLog
from kubechronicle.eventlog.positions import Position
from kubechronicle.eventlog.postgres.postmaster_epoch import PostmasterEpoch
from kubechronicle.eventlog.records import Head, Record, Rejected
from kubechronicle.eventlog.restarts import Runnable, TaskFailures, keep_running, plain
from kubechronicle.eventlog.sharing.messages import (
    Answer,
    BranchChanged,
    Channel,
    Look,
    Outcome,
    SubmitMessage,
    Trouble,
    encode_records,
    failed,
    frame_of,
    message_of_outcome,
    received,
    submit_of,
)
from kubechronicle.eventlog.sharing.page import CLAIM, HEAD, LARGEST, RESTARTS, WANTED, SharedPage, make_page
from kubechronicle.eventlog.tail import Tail
from kubechronicle.eventlog.views.view import ViewProgress

PULSE: Final = 0.005
"""Seconds between two Looks that nobody waits for. A watch of another worker is later by as much at most."""
LOOK: Final = frame_of(Look())


class _Idle:
    """In the place of a dispatcher: the hub has no watchers."""

    def deliver(self) -> None:
        """Deliver nothing."""

    async def run(self) -> None:
        await trio.sleep_forever()


class Published:
    """The views of the hub's tail: none, for records that it applies are written for the workers. ``run`` must run."""

    def __init__(self, page: SharedPage, on_erased: Callable[[], object]) -> None:
        self.workers: set[Channel] = set()
        self.dispatcher = _Idle()
        self.read_history: Any = None
        self.read_object: Any = None
        self._progress = ViewProgress()
        self._page = page
        self._on_erased = on_erased
        self._marks = Head(revision=0, compacted=0)
        self._due: set[Channel] = set()  # workers that have to be told of records
        self._pulse = trio.Event()

    def __iter__(self) -> Iterator[Any]:
        return iter(())

    async def run(self) -> None:
        """Tell workers of records: at once after a pause, else each PULSE."""
        while True:
            await self._pulse.wait()
            self._pulse = trio.Event()
            self._tell()
            await trio.sleep(PULSE)

    @property
    def applied(self) -> int:
        return self._progress.applied

    async def wait_applied(self, revision: int) -> None:
        await self._progress.wait(revision)

    def load(self, entries: dict[str, list[Entry]], head: Head, *, restart: bool = False) -> None:
        """Go on at the head. Workers that lack records before it read the log."""
        if restart:
            self._page.words[RESTARTS] += 1
        if self.applied:
            self._erase()  # the changes that were missed may include an erasure
        self._page.words[HEAD] = head.revision
        (self._progress.restart if restart else self._progress.advance)(head.revision)
        self.broadcast(LOOK)

    def apply(self, records: Sequence[Record]) -> None:
        """Write records for all workers. LogCorrupt if they do not follow ``applied`` without a gap."""
        if not records:
            return
        for revision, record in enumerate(records, self.applied + 1):
            if record.revision != revision:
                raise LogCorrupt(f"revision {revision} is missing: the log continues with {record.revision}")
        for content in encode_records(records, LARGEST // 2):
            self._page.write(content)
        if any(record.key.resource == erasures.RESOURCE for record in records):
            self._erase()
        words = self._page.words
        words[HEAD] = records[-1].revision
        self._due |= self.workers
        if words[WANTED]:
            words[WANTED] = 0
            self._tell()
        else:
            self._pulse.set()
        self._progress.advance(records[-1].revision)

    def _erase(self) -> None:
        self._page.erase()
        self._on_erased()

    def _tell(self) -> None:
        due, self._due = self._due, set()
        for worker in due:
            worker.send(LOOK, once=True)

    def answer(self, worker: Channel, frame: bytes) -> None:
        """Send an Answer, with which the worker takes all records."""
        self._due.discard(worker)
        worker.send(frame)

    def forget(self, head: Head) -> None:
        """Let the workers look at the marks of history if they moved."""
        if (head.compacted, head.compacted_of) != (self._marks.compacted, self._marks.compacted_of):
            self._marks = head
            self.broadcast(LOOK)

    def broadcast(self, frame: bytes) -> None:
        for worker in self.workers:
            worker.send(frame)


class HubTail(Tail):
    """A tail that loads no objects."""

    async def _read_everything(self) -> tuple[Head, dict[str, list[Entry]]]:
        head = await self._log.head()
        rows = await self._log.identities([head.revision]) if head.revision else []
        return replace(head, hash=rows[0].hash if rows else b""), {}

    async def _restart(self) -> None:
        """Go on at the present head after the log went back; each worker finds out its losses."""
        self._position: Position | None = None
        self._newest: Record | None = None
        head, entries = await self._read_until_read()
        self._wanted = 0
        self._log.restart(head.revision)
        self.views.load(entries, head, restart=True)
        self._note_load(head)
        self.learn(head)


class LogHub:
    """See the head of this file. ``run`` must be running.

    ``epoch``: given if this process runs the database, so that no other server appends.
    ``on_erased``: called whenever history was erased.
    """

    def __init__(
        self,
        log: RevisionLog,
        *,
        epoch: PostmasterEpoch | None = None,
        name: str = "",
        on_erased: Callable[[], object] = lambda: None,
    ) -> None:
        self._log = log
        self._name = name
        self._page_descriptor = make_page()
        self._page = SharedPage(self._page_descriptor)
        self._published = Published(self._page, on_erased)
        self._tail = HubTail(log, self._published, name=name)  # type: ignore[arg-type]
        self._appender = Appender(log, self._tail)
        self._claims = 0
        self._sole = SoleAppender(log, self._tail, epoch, self._publish_claim) if epoch is not None else None
        self._nursery: trio.Nursery
        log.availability.changed = self._publish_trouble
        if epoch is not None:
            epoch.on_begin = self._drop_claim

    async def run(self, failures: TaskFailures, *, task_status: trio.TaskStatus[None]) -> None:
        """Follow and append until cancelled. Report started when transactions can be taken."""
        of = f" of {self._name}" if self._name else ""
        tasks: list[tuple[str, Runnable]] = [("tail", self._tail.run), ("appender", self._appender.run)]
        tasks.append(("pulse", plain(self._published.run)))
        if self._sole is not None:
            tasks.append(("sole-appender", plain(self._sole.run)))
        try:
            async with trio.open_nursery() as self._nursery:
                for name, run in tasks:
                    up = trio.Event()
                    running = partial(keep_running, f"hub-{name}{of}", run, failures, essential=True, up=up)
                    self._nursery.start_soon(partial(running, passed=(LogCorrupt,)))
                    await up.wait()
                task_status.started()
                await trio.sleep_forever()
        finally:
            os.close(self._page_descriptor)

    def connect(self) -> tuple[socket.socket, int]:
        """Return a worker's end of a new connection, which the caller closes, and the descriptor of the page."""
        ours, theirs = socket.socketpair()
        worker = Channel(ours)
        self._published.workers.add(worker)
        worker.send(self._trouble())
        self._nursery.start_soon(self._serve, worker)
        return theirs, self._page_descriptor

    async def _serve(self, worker: Channel) -> None:
        try:
            await worker.run(lambda content: self._submit(worker, submit_of(content)))
        finally:
            self._published.workers.discard(worker)

    def _submit(self, worker: Channel, submit: SubmitMessage) -> None:
        count = len(submit.transactions)
        outcomes: list[Outcome | None] = [None] * count
        missing = count

        def done(index: int, result: tuple[Record, ...] | Rejected | Exception) -> None:
            nonlocal missing
            outcomes[index] = message_of_outcome(result)
            missing -= 1
            if not missing:
                known = tuple(outcome for outcome in outcomes if outcome is not None)
                self._published.answer(worker, frame_of(Answer(submit.number, self._published.applied, known)))

        for index, transaction in enumerate(submit.transactions):
            report = partial(done, index)
            try:
                self._appender.submit(received(transaction), report, deadline=float("inf"))
            except LogError as error:
                report(error)

    # News for all workers

    def branch_changed(self, branch: str) -> None:
        """Tell the workers that another server changed a branch."""
        self._published.broadcast(frame_of(BranchChanged(branch)))

    def _publish_claim(self, in_use: bool) -> None:
        if in_use:
            self._claims += 1
        self._page.words[CLAIM] = self._claims if in_use else 0
        self._published.broadcast(LOOK)

    def _drop_claim(self) -> None:
        """Drop the claim before another postmaster begins."""
        self._page.words[CLAIM] = 0

    def _publish_trouble(self) -> None:
        self._published.broadcast(self._trouble())

    def _trouble(self) -> bytes:
        state = self._log.availability
        reads, changes = (
            failed(error) if error is not None else None for error in (state.last_error, state.refused_for)
        )
        return frame_of(Trouble(reads, changes, state.resource))
