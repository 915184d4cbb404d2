"""The composition of a server from its parts, over any RevisionLog: for `kubechronicle serve` and in-process tests.

There is no settings file, no Postgres and no signal here: the plan holds plain values, and the log is open.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any, Final

import trio

from kubechronicle.actors.admission import plugins
from kubechronicle.actors.admission.chain import AdmissionChain, State, StorageHook
from kubechronicle.actors.admission.device_admin import AdminAccess
from kubechronicle.actors.admission.escalation import EscalationCheck
from kubechronicle.actors.admission.pods.privileged import RefusedPrivilege
from kubechronicle.actors.admission.policies.static_names import StaticNames
from kubechronicle.actors.admission.state import CurrentManifests
from kubechronicle.actors.allocation.services import ServiceAllocator
from kubechronicle.actors.conversion.conversions import Conversions
from kubechronicle.actors.definitions.current import CurrentRegistry
from kubechronicle.actors.definitions.description import Description
from kubechronicle.actors.definitions.past import PastDefinitions
from kubechronicle.actors.loops.log_losses import LogLosses
from kubechronicle.actors.reading.reads import Reads
from kubechronicle.actors.resource_actors import ResourceActors
from kubechronicle.actors.store import Store
from kubechronicle.actors.supervisor import ChildSpec
from kubechronicle.actors.tree import server_tree
from kubechronicle.actors.writing.writes import Writes
from kubechronicle.api.registry import discovery
from kubechronicle.eventlog.appender import Appender
from kubechronicle.eventlog.consistency import ConsistentRead
from kubechronicle.eventlog.log import RevisionLog
from kubechronicle.eventlog.measured_log import MeasuredLog
from kubechronicle.eventlog.sole_appender import SoleAppender
from kubechronicle.eventlog.tail import Tail
from kubechronicle.eventlog.views.rereading import Rereading
from kubechronicle.eventlog.views.views import Views
from kubechronicle.http.app import build_application
from kubechronicle.http.audit.reads import ReadRecorder
from kubechronicle.http.authorization.current_authorizers import Authorization
from kubechronicle.http.authorization.webhooks import WebhookMaker
from kubechronicle.http.egress.egress import Egress
from kubechronicle.http.health import Check, Unhealthy
from kubechronicle.http.outgoing.client import Outgoing
from kubechronicle.http.outgoing.image_reviews import ImageWebhookClient
from kubechronicle.http.outgoing.networks import Network, Networks
from kubechronicle.http.outgoing.service_addresses import SERVICE_NAME, ServiceAddresses
from kubechronicle.http.outgoing.webhooks import Webhooks
from kubechronicle.http.wire.listener import Server
from kubechronicle.ops.server.access import authentication_chain, judgement_of, jwt_authenticators, permission_check
from kubechronicle.ops.server.admission_manifests import ReloadedManifests
from kubechronicle.ops.server.assembly import Assembly
from kubechronicle.ops.server.audit import audit_parts
from kubechronicle.ops.server.collectors import process
from kubechronicle.ops.server.collectors.admission import AdmissionCollector
from kubechronicle.ops.server.collectors.allocation import AllocationCollector
from kubechronicle.ops.server.collectors.queues import QueueCollector
from kubechronicle.ops.server.collectors.storage import StorageCollector
from kubechronicle.ops.server.controllers import control_loops, definition_loops, led
from kubechronicle.ops.server.encryption.encryption import Encryption
from kubechronicle.ops.server.outside.aggregation import aggregated_servers, availability_loop
from kubechronicle.ops.server.outside.tracing import tracing_parts
from kubechronicle.ops.server.own_objects import own_objects
from kubechronicle.ops.server.plan import Plan
from kubechronicle.ops.server.provision import create_namespace
from kubechronicle.ops.server.server_metrics import readings

NEEDED: Final = (
    "namespaces",
    "serviceaccounts",
    "resourcequotas",
    "limitranges",
    *(f"{name}.rbac.authorization.k8s.io" for name in ("clusterroles", "clusterrolebindings", "roles", "rolebindings")),
    *(f"{name}webhookconfigurations.admissionregistration.k8s.io" for name in ("mutating", "validating")),
    *(f"{name}admissionpolicies.admissionregistration.k8s.io" for name in ("mutating", "validating")),
    *(f"{name}admissionpolicybindings.admissionregistration.k8s.io" for name in ("mutating", "validating")),
    "customresourcedefinitions.apiextensions.k8s.io",
    "apiservices.apiregistration.k8s.io",
    *(f"{name}.flowcontrol.apiserver.k8s.io" for name in ("flowschemas", "prioritylevelconfigurations")),
    "priorityclasses.scheduling.k8s.io",
    *(f"{name}.networking.k8s.io" for name in ("servicecidrs", "ipaddresses")),
    "services",
    "endpoints",
    "leases.coordination.k8s.io",
)
"""Resources of the server's own rules and loops. While one cannot be decrypted, a server does not start, or is not
ready."""


def assemble(stored_log: RevisionLog, plan: Plan, encryption: Encryption | None = None) -> Assembly:
    """Return a server over a log. ``encryption``: of the contents in the log; it runs already."""
    encryption = encryption or Encryption(None)
    measured = MeasuredLog(stored_log)
    revision_log = encryption.over(measured)
    description = Description()
    describe = description.describe
    views = Views(describe, description.plain)
    tail = Tail(revision_log, views)
    rereading = Rereading(views, NEEDED)
    encryption.contents.on_change(rereading.notice_change)
    appender = Appender(revision_log, tail)

    def revision_of(resource: str, namespace: str, name: str) -> int:
        entry = views[resource].get(namespace, name)
        return entry.revision if entry is not None else 0

    actors = ResourceActors(current_revision=revision_of, submit=appender.submit)
    epoch = plan.postmaster_epoch
    sole = SoleAppender(revision_log, tail, epoch) if epoch is not None else None
    reads = Reads(
        log=revision_log, views=views, consistency=ConsistentRead(revision_log, tail, sole), describe=describe
    )
    egress = Egress(plan.egress)
    outgoing = Outgoing(networks=egress.networks)
    webhooks = WebhookMaker(outgoing)
    authorization = Authorization(plan.authorization, views, webhooks.webhooks, server=plan.server)
    current = CurrentRegistry(plan.registry, views, description)
    addresses = _service_addresses(reads, egress.networks, endpoints_first=plan.aggregator_routing)
    ask_webhook = Webhooks(outgoing, addresses)

    async def provide_namespace(name: str) -> None:
        await create_namespace(store, name)

    manifests = ReloadedManifests(plan.manifests, plan.server) if plan.manifests else None
    state = _state(
        plan, reads, authorization, current, ask_webhook, provide_namespace, manifests.current if manifests else {}
    )
    services = ServiceAllocator(plan.services)
    storage_hooks: tuple[StorageHook, ...] = (services, AdminAccess(), EscalationCheck(authorization.rbac))
    if not plan.allow_privileged:
        storage_hooks = (*storage_hooks, RefusedPrivilege())
    if plan.static_names:
        storage_hooks = (*storage_hooks, StaticNames())
    admission = AdmissionChain(plugins.plugins_in_order(plan.admission_plugins, plan.admission), state, storage_hooks)
    conversions = Conversions(ask_webhook)
    writes = Writes(
        reads=reads,
        actors=actors,
        admission=admission,
        describe=describe,
        conversions=conversions,
        is_stale=revision_log.is_stale if encryption.contents.configured else None,
    )
    past = PastDefinitions(plan.registry, current, reads)
    store = Store(served=current, past=past, reads=reads, writes=writes, conversions=conversions)
    own = own_objects(plan, store)
    jwt = jwt_authenticators(plan, outgoing)
    authentication = authentication_chain(plan, views, own.legacy_tokens, jwt, outgoing)
    assembly: Assembly
    checks = [
        *_log_checks(tail),
        *encryption.checks(),
        *own.checks(),
        Check("shutdown", lambda: _check_not_draining(assembly), live=False),
    ]
    backends, aggregation = aggregated_servers(plan, store, outgoing)
    audit = audit_parts(plan.audit, outgoing, server=plan.server)
    recorder = _read_recorder(plan, reads)
    tracing = tracing_parts(plan.tracing, outgoing, server=plan.server, version=plan.http.server_version)
    application = build_application(
        store,
        authentication,
        authorization.chain,
        checks,
        plan.http,
        plan.issuer,
        aggregation,
        egress.networks,
        audit=audit.audit if audit is not None else None,
        tracing=tracing.tracing if tracing is not None else None,
        recorder=recorder,
    )

    async def run_http(*, task_status: trio.TaskStatus[Server]) -> None:
        await assembly.serve_http(task_status=task_status)

    availability, unavailable = availability_loop(store, backends)
    loops = [
        *own.children(),
        ChildSpec(name="log-losses", run=LogLosses(store, tail).run),
        *_led_loops(plan, store, current),
        *led(plan.leading, [availability]),
        *authorization.children(),
    ]
    if application.flow_control is not None:
        loops.append(ChildSpec(name="flow-control", run=application.flow_control.run))
    outside = [ChildSpec(name="egress", run=egress.run), ChildSpec(name="outgoing", run=outgoing.run)]
    outside += tracing.children if tracing is not None else []
    outside.append(ChildSpec(name="rereading", run=rereading.run))
    outside.append(ChildSpec(name="kept-connections", run=application.kept.run))
    outside.append(ChildSpec(name="aggregated-discovery", run=aggregation.discovery.run))
    if manifests is not None:
        outside.append(ChildSpec(name="admission-manifests", run=manifests.run))
    if audit is not None:
        outside += audit.children()
    if recorder is not None and plan.reads is not None:
        reloaded = recorder.reloaded(plan.reads.file, plan.reads.content)
        outside += [ChildSpec(name="reads", run=recorder.run), ChildSpec(name="reads-policy", run=reloaded.run)]
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
    _register_metrics(assembly, webhooks, services, state)
    registry = application.metrics.registry
    registry.register(StorageCollector(measured, views, reads.listed))
    registry.register(QueueCollector(store.queues))
    process.register(registry, discovery.version_info(plan.http.server_version))
    audited = (audit.audit.metrics, audit.reloads) if audit is not None else ()
    if recorder is not None:
        audited = (*audited, recorder)
    if manifests is not None:
        audited = (*audited, manifests.metrics)
    for collector in (unavailable, outgoing.metrics, egress.metrics, *encryption.collectors(), *audited):
        application.metrics.registry.register(collector)
    return assembly


def _read_recorder(plan: Plan, reads: Reads) -> ReadRecorder | None:
    if plan.reads is None:
        return None
    server = plan.server if plan.worker is None else f"{plan.server}/{plan.worker}"
    return ReadRecorder(
        reads.log.recorded, plan.reads.policy, revision=lambda: reads.applied, server=server, days=plan.reads.days
    )


def _state(
    plan: Plan,
    reads: Reads,
    authorization: Authorization,
    current: CurrentRegistry,
    ask: Webhooks,
    provide_namespace: Callable[[str], Awaitable[None]],
    manifests: Mapping[str, CurrentManifests],
) -> State:
    """Return the state that admission decides on."""
    return State(
        peek=reads.peek_for_rules,
        entries=reads.entries_for_rules,
        permits=permission_check(authorization.chain),
        judge=judgement_of(authorization.chain),
        registry=lambda: current.registry,
        ask=ask,
        image_reviews=ImageWebhookClient(plan.image_webhook, ask.outgoing) if plan.image_webhook else None,
        ask_with_credentials={name: ask.with_users(users) for name, users in plan.webhook_users.items()},
        provide_namespace=provide_namespace,
        manifests=manifests,
    )


def _led_loops(plan: Plan, store: Store, current: CurrentRegistry) -> list[ChildSpec]:
    """Return the loops that run while this server leads."""
    sign = plan.issuer.signing.sign if plan.issuer is not None else None
    controllers = control_loops(plan.controllers, store, root_ca=plan.root_ca, sign=sign, event_ttl=plan.event_ttl)
    return led(plan.leading, [*definition_loops(store, current), *controllers])


def _register_metrics(assembly: Assembly, webhooks: WebhookMaker, services: ServiceAllocator, state: State) -> None:
    plan, own, metrics = assembly.plan, assembly.own, assembly.application.metrics
    metrics.worker = plan.worker
    metrics.add_readings(lambda: readings(assembly))
    for collector in (*assembly.authorization.collectors(), webhooks.metrics):
        metrics.registry.register(collector)
    if assembly.jwt is not None:
        assembly.jwt.register(metrics.registry)
    metrics.registry.register(AdmissionCollector(state.metrics))
    metrics.registry.register(
        AllocationCollector(services.metrics, own.cluster_ips.metrics, own.node_ports.metrics, plan.services, state)
    )


def _service_addresses(reads: Reads, networks: Networks, *, endpoints_first: bool) -> ServiceAddresses:
    proxied = networks.is_proxied(Network.CLUSTER)
    return ServiceAddresses(
        partial(_service, reads), partial(_slices, reads), endpoints_first=endpoints_first, tried=not proxied
    )


def _service(reads: Reads, namespace: str, name: str) -> Mapping[str, Any] | None:
    entry = reads.peek("services", namespace, name)
    return None if entry is None else entry.object()


def _slices(reads: Reads, namespace: str, name: str) -> list[Mapping[str, Any]]:
    entries = reads.entries("endpointslices.discovery.k8s.io", namespace)
    return [entry.object() for entry in entries if entry.labels.get(SERVICE_NAME) == name]


def _log_checks(tail: Tail) -> list[Check]:
    def check_log() -> None:
        if not tail.healthy:
            raise Unhealthy(tail.outages.problem() or "the log has not been read yet")

    def check_views() -> None:
        check_log()
        if unreadable := [name for name in NEEDED if tail.views[name].unreadable]:
            raise Unhealthy(f"objects of {', '.join(unreadable)} cannot be decrypted")

    return [Check("log", check_log, live=False), Check("informer-sync", check_views, live=False)]


def _check_not_draining(assembly: Assembly) -> None:
    if assembly.draining:
        raise Unhealthy("the server is shutting down")
