"""?summary=bisect of revisions: since when, until when, and by whom, a condition on objects held.

    GET …/v1/namespaces/shop/revisions?summary=bisect&watch=1
        &expression=self.spec.replicas == 0               CEL over the object ``self``
        &fieldSelector=object.resource=deployments.apps,object.name=web,time.from=2d
        &limit=100                                        flips to send, oldest first; all are counted
        &include=clusterrevisions                         of all namespaces: cluster-scoped objects, too
        &values=shown                                     Secrets have their values, which is recorded

The answer is a stream of JSON objects, one a line. With ``watch=1`` it has no time-out.

    {"type": "PROGRESS", "searched": 4000, "revision": "8120", "until": "100042"}
    {"type": "FLIP", "holds": true, "revision": "8207", "object": {…}, "who": {…}, …}
    {"type": "RESULT", "flips": 12, "first": {…}, "last": {…}, "holding": 1, …}
    {"type": "ERROR", "object": Status}                   the search ended early

Rights: those to list (or watch) the revisions; objects that the client may not get are left out and counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import Any, ClassVar, Final

import orjson

from kubechronicle.actors.history.bisection import Bisection, Flip, ObjectState, RecordShown
from kubechronicle.actors.history.revisions import ChangeReads
from kubechronicle.actors.reading.reads import Selection
from kubechronicle.api.errors import status
from kubechronicle.api.errors.status import StatusError
from kubechronicle.api.history.conditions import OBJECT, ObjectCondition
from kubechronicle.api.history.revisions import API_VERSION, OPERATIONS, written_time
from kubechronicle.api.registry.groups import HISTORY
from kubechronicle.api.registry.registry import ResourceType
from kubechronicle.eventlog.errors import LogError
from kubechronicle.eventlog.records import Key, Record, Who
from kubechronicle.http.context import Context
from kubechronicle.http.errors import as_status_error
from kubechronicle.http.handlers.backend import Backend
from kubechronicle.http.handlers.drain import Drain
from kubechronicle.http.handlers.reading import PARSED, list_parameters
from kubechronicle.http.handlers.revisions import check_listed, wants_shown
from kubechronicle.http.messages import Request, Response
from kubechronicle.http.representation.answers import CACHE_CONTROL

FLIPS: Final = 100
"""Flips that are sent, unless the client asks for another number."""
MAX_FLIPS: Final = 10_000
USERS: Final = 10
"""Users of the result, those with the most flips."""
MAX_SEARCHES: Final = 8
"""Searches at the same time in one process: each holds some megabytes, and a connection to the log at times."""
BUSY: Final = "the server runs as many searches as it can, please try again later"
KEYS: Final = ("name", "namespace", "uid")
"""Columns of the log that select whole objects."""


async def answer(backend: Backend, request: Request, context: Context, rt: ResourceType) -> Response:
    """Answer with the stream. StatusError 400, 403."""
    options, selection = await list_parameters(backend, context, rt)
    condition = await _compiled(context, context.query.get("expression"))
    record = None
    if wants_shown(context):
        reads = backend.store.reads
        record = backend.shown_secrets.recorder(reads.log.recorded, request, context, reads.applied)
    bisection = await _bisection(backend, context, rt, selection, condition, record)
    limit = min(options.limit or FLIPS, MAX_FLIPS)
    stream = BisectionStream(bisection, backend.drain, limit=limit)
    return Response(200, [("content-type", "application/json"), CACHE_CONTROL], stream.lines())


async def _compiled(context: Context, expression: str) -> ObjectCondition:
    """Return the condition. StatusError 400."""
    # Imported here: the package is loaded with the first expression.
    from kubechronicle.api.cel.environment import base_environment
    from kubechronicle.api.cel.errors import CompileError
    from kubechronicle.api.cel.types import BOOL, DYN

    if not expression:
        raise status.bad_request("summary=bisect needs an expression, as expression=self.spec.replicas == 0")
    try:
        # An expression may take as long as a body that is so many times larger.
        size = len(expression) * PARSED
        await context.turn.begin(size)
        return await context.turn.run_once(
            size, lambda: ObjectCondition(base_environment().extend({OBJECT: DYN}).compile(expression, BOOL))
        )
    except CompileError as error:
        raise status.bad_request(f"expression: {error}") from None


async def _bisection(
    backend: Backend,
    context: Context,
    rt: ResourceType,
    selection: Selection,
    condition: ObjectCondition,
    record: RecordShown | None,
) -> Bisection:
    """Return the search. StatusError 400 for selectors that leave out changes of an object, 403."""
    registry = backend.store.registry
    assert isinstance(backend.reads, ChangeReads)
    shares = await backend.reads.shares(rt, selection)
    selected = shares[0].selected
    query = selected.query
    if selected.needs_objects or query.operations or any(_leaves_changes_out(*each) for each in query.texts):
        raise status.bad_request(
            "summary=bisect reads all changes of objects: select them by kind, name, namespace, uid and time alone"
        )
    if context.query.get("include"):
        if not rt.namespaced or selection.namespace:
            raise status.bad_request("include: clusterrevisions are included in the revisions of all namespaces")
        await check_listed(backend, context, HISTORY, rt.version, "clusterrevisions")
        query = replace(query, namespaced=None)
    for share in shares:
        until = share.query.after if selected.is_empty else await share.changes.newest(None)
        share.narrow(until=until, namespaced=query.namespaced, newest_first=False, with_replaced=False)
    resources = query.resources or tuple(
        each.resource
        for each in registry.stored()
        if query.namespaced in (None, each.namespaced) and each.resource not in query.not_resources
    )
    return Bisection(shares, condition, resources=resources, record=record)


def _leaves_changes_out(column: str, text: Any) -> bool:
    return column not in KEYS or text.prefix or not text.equal


class BisectionStream:
    """The lines of an answer. ``end``: the server stops, so the search does, too (drain.Stream).

    ``running``: the streams of this process that are being sent.
    """

    running: ClassVar[set[BisectionStream]] = set()

    def __init__(self, bisection: Bisection, drain: Drain, *, limit: int) -> None:
        self._bisection, self._drain, self._limit = bisection, drain, limit
        self._ended = drain.begun
        self._flips = 0
        self._first: dict[str, Any] | None = None
        self._ceased: ObjectState | None = None
        self._users: Counter[str] = Counter()

    def end(self) -> None:
        self._ended = True

    async def lines(self) -> AsyncIterator[bytes]:
        if len(self.running) >= MAX_SEARCHES:
            yield _line("ERROR", object=status.too_many_requests(BUSY).body())
            return
        self.running.add(self)
        self._drain.add(self)
        try:
            async with aclosing(self._bisection.flips()) as chunks:
                async for flips in chunks:
                    yield await self._chunk(flips)
                    if self._ended:
                        yield _line("ERROR", object=status.service_unavailable("the server is stopping").body())
                        return
            yield await self._result()
        except (StatusError, LogError) as error:
            if isinstance(error, StatusError):
                yield _line("ERROR", object=error.body())
            elif known := as_status_error(error):
                yield _line("ERROR", object=known.body())
            else:
                raise
        finally:
            self._drain.discard(self)
            self.running.discard(self)

    async def _chunk(self, flips: Sequence[Flip]) -> bytes:
        shown = list(flips[: max(0, self._limit - self._flips)])
        first = next((flip for flip in flips if flip.holds), None) if self._first is None else None
        descriptions = await self._described([flip.state for flip in (*shown, *([first] if first is not None else ()))])
        if first is not None:
            self._first = descriptions[first.state.revision]
        self._flips += len(flips)
        self._users.update(flip.state.user for flip in flips)
        self._ceased = next((flip.state for flip in reversed(flips) if not flip.holds), self._ceased)
        lines = [_line("FLIP", holds=flip.holds, **descriptions[flip.state.revision]) for flip in shown]
        progress = self._bisection.progress
        until = str(self._bisection.until)
        lines.append(_line("PROGRESS", searched=progress.searched, revision=str(progress.reached), until=until))
        return b"".join(lines)

    async def _described(self, states: Sequence[ObjectState]) -> dict[int, dict[str, Any]]:
        """Describe changes, by revision. One that has left history since lacks its time, and most of its author."""
        records = await self._bisection.records(states) if states else {}
        found = {}
        for state in states:
            record, database = records.get(state.revision), self._bisection.database_of(state.revision)
            known = _known_of(state) if record is None else described(record)
            found[state.revision] = known | ({"database": database} if database else {})
        return found

    async def _result(self) -> bytes:
        progress, (begins, *others) = self._bisection.progress, self._bisection.after.items()
        ends = {"last": progress.last_held, "ceased": self._ceased}
        descriptions = await self._described([state for state in ends.values() if state is not None])
        found: dict[str, Any] = {
            "apiVersion": API_VERSION,
            "kind": "Bisection",
            "metadata": {"resourceVersion": str(progress.reached)},
            "after": str(begins[1]),
            "searched": progress.searched,
            "flips": self._flips,
            "initially": progress.initially,
            "holding": len(progress.held),
            "users": [{"name": name, "flips": number} for name, number in self._users.most_common(USERS)],
        }
        if self._first is not None:
            found["first"] = self._first
        found |= {name: descriptions[state.revision] for name, state in ends.items() if state is not None}
        if others:
            found["others"] = [{"database": share.changes.reads.name, "after": str(after)} for share, after in others]
        for name in ("failed", "unknown", "hidden"):
            if number := getattr(progress, name):
                found[name] = number
        if progress.failure is not None:
            found["failure"] = {"revision": str(progress.failure[0]), "message": progress.failure[1]}
        return _line("RESULT", **found)


def described(record: Record) -> dict[str, Any]:
    """Return a change: its revision, object and author, without contents."""
    who = record.who or Who(user="")
    author = {"username": who.user, "impersonator": who.impersonator, "userAgent": who.user_agent}
    return {
        "revision": str(record.revision),
        "time": written_time(record.committed_at),
        "operation": OPERATIONS[int(record.operation)],
        "object": _reference(record.key, record.uid),
        "who": {name: value for name, value in author.items() if value},
        "request": {"verb": who.verb, "auditID": who.audit_id},
    }


def _known_of(state: ObjectState) -> dict[str, Any]:
    return {
        "revision": str(state.revision),
        "operation": OPERATIONS[int(state.operation)],
        "object": _reference(state.key, ""),
        "who": {"username": state.user} if state.user else {},
    }


def _reference(key: Key, uid: str) -> dict[str, str]:
    plural, _, group = key.resource.partition(".")
    reference = {"resource": plural, "group": group, "namespace": key.namespace, "name": key.name, "uid": uid}
    return {name: value for name, value in reference.items() if value}


def _line(type_: str, **fields: Any) -> bytes:
    return orjson.dumps({"type": type_, **fields}) + b"\n"
