"""Reflector: lists one resource, then follows its changes (the term and the rules are client-go's).

Every control loop that reacts to changes has one Reflector per resource. It calls the loop back:

    list ── on_list ── on_changes ── on_changes ── no change for ``resync`` seconds ── on_list ── on_changes ── …

    history compacted before it was read     list again, at once
    error of RETRIED in a callback           list again, after a delay
    log unreachable while it follows         go on from the same revision, after a delay
    any other error                          passed on, to the supervisor

The callbacks read objects from the store. Invariant: every change that is not in the store yet when ``on_list`` begins
is passed to ``on_changes``, in order and once, or ``on_list`` is called again.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from itertools import repeat
from typing import Final, NoReturn

import trio

from kubechronicle.actors.loops.retries import RETRIED, OnError, RetryComplaints
from kubechronicle.actors.reading.reads import Reads, Selection
from kubechronicle.api.registry.registry import ResourceType
from kubechronicle.eventlog.entries import Event
from kubechronicle.eventlog.errors import Compacted, LogError
from kubechronicle.eventlog.views.cursors import Cursor

RETRY_DELAY: Final = 1.0
"""Seconds after an error, unless the loop has delays of its own."""

OnList = Callable[[], Awaitable[float | None]]
"""Called when any object may have changed. Returns the time (trio's clock) of the next call if no change comes first;
None: after the resync interval."""

OnChanges = Callable[[Sequence[Event]], Awaitable[float | None]]
"""Called with the changes that follow, at least one. Returns as OnList does."""


class Reflector:
    """One resource for one control loop; ``run`` it in a task of its own.

    ``component``: the loop's name, for log lines.
    ``on_changes``: without one, ``on_list`` is called after changes, too.
    ``selection``: limits the changes by namespace and name. Other selectors are ignored.
    ``revision``: of the list, as in ``Reads.watch``: None for a consistent one, 0 for the state of this replica.
    ``resync``: seconds without a change after which ``on_list`` is called again; None: never.
    ``delays``: seconds to wait after each error, one after the other.
    ``on_error``: called with every error that is retried.
    """

    def __init__(
        self,
        reads: Reads,
        rt: ResourceType,
        *,
        component: str,
        on_list: OnList,
        on_changes: OnChanges | None = None,
        selection: Selection | None = None,
        revision: int | None = None,
        resync: float | None = None,
        delays: Iterator[float] | None = None,
        on_error: OnError | None = None,
    ) -> None:
        self._reads = reads
        self._rt = rt
        self._on_list = on_list
        self._on_changes = on_changes
        self._selection = selection if selection is not None else Selection()
        self._list_revision = revision
        self._resync = resync
        self._delays = delays if delays is not None else repeat(RETRY_DELAY)
        self._on_error = on_error
        self._cursor: Cursor | None = None
        self._complaints = RetryComplaints(f"{component}: {rt.plural}")

    @property
    def revision(self) -> int:
        """Every change up to this revision was listed or passed to ``on_changes``; -1 before the first list."""
        return self._cursor.revision if self._cursor is not None else -1

    async def run(self) -> NoReturn:
        """List and follow until cancelled."""
        while True:
            try:
                await self._list_and_follow()
            except RETRIED as error:
                await self._wait_after(error)

    async def _list_and_follow(self) -> None:
        """Return when changes were compacted before they were read."""
        # No task runs between the start of the watch and the start of on_list: the store holds just the listed state.
        watching = await self._reads.watch(self._rt, self._selection, revision=self._list_revision, initial=False)
        cursor = self._cursor = watching.cursor
        due = await self._on_list()
        self._complaints.succeeded()
        while True:
            events: Sequence[Event]
            try:
                events = await cursor.next_batch(due if due is not None else self._next_resync())
            except Compacted:
                return
            except LogError as error:
                await self._wait_after(error)
                continue
            if events and self._on_changes is not None:
                due = await self._on_changes(events)
            else:
                due = await self._on_list()
            self._complaints.succeeded()
            events = ()  # while it waits, it holds no object: nothing could make it forget one that is erased

    def _next_resync(self) -> float | None:
        return trio.current_time() + self._resync if self._resync is not None else None

    async def _wait_after(self, error: Exception) -> None:
        self._complaints.failed(error)
        if self._on_error is not None:
            self._on_error(error)
        await trio.sleep(next(self._delays))


def follow_each(
    nursery: trio.Nursery,
    reads: Reads,
    changes: Iterable[tuple[ResourceType, OnChanges]],
    *,
    component: str,
    on_list: OnList,
    resync: float,
) -> None:
    """Begin to follow some resources, whose lists mean the same to the loop. The other arguments: as in Reflector."""
    for rt, on_changes in changes:
        reflector = Reflector(reads, rt, component=component, on_list=on_list, on_changes=on_changes, resync=resync)
        nursery.start_soon(reflector.run)
