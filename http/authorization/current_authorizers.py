"""The authorizers in force: made from the configuration when the server starts, and again when its file changes.

Node, RBAC and ABAC are made once, for the indexes and the file they have: a changed configuration must go on naming
those it named at first, and can name no other of them (pkg/kubeapiserver/authorizer/reload.go). Everything else may
change, and counts from the next decision on.
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
from kubechronicle.eventlog.views.views import Views
from kubechronicle.http.authorization import configuration
from kubechronicle.http.authorization.abac import AbacAuthorizer, Policy
from kubechronicle.http.authorization.configuration import (
    AuthorizerConfiguration,
    ConfigurationError,
    Configured,
    WebhookConfiguration,
)
from kubechronicle.http.authorization.decision import (
    AlwaysAllow,
    AlwaysDeny,
    AuthorizationChain,
    Authorizer,
    Counted,
    DecisionMetrics,
    Privileged,
)
from kubechronicle.http.authorization.match_condition_metrics import MatchConditionMetrics
from kubechronicle.http.authorization.node import NodeAuthorizer
from kubechronicle.http.authorization.rbac import RbacAuthorizer
from kubechronicle.http.reloading import ReloadedFile, ReloadFigures, Unusable

log = logging.getLogger(__name__)

DEFAULT_MODES: Final = ("Node", "RBAC")


@dataclass(frozen=True, slots=True, kw_only=True)
class AuthorizationPlan:
    """``policies`` of the ABAC file, None without one; ``file``: where the configuration comes from if it may change,
    and ``content``: what it said."""

    configured: Configured = field(default_factory=lambda: configuration.of_modes(DEFAULT_MODES))
    policies: Sequence[Policy] | None = None
    file: Path | None = None
    content: bytes = b""


MakeWebhook = Callable[[str, WebhookConfiguration, MatchConditionMetrics], Authorizer]
"""(name, configuration, metrics). Reads its kubeconfig. ConfigurationError: it can't be used."""


async def _nothing(authorizer: Authorizer) -> None:
    """There is nothing to close."""


@dataclass(frozen=True, slots=True)
class Webhooks:
    """How authorizers are made that ask outside; ``forget`` ends one, and has nothing to do with any other."""

    make: MakeWebhook
    forget: Callable[[Authorizer], Awaitable[None]] = _nothing


class Authorization:
    """``chain`` asks whoever is in force; ``file`` is looked after if there is one. ``server``: the name of this server
    among those that share the cluster."""

    def __init__(
        self, plan: AuthorizationPlan, views: Views, webhooks: Webhooks | None = None, *, server: str = ""
    ) -> None:
        self._webhooks = webhooks
        self._decisions, self._matches = DecisionMetrics(), MatchConditionMetrics()
        types = {each.type for each in plan.configured}
        self._required = frozenset(types - {configuration.WEBHOOK})
        self._kept: dict[str, Authorizer] = {}
        self.rbac = RbacAuthorizer(views)  # it tells what somebody holds whether it decides or not
        if configuration.RBAC in types:
            self._kept[configuration.RBAC] = self.rbac
        if configuration.NODE in types:
            self._kept[configuration.NODE] = NodeAuthorizer(views)
        if configuration.ABAC in types:
            if plan.policies is None:
                raise ConfigurationError("an authorizer of type ABAC needs --authorization-policy-file")
            self._kept[configuration.ABAC] = AbacAuthorizer(list(plan.policies))
        self.chain = AuthorizationChain([])
        self._configured: Configured = ()
        self._made: Sequence[Authorizer] = ()
        made: list[Authorizer] = []
        self._make(plan.configured, made)
        self._put_in_force(plan.configured, made)
        self._reloads = ReloadFigures(
            prefix="apiserver_authorization_config_controller", what="authorization configuration", server=server
        )
        self.file: ReloadedFile | None = None
        if plan.file is not None:
            self.file = ReloadedFile(plan.file, self.reload, applied=plan.content, figures=self._reloads)

    def collectors(self) -> list[Collector]:
        """What is counted of it."""
        return [self._decisions, self._matches, *([self._reloads] if self.file is not None else [])]

    def children(self) -> list[ChildSpec]:
        """What is to be supervised."""
        return [ChildSpec(name="authorization-config", run=self.file.run)] if self.file is not None else []

    async def reload(self, data: bytes) -> bool:
        """Put in force what the file says now; whether it says something else. Unusable."""
        made: list[Authorizer] = []
        try:
            found = await trio.to_thread.run_sync(lambda: configuration.load(data, kept=self._required))
            if found == self._configured:
                return False
            await trio.to_thread.run_sync(self._make, found, made)
        except ConfigurationError as error:
            await self._forget(made)
            raise Unusable(str(error)) from None
        before = self._made
        self._put_in_force(found, made)
        await self._forget(before)
        return True

    async def _forget(self, authorizers: Sequence[Authorizer]) -> None:
        """End those that asked outside, and are not asked any more."""
        for authorizer in authorizers:
            if self._webhooks is not None and authorizer not in self._kept.values():
                await self._webhooks.forget(authorizer)

    def _put_in_force(self, configured: Configured, made: Sequence[Authorizer]) -> None:
        counted = [
            Counted(each.type, each.name, one, self._decisions) for each, one in zip(configured, made, strict=True)
        ]
        self.chain.replace([Privileged(), *counted])
        self._configured, self._made = configured, made

    def _make(self, configured: Configured, made: list[Authorizer]) -> None:
        for each in configured:
            made.append(self._one(each))

    def _one(self, configured: AuthorizerConfiguration) -> Authorizer:
        kept = self._kept.get(configured.type)
        if kept is not None:
            return kept
        if configured.type == configuration.ALWAYS_ALLOW:
            return AlwaysAllow()
        if configured.type == configuration.ALWAYS_DENY:
            return AlwaysDeny()
        if configured.webhook is None or self._webhooks is None:
            raise ConfigurationError(
                f"authorizer type {configured.type} is not allowed if it was not enabled at initial server startup"
            )
        return self._webhooks.make(configured.name, configured.webhook, self._matches)
