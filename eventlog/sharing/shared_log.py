"""SharedLog: the log of a worker process, which another process of the server follows and appends to (hub.py).

News come from the hub, and changes go to it. Everything else, as the load at the start and queries of history,
is read from the database on connections of this process.

    read    records on the shared page; nothing, if its HEAD says that there is nothing more; else from the database
    append  sent to the hub, which answers for each transaction on its own

Invariant: the records held here follow each other without a gap. A record that is not on the page any more is noticed
by its revision, and read from the database.
"""

from __future__ import annotations

import socket
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from itertools import islice
from typing import Any, Final, Protocol

import trio

from kubechronicle.eventlog.errors import LogError, LogUnavailable, OutcomeUnknownForNow
from kubechronicle.eventlog.log import Claim, RevisionLog
from kubechronicle.eventlog.positions import Position
from kubechronicle.eventlog.queries.changes import Chunk, bounded
from kubechronicle.eventlog.records import Batch, BatchResult, Change, Head, Key, Record
from kubechronicle.eventlog.sharing.messages import (
    Answer,
    BranchChanged,
    Channel,
    Failed,
    Look,
    Trouble,
    decode_records,
    error_of,
    message_of,
    outcome_of,
    record_of,
    sent,
)
from kubechronicle.eventlog.sharing.page import CLAIM, HEAD, RESTARTS, WANTED, RingReader, SharedPage

ON_THE_WAY: Final = 0.25
"""Seconds that records may take from their commit to the page, before they are read from the database."""


class StoredLog(RevisionLog, Protocol):
    """The log of a worker's own connections, as PostgresLog is."""

    async def watch_claim(self) -> Callable[[], bool] | None:
        """Return a check, without waiting, that the postmaster still runs under which the claim was made.

        None: no claim is made under the present one. LogUnavailable.
        """
        ...

    def branch_changed(self, branch: str) -> None: ...


class _PendingSubmit:
    """A Submit under way."""

    __slots__ = ("answer", "done", "keys")

    def __init__(self, keys: list[Key]) -> None:
        self.keys = keys
        self.done = trio.Event()
        self.answer: Answer | None = None


