"""The server put together from its parts, over any RevisionLog: what `kubechronicle serve` and in-process tests share.

No settings file, no Postgres and no signals here: values arrive as plain arguments, the log is open already.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import trio

from kubechronicle.actors.admission import plugins
from kubechronicle.actors.admission.chain import AdmissionChain, Permits, State
from kubechronicle.actors.admission.device_admin import AdminAccess
from kubechronicle.actors.admission.escalation import EscalationCheck
from kubechronicle.actors.allocation.network import ServiceNetwork
from kubechronicle.actors.allocation.ports import NODE_PORTS
from kubechronicle.actors.allocation.services import ServiceClaimant
from kubechronicle.actors.loops.bootstrap.api_services import APIServices
from kubechronicle.actors.loops.bootstrap.authentication_trust import NAME, Trust, authentication_trust
from kubechronicle.actors.loops.bootstrap.config_map import KeptConfigMap
from kubechronicle.actors.loops.bootstrap.rbac import RbacBootstrap
from kubechronicle.actors.loops.bootstrap.system_objects import Bootstrap
from kubechronicle.actors.loops.service_accounts.legacy_tokens import CONFIG_MAP, LegacyTokenTracking
from kubechronicle.actors.loops.services.cluster_ip_repair import ClusterIPRepair
from kubechronicle.actors.loops.services.node_port_repair import NodePortRepair
from kubechronicle.actors.loops.services.server_endpoints import Advertised
from kubechronicle.actors.reading.reads import Reads
from kubechronicle.actors.resource_actors import ResourceActors
from kubechronicle.actors.store import Store
from kubechronicle.actors.supervisor import ChildSpec, Supervisor
from kubechronicle.actors.tree import server_tree
from kubechronicle.actors.writing.writes import Writes
from kubechronicle.api.registry.registry import Registry, builtin_registry
from kubechronicle.api.selectors.field_selectors import describe, plain
from kubechronicle.eventlog.appender import Appender
from kubechronicle.eventlog.consistency import ConsistentRead
from kubechronicle.eventlog.log import RevisionLog
from kubechronicle.eventlog.postgres.postmaster_epoch import PostmasterEpoch
from kubechronicle.eventlog.postgres.sole_appender import SoleAppender
from kubechronicle.eventlog.records import Who
from kubechronicle.eventlog.retention.retention import DEFAULT_POLICIES, RetentionPolicy
from kubechronicle.eventlog.tail import Tail
from kubechronicle.eventlog.views.views import Views
from kubechronicle.http.app import HttpApplication, HttpSettings, build_application
from kubechronicle.http.authentication.anonymous import Anonymous
from kubechronicle.http.authentication.bootstrap_tokens import BootstrapTokens
from kubechronicle.http.authentication.chain import AuthenticationChain, Authenticator, TokenAuthenticator
from kubechronicle.http.authentication.legacy_tokens import TokenUses
from kubechronicle.http.authentication.metrics import AuthenticationFigures
from kubechronicle.http.authentication.request_header import STANDARD, ProxyHeaders
from kubechronicle.http.authentication.service_accounts import ServiceAccountIssuer, ServiceAccountTokens
from kubechronicle.http.authentication.user import User
from kubechronicle.http.authentication.webhook import TokenWebhook
from kubechronicle.http.authorization.decision import AuthorizationChain, Decision
from kubechronicle.http.authorization.in_force import Authorization, AuthorizationPlan
from kubechronicle.http.authorization.webhooks import WebhookMaker
from kubechronicle.http.health import Check, Unhealthy
from kubechronicle.http.metrics import Reading
from kubechronicle.http.outgoing.client import Outgoing
from kubechronicle.http.request_info import RequestInfo
from kubechronicle.http.wire.listener import Server, serve
from kubechronicle.http.wire.serve_config import ServeConfig
from kubechronicle.ops.server.allocation_metrics import AllocationCollector
from kubechronicle.ops.server.controllers import CONTROLLERS, control_loops, led

if TYPE_CHECKING:
    from kubechronicle.http.authentication.oidc.authenticator import JwtAuthenticators, JwtPlan

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What the server is to be. ``drain_grace``: seconds for answers under way when it stops; ``registry``: the API
    versions it serves; ``root_ca``: the bundle (PEM) by which pods know the server, published unless it is empty;
    ``issuer`` of service account tokens, None for none; ``bootstrap_tokens``: whether those of nodes are believed.

    Who is let in, in the order asked: ``authenticators`` (the authenticating proxy, client certificates), then whoever
    knows a bearer token: ``static_tokens``, service accounts, bootstrap tokens, ``jwt`` (issuers outside),
    ``token_webhook``; then ``anonymous``. ``trust``: what the cluster is told of that. ``event_ttl``: seconds an Event
    is kept, 0 for ever. ``server``: its name among those that share the cluster. ``leading``: set when this process of
    several is to run the control loops, None if it is the only one; ``worker``: its number among them, for its metrics.
    ``sole``: given if it runs the database itself and is the only one to append (eventlog/postgres/sole_appender.py)."""

    listen: ServeConfig
    advertised: Advertised
    services: ServiceNetwork
    http: HttpSettings
    authenticators: Sequence[Authenticator] = ()
    static_tokens: Sequence[TokenAuthenticator] = ()
    token_webhook: TokenWebhook | None = None
    jwt: JwtPlan | None = None
    anonymous: Anonymous = field(default_factory=Anonymous)
    proxy_headers: ProxyHeaders = STANDARD
    trust: Trust = field(default_factory=Trust)
    issuer: ServiceAccountIssuer | None = None
    bootstrap_tokens: bool = False
    authorization: AuthorizationPlan = field(default_factory=AuthorizationPlan)
    controllers: frozenset[str] = frozenset(CONTROLLERS)
    root_ca: bytes = b""
    admission_plugins: frozenset[str] = plugins.DEFAULT
    registry: Registry = field(default_factory=builtin_registry)
    retention: tuple[RetentionPolicy, ...] = DEFAULT_POLICIES
    history_archive: Path | None = None
    event_ttl: int = 3600
    drain_grace: float = 10.0
    server: str = ""
    leading: trio.Event | None = None
    worker: int | None = None
    sole: PostmasterEpoch | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnObjects:
    """The loops that look after what the server needs itself. They run whatever --controllers says, and the server is
    ready when each has looked through everything once."""

    bootstrap: Bootstrap
    roles: RbacBootstrap
    api_services: APIServices
    cluster_ips: ClusterIPRepair
    node_ports: NodePortRepair
    trust: KeptConfigMap
    legacy_tokens: LegacyTokenTracking

    def children(self) -> list[ChildSpec]:
        return [
            ChildSpec(name="bootstrap", run=self.bootstrap.run),
            ChildSpec(name="api-services", run=self.api_services.run),
            ChildSpec(name="rbac-bootstrap", run=self.roles.run),
            ChildSpec(name="cluster-ip-repair", run=self.cluster_ips.run),
            ChildSpec(name="node-port-repair", run=self.node_ports.run),
            ChildSpec(name="authentication-trust", run=self.trust.run),
            ChildSpec(name="legacy-token-tracking", run=self.legacy_tokens.run),
        ]

    def checks(self) -> list[Check]:
        """Named after kube-apiserver's post-start hooks."""

        def services() -> None:
            if not (self.cluster_ips.ready and self.node_ports.ready):
                raise Unhealthy("the addresses and ports of Services have not been looked through yet")

        def ranges() -> None:
            if not self.bootstrap.has_ranges:
                raise Unhealthy("the ServiceCIDR kubernetes has not been made yet")

        def roles() -> None:
            if not self.roles.done:
                raise Unhealthy("the roles every cluster begins with have not been looked through yet")

        def kept(which: KeptConfigMap | LegacyTokenTracking, what: str) -> Callable[[], None]:
            def check() -> None:
                if not which.ready:
                    raise Unhealthy(f"the ConfigMap {what} has not been looked at yet")

            return check

        return [
            Check("poststarthook/start-cluster-authentication-info-controller", kept(self.trust, NAME)),
            Check("poststarthook/start-legacy-token-tracking-controller", kept(self.legacy_tokens, CONFIG_MAP)),
            Check("poststarthook/start-service-ip-repair-controllers", services),
            Check("poststarthook/rbac/bootstrap-roles", roles),
            Check("poststarthook/start-kubernetes-service-cidr-controller", ranges),
        ]


