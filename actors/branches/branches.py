"""Branches: the branches that are open on this server, each with views, actors and loops of its own.

A branch is opened by the first request for it here: its base is loaded, then its changes, which any server may append.
It is closed when nobody has used it for a while, when its object is deleted, or when history was erased. Its changes
stay in the database until its object is deleted.

    GET /branch/try/api/v1/pods     opens try: loads 41, applies 42', 43'
    kubectl delete branch try       the views go here and elsewhere; the leader drops the changes
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final
from uuid import UUID
from weakref import WeakSet

import trio

from kubechronicle.actors.reading.reads import Listing, Reads, Selection, Watching
from kubechronicle.actors.store import Store
from kubechronicle.actors.supervisor import ChildSpec, Supervisor
from kubechronicle.api.errors import status
from kubechronicle.api.errors.status import StatusError
from kubechronicle.api.history.branches import BRANCHES, RESOURCE, base_of
from kubechronicle.api.meta.request_info import RequestInfo
from kubechronicle.api.registry.groups import HISTORY
from kubechronicle.api.registry.registry import ResourceType
from kubechronicle.eventlog.branch_log import BranchLog, BranchTail
from kubechronicle.eventlog.entries import Entry, Event
from kubechronicle.eventlog.errors import LogError, unwrapped
from kubechronicle.eventlog.queries.branches import BranchGone
from kubechronicle.eventlog.records import Operation
from kubechronicle.eventlog.restarts import start_apart

log = logging.getLogger(__name__)

MOST_OPEN: Final = 4
"""Branches open at once on one server process: each has indexes over all objects, and the loops of a server."""
CLOSE_AFTER: Final = 900.0
"""Seconds after the last request, and without watches, before a branch is closed here. Opening it again is cheap."""
SWEEP: Final = 30.0
NOTE_USE: Final = 300.0
"""Seconds between notes of the use of a branch that is only read. Writes note it themselves."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BranchParts:
    """The parts of an open branch. ``unkept``: tells whether the log has the objects of a resource at the base."""

    store: Store
    log: BranchLog
    tail: BranchTail
    children: Sequence[ChildSpec]
    kept: Callable[[str], bool]


@dataclass(slots=True, eq=False, weakref_slot=True)
class OpenBranch:
    """A branch on this server. ``ready`` is set once it can be used, or once ``error`` is. ``watches``: of clients."""

    name: str
    id: UUID
    base: int
    parts: BranchParts
    used: float = -math.inf
    noted: float = -math.inf
    ready: trio.Event = field(default_factory=trio.Event)
    closed: bool = False
    error: StatusError | LogError | None = None
    watches: WeakSet[Watching] = field(default_factory=WeakSet)
    scope: trio.CancelScope = field(default_factory=trio.CancelScope)

    @property
    def store(self) -> Store:
        return self.parts.store

    def is_idle(self, now: float, seconds: float) -> bool:
        """Tell whether no request came for so long, and nobody watches."""
        return self.ready.is_set() and now - self.used >= seconds and not self.watches


class ClientReads:
    """The reads of a branch's clients: those of its store, with their watches noted."""

    def __init__(self, branch: OpenBranch) -> None:
        self._watches = branch.watches  # not the branch: caches of open branches hold these reads
        self._reads = branch.store.reads

    async def get(self, rt: ResourceType, namespace: str, name: str, *, revision: int | None = None) -> Entry | None:
        return await self._reads.get(rt, namespace, name, revision=revision)

    async def list(
        self,
        rt: ResourceType,
        selection: Selection,
        *,
        limit: int = 0,
        continue_token: str = "",
        revision: int | None = None,
        exact: bool = False,
    ) -> Listing:
        return await self._reads.list(
            rt, selection, limit=limit, continue_token=continue_token, revision=revision, exact=exact
        )

    async def watch(
        self,
        rt: ResourceType,
        selection: Selection,
        *,
        revision: int | None,
        initial: bool | None = None,
        bookmarks: bool = False,
    ) -> Watching:
        watching = await self._reads.watch(rt, selection, revision=revision, initial=initial, bookmarks=bookmarks)
        self._watches.add(watching)
        return watching


Make = Callable[[UUID, int], BranchParts]
"""Make the parts of a branch with this id and base."""


def _named(name: str) -> RequestInfo:
    return RequestInfo(path="", verb="get", is_resource=True, group=HISTORY, version="v1", resource=BRANCHES, name=name)


