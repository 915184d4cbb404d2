"""LogHub: follows a log, and appends to it, for all worker processes of a server.

No objects here: each worker has its own views. The hub has a tail, whose records go to all workers, and an appender,
which combines the transactions of all workers into batches. So a change by one worker costs the others and Postgres no
query, and a batch is as large as one process would make it.

    worker A ── Submit ──►  appender ──► log.append ──►  page: HEAD ──►  Records to A, B, C ──►  Answer to A
                            tail     ──► log.read  (commits of other servers)  ──►  Records to A, B, C

Invariants: HEAD is written before an Answer leaves, so a worker whose client knows of a change finds it there. Records
leave in revision order; a worker that does not take them in time gets a Look in their place, and reads the log itself.
Answers are never left out.

A worker that dies leaves transactions behind that commit or not, as with a connection that breaks; nobody had an
answer. If this process dies, the workers end.
"""

from __future__ import annotations

import logging
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
from kubechronicle.eventlog.log import RevisionLog
from kubechronicle.eventlog.positions import Position
from kubechronicle.eventlog.postgres.postmaster_epoch import PostmasterEpoch
from kubechronicle.eventlog.records import Head, Record, Rejected
from kubechronicle.eventlog.restarts import Runnable, TaskFailures, keep_running, plain
from kubechronicle.eventlog.sharing.messages import (
    CLAIM,
    HEAD,
    Answer,
    BranchChanged,
    Frames,
    Look,
    Outcome,
    Restart,
    SubmitMessage,
    Trouble,
    encode_record,
    failed,
    frame_of,
    frame_of_records,
    make_page,
    map_page,
    message_of_outcome,
    received,
    submit_of,
)
from kubechronicle.eventlog.tail import Tail
from kubechronicle.eventlog.views.view import ViewProgress

logger = logging.getLogger(__name__)

UNSENT_BYTES: Final = 16 * 1024 * 1024
"""Bytes that may wait for a worker that does not read. Beyond them, records are left out."""
RECEIVE_BYTES: Final = 256 * 1024
LOOK: Final = frame_of(Look())


class Link:
    """The connection to one worker."""

    def __init__(self, connection: socket.socket) -> None:
        self._socket = trio.socket.from_stdlib_socket(connection)
        self._unsent: list[bytes] = []
        self._size = 0
        self._behind = False  # records were left out, and a Look is due
        self._wanted = trio.Event()

    def send(self, frame: bytes) -> None:
        """Queue a message, without waiting."""
        self._unsent.append(frame)
        self._size += len(frame)
        self._wanted.set()

    def send_records(self, frame: bytes) -> None:
        """Queue records, or leave them out if too much is waiting."""
        if self._size + len(frame) <= UNSENT_BYTES:
            self.send(frame)
        elif not self._behind:
            self._behind = True
            self.send(LOOK)

    async def run(self, submitted: Callable[[Link, SubmitMessage], None]) -> None:
        """Serve the worker until it closes the connection."""
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._send_queued)
                frames = Frames()
                while data := await self._socket.recv(RECEIVE_BYTES):
                    for content in frames.feed(data):
                        submitted(self, submit_of(content))
                nursery.cancel_scope.cancel()
        except* OSError as group:
            logger.debug("a worker has gone: %s", group.exceptions)
        finally:
            self._socket.close()

    async def _send_queued(self) -> None:
        while True:
            await self._wanted.wait()
            self._wanted = trio.Event()
            data = memoryview(b"".join(self._unsent))
            self._unsent.clear()
            while data:
                data = data[await self._socket.send(data) :]
            self._size = sum(map(len, self._unsent))
            if self._behind:
                self._behind = False
                self.send(LOOK)  # again: it had read the log, maybe, before later records were left out


class _Idle:
    """In the place of a dispatcher: the hub has no watchers."""

    def deliver(self) -> None:
        """Deliver nothing."""

    async def run(self) -> None:
        await trio.sleep_forever()


