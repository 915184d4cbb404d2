"""Accesses recorded in the log: refused requests, sessions with containers, issued tokens (--record).

They are changes of AccessRecords by the server itself, chained as every change. A record is noted when it happens, and
written by one task: so no request waits for it. Bounds:

    a refusal      one record for equal ones within WINDOW seconds, with their number
    a user         MOST_A_USER records of refusals in WINDOW; all others become one with their number
    waiting        MOST_WAITING records; what does not fit is counted, and the recording says so
    a record       4 KiB (api/history/accesses.py)

A crash loses the records of the last second, and the ends of sessions that it ends.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

import trio
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from kubechronicle.actors.store import Store, system_caller
from kubechronicle.actors.writing.targets import Target
from kubechronicle.api.audit.matching import Matcher
from kubechronicle.api.audit.policy import AuditPolicy
from kubechronicle.api.errors.status import StatusError
from kubechronicle.api.history.accesses import (
    ACCESS_RECORDS,
    DENIED,
    MOST_GROUPS,
    RECORDING,
    RESOURCE,
    SESSION,
    SESSIONS,
    TOKEN,
    TYPE,
    name_for,
    short,
)
from kubechronicle.api.registry.groups import HISTORY
from kubechronicle.api.values.objects import Object
from kubechronicle.eventlog.errors import LogError
from kubechronicle.http.audit.audit import newer_policy
from kubechronicle.http.context import Context, Step
from kubechronicle.http.messages import HeaderList, Request, Response, Upgrade
from kubechronicle.http.outgoing.backoff import RateLimitedLog
from kubechronicle.http.reloading import ReloadedFile, ReloadMetrics

log = logging.getLogger(__name__)

COMPONENT: Final = "access-recorder"
METRICS_PREFIX: Final = "kubechronicle_record_policy"
FORBIDDEN, CREATED = 403, 201
INTERVAL: Final = 1.0
"""Seconds between two rounds of writes."""
WINDOW: Final = 60.0
MOST_A_USER: Final = 60
MOST_WAITING: Final = 2000
RETRY: Final = 5.0
GRACE: Final = 5.0
OF_OTHERS: Final = ("type", "user", "userGroups", "auditID", "server", "first")
OTHERS: Final = "further requests, which are not recorded one by one"


@dataclass(slots=True)
class _Record:
    """A record that waits to be written, or may still be counted up. ``written``: the count in the log."""

    spec: Object
    count: int = 1
    written: int = 0


@dataclass(slots=True)
class _Window:
    """The refusals of the last seconds, by what they have in common; and the number of records of each user."""

    until: float = 0.0
    records: dict[tuple[str, ...], _Record] = field(default_factory=dict)
    of_users: dict[str, int] = field(default_factory=dict)


class AccessRecorder(Collector):
    """Notes accesses that the policy matches, and writes them."""

    def __init__(self, store: Store, policy: AuditPolicy, *, server: str = "") -> None:
        self._store = store
        self._rt = store.registry.builtin(HISTORY, "v1", ACCESS_RECORDS)
        self._matcher = Matcher(policy)
        self._server = server
        self._window = _Window()
        self._waiting: dict[int, _Record] = {}
        self._some = trio.Event()
        self._written = self._lost = self._told = 0
        self._failures = RateLimitedLog(log, "Accesses cannot be recorded now, trying again")
        self._since = _now()

    # -- noting -------------------------------------------------------------------------------------------------------

    def recorded(self, following: Step) -> Step:
        """Return the step that notes accesses which ``following`` answers."""

        async def filtered(request: Request, context: Context) -> Response:
            info = context.info
            if context.branch:
                return await following(request, context)
            if info.subresource in SESSIONS and info.resource == "pods":
                return await self._session(request, context, following)
            if info.subresource == "token" and info.resource == "serviceaccounts":
                return await self._token(request, context, following)
            try:
                response = await following(request, context)
            except StatusError as error:
                self._refused(request, context, error)
                raise
            return response

        return filtered

    def _refused(self, request: Request, context: Context, error: StatusError) -> None:
        if error.code != FORBIDDEN or not self._is_wanted(context):
            return
        now = trio.current_time()
        window = self._window
        if now >= window.until:
            self._close(window)
            self._window = window = _Window(until=now + WINDOW)
        spec = self._spec(DENIED, request, context) | {"message": short(error.message), "first": _now()}
        key = tuple(str(spec.get(each, "")) for each in ("user", "impersonator", "verb", "resource", "subresource",
                                                         "namespace", "name", "path", "message"))  # fmt: skip
        user = spec["user"]
        if key not in window.records and window.of_users.get(user, 0) >= MOST_A_USER:
            key = (user,)
            spec = {name: spec[name] for name in OF_OTHERS if name in spec} | {"message": OTHERS}
        known = window.records.get(key)
        if known is not None:
            known.count += 1
            known.spec["last"] = _now()
            if known.count >= 2 * known.written:  # few rows for many refusals; the rest when the window ends
                self._enqueue(known)
        elif len(window.records) >= MOST_WAITING:
            self._lost += 1
        elif self._enqueue(record := _Record(spec)):
            window.records[key] = record
            window.of_users[user] = window.of_users.get(user, 0) + 1

    def _close(self, window: _Window) -> None:
        """Let the numbers of a window's refusals be written."""
        for record in window.records.values():
            if record.count != record.written:
                self._enqueue(record)

    async def _session(self, request: Request, context: Context, following: Step) -> Response:
        """Note the begin and the end of a session, or its refusal."""
        upgrade = request.upgrade
        if upgrade is None or not self._is_wanted(context):
            return await self._answered(request, context, following)
        query = context.query
        spec = self._spec(SESSION, request, context) | {
            "container": short(query.get("container")),
            "command": short(" ".join(query.get_all("command"))),
        }
        noted = _RecordedUpgrade(upgrade, self, spec)
        request.upgrade = noted
        try:
            return await self._answered(request, context, following)
        finally:
            if noted.began:
                self._enqueue(_Record({**spec, "began": noted.began, "ended": _now()}))

    async def _token(self, request: Request, context: Context, following: Step) -> Response:
        if not self._is_wanted(context):
            return await following(request, context)
        context.issued = {}
        response = await self._answered(request, context, following)
        if response.status == CREATED:
            spec = self._spec(TOKEN, request, context) | context.issued | {"first": _now()}
            self._enqueue(_Record(spec))
        return response

    async def _answered(self, request: Request, context: Context, following: Step) -> Response:
        try:
            return await following(request, context)
        except StatusError as error:
            self._refused(request, context, error)
            raise

    def began(self, spec: Object) -> str:
        """Note the begin of a session, and return its time."""
        now = _now()
        self._enqueue(_Record({**spec, "began": now}))
        return now

    def _is_wanted(self, context: Context) -> bool:
        user = context.user
        return bool(self._matcher.decide(user.name, user.groups, context.info).rank)

    def _spec(self, type_: str, request: Request, context: Context) -> Object:
        info, user = context.info, context.user
        values: Object = {
            "type": type_,
            "user": short(user.name),
            "userGroups": [short(each) for each in user.groups[:MOST_GROUPS]],
            "impersonator": short(context.impersonator),
            "verb": short(info.verb),
            "userAgent": short(request.headers.get("user-agent")),
            "sourceAddress": request.client[0],
            "auditID": short(context.audit_id),
            "server": self._server,
        }
        if info.is_resource:
            values |= {
                "resource": short(info.group_resource),
                "subresource": short(info.subresource),
                "namespace": short(info.namespace),
                "name": short(info.name),
            }
        else:
            values["path"] = short(info.path)
        return {name: value for name, value in values.items() if value}

    def _enqueue(self, record: _Record) -> bool:
        """Let a record be written, again if it was. Return False, and count it, if too many wait."""
        if id(record) not in self._waiting and len(self._waiting) >= MOST_WAITING:
            self._lost += 1
            return False
        self._waiting[id(record)] = record
        self._some.set()
        return True

    # -- writing ------------------------------------------------------------------------------------------------------

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Write records until cancelled, and what is left then, within some seconds."""
        task_status.started()
        self._enqueue(_Record(self._recording()))
        try:
            while True:
                with trio.move_on_after(WINDOW):
                    await self._some.wait()
                self._some = trio.Event()
                if trio.current_time() >= self._window.until:
                    self._close(self._window)
                    self._window = _Window()
                await self._write_all()
                await trio.sleep(INTERVAL)
        finally:
            with trio.move_on_after(GRACE, shield=True):
                self._close(self._window)
                await self._write_all()

    async def _write_all(self) -> None:
        if self._lost != self._told:
            self._told = self._lost
            self._enqueue(_Record(self._recording()))
        while self._waiting:
            key, record = next(iter(self._waiting.items()))
            del self._waiting[key]
            if record.written == record.count:
                continue
            count = record.count
            try:
                await self._write(record.spec | ({"count": count} if count > 1 else {}))
            except (LogError, StatusError) as error:
                self._failures.error(str(error))
                self._waiting[key] = record
                await trio.sleep(RETRY)
                continue
            record.written = count
            self._written += 1

    async def _write(self, spec: Object) -> None:
        """Write one record: over another one of its name, if there is one. LogError, StatusError."""
        id_ = spec["auditID"] if spec["type"] != RECORDING else self._server
        spec = {name: value for name, value in spec.items() if value}
        target = Target(rt=self._rt, name=name_for(spec["type"], id_), manager=COMPONENT)
        if self._store.reads.peek(RESOURCE, "", target.name) is not None:
            caller = system_caller(COMPONENT, "update", cause=0)
            await self._store.writes.edit(caller, target, lambda found: {**found, "spec": spec})
            return
        body = {
            "apiVersion": self._rt.api_version,
            "kind": self._rt.kind,
            "metadata": {"name": target.name, "labels": {TYPE: spec["type"]}},
        }
        await self._store.writes.create(system_caller(COMPONENT, "create", cause=0), target, {**body, "spec": spec})

    def _recording(self) -> Object:
        digest = sha256(repr(self._matcher.policy).encode()).hexdigest()[:16]
        return {"type": RECORDING, "server": self._server, "first": self._since, "policy": digest, "lost": self._lost}

    # -- the policy ---------------------------------------------------------------------------------------------------

    async def reload(self, data: bytes) -> bool:
        """Apply the policy file's content; a new recording begins. Returns False if the policy is the same."""
        matcher = await newer_policy(data, self._matcher.policy, of="policy of recorded accesses")
        if matcher is None:
            return False
        self._matcher = matcher
        self._since = _now()
        self._enqueue(_Record(self._recording()))
        return True

    def reloaded(self, file: Path, content: bytes) -> ReloadedFile:
        """Return the task that reloads the policy. Register its ``metrics``, too."""
        metrics = ReloadMetrics(METRICS_PREFIX, "record policy", self._server)
        return ReloadedFile(file, self.reload, applied=content, metrics=metrics)

    def collect(self) -> Iterable[Metric]:
        yield CounterMetricFamily("kubechronicle_accesses_recorded", "Accesses recorded in the log.", self._written)
        yield CounterMetricFamily(
            "kubechronicle_accesses_lost", "Accesses that were not recorded, because too many waited.", self._lost
        )
        yield GaugeMetricFamily(
            "kubechronicle_accesses_waiting", "Recorded accesses that are not written yet.", len(self._waiting)
        )


class _RecordedUpgrade:
    """An upgrade that notes the begin of a session when it is accepted."""

    def __init__(self, upgrade: Upgrade, recorder: AccessRecorder, spec: Mapping[str, Any]) -> None:
        self._upgrade, self._recorder, self._spec = upgrade, recorder, spec
        self.began = ""

    @property
    def protocol(self) -> str:
        return self._upgrade.protocol

    async def take_over(self) -> trio.abc.HalfCloseableStream:
        self._note()
        return await self._upgrade.take_over()

    async def accept(self, headers: HeaderList = ()) -> trio.abc.HalfCloseableStream:
        self._note()
        return await self._upgrade.accept(headers)

    def _note(self) -> None:
        self.began = self.began or self._recorder.began(dict(self._spec))


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
