"""The changes at which a condition on objects began or ceased to hold, found in one pass over the log.

The pass begins with the state at its first revision, and judges each change once. Of all objects, it remembers those
for which the condition holds; so a change flips the condition if it moves its object into that set, or out of it:

    self.spec.replicas == 0        3 create web (2)     holds for nothing
                                   7 update web (0)     began, by jane
                                   9 delete web         ceased, by bob

An object whose condition fails (a field that it lacks), and a deleted one, do not meet it. The search is bounded: by
the cost of the condition, by the number of objects that meet it, and by the chunks of the log. Chunks are judged in a
thread, one at a time for all searches, while the next one is read. They have no more of a change than is judged; the
rest is read for the few changes that are shown (``records``).

A condition on the values of a Secret would tell them to a patient reader. Unless the reader asks for them, which is
recorded, a Secret has no values here, and a condition on them fails.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final, NamedTuple

import orjson
import trio

from kubechronicle.actors.evaluation import evaluate_in_thread
from kubechronicle.actors.history.change_records import records_of
from kubechronicle.actors.history.log_changes import Merge, Share, position_of
from kubechronicle.actors.history.other_logs import may_be_elsewhere
from kubechronicle.api.errors import status
from kubechronicle.api.errors.status import StatusError
from kubechronicle.api.history.conditions import ObjectCondition
from kubechronicle.api.history.positions import SPAN, place_of
from kubechronicle.api.history.secret_values import RESOURCE as SECRETS
from kubechronicle.api.history.secret_values import without_values
from kubechronicle.eventlog.errors import LogError
from kubechronicle.eventlog.queries.changes import Chunk
from kubechronicle.eventlog.queries.states import ObjectState as ObjectState
from kubechronicle.eventlog.queries.states import state_of
from kubechronicle.eventlog.records import ERASED_BODY, Key, Operation, Record

CHUNK: Final = 2000
"""Changes read from the log, and judged, at once."""
COST_OF_CHUNK: Final = 20_000_000
"""The cost of a condition on one chunk, twice that of all validating policies of a write. It takes some seconds."""
MAX_HELD: Final = 200_000
"""Objects for which the condition holds at the same time."""
SECONDS_OF_CHUNK: Final = 5.0
"""Seconds of CPU of the condition on one chunk."""

RecordShown = Callable[[Sequence[Key]], Awaitable[None]]
Found = tuple[Share, ObjectState]
"""A change, and the log that it is of."""
Read = Callable[[], Awaitable[Sequence[Found]]]

_THREADS: Final = trio.CapacityLimiter(1)


class Flip(NamedTuple):
    """A change at which the condition began to hold for its object, or ceased to."""

    state: ObjectState
    holds: bool


@dataclass(slots=True)
class BisectionProgress:
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
    last_held: ObjectState | None = None
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
        condition: ObjectCondition,
        *,
        resources: Sequence[str],
        record: RecordShown | None = None,
    ) -> None:
        self._shares = shares
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
        self.progress = BisectionProgress(reached=shares[0].query.after)
        self.after = {share: max(self._begins[share].values(), default=share.query.after) for share in shares}
        """By log, the revision after which the changes of all searched resources are known."""
        self._complete = all(self.after[share] <= share.query.after for share in shares)

    def database_of(self, revision: int) -> str:
        """Return the name of the database that has a change; "": the main one."""
        return self._databases.get(place_of(revision), "")

    async def records(self, states: Iterable[ObjectState]) -> dict[int, Record]:
        """Return the records of changes by revision. One is missing if it has left history since. LogError."""
        found: dict[int, Record] = {}
        revisions = {state.revision for state in states}
        for share in self._shares:
            there = [each for each in revisions if place_of(each) == share.changes.place]
            found |= await records_of(share.changes.log, there)
        return found

    async def flips(self) -> AsyncGenerator[Sequence[Flip], None]:
        """Yield the flips of each chunk, oldest first, maybe none. StatusError."""
        for share, begins in self._begins.items():
            for resource, begin in begins.items():
                if begin > share.changes.place * SPAN:
                    await self._begin(share, resource, begin)
        self.progress.initially = len(self.progress.held)
        chunk: Sequence[Found] | None = await self._take()
        while chunk:
            (share, last), searched = chunk[-1], len(chunk)
            read = None if self._merge.ended else self._take
            found, chunk = await self._judged_meanwhile(await self._visible(chunk), read)
            self.progress.searched += searched
            self.progress.reached, self.until = last.revision, self._untils[share]
            yield found
        self.progress.reached = position_of({share.changes: until for share, until in self._untils.items()})

    async def _take(self) -> Sequence[Found]:
        """Return the next changes, [] at the end."""
        if len(self._shares) > 1:  # the order takes the times of changes
            return [(share, state_of(record)) for share, record, _ in await self._merge.take(CHUNK)]
        share = self._shares[0]
        return [] if share.ended else [(share, state) for state, _ in await share.read_states(CHUNK)]

    async def _judged_meanwhile(
        self, states: Sequence[ObjectState], read: Read | None
    ) -> tuple[Sequence[Flip], Sequence[Found] | None]:
        """Judge changes while the next ones are read; return the flips, and these. StatusError, LogError."""
        following: Sequence[Found] | None = None
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
                found = await self._judged(states)
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
            wanted = [(share, state_of(record)) for record in chunk if not name or record.key.name == name]
            await self._judged(await self._readable_of(wanted))
            if chunk.is_last(CHUNK):
                return
            after = (chunk[-1].key.namespace, chunk[-1].key.name)

    async def _visible(self, chunk: Sequence[Found]) -> Sequence[ObjectState]:
        """Return the changes that the client may read, and of which the earlier history is known."""
        if self._complete:
            return await self._readable_of(chunk)
        begins = self._begins
        known = [(share, each) for share, each in chunk if each.revision > begins[share].get(each.key.resource, 0)]
        return await self._readable_of(known)

    async def _readable_of(self, found: Sequence[Found]) -> Sequence[ObjectState]:
        readable = []
        for share, state in found:
            revision, key, scopes = state.revision, state.key, share.first_readable
            since = scopes.get(key[:2])
            if since is None:
                since = scopes[key[:2]] = await share.changes.readable(key.resource, key.namespace, "")
            if revision < since and revision < await share.changes.readable(*key):
                self.progress.hidden += 1
            else:
                readable.append(state)
        return readable

    async def _judged(self, states: Sequence[ObjectState]) -> Sequence[Flip]:
        """Judge changes, and return the flips. StatusError 400: the condition is too expensive, or holds too often."""
        if self._record is not None:
            secrets = {state.key for state in states if state.key.resource == SECRETS} - self._recorded
            if secrets:
                await self._record(sorted(secrets))
                self._recorded |= secrets
        judge = partial(_judge, self._condition, states, self.progress, values=self._record is not None)
        # In the thread, also if it is little: nobody knows how long an expression takes.
        return await evaluate_in_thread(judge, seconds=SECONDS_OF_CHUNK, limiter=_THREADS, exceeded=_too_slow)


def _too_slow() -> StatusError:
    return status.bad_request(f"the expression is too slow: it takes more than {SECONDS_OF_CHUNK} s on {CHUNK} changes")


def _judge(
    condition: ObjectCondition, states: Sequence[ObjectState], progress: BisectionProgress, *, values: bool
) -> Sequence[Flip]:
    """Judge changes in order, and return the flips. ``values``: Secrets have their values."""
    flips: list[Flip] = []
    held, of_body, total = progress.held, condition.of_body, 0
    for state in states:
        key, body = state.key, state.body
        if state.operation is Operation.DELETE:
            holds = False
        elif state.problem or body.startswith(ERASED_BODY):
            progress.unknown += 1
            continue
        else:
            masks = key[0] == SECRETS and not values
            holds, failure, cost = condition.of_object(without_values(orjson.loads(body))) if masks else of_body(body)
            if failure is not None:
                _note_failure(progress, state, failure)
            total += cost
            if total > COST_OF_CHUNK:
                limit = f"it costs more than {COST_OF_CHUNK} units on {len(states)} changes"
                raise status.bad_request(f"the expression is too expensive: {limit}")
        if holds:
            progress.last_held = state
        if holds is not (key in held):
            (held.add if holds else held.discard)(key)
            flips.append(Flip(state, holds))
    if len(held) > MAX_HELD:
        raise status.bad_request(f"the expression holds for more than {MAX_HELD} objects: name a kind or a namespace")
    return flips


def _note_failure(progress: BisectionProgress, state: ObjectState, reason: str) -> None:
    progress.failed += 1
    if progress.failure is None:
        progress.failure = (state.revision, reason)