class Branches:
    """See the head of this file. ``run`` must be running."""

    def __init__(self, reads: Reads, make: Make) -> None:
        self._reads = reads
        self._make = make
        self._open: dict[UUID, OpenBranch] = {}
        self._nursery: trio.Nursery | None = None
        reads.views.follow(RESOURCE, self._follow)
        reads.views.on_erased(self.close_all)

    async def opened(self, name: str) -> OpenBranch:
        """Return a branch, opened if needed. StatusError 404, 410, 413, 429; LogError."""
        entry = await self._entry(name)
        branch = self._open.get(UUID(entry.uid))
        if branch is None:
            branch = self._begin(entry)
        branch.used = trio.current_time()
        await branch.ready.wait()
        if branch.error is not None:
            raise branch.error
        branch.used = trio.current_time()
        return branch

    async def _entry(self, name: str) -> Entry:
        entry = self._reads.peek(RESOURCE, "", name)
        if entry is None:  # another server may just have created it
            await self._reads.wait_consistent()
            entry = self._reads.peek(RESOURCE, "", name)
        if entry is None:
            raise status.not_found(_named(name), name)
        return entry

    def _begin(self, entry: Entry) -> OpenBranch:
        if self._nursery is None:
            raise status.service_unavailable("this server does not serve branches yet, or any more")
        if len(self._open) >= MOST_OPEN:
            self._close_one()
        id, base = UUID(entry.uid), base_of(entry.object())
        branch = OpenBranch(entry.key.name, id, base, self._make(id, base))
        self._open[id] = branch
        start_apart(self._nursery, self._run, branch)
        return branch

    def _close_one(self) -> None:
        """Close the branch that was used least recently. StatusError 429: all are in use."""
        now = trio.current_time()
        idle = [each for each in self._open.values() if each.is_idle(now, SWEEP)]
        if not idle:
            names = ", ".join(sorted(each.name for each in self._open.values()))
            raise status.too_many_requests(
                f"{len(self._open)} branches are in use on this server, and may be {MOST_OPEN} at once: {names}", 30
            )
        self._close(min(idle, key=lambda each: each.used))

    # -- running ------------------------------------------------------------------------------------------------------

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Run the branches that are opened, and close those that are idle, until cancelled."""
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            try:
                task_status.started()
                while True:
                    await trio.sleep(SWEEP)
                    await self._sweep()
            finally:
                self._nursery = None

    async def _sweep(self) -> None:
        now = trio.current_time()
        for branch in tuple(self._open.values()):
            if branch.is_idle(now, CLOSE_AFTER):
                self._close(branch)
            elif now - branch.noted >= NOTE_USE:
                branch.noted = now
                try:
                    await branch.parts.log.branches.note_use(branch.id)
                except LogError as error:
                    log.debug("the use of a branch could not be noted: %s", error)

    async def _run(self, branch: OpenBranch) -> None:
        try:
            with branch.scope:
                async with unwrapped():
                    await self._serve(branch)
        except (StatusError, LogError) as error:
            branch.error = error
        except Exception:
            log.exception("branch %s failed, and is closed here", branch.name)
            branch.error = status.internal_error("the branch failed; the server's log tells why")
        finally:
            self._end(branch)

    async def _serve(self, branch: OpenBranch) -> None:
        parts = branch.parts
        head = await parts.log.branches.open(branch.id, branch.base)
        if head.erased:
            raise BranchGone(erased=True)
        await parts.tail.prepare()
        async with trio.open_nursery() as nursery:
            await nursery.start(Supervisor(f"branch {branch.name}", parts.children).run)
            await parts.store.reads.wait_consistent()
            branch.ready.set()
            await trio.sleep_forever()

    # -- closing ------------------------------------------------------------------------------------------------------

    def close_all(self) -> None:
        """Close all branches here: history that they rest on may have been erased."""
        for branch in tuple(self._open.values()):
            self._close(branch)

    def _follow(self, events: Sequence[Event] | None) -> None:
        """Close branches whose objects are deleted."""
        if events is None:
            for branch in tuple(self._open.values()):
                entry = self._reads.peek(RESOURCE, "", branch.name)
                if entry is None or UUID(entry.uid) != branch.id:
                    self._close(branch)
            return
        for event in events:
            if event.operation is Operation.DELETE and (found := self._open.get(UUID(event.entry.uid))) is not None:
                self._close(found)

    def _close(self, branch: OpenBranch) -> None:
        """Begin to close a branch. The next request opens it again."""
        if self._open.get(branch.id) is branch:
            del self._open[branch.id]
        branch.scope.cancel()

    def _end(self, branch: OpenBranch) -> None:
        """End the watches of a branch whose tasks have ended."""
        self._close(branch)
        branch.closed = True
        if branch.error is None and not branch.ready.is_set():
            branch.error = status.service_unavailable("the branch was closed meanwhile; please try again")
        branch.parts.tail.end()
        branch.ready.set()