@dataclass(slots=True)
class Assembly:
    """The parts, and the tree that runs them. ``run`` runs it, ``request_stop`` begins an orderly end."""

    plan: Plan
    store: Store
    views: Views
    tail: Tail
    actors: ResourceActors
    own: OwnObjects
    authorization: Authorization
    application: HttpApplication
    tree: Supervisor
    jwt: JwtAuthenticators | None = None
    sole: SoleAppender | None = None
    listening: trio.Event = field(default_factory=trio.Event)
    server: Server | None = None
    draining: bool = False
    handing_over: bool = False

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Run the tree until it is stopped. SupervisorGaveUp: something can't be kept running."""
        await self.tree.run(task_status=task_status)

    async def drain(self) -> None:
        """Fail readiness, leave the endpoints, end the watches, finish the requests, stop the tree."""
        self.draining = True
        await self.own.bootstrap.withdraw()
        self.application.drain.begin()
        if self.server is not None:
            await self.server.drain(self.plan.drain_grace)
        self.tree.request_stop()

    async def hand_over(self, patience: float) -> None:
        """End the watches, let clients go for up to ``patience`` seconds, finish the requests, stop the tree. The
        endpoints stay, and /readyz as it is: another process has begun to accept in the place of this one."""
        self.handing_over = True
        self.application.drain.begin()
        if self.server is not None:
            await self.server.drain(self.plan.drain_grace, patience=patience)
        self.tree.request_stop()

    async def _serve(self, *, task_status: trio.TaskStatus[Server]) -> None:
        async with trio.open_nursery() as nursery:
            self.server = await nursery.start(serve, self.application.application, self.plan.listen)
            self.listening.set()
            task_status.started(self.server)
        if self.draining or self.handing_over:
            # The listener has finished its orderly end; the tree is about to stop this child.
            await trio.sleep_forever()


