"""The current authorizers: made from the configuration at the start, and again when its file changes.

Node, RBAC and ABAC are made once, because of their indexes and file. A changed configuration must name the same of them
as the first one (pkg/kubeapiserver/authorizer/reload.go). Everything else may change, and has effect from the next
decision on.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import trio
from prometheus_client.registry import Collector

from kubechronicle.actors.supervisor import ChildSpec
from kubechronicle.api.features.gates import FeatureGates
from kubechronicle.eventlog.views.views import Views
from kubechronicle.http.authorization import configuration
from kubechronicle.http.authorization.abac import AbacAuthorizer, AbacPolicy
from kubechronicle.http.authorization.configuration import (
    AuthorizationConfigurationError,
    AuthorizerConfiguration,
    Configured,
    WebhookConfiguration,
)
from kubechronicle.http.authorization.decision import (
    AlwaysAllow,
    AlwaysDeny,
    AuthorizationChain,
    Authorizer,
    DecisionMetrics,
    NamedAuthorizer,
    Privileged,
)
from kubechronicle.http.authorization.metrics import MatchConditionMetrics
from kubechronicle.http.authorization.node import FOLLOWED, NodeAuthorizer
from kubechronicle.http.authorization.rbac import BINDINGS, ROLES, RbacAuthorizer
from kubechronicle.http.authorization.view_follower import Following
from kubechronicle.http.reloading import ReloadedFile, ReloadMetrics, Unusable

log = logging.getLogger(__name__)

DEFAULT_MODES: Final = ("Node", "RBAC")


@dataclass(frozen=True, slots=True, kw_only=True)
class AuthorizationPlan:
    """The configuration at the start.

    ``policies``: those of the ABAC file, None without one
    ``file``: the configuration file, which is reloaded; None without one
    ``content``: the file's content from which ``configured`` was made
    """

    configured: Configured = field(default_factory=lambda: configuration.of_modes(DEFAULT_MODES))
    policies: Sequence[AbacPolicy] | None = None
    file: Path | None = None
    content: bytes = b""


MakeWebhook = Callable[[str, WebhookConfiguration, MatchConditionMetrics], Authorizer]
"""Makes an authorizer from (name, configuration, metrics). Reads its kubeconfig. Raises ConfigurationError."""


async def _nothing(authorizer: Authorizer) -> None:
    """Close nothing."""


@dataclass(frozen=True, slots=True)
class AuthorizerWebhooks:
    """Factory of webhook authorizers. ``forget`` closes one, and ignores authorizers of other types."""

    make: MakeWebhook
    forget: Callable[[Authorizer], Awaitable[None]] = _nothing


class Authorization:
    """The chain of the current authorizers, and the reload of their file.

    ``server``: the name of this server in the cluster
    ``gates``: the feature gates; None: the default ones
    """

    def __init__(
        self,
        plan: AuthorizationPlan,
        views: Views,
        webhooks: AuthorizerWebhooks | None = None,
        *,
        server: str = "",
        gates: FeatureGates | None = None,
    ) -> None:
        self._webhooks = webhooks
        self._decisions, self._matches = DecisionMetrics(), MatchConditionMetrics()
        types = {each.type for each in plan.configured}
        self._required = frozenset(types - {configuration.WEBHOOK})
        self._kept: dict[str, Authorizer] = {}
        self.rbac = RbacAuthorizer(views)  # also lists rights for the escalation check, even if it does not decide
        self._following: dict[str, Following] = {}
        self._follow("rbac", self.rbac.following, views, (*ROLES, *BINDINGS))
        if configuration.RBAC in types:
            self._kept[configuration.RBAC] = self.rbac
        if configuration.NODE in types:
            node = self._kept[configuration.NODE] = NodeAuthorizer(views, gates)
            self._follow("node-authorizer", node.following, views, FOLLOWED)
        if configuration.ABAC in types:
            if plan.policies is None:
                raise AuthorizationConfigurationError("an authorizer of type ABAC needs --authorization-policy-file")
            self._kept[configuration.ABAC] = AbacAuthorizer(list(plan.policies))
        self.chain = AuthorizationChain([])
        self._configured: Configured = ()
        self._made: Sequence[Authorizer] = ()
        made: list[Authorizer] = []
        self._make(plan.configured, made)
        self._replace(plan.configured, made)
        self._reloads = ReloadMetrics(
            prefix="apiserver_authorization_config_controller", subject="authorization configuration", server=server
        )
        self.file: ReloadedFile | None = None
        if plan.file is not None:
            self.file = ReloadedFile(plan.file, self.reload, applied=plan.content, metrics=self._reloads)

    def _follow(self, name: str, following: Following, views: Views, resources: Sequence[str]) -> None:
        """Let a task take the changes of these resources. ``name``: of the task."""
        self._following[name] = following
        for resource in resources:
            views.follow(resource, following.wake)

    def collectors(self) -> list[Collector]:
        """Return the collectors of its metrics."""
        return [self._decisions, self._matches, *([self._reloads] if self.file is not None else [])]

    def children(self) -> list[ChildSpec]:
        """Return the specs of its supervised tasks."""
        specs = [ChildSpec(name=name, run=following.run) for name, following in self._following.items()]
        if self.file is not None:
            specs.append(ChildSpec(name="authorization-config", run=self.file.run))
        return specs

    async def reload(self, data: bytes) -> bool:
        """Apply the file's content. Returns False if it is the current configuration. Raises Unusable."""
        made: list[Authorizer] = []
        try:
            configured = await trio.to_thread.run_sync(lambda: configuration.load(data, kept=self._required))
            if configured == self._configured:
                return False
            await trio.to_thread.run_sync(self._make, configured, made)
        except AuthorizationConfigurationError as error:
            await self._forget(made)
            raise Unusable(str(error)) from None
        before = self._made
        self._replace(configured, made)
        await self._forget(before)
        return True

    async def _forget(self, authorizers: Sequence[Authorizer]) -> None:
        """Close webhook authorizers that are not used any more."""
        for authorizer in authorizers:
            if self._webhooks is not None and authorizer not in self._kept.values():
                await self._webhooks.forget(authorizer)

    def _replace(self, configured: Configured, made: Sequence[Authorizer]) -> None:
        named = [
            NamedAuthorizer(each.type, each.name, one, self._decisions.counts)
            for each, one in zip(configured, made, strict=True)
        ]
        self.chain.replace([Privileged(), *named])
        self._configured, self._made = configured, made

    def _make(self, configured: Configured, made: list[Authorizer]) -> None:
        for each in configured:
            made.append(self._make_one(each))

    def _make_one(self, configured: AuthorizerConfiguration) -> Authorizer:
        kept = self._kept.get(configured.type)
        if kept is not None:
            return kept
        if configured.type == configuration.ALWAYS_ALLOW:
            return AlwaysAllow()
        if configured.type == configuration.ALWAYS_DENY:
            return AlwaysDeny()
        if configured.webhook is None or self._webhooks is None:
            raise AuthorizationConfigurationError(
                f"authorizer type {configured.type} is not allowed if it was not enabled at initial server startup"
            )
        return self._webhooks.make(configured.name, configured.webhook, self._matches)