class SharedLog:
    """See the head of this file. ``run`` must be running. Satisfies RevisionLog."""

    def __init__(self, stored: StoredLog, connection: socket.socket, page: int) -> None:
        """``connection``: to the hub; ``page``: the descriptor of the page. Both belong to this object."""
        self._stored = stored
        self.recorded = stored.recorded
        self.branches = stored.branches
        self.availability = stored.availability
        self.page = SharedPage(page)
        self.claim_of_hub = HubClaim(stored, self)
        self._channel = Channel(connection)
        self._calls: dict[int, _PendingSubmit] = {}
        self._number = 0
        self._own: dict[Key, Change] = {}
        self._ring = RingReader(self.page)
        self._restarts = self.page.words[RESTARTS]
        self._frames: deque[memoryview] = deque()  # of records, not decoded yet
        self._held: deque[Record] = deque()
        self._arrived = trio.Event()  # replaced when it is set: something came from the hub
        self._news = trio.Event()  # as _arrived, for ``wait_notified``
        self._doubtful = False  # the log went back: compare it with the applied revision
        self._closed = False

    async def run(self) -> None:
        """Take the hub's messages, until it ends."""
        try:
            await self._channel.run(lambda content: self._take(message_of(content)))
        finally:
            self._closed = True
            for call in self._calls.values():
                call.done.set()
            self._wake()
        await trio.sleep_forever()  # the process ends with the hub's

    def _wake(self) -> None:
        arrived, self._arrived = self._arrived, trio.Event()
        arrived.set()
        self._news.set()

    def _take(self, message: Any) -> None:
        match message:
            case Look():
                self._wake()
            case Answer(number):
                self._take_frames()
                while self._frames:  # as long as it is known which changes are those of this process
                    self._hold(self._frames.popleft())
                if (call := self._calls.pop(number, None)) is not None:
                    call.answer = message
                    call.done.set()
                self._wake()
            case Trouble():
                self._note_trouble(message)
            case BranchChanged(branch):
                self._stored.branch_changed(branch)
        self.claim_of_hub.look()

    def _note_trouble(self, trouble: Trouble) -> None:
        if trouble.reads is not None:
            self.availability.failed(error_of(trouble.reads))
        elif self.availability.last_error is not None:
            self.availability.succeeded()
        if trouble.changes is not None:
            self.availability.refuse(error_of(trouble.changes), trouble.resource)
        else:
            self.availability.accept()

    # Appending

    async def append(self, batch: Batch) -> BatchResult:
        """Append by the hub. Each outcome may also be an error. The records come by ``read``."""
        self._number = number = self._number + 1
        changes = [change for transaction in batch.transactions for change in transaction.changes]
        call = self._calls[number] = _PendingSubmit([change.key for change in changes])
        self._own.update((change.key, change) for change in changes)
        try:
            if self._closed:
                raise LogUnavailable("the process that appends has ended")
            self._channel.send(sent(number, batch.transactions))
            await call.done.wait()
        finally:
            self._calls.pop(number, None)
            for key in call.keys:
                self._own.pop(key, None)
        answer = call.answer
        if answer is None:
            unknown = OutcomeUnknownForNow("the process that appends ended before the outcome was known")
            nothing = tuple(() for _ in batch.transactions)
            return BatchResult(outcomes=nothing, first=0, head=0, failed=dict.fromkeys(range(len(nothing)), unknown))
        outcomes = tuple(map(outcome_of, answer.outcomes, batch.transactions))
        failed = {place: error_of(each) for place, each in enumerate(answer.outcomes) if isinstance(each, Failed)}
        return BatchResult(outcomes=outcomes, first=answer.head + 1, head=answer.head, failed=failed or None)

    async def settle(self, batch: Batch) -> BatchResult | None:
        """Raise LogUnavailable: the hub settles its own batches, and no outcome of ``append`` is open."""
        raise LogUnavailable("the process that appends settles its batches")

    # Following

    async def read(self, *, after: int, limit: int, position: Position | None = None) -> Chunk[Record]:
        if (held := self._held_after(after, limit)) is not None:
            return held
        if not self._doubtful and self._stored.newest_seen_revision > max(after, self.page.words[HEAD]):
            # A query of this process has shown a change before the hub knew of it.
            self.page.words[WANTED] = 1
            with trio.move_on_after(ON_THE_WAY):
                await self._arrived.wait()
            if (held := self._held_after(after, limit)) is not None:
                return held
        read = await self._stored.read(after=after, limit=limit, position=position)
        self._doubtful = False
        return read

    def _held_after(self, after: int, limit: int) -> Chunk[Record] | None:
        """Return the next records of the page, or none if there is nothing more; None: only the database knows."""
        newest = self.newest  # before the page is read, which has its records, or they were overwritten
        self._take_frames()
        if self._doubtful:
            return None
        held = self._held
        while True:
            while held and held[0].revision <= after:
                held.popleft()
            if len(held) > limit or not self._frames:
                break
            self._hold(self._frames.popleft())
        if held:
            return bounded(islice(held, limit + 1), limit, _size) if held[0].revision == after + 1 else None
        return Chunk() if newest == after and not self._closed else None

    def _take_frames(self) -> None:
        restarts = self.page.words[RESTARTS]
        if restarts != self._restarts:
            self._restarts, self._doubtful = restarts, True
            self._drop()
        frames = self._ring.frames(restarts)
        if frames is None:
            self._drop()
        else:
            self._frames.extend(frames)

    def _hold(self, frame: memoryview) -> None:
        for each in decode_records(frame):
            if self._held and self._held[-1].revision + 1 != each.revision:
                self._held.clear()
            own = self._own.get(Key(each.resource, each.namespace, each.name))
            self._held.append(record_of(each, own if own is not None and own.body == each.body else None))

    def _drop(self) -> None:
        self._held.clear()
        self._frames.clear()

    @property
    def newest(self) -> int:
        """The newest revision known here: the hub's, or one that a query of this process has shown before."""
        return max(self.page.words[HEAD], self._stored.newest_seen_revision)

    async def wait_notified(self) -> None:
        """Return when something came from the hub, which polls the log."""
        await self._news.wait()
        self._news = trio.Event()

    def restart(self, newest: int) -> None:
        self._doubtful = False
        self._stored.restart(newest)

    async def claim(self) -> Claim | None:
        """Return None: only the hub claims to append alone."""
        return None

    async def wait_claim_in_doubt(self) -> None:
        await trio.sleep_forever()

    # Passed on to the log of this process

    @property
    def newest_seen_revision(self) -> int:
        return self._stored.newest_seen_revision

    async def head(self) -> Head:
        return await self._stored.head()

    def load(self) -> AsyncIterator[tuple[Head, Sequence[Record]]]:
        return self._stored.load()

    def __getattr__(self, name: str) -> Any:
        if name not in _PASSED_ON:
            raise AttributeError(name)
        return getattr(self._stored, name)


_PASSED_ON: Final = frozenset(
    {
        "changes", "count_at", "density", "follow", "get_at", "groups", "identities", "list_at", "moment_of",
        "read_resource", "revision_at", "states",
    }
)  # fmt: skip
"""Queries, of this process on its own connections."""


def _size(record: Record) -> int:
    return len(record.body)


class HubClaim:
    """The hub's claim to append alone, as consistent reads of a worker use it (consistency.py).

    While the hub claims, every change acknowledged by any worker is at or below HEAD. The check that the postmaster of
    the claim still runs is this process's own: a connection of it to that postmaster is open.
    """

    def __init__(self, stored: StoredLog, log: SharedLog) -> None:
        self._stored = stored
        self._log = log
        self._checked = 0  # the number of the claim for which ``_connected`` was made
        self._connected: Callable[[], bool] | None = None
        self._changed = trio.Event()

    def required_revision(self) -> int | None:
        """As SoleAppender's."""
        page = self._log.page.words
        number = page[CLAIM]
        connected = self._connected
        if not number or number != self._checked or connected is None:
            return None
        if not connected():
            self._connected = None
            self._changed.set()
            return None
        return self._log.newest

    def look(self) -> None:
        """Note that the claim may be another one."""
        if self._log.page.words[CLAIM] != self._checked:
            self._changed.set()

    async def run(self) -> None:
        """Make the check for each claim of the hub."""
        while True:
            number = self._log.page.words[CLAIM]
            if number and (number != self._checked or self._connected is None):
                self._connected = None
                await self._check(number)
            with trio.move_on_after(RETRY if number and self._connected is None else float("inf")):
                await self._changed.wait()
            self._changed = trio.Event()

    async def _check(self, number: int) -> None:
        try:
            connected = await self._stored.watch_claim()
        except LogError:
            return
        if connected is not None and self._log.page.words[CLAIM] == number:
            self._checked, self._connected = number, connected


RETRY: Final = 1.0
"""Seconds between attempts to check a claim while the database does not answer."""