class Published:
    """The views of the hub's tail: none, for records that it applies are sent to the workers."""

    def __init__(self, page: memoryview) -> None:
        self.links: set[Link] = set()
        self.dispatcher = _Idle()
        self.read_history: Any = None
        self.read_object: Any = None
        self._progress = ViewProgress()
        self._page = page
        self._marks = Head(revision=0, compacted=0)

    def __iter__(self) -> Iterator[Any]:
        return iter(())

    @property
    def applied(self) -> int:
        return self._progress.applied

    async def wait_applied(self, revision: int) -> None:
        await self._progress.wait(revision)

    def load(self, entries: dict[str, list[Entry]], head: Head, *, restart: bool = False) -> None:
        """Go on at the head. Workers that lack records before it read the log."""
        self._page[HEAD] = head.revision
        (self._progress.restart if restart else self._progress.advance)(head.revision)
        self.broadcast(frame_of(Restart()) if restart else LOOK)

    def apply(self, records: Sequence[Record]) -> None:
        """Send records to all workers. LogCorrupt if they do not follow ``applied`` without a gap."""
        if not records:
            return
        for revision, record in enumerate(records, self.applied + 1):
            if record.revision != revision:
                raise LogCorrupt(f"revision {revision} is missing: the log continues with {record.revision}")
        self._page[HEAD] = records[-1].revision
        whole = [encode_record(record, with_body=True) for record in records]
        common: bytes | None = None
        submitters = {record.mark for record in records}
        for link in self.links:
            if link in submitters:
                own = [
                    encode_record(record, with_body=False) if record.mark is link else encoded
                    for record, encoded in zip(records, whole, strict=True)
                ]
                link.send_records(frame_of_records(own))
            else:
                common = common or frame_of_records(whole)
                link.send_records(common)
        self._progress.advance(records[-1].revision)

    def forget(self, head: Head) -> None:
        """Let the workers look at the marks of history if they moved."""
        if (head.compacted, head.compacted_of) != (self._marks.compacted, self._marks.compacted_of):
            self._marks = head
            self.broadcast(LOOK)

    def broadcast(self, frame: bytes) -> None:
        for link in self.links:
            link.send(frame)


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
    """

    def __init__(self, log: RevisionLog, *, epoch: PostmasterEpoch | None = None, name: str = "") -> None:
        self._log = log
        self._name = name
        self._page_descriptor = make_page()
        self._page = map_page(self._page_descriptor)
        self._published = Published(self._page)
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
        link = Link(ours)
        self._published.links.add(link)
        link.send(self._trouble())
        self._nursery.start_soon(self._serve, link)
        return theirs, self._page_descriptor

    async def _serve(self, link: Link) -> None:
        try:
            await link.run(self._submit)
        finally:
            self._published.links.discard(link)

    def _submit(self, link: Link, submit: SubmitMessage) -> None:
        count = len(submit.transactions)
        outcomes: list[Outcome | None] = [None] * count
        missing = count

        def done(index: int, result: tuple[Record, ...] | Rejected | Exception) -> None:
            nonlocal missing
            outcomes[index] = message_of_outcome(result)
            missing -= 1
            if not missing:
                known = tuple(outcome for outcome in outcomes if outcome is not None)
                link.send(frame_of(Answer(submit.number, self._published.applied, known)))

        for index, transaction in enumerate(submit.transactions):
            report = partial(done, index)
            try:
                self._appender.submit(received(transaction, link), report, deadline=float("inf"))
            except LogError as error:
                report(error)

    # News for all workers

    def branch_changed(self, branch: str) -> None:
        """Tell the workers that another server changed a branch."""
        self._published.broadcast(frame_of(BranchChanged(branch)))

    def _publish_claim(self, in_use: bool) -> None:
        if in_use:
            self._claims += 1
        self._page[CLAIM] = self._claims if in_use else 0
        self._published.broadcast(LOOK)

    def _drop_claim(self) -> None:
        """Drop the claim before another postmaster begins."""
        self._page[CLAIM] = 0

    def _publish_trouble(self) -> None:
        self._published.broadcast(self._trouble())

    def _trouble(self) -> bytes:
        state = self._log.availability
        reads, changes = (
            failed(error) if error is not None else None for error in (state.last_error, state.refused_for)
        )
        return frame_of(Trouble(reads, changes, state.resource))
