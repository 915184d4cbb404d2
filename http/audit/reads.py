"""Reads recorded in the database: who got, listed or watched which objects (--audit-reads-policy-file).

A read is noted when its answer is made, and written later: each second, or as soon as there are many. So no request
waits for it. A crash loses the reads of the last second or two. While the database is away, reads wait in a buffer of
MOST_WAITING; what does not fit is counted, and the recording says so for ever. A period without a recording, or one
that ended in a crash, differs from a period without reads.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import trio
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from kubechronicle.api.audit.matching import Matcher
from kubechronicle.api.audit.policy import AuditPolicy
from kubechronicle.eventlog.errors import LogError
from kubechronicle.eventlog.log import ReadLog
from kubechronicle.eventlog.queries.reads import ReadRecord, Recording
from kubechronicle.http.audit.audit import newer_policy
from kubechronicle.http.authorization.decision import authorized_as
from kubechronicle.http.context import (
    MAX_AUDIT_ID,
    MAX_REQUEST_URI,
    MAX_USER_AGENT,
    Context,
    Step,
    shown_uri,
)
from kubechronicle.http.messages import Request, Response
from kubechronicle.http.outgoing.backoff import RateLimitedLog
from kubechronicle.http.reloading import ReloadedFile, ReloadMetrics

log = logging.getLogger(__name__)


METRICS_PREFIX: Final = "kubechronicle_audit_reads_policy"
VERBS: Final = frozenset(("get", "list", "watch"))
INTERVAL: Final = 1.0
"""Seconds between two writes, if there is anything to write."""
HEARTBEAT: Final = 60.0
"""Seconds after which a recording without reads says that it goes on."""
RETENTION_INTERVAL: Final = 3600.0
MOST_WAITING: Final = 20_000
MOST_WRITTEN: Final = 2_000
RETRY: Final = 1.0
MOST_TEXT: Final = 512
"""Characters of a name that a client chose freely."""
GRACE: Final = 5.0


class ReadRecorder(Collector):
    """Notes reads and writes them. ``days``: how long they are kept; 0: for ever."""

    def __init__(
        self, log_: ReadLog, policy: AuditPolicy, *, revision: Callable[[], int], server: str = "", days: int = 0
    ) -> None:
        self._log = log_
        self._matcher = Matcher(policy)
        self._revision = revision
        self._server = server
        self._days = days
        self._waiting: deque[ReadRecord] = deque()
        self._some = trio.Event()
        self._written = self._lost = 0
        self._recording = self._new_recording(policy)
        self._ended: list[Recording] = []
        self._drops = RateLimitedLog(log, "Reads are not recorded: the buffer is full")
        self._failures = RateLimitedLog(log, "Reads cannot be recorded now, trying again")

    def _new_recording(self, policy: AuditPolicy) -> Recording:
        now = time.time()
        return Recording(uuid4(), self._server, now, now, 0, clean=False, policy=shown_policy(policy))

    # -- noting -------------------------------------------------------------------------------------------------------

    def recorded(self, following: Step) -> Step:
        """Return the step that notes reads which ``following`` answers."""

        def filtered(request: Request, context: Context) -> Awaitable[Response]:
            info = context.info
            if not info.is_resource:
                return following(request, context)
            user = context.user
            if not self._matcher.decide(user.name, user.groups, info).rank:
                return following(request, context)
            return noted(request, context)

        async def noted(request: Request, context: Context) -> Response:
            response = await following(request, context)
            if response.status < 300 and (form := form_of(request, context)):
                self.note(request, context, form)
            return response

        return filtered

    def note(self, request: Request, context: Context, form: str) -> None:
        """Note an answered read, without waiting."""
        if len(self._waiting) >= MOST_WAITING:
            self._lost += 1
            self._recording = self._recording._replace(lost=self._recording.lost + 1)
            self._drops.error("the database does not answer, or not fast enough")
            return
        info, user = authorized_as(context.info), context.user
        self._waiting.append(
            ReadRecord(
                at=context.received,
                revision=context.at.revision if context.at is not None else self._revision(),
                resource=info.group_resource,
                subresource=info.subresource[:MOST_TEXT],
                namespace=info.namespace[:MOST_TEXT],
                name=info.name[:MOST_TEXT],
                verb=info.verb,
                form=form,
                user_name=user.name,
                user_uid=user.uid,
                user_groups=user.groups,
                impersonator=context.impersonator,
                request_uri=shown_uri(request)[:MAX_REQUEST_URI],
                user_agent=request.headers.get("user-agent")[:MAX_USER_AGENT],
                source_address=request.client[0],
                audit_id=context.audit_id[:MAX_AUDIT_ID],
            )
        )
        self._some.set()

    # -- writing ------------------------------------------------------------------------------------------------------

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Write reads until cancelled, and what is left then, within some seconds."""
        await self._retain()
        await self._write()  # the recording begins before the first request
        task_status.started()
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._retain_forever)
                while True:
                    with trio.move_on_after(HEARTBEAT):
                        await self._some.wait()
                    if self._some.is_set() and len(self._waiting) < MOST_WRITTEN:
                        await trio.sleep(INTERVAL)
                    self._some = trio.Event()
                    await self._write()
        finally:
            with trio.move_on_after(GRACE, shield=True):
                await self._write(clean=True)

    async def _write(self, *, clean: bool = False) -> None:
        """Write what waits. While the database is away, try again: the reads stay where they are."""
        while True:
            taken = [self._waiting[index] for index in range(min(len(self._waiting), MOST_WRITTEN))]
            more = len(self._waiting) > len(taken)
            now = time.time()
            self._recording = self._recording._replace(until=now, clean=clean and not more)
            try:
                while self._ended:
                    await self._log.record((), self._ended[0])
                    self._ended.pop(0)
                await self._log.record(taken, self._recording)
            except LogError as error:
                self._failures.error(str(error))
                await trio.sleep(RETRY)
                continue
            for _ in taken:
                self._waiting.popleft()
            self._written += len(taken)
            if not more:
                return

    async def _retain_forever(self) -> None:
        while True:
            await trio.sleep(RETENTION_INTERVAL)
            await self._retain()

    async def _retain(self) -> None:
        try:
            dropped = await self._log.retain(self._days)
        except LogError as error:
            self._failures.error(str(error))
        else:
            if dropped:
                log.info("Dropped old recorded reads", extra={"tables": dropped})

    # -- the policy ---------------------------------------------------------------------------------------------------

    async def reload(self, data: bytes) -> bool:
        """Apply the policy file's content; a new recording begins. Returns False if the policy is the same."""
        matcher = await newer_policy(data, self._matcher.policy, of="policy of recorded reads")
        if matcher is None:
            return False
        self._matcher = matcher
        self._ended.append(self._recording._replace(until=time.time(), clean=True))
        self._recording = self._new_recording(matcher.policy)
        self._some.set()
        return True

    def reloaded(self, file: Path, content: bytes) -> ReloadedFile:
        """Return the task that reloads the policy. Register its ``metrics``, too."""
        return ReloadedFile(
            file, self.reload, applied=content, metrics=ReloadMetrics(METRICS_PREFIX, "reads policy", self._server)
        )

    def collect(self) -> Iterable[Metric]:
        yield CounterMetricFamily(
            "kubechronicle_reads_recorded", "Reads of objects that were recorded in the database.", self._written
        )
        yield CounterMetricFamily(
            "kubechronicle_reads_lost", "Reads that were not recorded, because the buffer was full.", self._lost
        )
        yield GaugeMetricFamily("kubechronicle_reads_waiting", "Reads that are not written yet.", len(self._waiting))