def assemble(revision_log: RevisionLog, plan: Plan) -> Assembly:
    views = Views(describe, plain)
    tail = Tail(revision_log, views)
    appender = Appender(revision_log, tail)

    def revision_of(resource: str, namespace: str, name: str) -> int:
        entry = views[resource].get(namespace, name)
        return entry.revision if entry is not None else 0

    actors = ResourceActors(current_revision=revision_of, submit=appender.submit)
    sole = SoleAppender(revision_log, tail, plan.sole) if plan.sole is not None else None
    consistency = ConsistentRead(revision_log, tail, sole)
    reads = Reads(log=revision_log, views=views, consistency=consistency, describe=describe)
    outgoing = Outgoing()
    webhooks = WebhookMaker(outgoing)
    authorization = Authorization(plan.authorization, views, webhooks.webhooks, server=plan.server)
    state = State(peek=reads.peek, entries=reads.entries, permits=_permits(authorization.chain))
    services = ServiceClaimant(plan.services)
    claimants = (services, AdminAccess(), EscalationCheck(authorization.rbac))
    admission = AdmissionChain(plugins.plugins_in_order(plan.admission_plugins), state, claimants)
    writes = Writes(reads=reads, actors=actors, admission=admission, describe=describe)
    store = Store(registry=plan.registry, reads=reads, writes=writes)
    own = _own_objects(plan, store)
    assembly: Assembly
    checks = [
        *_log_checks(tail),
        *own.checks(),
        Check("shutdown", lambda: _not_draining(assembly), live=False),
    ]
    jwt = _jwt_authenticators(plan, outgoing)
    authentication = _authentication(plan, views, own.legacy_tokens, jwt, outgoing)
    application = build_application(store, authentication, authorization.chain, checks, plan.http, plan.issuer)

    async def run_http(*, task_status: trio.TaskStatus[Server]) -> None:
        await assembly._serve(task_status=task_status)

    sign = plan.issuer.signing.sign if plan.issuer is not None else None
    controllers = control_loops(plan.controllers, store, root_ca=plan.root_ca, sign=sign, event_ttl=plan.event_ttl)
    loops = [*own.children(), *led(plan.leading, controllers), *authorization.children()]
    outside = [ChildSpec(name="outgoing", run=outgoing.run)]
    if jwt is not None:
        outside.append(ChildSpec(name="jwt-issuers", run=jwt.run))
    tree = server_tree(
        tail=tail,
        appender=appender,
        actors=actors,
        outside=outside,
        loops=loops,
        http=ChildSpec(name="http", run=run_http),
    )
    assembly = Assembly(plan, store, views, tail, actors, own, authorization, application, tree, jwt, sole)
    application.metrics.worker = plan.worker
    application.metrics.add_readings(lambda: _readings(assembly))
    for figures in (*authorization.figures(), webhooks.figures):
        application.metrics.registry.register(figures)
    if jwt is not None:
        jwt.register(application.metrics.registry)
    application.metrics.registry.register(
        AllocationCollector(services.figures, own.cluster_ips.figures, own.node_ports.figures, plan.services, state)
    )
    return assembly


def _own_objects(plan: Plan, store: Store) -> OwnObjects:
    return OwnObjects(
        bootstrap=Bootstrap(store, plan.advertised, plan.services),
        roles=RbacBootstrap(store),
        api_services=APIServices(store),
        cluster_ips=ClusterIPRepair(store),
        node_ports=NodePortRepair(store, plan.services.node_ports),
        trust=authentication_trust(store, plan.trust),
        legacy_tokens=LegacyTokenTracking(store),
    )


