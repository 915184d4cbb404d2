"""Audit of one server: the policy in force, its backends, and the events that go from one to the other."""

from __future__ import annotations

import ipaddress
import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import trio

from kubechronicle.actors.supervisor import ChildSpec
from kubechronicle.api.audit import policy as policies
from kubechronicle.api.audit.events import Offered
from kubechronicle.api.audit.matching import Matcher
from kubechronicle.api.audit.policy import STARTED, AuditPolicy, PolicyError
from kubechronicle.api.errors.status import StatusError
from kubechronicle.api.meta.request_info import RequestInfo
from kubechronicle.api.values.caches import kept
from kubechronicle.http.audit.backends import BATCH, BLOCKING_STRICT, AuditBackend, AuditMetrics
from kubechronicle.http.audit.record import (
    MAX_USER_AGENT,
    USUAL,
    EventTemplate,
    RequestAudit,
    error_payload,
    error_status,
)
from kubechronicle.http.authentication.user import User
from kubechronicle.http.authorization.decision import authorized_as
from kubechronicle.http.context import Context, shown_uri
from kubechronicle.http.messages import Headers, Request
from kubechronicle.http.reloading import ReloadedFile, ReloadMetrics, Unusable

# -- addresses ---------------------------------------------------------------------------------------------------------
#
# The addresses of a request, for its audit events.


def source_addresses(headers: Headers, peer: str) -> list[str]:
    """Return the addresses of the client and the proxies, as far as they say so; the peer's, which is sure, is last.

    X-Forwarded-For, X-Real-Ip, the peer; without repetitions (SourceIPs of k8s.io/apimachinery ``pkg/util/net``).
    """
    forwarded, real = headers.get("x-forwarded-for"), headers.get("x-real-ip")
    if not forwarded and not real:
        return [peer] if peer else []
    found = [address for part in forwarded.split(",") if (address := _address(part))]
    address = _address(real)
    if address and address not in found:
        found.append(address)
    own = _address(peer)
    if own and (not found or found[-1] != own):
        found.append(own)
    return found


def _address(text: str) -> str:
    """Return an IP address in its usual form, "" for another text. Numbers may begin with zeros."""
    text = text.strip()
    if "." in text and ":" not in text:
        text = ".".join(part.lstrip("0") or "0" if part.isdecimal() else part for part in text.split("."))
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return ""
    mapped = getattr(address, "ipv4_mapped", None)
    return str(mapped or address)


# -- audit -------------------------------------------------------------------------------------------------------------

log = logging.getLogger(__name__)

METRICS_PREFIX: Final = "kubechronicle_audit_policy"
MOST_TEMPLATES: Final = 4096
"""Templates that are kept. Clients choose what they are for, so all are forgotten when there are more."""