def form_of(request: Request, context: Context) -> str:
    """Return the contents of an answer, one of FORMS; "" for a write that the log has.

    Of a read, the first form that the client asks for counts.
    """
    if context.info.verb not in VERBS:
        if "dryRun" in context.query:
            return "dry-run"
        return "no-op" if context.unchanged else ""
    first = request.headers.get("accept").partition(",")[0]
    if "as=PartialObjectMetadata" in first:
        return "metadata"
    if "as=Table" in first and context.query.get("includeObject") != "Object":
        return "table"
    return "object"


def shown_policy(policy: AuditPolicy) -> Mapping[str, Any]:
    """Return a policy as readers of recordings see it: its rules, without empty fields."""
    rules = []
    for rule in policy.rules:
        values = asdict(rule)
        shown = {
            "level": values["level"],
            "users": values["users"],
            "userGroups": values["user_groups"],
            "verbs": values["verbs"],
            "namespaces": values["namespaces"],
            "resources": [
                {"group": each["group"], "resources": each["resources"]}
                | ({"resourceNames": each["resource_names"]} if each["resource_names"] else {})
                for each in values["resources"]
            ],
            "nonResourceURLs": values["non_resource_urls"],
        }
        rules.append({name: value for name, value in shown.items() if value})
    return {"rules": rules}
