"""The rules of writes: the state that admission decides on, and the chain of plugins and storage hooks."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass

from kubechronicle.actors.admission import plugins
from kubechronicle.actors.admission.certificates import IssuedDurations, PodCertificateSigning
from kubechronicle.actors.admission.chain import AdmissionChain, State, StorageHook
from kubechronicle.actors.admission.device_claims import AdminAccess, StatusRights
from kubechronicle.actors.admission.escalation import EscalationCheck
from kubechronicle.actors.admission.pods.privileged import RefusedPrivilege
from kubechronicle.actors.admission.policies.static_names import StaticNames
from kubechronicle.actors.admission.state import CurrentManifests
from kubechronicle.actors.definitions.current import CurrentRegistry
from kubechronicle.actors.reading.reads import Reads
from kubechronicle.eventlog.appender import Siblings
from kubechronicle.http.authorization.current_authorizers import Authorization
from kubechronicle.http.outgoing.image_reviews import ImageWebhookClient
from kubechronicle.http.outgoing.webhooks import Webhooks
from kubechronicle.ops.server.access import judgement_of, permission_check
from kubechronicle.ops.server.plan import Plan


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
    ) -> State:
        """Return the state that admission decides on. ``siblings``, ``only_dry_runs``: as in State."""
        plan, ask, chain = self.plan, self.ask, self.authorization.chain
        return State(
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

    def chain(self, state: State, claims: Sequence[StorageHook]) -> AdmissionChain:
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
