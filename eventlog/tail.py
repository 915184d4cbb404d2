"""The tail: applies the log to the views in revision order. The only writer of the views.

No decisions about objects here. Records arrive in two ways. Our own batches come from memory when they follow the
applied revision; all others are read from the log. Both ways end in ``_apply``, which skips applied records, so either
may be faster:

    applied 5; another replica commits 6, we commit 7: our batch does not follow, read 6..7
    applied 5; a read of 6..7 is under way, we commit 8: read 6..8, or 6..7 and again 8

Invariant: records are applied in revision order without a gap. A gap raises LogCorrupt and stops the server, because
views with a gap give wrong answers. If the database does not answer, or answers with an error, the views stay,
``healthy`` becomes False, and reads are retried until one succeeds.

The log may go back (positions.py). Then everything is loaded again, watches end, and ``losses`` has the lost changes.
"""

from __future__ import annotations

import logging
import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, aclosing, nullcontext
from itertools import chain
from typing import Any, TypeAlias, cast

import trio

from kubechronicle.eventlog.entries import Entry
from kubechronicle.eventlog.errors import Compacted, Diverged, FutureRevision, LogCorrupt, LogError
from kubechronicle.eventlog.log import RevisionLog
from kubechronicle.eventlog.positions import Loss, Position, find_loss
from kubechronicle.eventlog.records import BatchResult, Head, Record
from kubechronicle.eventlog.restarts import delays
from kubechronicle.eventlog.views.views import Views

logger = logging.getLogger(__name__)

READ_CHUNK = 1000
"""Records read and applied at once, or CHUNK_BYTES of them: bounds the delay of other tasks (about 20 ms)."""

QUERY = "the query for new changes"

ShowLoading: TypeAlias = Callable[[], AbstractContextManager[Callable[[int, int], None] | None]]
"""Makes the display of a load. It is called with the number of objects so far, and 0: the total is unknown."""

FIRST_READ = 8
"""Records of the first read: mostly a notification tells of one batch, and few records need no cursor."""


