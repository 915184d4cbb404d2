"""The changes at which a condition on objects began or ceased to hold, found in one pass over the log.

The pass begins with the state at its first revision, and judges each change once. Of all objects, it remembers those
for which the condition holds; so a change flips the condition if it moves its object into that set, or out of it:

    self.spec.replicas == 0        3 create web (2)     holds for nothing
                                   7 update web (0)     began, by jane
                                   9 delete web         ceased, by bob

An object whose condition fails (a field that it lacks), and a deleted one, do not meet it. The search is bounded: by
the cost of the condition, by the number of objects that meet it, and by the chunks of the log. Chunks are judged in a
thread, one at a time for all searches, while the next one is read.

A condition on the values of a Secret would tell them to a patient reader. Unless the reader asks for them, which is
recorded, a Secret has no values here, and a condition on them fails.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, NamedTuple, Protocol

import orjson
import trio

from kubechronicle.actors.history.merging import Merge, Merged, Share, position_of
from kubechronicle.actors.history.other_logs import may_be_elsewhere
from kubechronicle.api.errors import status
from kubechronicle.api.errors.status import StatusError
from kubechronicle.api.history.positions import SPAN, place_of
from kubechronicle.api.history.secret_values import RESOURCE as SECRETS
from kubechronicle.api.history.secret_values import without_values
from kubechronicle.eventlog.errors import LogError
from kubechronicle.eventlog.queries.chunks import Chunk
from kubechronicle.eventlog.records import Key, Operation, Record

CHUNK: Final = 2000
"""Changes read from the log, and judged, at once."""
COST_OF_CHUNK: Final = 20_000_000
"""The cost of a condition on one chunk, twice that of all validating policies of a write. It takes some seconds."""
COST_OF_CHANGE: Final = 1_000_000
MAX_HELD: Final = 200_000
"""Objects for which the condition holds at the same time."""
QUICK_BYTES: Final = 64 * 1024
"""Bytes of objects that are judged without a thread."""

RecordShown = Callable[[Sequence[Key]], Awaitable[None]]
Read = Callable[[], Awaitable[Sequence[Merged]]]

_THREADS: Final = trio.CapacityLimiter(1)


class Condition(Protocol):
    """A compiled condition (api.cel.evaluation.program.Program)."""

    def outcome(self, variables: Mapping[str, Any], budget: int = ...) -> tuple[Any, int]: ...


class Flip(NamedTuple):
    """A change at which the condition began to hold for its object, or ceased to."""

    record: Record
    holds: bool


@dataclass(slots=True)
class Progress:
    """The state of a search.

    ``held``: the objects for which the condition holds; ``initially``: their number at the beginning.
    ``searched``: changes that were judged; ``reached``: the last revision of these.
    ``last_held``: the newest change after which the condition held for its object.
    ``failed``: changes whose condition failed, with the first failure: a revision and its reason.
    ``unknown``: changes whose object was erased or cannot be decrypted.
    ``hidden``: changes of objects that the client may not read.
    """

    held: set[Key] = field(default_factory=set)
    initially: int = 0
    searched: int = 0
    reached: int = 0
    last_held: Record | None = None
    failed: int = 0
    failure: tuple[int, str] | None = None
    unknown: int = 0
    hidden: int = 0


class Bisection:
    """One search. ``shares``: the changes of the objects to search, in each log; ``resources``: those of the objects.

    ``record``: records Secrets whose values are judged; None: they are judged without their values.
    """

    def __init__(
        self,
        shares: Sequence[Share],
        condition: Condition,
        *,
        resources: Sequence[str],
        record: RecordShown | None = None,
    ) -> None:
        self._merge = Merge(shares)
        self._condition = condition
        self._resources = resources
        # Up to the compacted revision of a resource, its history is incomplete.
        self._begins = {
            share: {
                resource: max(share.query.after, share.changes.reads.views.compacted_for(resource))
                for resource in resources
                if not share.changes.place or may_be_elsewhere(resource)
            }
            for share in shares
        }
        self._databases = {share.changes.place: share.changes.reads.name for share in shares}
        self._record = record
        self._recorded: set[Key] = set()
        self._untils = {share: share.query.until for share in shares}
        self.until = self._untils[shares[0]]
        self.progress = Progress(reached=shares[0].query.after)
        self.after = {share: max(self._begins[share].values(), default=share.query.after) for share in shares}
        """By log, the revision after which the changes of all searched resources are known."""

    def database_of(self, record: Record) -> str:
        """Return the name of the database that has a change; "": the main one."""
        return self._databases.get(place_of(record.revision), "")

    async def flips(self) -> AsyncGenerator[Sequence[Flip], None]:
        """Yield the flips of each chunk, oldest first, maybe none. StatusError."""
        for share, begins in self._begins.items():
            for resource, begin in begins.items():
                if begin > share.changes.place * SPAN:
                    await self._begin(share, resource, begin)
        self.progress.initially = len(self.progress.held)
        chunk: Sequence[Merged] | None = await self._merge.take(CHUNK)
        while chunk:
            last, searched = chunk[-1], len(chunk)
            read = None if self._merge.ended else partial(self._merge.take, CHUNK)
            found, chunk = await self._judged_meanwhile(await self._visible(chunk), read)
            self.progress.searched += searched
            self.progress.reached, self.until = last.record.revision, self._untils[last.share]
            yield found
        self.progress.reached = position_of({share.changes: until for share, until in self._untils.items()})

    async def _judged_meanwhile(
        self, records: Sequence[Record], read: Read | None
    ) -> tuple[Sequence[Flip], Sequence[Merged] | None]:
        """Judge changes while the next ones are read; return the flips, and these. StatusError, LogError."""
        following: Sequence[Merged] | None = None
        failure: Exception | None = None

        async def read_following(read: Read) -> None:
            nonlocal following, failure
            try:
                following = await read()
            except LogError as error:
                failure = error

        found: Sequence[Flip] = ()
        async with trio.open_nursery() as nursery:
            if read is not None:
                nursery.start_soon(read_following, read)
            try:
                found = await self._judged(records)
            except (StatusError, LogError) as error:
                failure = error
        if failure is not None:
            raise failure
        return found, following

    async def _begin(self, share: Share, resource: str, revision: int) -> None:
        """Judge the objects of a resource as of a revision of a log."""
        after: tuple[str, str] | None = None
        log, query = share.changes.log, share.query
        name = next((text.value for column, text in query.texts if column == "name"), "")
        while True:
            if name and (query.namespace or query.namespaced is False):
                one = await log.get_at(Key(resource, query.namespace, name), revision=revision)
                chunk = Chunk([] if one is None else [one])
            else:
                chunk = await log.list_at(
                    resource, revision=revision, namespace=query.namespace, after=after, limit=CHUNK
                )
            wanted = [(share, record) for record in chunk if not name or record.key.name == name]
            await self._judged(await self._readable_of(wanted))
            if chunk.is_last(CHUNK):
                return
            after = (chunk[-1].key.namespace, chunk[-1].key.name)

    async def _visible(self, chunk: Sequence[Merged]) -> Sequence[Record]:
        """Return the changes that the client may read, and of which the earlier history is known."""
        known = [
            (share, record)
            for share, record, _ in chunk
            if record.revision > self._begins[share].get(record.key.resource, 0)
        ]
        return await self._readable_of(known)

    async def _readable_of(self, records: Sequence[tuple[Share, Record]]) -> Sequence[Record]:
        found = []
        for share, record in records:
            key = record.key
            since = share.first_readable.get(key[:2])
            if since is None:
                since = share.first_readable[key[:2]] = await share.changes.readable(key.resource, key.namespace, "")
            if record.revision < since and record.revision < await share.changes.readable(*key):
                self.progress.hidden += 1
            else:
                found.append(record)
        return found

    async def _judged(self, records: Sequence[Record]) -> Sequence[Flip]:
        """Judge changes, and return the flips. StatusError 400: the condition is too expensive, or holds too often."""
        secrets = {record.key for record in records if record.key.resource == SECRETS} - self._recorded
        if secrets and self._record is not None:
            await self._record(sorted(secrets))
            self._recorded |= secrets
        judge = partial(_judge, self._condition, records, self.progress, values=self._record is not None)
        if sum(len(record.body) for record in records) < QUICK_BYTES:
            return judge()
        return await trio.to_thread.run_sync(judge, limiter=_THREADS)


def _judge(condition: Condition, records: Sequence[Record], progress: Progress, *, values: bool) -> Sequence[Flip]:
    """Judge changes in order, and return the flips. ``values``: Secrets have their values."""
    flips: list[Flip] = []
    held, cost = progress.held, 0
    for record in records:
        if record.operation is Operation.DELETE:
            holds = False
        elif record.erased or record.problem:
            progress.unknown += 1
            continue
        else:
            obj = orjson.loads(record.body)
            if record.key.resource == SECRETS and not values:
                obj = without_values(obj)
            value, spent = condition.outcome({"self": obj}, COST_OF_CHANGE)
            cost += spent
            holds = value is True
            if not holds and value is not False:
                _note_failure(progress, record, value)
        if cost > COST_OF_CHUNK:
            raise status.bad_request(
                f"the expression is too expensive: it costs more than {COST_OF_CHUNK} units on {len(records)} changes"
            )
        if holds:
            progress.last_held = record
        if holds is not (record.key in held):
            (held.add if holds else held.discard)(record.key)
            flips.append(Flip(record, holds))
    if len(held) > MAX_HELD:
        raise status.bad_request(f"the expression holds for more than {MAX_HELD} objects: name a kind or a namespace")
    return flips


def _note_failure(progress: Progress, record: Record, reason: object) -> None:
    progress.failed += 1
    if progress.failure is None:
        progress.failure = (record.revision, str(reason))