@dataclass(slots=True)
class Audit:
    """The audit of a server. ``backends`` must not be empty. ``tells_changes``: events say what writes changed.

    ``only``: the backend, if there is one alone.
    """

    matcher: Matcher
    backends: Sequence[AuditBackend]
    metrics: AuditMetrics
    tells_changes: bool = False
    blocking: bool = field(init=False)
    _strict: list[bool] = field(init=False)
    only: AuditBackend | None = field(init=False)
    _by_name: bool = field(init=False)
    _templates: dict[tuple[object, ...], EventTemplate] = field(
        init=False, default_factory=lambda: kept("audit templates")
    )

    def __post_init__(self) -> None:
        self.blocking = any(backend.mode != BATCH for backend in self.backends)
        self._by_name = self.matcher.by_name
        self.only = self.backends[0] if len(self.backends) == 1 else None
        self._strict = [backend.mode == BLOCKING_STRICT for backend in self.backends]

    def begin(self, request: Request, context: Context, *, authenticated: bool = True) -> RequestAudit | None:
        """Return a new record of the request, which is also ``context.audit``; None if the policy records none.

        Every request passes it, so the usual case is one function.
        """
        info, user, fields = context.info, context.user, request.headers.first
        if info.field_selector:
            info = authorized_as(context.info)
        about = info.resource or info.path
        key: tuple[object, ...] = (
            id(user), fields.get("user-agent"), request.client[0],
            info.verb, about, info.namespace, info.group, info.version, info.subresource,
        )  # fmt: skip
        template = self._templates.get(key)
        if (
            template is None
            or template.user is not user
            or "x-forwarded-for" in fields
            or "x-real-ip" in fields
            or self._by_name
            or not authenticated
        ):
            template = self._other_template(key, request, user if authenticated else None, info)
        decision = template.decision
        self.metrics.levels[decision.level] += 1
        if not decision.rank:
            return None
        uri = shown_uri(request) if request.query_string else request.raw_path
        record = context.audit = RequestAudit(template, context.audit_id, uri, info.name, context.received)
        if len(uri) > USUAL:
            record.size += 2 * len(uri)
        if context.credential_notes:
            record.annotations.update(context.credential_notes)
        return record

    def _other_template(
        self, key: tuple[object, ...], request: Request, user: User | None, info: RequestInfo
    ) -> EventTemplate:
        """Return the template of a request that has none under its key, or must have one of its own.

        Templates of direct clients are kept, by the User object.
        """
        fields, peer = request.headers.first, request.client[0]
        agent = fields.get("user-agent", "")
        if "x-forwarded-for" in fields or "x-real-ip" in fields:
            return self._new_template(user, info, source_addresses(request.headers, peer), agent)
        if self._by_name:
            key += (info.name,)
        known = self._templates.get(key)
        if known is not None and known.user is user:
            return known
        known = self._new_template(user, info, [peer] if peer else [], agent)
        if len(agent) <= MAX_USER_AGENT and user is not None:
            if len(self._templates) >= MOST_TEMPLATES:
                self._templates.clear()
            self._templates[key] = known
        return known

    def _new_template(self, user: User | None, info: RequestInfo, sources: list[str], agent: str) -> EventTemplate:
        name, groups = ("", ()) if user is None else (user.name, user.groups)
        decision = self.matcher.decide(name, groups, info)
        return EventTemplate(decision, user, info, sources, agent, tells_changes=self.tells_changes)

    def apply(self, matcher: Matcher) -> None:
        """Decide by another policy from now on."""
        self.matcher, self._by_name = matcher, matcher.by_name
        self._templates.clear()

    def offer(self, event: Offered) -> None:
        """Pass an event to the backends, without waiting."""
        self.metrics.events += 1
        if self.only is not None:
            self.only.offer(event)
            return
        for backend in self.backends:
            backend.offer(event)

    async def deliver(self, event: Offered) -> bool:
        """Pass an event to the backends, and wait for those that block. False: a strict one has not recorded it."""
        self.metrics.events += 1
        deliveries = [backend.offer(event) for backend in self.backends]
        ok = True
        for strict, delivery in zip(self._strict, deliveries, strict=True):
            if delivery is not None and not await delivery.wait() and strict:
                ok = False
        return ok

    async def refused(self, request: Request, context: Context, error: StatusError) -> None:
        """Record a request that is refused before its user is known. It has one event, of stage ResponseStarted."""
        record = self.begin(request, context, authenticated=False)
        if record is None or not record.decision.started:
            return
        status, payload = error_status(error), error_payload(record, error)
        await self.deliver(record.event(STARTED, time.time(), status=status, response=payload))


async def newer_policy(data: bytes, current: AuditPolicy, *, of: str) -> Matcher | None:
    """Return the matcher of a policy file's content; None if it is the ``current`` policy. Raises Unusable.

    ``of``: the name of the file's policy, for its warnings.
    """
    try:
        policy, warnings = await trio.to_thread.run_sync(policies.load, data)
    except PolicyError as error:
        raise Unusable(str(error)) from None
    if policy == current:
        return None
    for warning in warnings:
        log.warning(f"The {of} has a problem, which is ignored", extra={"err": warning})
    return await trio.to_thread.run_sync(Matcher, policy)  # many rules take long


class AuditParts:
    """The supervised parts of audit: the backends, and the reload of the policy file."""

    def __init__(self, audit: Audit, file: Path, content: bytes, *, server: str = "") -> None:
        self.audit = audit
        self.reloads = ReloadMetrics(METRICS_PREFIX, "audit policy", server)
        self._file = ReloadedFile(file, self.reload, applied=content, metrics=self.reloads)

    async def reload(self, data: bytes) -> bool:
        """Apply the file's content. Returns False if it is the policy in force. Raises Unusable."""
        matcher = await newer_policy(data, self.audit.matcher.policy, of="audit policy")
        if matcher is None:
            return False
        self.audit.apply(matcher)
        return True

    def children(self) -> list[ChildSpec]:
        """Return the specs of the supervised tasks. They must outlive the listener."""
        backends = [ChildSpec(name=f"audit-{index}", run=one.run) for index, one in enumerate(self.audit.backends)]
        return [*backends, ChildSpec(name="audit-policy", run=self._file.run)]