class Tail:
    """See the head of this file. The views change only while ``run`` is running."""

    def __init__(
        self, log: RevisionLog, views: Views, *, show_loading: ShowLoading = nullcontext, name: str = ""
    ) -> None:
        self.views = views
        self._show_loading = show_loading
        self.availability = log.availability
        self.availability.of = name or self.availability.of
        self.losses: list[Loss] = []
        self.lost = trio.Event()  # replaced when it is set
        self._log = log
        self._loaded = False
        self._position: Position | None = None  # None: the applied revision cannot be compared
        self._newest: Record | None = None  # the last applied one, as long as ``_position`` is older
        log.follow(self._current_position)
        self._wanted = 0  # a revision known to be committed
        self._more_expected = trio.Event()
        views.read_history = log.read_resource
        views.read_object = log.get_at

    @property
    def last_error(self) -> LogError | None:
        """The reason why the last query to the log failed; None: it succeeded."""
        return self.availability.last_error

    @property
    def healthy(self) -> bool:
        """True if the views are loaded and the last query to the log succeeded in time."""
        return self._loaded and not self.availability.problem()

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Load, report started, and follow the log until cancelled. Raises LogCorrupt, in an exception group."""
        await self._load()
        task_status.started()
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._listen)
                nursery.start_soon(self.views.dispatcher.run)
                await self._follow()
        except Exception:
            self._loaded = False  # records may be applied in part: the next run loads all objects
            raise

    # For the appender and readers

    async def apply(self, result: BatchResult) -> None:
        """Return when the views hold everything up to the batch's head.

        The batch's records are taken from the result if they follow the applied revision, else read from the log.
        """
        if self._loaded and result.first <= self.views.applied + 1:
            committed = (outcome for outcome in result.outcomes if isinstance(outcome, tuple))
            self._apply(list(chain.from_iterable(committed)))
        await self.reach(result.head)
        self.views.dispatcher.deliver()  # before the answers: a client's watches show its write first

    async def reach(self, revision: int) -> None:
        """Return when the views hold everything up to the revision, which must be committed."""
        if self.views.applied < revision:
            self._wanted = max(self._wanted, revision)
            self._more_expected.set()
        await self.views.wait_applied(revision)

    async def reach_requested(self, revision: int, *, deadline: float = math.inf) -> None:
        """As ``reach``, for a revision that a client named. FutureRevision if it does not exist at the deadline."""
        if self.views.applied >= revision:
            return
        self._more_expected.set()
        with trio.move_on_at(deadline):
            await self.views.wait_applied(revision)
        if self.views.applied < revision:
            raise FutureRevision(revision, self.views.applied)

    def learn(self, head: Head) -> None:
        """Drop history from memory that is compacted in the head, which may be an old one."""
        self.views.forget(head)

    # The loop

    async def _listen(self) -> None:
        while True:
            await self._log.wait_notified()
            self._more_expected.set()

    async def _follow(self) -> None:
        while True:
            await self._more_expected.wait()
            self._more_expected = trio.Event()
            for pause in delays():
                if await self._try_catch_up():
                    break
                await trio.sleep(pause)

    async def _try_catch_up(self) -> bool:
        """Read until nothing is missing. False: the log did not answer."""
        try:
            await self._catch_up()
        except Diverged as error:
            self.availability.failed(error)
            await self._restart()
        except Compacted:  # the missed records are gone: load the present state
            await self._load()
        except LogCorrupt:
            raise
        except LogError as error:
            self.availability.failed(error)
            return False
        self.availability.succeeded()
        return True

    async def _catch_up(self) -> None:
        """Read records until there are none, then the head, which shows that none is missing, and the compacted
        revisions."""
        committed, limit = self._wanted, FIRST_READ
        while True:
            before = self.views.applied
            position = self._current_position()
            self.availability.sent(QUERY)
            try:
                records = await self._log.read(after=before, limit=limit, position=position)
            finally:
                self.availability.answered(QUERY)
            if any(record.erased for record in records):  # views hold no tombstones: load the present state
                raise Compacted(before, records[-1].revision)
            self._apply(records)
            if not records and committed > self.views.applied:
                raise LogCorrupt(f"revision {committed} is committed, but nothing follows {self.views.applied}")
            if not records.is_last(limit):
                limit = READ_CHUNK
                continue
            if records and self.views.applied >= self._wanted:
                return
            before = self.views.applied
            head = await self._log.head()
            if head.revision < before:
                raise Diverged(before, head.revision)
            self.learn(head)
            committed = max(head.revision, self._wanted)
            if committed <= self.views.applied:
                return

    def _apply(self, records: Sequence[Record]) -> None:
        """Apply the records that are not applied yet."""
        applied = self.views.applied
        if records and records[0].revision <= applied:
            records = [record for record in records if record.revision > applied]
        self.views.apply(records)
        if records:
            self._newest = records[-1]

    def _current_position(self) -> Position | None:
        if self._newest is not None:
            self._position, self._newest = Position.after(self._newest), None
        return self._position

    # Loading

    async def _load(self) -> None:
        """Load all live objects, with retries without limit."""
        head, entries = await self._read_until_read()
        if not self._loaded or head.revision > self.views.applied:
            self.views.load(entries, head)
            self._note_load(head)
        self.learn(head)
        self._loaded = True
        self.availability.succeeded()

    def _note_load(self, head: Head) -> None:
        self._position = Position(head.revision, hash=head.hash) if head.hash else None
        self._newest = None

    async def _restart(self) -> None:
        """Load the present state after the log went back, and find out what was lost."""
        applied = self.views.applied
        self._position = self._newest = None  # new connections need not hold it any more
        head, entries = await self._read_until_read()
        loss = await self._find_loss(applied, head.revision)
        self._wanted = 0
        self._log.restart(head.revision)
        self.views.load(entries, head, restart=True)
        self._note_load(head)
        self.learn(head)
        logger.error("%s", loss.summary())
        self.losses = [*self.losses, loss]
        lost, self.lost = self.lost, trio.Event()
        lost.set()

    async def _find_loss(self, applied: int, newest: int) -> Loss:
        events = chain.from_iterable(view.window.events for view in self.views)
        try:
            return await find_loss(self._log.identities, events, applied=applied, now=newest)
        except LogError as error:
            logger.warning("what was lost could not be read: %s", error)
            return Loss(after=None, until=applied, now=newest, changes=())

    async def _read_until_read(self) -> tuple[Head, dict[str, list[Entry]]]:
        for pause in delays():
            try:
                return await self._read_everything()
            except LogCorrupt:
                raise
            except LogError as error:
                self.availability.failed(error)
                await trio.sleep(pause)
        raise AssertionError("delays() is endless")

    async def _read_everything(self) -> tuple[Head, dict[str, list[Entry]]]:
        head = Head(revision=0, compacted=0)
        entries: defaultdict[str, list[Entry]] = defaultdict(list)
        # The contract says AsyncIterator. Both logs use a generator, which must be closed by its own task.
        loaded = 0
        with self._show_loading() as show:
            async with aclosing(cast(Any, self._log.load())) as chunks:
                async for loaded_head, records in chunks:
                    head = loaded_head
                    for record in records:
                        entries[record.key.resource].append(self.views.describe_record(record))
                    loaded += len(records)
                    if show is not None:
                        show(loaded, 0)
        return head, dict(entries)
