"""RoutedRevisions: revisions of several logs (eventlog/layout.py). Each question is answered from one log.

    revision.from=100000000000042        the log to which this number belongs
    object.resource=leases               the log of Leases, and a warning if the main log has earlier ones
    everything else                      the main log, and a warning that names what is left out

Revisions of one log never occur in another, so a list of one log and a list of another can be merged by a client. They
have no common order but that of their times.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Any, Final

from kubechronicle.actors.history.other_logs import recorded_logs, same_moment
from kubechronicle.actors.history.revisions import ChangeReads
from kubechronicle.actors.history.tree import EVENTS
from kubechronicle.actors.reading.reads import Listing, Reads, Selection, Watching
from kubechronicle.api.errors import status
from kubechronicle.api.history.elsewhere import EARLIER, FORMER, LEFT_OUT
from kubechronicle.api.history.noise import NOISY_RESOURCES
from kubechronicle.api.meta.paging import decode_continue
from kubechronicle.api.registry.registry import ResourceType
from kubechronicle.eventlog.entries import Entry
from kubechronicle.eventlog.errors import BeforeHistory
from kubechronicle.eventlog.layout import place_of
from kubechronicle.eventlog.queries.changes import ChangeQuery

MakeChangeReads = Callable[[Reads], Awaitable[ChangeReads]]
"""Return the reads of the revisions of one log."""


class RoutedRevisions:
    """An ObjectReads of revisions. ``make``: returns those of one log. ``warn``: called with the client's warnings."""

    def __init__(self, reads: Reads, make: MakeChangeReads, warn: Callable[[str], None]) -> None:
        self._reads = reads
        self._make = make
        self._warn = warn

    async def choose(self, rt: ResourceType, selection: Selection) -> ChangeReads:
        """Return the revisions of the log that a selection is about. StatusError 400."""
        reads = self._reads
        main = await self._make(reads)
        recorded = recorded_logs(reads)
        if not recorded and len(reads.logs) == 1:
            return main
        query = (await main.select(rt, selection)).query
        if any(not each.resources for each in recorded) and _may_have_noise(query):
            self._warn(FORMER)
        named, logs = _revisions_named(selection), {reads.of(resource) for resource in query.resources}
        log = reads.of_revision(named[0]) if named else logs.pop() if len(logs) == 1 else reads
        if log is reads:
            if left_out := self.left_out(query):
                self._warn(LEFT_OUT.format(", ".join(left_out), left_out[0]))
            _check_bounds(named)
            return main
        _check_bounds(named)
        if not named:
            earlier = replace(query, newest_first=True, with_replaced=False)
            if found := await reads.log.changes(earlier, limit=1):
                self._warn(EARLIER.format(revision=found[0][0].revision))
        return await self._make(log)

    def left_out(self, query: ChangeQuery) -> list[str]:
        """Return the resources of other logs that an answer from the main log leaves out, though they are meant."""
        elsewhere = self._reads.elsewhere
        meant = elsewhere & set(query.resources) if query.resources else elsewhere
        return sorted(meant - set(query.not_resources)) if query.namespaced is not False else []

    def is_main(self, changes: ChangeReads) -> bool:
        return changes.log is self._reads.log

    async def events(self, scope: ChangeQuery) -> tuple[ChangeReads, ChangeQuery] | None:
        """Return the revisions of the log of Events with a period of the main log; None: the main log has them."""
        reads, log = self._reads, self._reads.of(EVENTS)
        if log is reads:
            return None
        changes = await self._make(log)
        after, until = [await self._there(log, revision) for revision in (scope.after, scope.until)]
        return changes, replace(scope, after=after, until=until)

    async def _there(self, log: Reads, revision: int) -> int:
        try:
            return (await same_moment(self._reads, log, revision)).revision if revision else 0
        except BeforeHistory:
            return 0

    # -- the verbs ----------------------------------------------------------------------------------------------------

    async def get(self, rt: ResourceType, namespace: str, name: str, *, revision: int | None = None) -> Entry | None:
        log = self._reads.of_revision(int(name)) if name.isascii() and name.isdigit() and len(name) <= 18 else None
        changes = await self._make(log or self._reads)
        return await changes.get(rt, namespace, name, revision=revision)

    async def list(
        self, rt: ResourceType, selection: Selection, *, continue_token: str = "", **options: Any
    ) -> Listing:
        if continue_token:
            token = decode_continue(continue_token, namespaced=rt.namespaced and not selection.namespace)
            changes = await self._make(self._reads.of_revision(max(token.revision, 0)))
        else:
            changes = await self.choose(rt, selection)
        return await changes.list(rt, selection, continue_token=continue_token, **options)

    async def watch(self, rt: ResourceType, selection: Selection, **options: Any) -> Watching:
        return await (await self.choose(rt, selection)).watch(rt, selection, **options)


def _may_have_noise(query: ChangeQuery) -> bool:
    """Tell whether a selection may be about Events or Leases, which may have been in another database."""
    meant = set(query.resources or NOISY_RESOURCES) & set(NOISY_RESOURCES)
    return query.namespaced is not False and bool(meant - set(query.not_resources))


NAMING: Final = frozenset({"metadata.name", "revision.from", "revision.to"})


def _revisions_named(selection: Selection) -> list[int]:
    """Return the revisions that a selection names. Terms that do not parse are rejected elsewhere."""
    terms = selection.fields.terms if selection.fields is not None else ()
    return [int(term.value) for term in terms if term.field in NAMING and term.value.isdigit()]


def _check_bounds(named: Sequence[int]) -> None:
    """Raise StatusError 400 if a selection names revisions of several logs."""
    if any(place_of(each) != place_of(named[0]) for each in named):
        raise status.bad_request(
            f"revisions {', '.join(map(str, named))} are of different databases: select by time.from and time.to"
        )