def _permits(authorization: AuthorizationChain) -> Permits:
    """What admission may ask of the authorizers."""

    def permits(who: Who, verb: str, group: str, resource: str, name: str, namespace: str = "") -> bool:
        info = RequestInfo(
            path="",
            verb=verb,
            is_resource=True,
            group=group,
            version="*",
            namespace=namespace,
            resource=resource,
            name=name,
        )
        user = User(name=who.user, uid=who.uid, groups=who.groups, extra=who.extra)
        return authorization.decide(user, info).decision is Decision.ALLOW

    return permits


def _log_checks(tail: Tail) -> list[Check]:
    def log_answers() -> None:
        if not tail.healthy:
            raise Unhealthy(str(tail.last_error or "the log has not been read yet"))

    return [Check("log", log_answers, live=False), Check("informer-sync", log_answers, live=False)]


def _not_draining(assembly: Assembly) -> None:
    if assembly.draining:
        raise Unhealthy("the server is shutting down")


def _jwt_authenticators(plan: Plan, outgoing: Outgoing) -> JwtAuthenticators | None:
    if plan.jwt is None:
        return None
    from kubechronicle.http.authentication.oidc.authenticator import JwtAuthenticators  # few servers need it

    return JwtAuthenticators(plan.jwt, outgoing, server=plan.server)


def _authentication(
    plan: Plan, views: Views, tracking: LegacyTokenTracking, jwt: JwtAuthenticators | None, outgoing: Outgoing
) -> AuthenticationChain:
    """Everybody who knows credentials, in kube-apiserver's order."""
    figures = AuthenticationFigures()
    tokens = list(plan.static_tokens)
    if plan.issuer is not None:
        tokens.append(ServiceAccountTokens(plan.issuer, views, TokenUses(views, figures, tracking.used)))
    if plan.bootstrap_tokens:
        tokens.append(BootstrapTokens(views))
    if jwt is not None:
        tokens.append(jwt)
    audiences = plan.issuer.audiences if plan.issuer is not None else ()
    if plan.token_webhook is not None:
        tokens.append(plan.token_webhook.authenticator(outgoing, audiences))
    return AuthenticationChain(
        plan.authenticators,
        tokens,
        audiences=audiences,
        anonymous=plan.anonymous,
        proxy=plan.proxy_headers,
        figures=figures,
    )


def _readings(assembly: Assembly) -> Iterable[Reading]:
    """Figures of the log, the views, the actors and the connections, read when /metrics is asked for."""
    views = list(assembly.views)
    yield Reading(
        "apiserver_resource_objects",
        "Number of stored objects by resource.",
        False,
        "resource",
        {view.resource: float(view.count()) for view in views if view.resource != NODE_PORTS},
    )
    yield Reading(
        "kubechronicle_applied_revision",
        "The revision up to which the log is applied to the views.",
        False,
        "",
        {"": float(assembly.views.applied)},
    )
    alone = assembly.sole is not None and assembly.sole.told() is not None
    yield Reading("kubechronicle_sole_appender", "Whether reads spare the log.", False, "", {"": float(alone)})
    statistics = {view.resource: view.statistics() for view in views}
    yield Reading(
        "kubechronicle_view_events",
        "Recent events held in memory by resource.",
        False,
        "resource",
        {name: float(one.events) for name, one in statistics.items()},
    )
    yield Reading(
        "kubechronicle_view_event_bytes",
        "Bytes of the recent events held in memory.",
        False,
        "resource",
        {name: float(one.event_bytes) for name, one in statistics.items()},
    )
    yield Reading(
        "kubechronicle_past_list_bytes",
        "Bytes of lists of the past held in memory.",
        False,
        "",
        {"": float(assembly.store.reads.past.bytes_held)},
    )
    decided = assembly.actors.statistics()
    yield Reading(
        "kubechronicle_actor_decisions",
        "Commits decided by resource actors.",
        True,
        "resource",
        {name: float(one.decided) for name, one in decided.items()},
    )
    yield Reading(
        "kubechronicle_actor_conflicts",
        "Commits refused by resource actors.",
        True,
        "resource",
        {name: float(one.conflicts) for name, one in decided.items()},
    )
    yield Reading(
        "kubechronicle_restarts",
        "Restarts of supervised children.",
        True,
        "",
        {"": float(assembly.tree.restarts_total + assembly.actors.crashes_total)},
    )
    if assembly.server is not None:
        server = assembly.server.statistics()
        yield Reading(
            "kubechronicle_connections", "Open client connections.", False, "", {"": float(server.open_connections)}
        )
        yield Reading(
            "kubechronicle_slow_clients_cut_off",
            "Clients cut off because they did not read.",
            True,
            "",
            {"": float(server.cut_off_slow)},
        )
