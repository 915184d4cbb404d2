"""The parts of an open branch: a log, views, actors, rules and loops as those of the server, over the branch's changes.

Shared with the server: the authorizers, which know the present rights only; the connections to webhooks, which are sent
dry runs; the process. Everything else is the branch's own, so that nothing of it reaches the views, the watchers or the
log of the cluster.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from kubechronicle.actors.admission import plugins
from kubechronicle.actors.admission.certificates import IssuedDurations, PodCertificateSigning
from kubechronicle.actors.admission.chain import AdmissionChain, AdmissionState, StorageHook
from kubechronicle.actors.admission.device_claims import AdminAccess, StatusRights
from kubechronicle.actors.admission.escalation import EscalationCheck
from kubechronicle.actors.admission.pods.privileged import RefusedPrivilege
from kubechronicle.actors.admission.policies.sources import StaticNames
from kubechronicle.actors.admission.state import CurrentManifests
from kubechronicle.actors.allocation.services import ServiceAllocator
from kubechronicle.actors.branches.base import Base
from kubechronicle.actors.branches.branches import BranchParts
from kubechronicle.actors.definitions.current import CurrentRegistry
from kubechronicle.actors.definitions.definition import Description
from kubechronicle.actors.definitions.past import PastDefinitions
from kubechronicle.actors.reading.conversions import Conversions
from kubechronicle.actors.reading.reads import Reads
from kubechronicle.actors.resource_actors import ResourceActors
from kubechronicle.actors.store import Store
from kubechronicle.actors.supervisor import ChildSpec
from kubechronicle.actors.writing.writes import Writes
from kubechronicle.api.builtin.kinds import KindRules
from kubechronicle.eventlog.appender import Appender, Siblings
from kubechronicle.eventlog.branch_log import ABSENT, BranchKeyState, BranchLog, BranchTail
from kubechronicle.eventlog.consistency import ConsistentRead
from kubechronicle.eventlog.entries import Entry
from kubechronicle.eventlog.log import RevisionLog
from kubechronicle.eventlog.records import Key
from kubechronicle.eventlog.views.views import Views
from kubechronicle.http.authorization.current_authorizers import Authorization
from kubechronicle.http.outgoing.image_reviews import ImageWebhookClient
from kubechronicle.http.outgoing.webhooks import Webhooks
from kubechronicle.ops.server.access import judgement_of, permission_check
from kubechronicle.ops.server.admission import create_namespace
from kubechronicle.ops.server.controllers import LOOPS, control_loops, definition_loops
from kubechronicle.ops.server.encryption.encryption import Encryption
from kubechronicle.ops.server.plan import Plan

# -- rules -------------------------------------------------------------------------------------------------------------
#
# The rules of writes: the state that admission decides on, and the chain of plugins and storage hooks.


@dataclass(frozen=True, slots=True)
class BranchRules:
    """The rules of one server, for its own store and for those of branches.

    ``authorization``: the present rights. ``ask``: posts to webhooks. ``manifests``: the configurations from files.
    """

    plan: Plan
    authorization: Authorization
    ask: Webhooks
    manifests: Mapping[str, CurrentManifests]

    def state(
        self,
        reads: Reads,
        current: CurrentRegistry,
        provide_namespace: Callable[[str], Awaitable[None]],
        siblings: Siblings,
        *,
        only_dry_runs: bool = False,
    ) -> AdmissionState:
        """Return the state that admission decides on. ``siblings``, ``only_dry_runs``: as in AdmissionState."""
        plan, ask, chain = self.plan, self.ask, self.authorization.chain
        return AdmissionState(
            peek=reads.peek_for_rules,
            entries=reads.entries_for_rules,
            follow=reads.follow,
            permits=permission_check(chain),
            judge=judgement_of(chain),
            registry=lambda: current.registry,
            ask=ask,
            image_reviews=ImageWebhookClient(plan.image_webhook, ask.outgoing) if plan.image_webhook else None,
            ask_with_credentials={name: ask.with_users(users) for name, users in plan.webhook_users.items()},
            provide_namespace=provide_namespace,
            manifests=self.manifests,
            siblings=siblings,
            only_dry_runs=only_dry_runs,
        )

    def chain(self, state: AdmissionState, claims: Sequence[StorageHook]) -> AdmissionChain:
        """Return the plugins and hooks. ``claims``: the hooks of this store that come first."""
        plan = self.plan
        hooks: list[StorageHook] = [*claims, AdminAccess(), StatusRights(), PodCertificateSigning(), IssuedDurations()]
        hooks.append(EscalationCheck(self.authorization.rbac))
        if plan.static_names:
            hooks.append(StaticNames())
        if not plan.allow_privileged:
            hooks.append(RefusedPrivilege())
        made = plugins.plugins_in_order(plan.admission_plugins, plan.admission, plan.features)
        return AdmissionChain(made, state, tuple(hooks))


LEFT_OUT: Final = frozenset({"storage-version-migrator"})
"""Loops that a branch does not need."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BranchMaker:
    """Makes the parts of branches. ``stored``: the log below the encryption. ``reads``, ``past``: of the cluster."""

    rules: BranchRules
    stored: RevisionLog
    encryption: Encryption
    reads: Reads
    past: PastDefinitions
    conversions: Conversions

    def __call__(self, id: UUID, base: int) -> BranchParts:
        plan = self.rules.plan
        description = Description()
        views = Views(description.describe, description.plain)
        log = BranchLog(self.stored, id, base)
        log.state_at_base = _state_in(views)
        decrypted = self.encryption.over(log)
        tail = BranchTail(
            log, decrypted, views, Base(self.reads, self.past, plan.registry, base, views.describe_record).load
        )
        siblings = Siblings()
        appender = Appender(decrypted, tail, siblings)
        reads = Reads(
            log=decrypted, views=views, consistency=ConsistentRead(decrypted, tail), describe=description.describe
        )
        current = CurrentRegistry(plan.registry, views, description)
        store: Store

        def peek(resource: str, namespace: str, name: str) -> Entry | None:
            return views[resource].get(namespace, name)

        actors = ResourceActors(peek=peek, submit=appender.submit)

        async def provide_namespace(name: str) -> None:
            await create_namespace(store, name)

        state = self.rules.state(reads, current, provide_namespace, siblings, only_dry_runs=True)
        admission = self.rules.chain(
            state, [ServiceAllocator(plan.services, strict=plan.features.enabled("StrictIPCIDRValidation"))]
        )
        writes = Writes(
            reads=reads,
            actors=actors,
            admission=admission,
            describe=description.describe,
            conversions=self.conversions,
            rules=KindRules(plan.features),
        )
        past = PastDefinitions(plan.registry, current, reads)
        store = Store(served=current, past=past, reads=reads, writes=writes, conversions=self.conversions)
        children = [
            ChildSpec(name="tail", run=tail.run),
            ChildSpec(name="appender", run=appender.run),
            ChildSpec(name="resource actors", run=actors.run),
            *definition_loops(store, current),
            *control_loops(set(LOOPS) - LEFT_OUT, store, root_ca=b""),
        ]
        return BranchParts(store=store, log=log, tail=tail, children=children, kept=self._kept(base))

    def _kept(self, base: int) -> Callable[[str], bool]:
        marks = self.reads.views

        def kept(resource: str) -> bool:
            return base >= marks.compacted_for(resource)

        return kept


def _state_in(views: Views) -> Callable[[Key], BranchKeyState]:
    def state(key: Key) -> BranchKeyState:
        entry = views[key.resource].get(key.namespace, key.name)
        return BranchKeyState(entry.revision, entry.create_revision, entry.version) if entry is not None else ABSENT

    return state
