"""The composition of a server from its parts, over any RevisionLog: for `kubechronicle serve` and in-process tests.

There is no settings file, no Postgres and no signal here: the plan holds plain values, and the log is open.
"""

from __future__ import annotations

import socket
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import trio
from prometheus_client.registry import Collector

from kubechronicle.actors.admission.state import AdmissionState
from kubechronicle.actors.allocation.services import ServiceAllocator
from kubechronicle.actors.branches.branches import Branches
from kubechronicle.actors.branches.lifetime import BranchCreation, BranchExpiry
from kubechronicle.actors.definitions.current import CurrentRegistry
from kubechronicle.actors.definitions.past import PastDefinitions
from kubechronicle.actors.history.tags import TagTargets, moments_of
from kubechronicle.actors.loops.event_recorder import LogLosses
from kubechronicle.actors.reading.conversions import Conversions
from kubechronicle.actors.store import Store
from kubechronicle.actors.supervisor import ChildSpec
from kubechronicle.actors.tree import server_tree
from kubechronicle.actors.writing.writes import Writes
from kubechronicle.api.builtin.kinds import KindRules
from kubechronicle.api.registry import discovery
from kubechronicle.api.values.caches import CACHES
from kubechronicle.eventlog.log import RevisionLog
from kubechronicle.eventlog.reset import Reset
from kubechronicle.eventlog.restarts import TaskFailures
from kubechronicle.http.aggregation.discovery import Aggregation
from kubechronicle.http.aggregation.foreign_objects import RemoteObjects
from kubechronicle.http.app import HttpApplication, Recorders, build_application
from kubechronicle.http.audit.accesses import AccessRecorder
from kubechronicle.http.audit.audit import AuditParts
from kubechronicle.http.audit.reads import ReadRecorder
from kubechronicle.http.authentication.token_issuer import external_keys
from kubechronicle.http.authorization.current_authorizers import Authorization
from kubechronicle.http.authorization.webhooks import WebhookMaker
from kubechronicle.http.health import FailingPart, HealthCheck, Unhealthy
from kubechronicle.http.outgoing.client import Outgoing
from kubechronicle.http.outgoing.service_addresses import ServiceAddresses
from kubechronicle.http.outgoing.webhooks import Webhooks
from kubechronicle.http.proxying.egress import Egress
from kubechronicle.http.stalls import StallWatch
from kubechronicle.http.wire.listener import Server
from kubechronicle.ops.server.access import authentication_chain, jwt_authenticators
from kubechronicle.ops.server.admission import create_namespace
from kubechronicle.ops.server.admission_manifests import ReloadedManifests
from kubechronicle.ops.server.assembly import Assembly
from kubechronicle.ops.server.audit import access_recorder, audit_parts, read_recorder
from kubechronicle.ops.server.collectors import process
from kubechronicle.ops.server.collectors.admission import AdmissionCollector, RuleCollector
from kubechronicle.ops.server.collectors.allocation import AllocationCollector
from kubechronicle.ops.server.collectors.queues import LargeWorkCollector, QueueCollector
from kubechronicle.ops.server.collectors.server_metrics import readings
from kubechronicle.ops.server.collectors.storage import StorageCollector
from kubechronicle.ops.server.controllers import control_loops, definition_loops, gated_loops, led
from kubechronicle.ops.server.databases.branch_parts import BranchMaker, BranchRules
from kubechronicle.ops.server.databases.units import OtherDatabase, Storage, Unit, make_storage
from kubechronicle.ops.server.encryption.encryption import Encryption
from kubechronicle.ops.server.outside.aggregation import aggregated_servers, availability_loop, foreign_objects
from kubechronicle.ops.server.outside.services import judge_of, service_addresses
from kubechronicle.ops.server.outside.tracing import TracingParts, tracing_parts
from kubechronicle.ops.server.own_objects import OwnObjects, is_own_lease, own_objects
from kubechronicle.ops.server.plan import Plan
from kubechronicle.ops.server.simulation.simulated import simulation_loops

if TYPE_CHECKING:
    from kubechronicle.http.authentication.oidc.authenticator import JwtAuthenticators


@dataclass(frozen=True, slots=True, kw_only=True)
class _Parts:
    """The parts of a server, without HTTP. Those that are None are switched off."""

    plan: Plan
    encryption: Encryption
    storage: Storage
    egress: Egress
    outgoing: Outgoing
    addresses: ServiceAddresses
    webhooks: WebhookMaker
    authorization: Authorization
    current: CurrentRegistry
    custom_rules: RuleCollector
    services: ServiceAllocator
    state: AdmissionState
    store: Store
    own: OwnObjects
    jwt: JwtAuthenticators | None
    manifests: ReloadedManifests | None
    audit: AuditParts | None
    recorder: ReadRecorder | None
    accesses: AccessRecorder | None
    tracing: TracingParts | None
    branches: Branches


def assemble(
    stored_log: RevisionLog,
    plan: Plan,
    encryption: Encryption | None = None,
    others: Sequence[OtherDatabase] = (),
    failures: TaskFailures | None = None,
) -> Assembly:
    """Return a server over a log. ``encryption``: of the contents in the log; it runs already.

    ``others``: the logs of the resources that are not in the first one.
    ``failures``: the account of the tasks that run already.
    """
    encryption = encryption or Encryption(None)
    stalls = StallWatch()
    failures = failures if failures is not None else TaskFailures()
    made = make_storage(stored_log, encryption, epoch=plan.postmaster_epoch, others=others, failures=failures)
    parts = _parts(made, plan, encryption)
    storage, store, own = parts.storage, parts.store, parts.own
    main = storage.main
    assembly: Assembly
    draining = HealthCheck("shutdown", lambda: assembly.check_not_draining(), live=False)
    backends, aggregation = aggregated_servers(plan, store, parts.outgoing, parts.addresses)
    application = _application(parts, aggregation, draining, failures)

    async def run_http(*, task_status: trio.TaskStatus[Server]) -> None:
        await assembly.serve_http(task_status=task_status)

    availability, unavailable = availability_loop(store, backends)
    tree = server_tree(
        tail=main.tail,
        appender=main.appender,
        others=[(unit.name, unit.tail, unit.appender) for unit in storage.others],
        actors=storage.actors,
        outside=_outside(parts, application, aggregation),
        loops=[
            ChildSpec(name="stalls", run=stalls.run),
            *_loops(parts, application, availability, foreign_objects(store, backends, aggregation)),
        ],
        http=ChildSpec(name="http", run=run_http),
        failures=failures,
    )
    assembly = Assembly(
        plan=plan,
        store=store,
        storage=storage,
        own=own,
        authorization=parts.authorization,
        application=application,
        outgoing=parts.outgoing,
        tree=tree,
        jwt=parts.jwt,
    )
    for unit in storage.every:
        unit.views.on_erased(CACHES.forget_all)
    _register_metrics(assembly, parts, (unavailable, stalls.durations, stalls.cpu))
    return assembly


def _application(
    parts: _Parts, aggregation: Aggregation, draining: HealthCheck, failures: TaskFailures
) -> HttpApplication:
    """Return the filters and handlers of a server."""
    plan, storage, own = parts.plan, parts.storage, parts.own
    return build_application(
        parts.store,
        authentication_chain(plan, storage.main.views, own.legacy_tokens, parts.jwt, parts.outgoing),
        parts.authorization.chain,
        [
            *_log_checks(storage.every),
            *parts.encryption.checks(),
            *(own.checks() if not plan.http.reads_only else ()),
            draining,
        ],
        plan.http,
        plan.issuer,
        aggregation,
        parts.egress.networks,
        recorders=Recorders(
            audit=parts.audit.audit if parts.audit is not None else None,
            reads=parts.recorder,
            accesses=parts.accesses,
            tracing=parts.tracing.tracing if parts.tracing is not None else None,
        ),
        branches=parts.branches,
        reset=_reset(storage.main, plan),
        troubles=partial(_troubles, failures, plan),
    )


def _reset(main: Unit, plan: Plan) -> Reset | None:
    return Reset(main.log, main.appender, is_own_lease, plan.forget) if plan.forget is not None else None


def _parts(storage: Storage, plan: Plan, encryption: Encryption) -> _Parts:
    reads, views = storage.reads, storage.main.views
    egress = Egress(plan.egress, judge_of(plan))
    outgoing = Outgoing(networks=egress.networks)
    webhooks = WebhookMaker(outgoing)
    authorization = Authorization(plan.authorization, views, webhooks.webhooks, server=plan.server, gates=plan.features)
    custom_rules = RuleCollector()
    current = CurrentRegistry(plan.registry, views, storage.description, custom_rules.measures)
    addresses = service_addresses(reads, egress.networks, endpoints_first=plan.aggregator_routing)
    ask = Webhooks(outgoing, addresses)

    async def provide_namespace(name: str) -> None:
        await create_namespace(store, name)

    manifests = ReloadedManifests(plan.manifests, plan.server) if plan.manifests else None
    given = manifests.current if manifests is not None else {}
    rules = BranchRules(plan, authorization, ask, given)
    state = rules.state(reads, current, provide_namespace, storage.siblings)
    services = ServiceAllocator(plan.services, strict=plan.features.enabled("StrictIPCIDRValidation"))
    conversions = Conversions(ask)
    writes = Writes(
        reads=reads,
        actors=storage.actors,
        admission=rules.chain(
            state, [services, TagTargets(moments_of(reads)), BranchCreation(reads, storage.main.needed)]
        ),
        describe=storage.description.describe,
        conversions=conversions,
        is_stale=storage.is_stale if encryption.contents.configured else None,
        rules=KindRules(plan.features),
    )
    past = PastDefinitions(plan.registry, current, reads)
    store = Store(served=current, past=past, reads=reads, writes=writes, conversions=conversions)
    stored = storage.main.measured
    make_branch = BranchMaker(
        rules=rules, stored=stored, encryption=encryption, reads=reads, past=past, conversions=conversions
    )
    return _Parts(
        plan=plan,
        encryption=encryption,
        storage=storage,
        egress=egress,
        outgoing=outgoing,
        addresses=addresses,
        webhooks=webhooks,
        authorization=authorization,
        current=current,
        custom_rules=custom_rules,
        services=services,
        state=state,
        store=store,
        own=own_objects(plan, store),
        jwt=jwt_authenticators(plan, outgoing),
        manifests=manifests,
        audit=audit_parts(plan.audit, outgoing, server=plan.server),
        recorder=read_recorder(plan.reads, reads, plan.name),
        accesses=access_recorder(plan.accesses, store, plan.name),
        tracing=tracing_parts(plan.tracing, outgoing, server=plan.server, version=plan.http.server_version),
        branches=Branches(reads, make_branch),
    )


def _outside(parts: _Parts, application: HttpApplication, aggregation: Aggregation) -> list[ChildSpec]:
    """Return the tasks that deal with the outside: other servers, and files."""
    children = [ChildSpec(name="egress", run=parts.egress.run), ChildSpec(name="outgoing", run=parts.outgoing.run)]
    children += parts.tracing.children if parts.tracing is not None else []
    children += (
        *(ChildSpec(name=_of("rereading", unit), run=unit.rereading.run) for unit in parts.storage.every),
        ChildSpec(name="kept-connections", run=application.kept.run),
        ChildSpec(name="aggregated-discovery", run=aggregation.discovery.run),
        ChildSpec(name="branches", run=parts.branches.run),
    )
    if parts.manifests is not None:
        children.append(ChildSpec(name="admission-manifests", run=parts.manifests.run))
    if parts.audit is not None:
        children += parts.audit.children()
    recorder, plan = parts.recorder, parts.plan.reads
    if recorder is not None and plan is not None:
        reloaded = recorder.reloaded(plan.file, plan.content)
        children += [ChildSpec(name="reads", run=recorder.run), ChildSpec(name="reads-policy", run=reloaded.run)]
    accesses, of_accesses = parts.accesses, parts.plan.accesses
    if accesses is not None and of_accesses is not None:
        reloaded = accesses.reloaded(of_accesses.file, of_accesses.content)
        children += [ChildSpec(name="accesses", run=accesses.run), ChildSpec(name="record-policy", run=reloaded.run)]
    if parts.jwt is not None:
        children.append(ChildSpec(name="jwt-issuers", run=parts.jwt.run))
    children += [
        ChildSpec(name=f"jwt-signer-{number}" if number else "jwt-signer", run=each.run)
        for number, each in enumerate(external_keys(parts.plan.issuer))
    ]
    return children


def _troubles(failures: TaskFailures, plan: Plan) -> list[FailingPart]:
    """Return the tasks of this process that fail now, and the worker processes that do not serve."""
    down = plan.workers.down if plan.workers is not None else ()
    return [
        *(FailingPart(f"task/{each.name}", essential=each.essential) for each in failures.failing()),
        *(FailingPart(f"worker/{number}") for number in down),
    ]


def _of(task: str, unit: Unit) -> str:
    """Return the name of a task that each log has."""
    return f"{task} of {unit.name}" if unit.name else task


def _loops(
    parts: _Parts, application: HttpApplication, availability: ChildSpec, foreign: RemoteObjects
) -> list[ChildSpec]:
    plan = parts.plan
    if plan.http.reads_only:
        return parts.authorization.children()
    loops = [
        *parts.own.children(),
        *(
            ChildSpec(name=_of("log-losses", unit), run=LogLosses(parts.store, unit.tail).run)
            for unit in parts.storage.every
        ),
        *_led_loops(plan, parts.store, parts.current, foreign),
        *led(plan.leading, [availability, ChildSpec(name="branch-expiry", run=BranchExpiry(parts.store).run)]),
        *parts.authorization.children(),
    ]
    if application.flow_control is not None:
        loops.append(ChildSpec(name="flow-control", run=application.flow_control.run, essential=True))
    return loops


def _led_loops(plan: Plan, store: Store, current: CurrentRegistry, foreign: RemoteObjects) -> list[ChildSpec]:
    """Return the loops that run while this server leads."""
    signing = plan.issuer.signing if plan.issuer is not None else None
    sign = signing.sign if signing is not None else None
    controllers = control_loops(
        plan.controllers, store, root_ca=plan.root_ca, sign=sign, event_ttl=plan.event_ttl, foreign=foreign
    )
    own = [*definition_loops(store, current), *gated_loops(store, plan.features, socket.gethostname())]
    return led(plan.leading, [*own, *controllers, *simulation_loops(plan.simulation, store)])


def _register_metrics(assembly: Assembly, parts: _Parts, more: Iterable[Collector]) -> None:
    plan, own, metrics = parts.plan, parts.own, assembly.application.metrics
    metrics.worker = plan.worker
    metrics.add_readings(lambda: readings(assembly))
    if parts.jwt is not None:
        parts.jwt.register(metrics.registry)
    process.register(
        metrics.registry, discovery.version_info(plan.http.server_version, plan.features.versions), plan.features
    )
    allocators = (parts.services.metrics, own.cluster_ips.metrics, own.node_ports.metrics)
    allocation = AllocationCollector(*allocators, plan.services, parts.state)
    metrics.count_ahead(allocation.count)
    collectors: list[Collector] = [
        *more,
        *parts.authorization.collectors(),
        parts.webhooks.metrics,
        parts.custom_rules,
        AdmissionCollector(parts.state.metrics),
        allocation,
        StorageCollector(
            [unit.measured for unit in parts.storage.every],
            [unit.views for unit in parts.storage.every],
            [reads.listed for reads in parts.storage.reads.logs],
        ),
        QueueCollector(parts.store.queues),
        LargeWorkCollector(parts.store.writes.large),
        parts.outgoing.metrics,
        parts.egress.metrics,
        *parts.encryption.collectors(),
        *(each for keys in external_keys(plan.issuer) for each in keys.collectors()),
    ]
    if parts.audit is not None:
        collectors += (parts.audit.audit.metrics, parts.audit.reloads)
    collectors += [parts.recorder] if parts.recorder is not None else []
    collectors += [parts.accesses] if parts.accesses is not None else []
    collectors += [parts.manifests.metrics] if parts.manifests is not None else []
    for collector in collectors:
        metrics.registry.register(collector)


def _log_checks(units: Sequence[Unit]) -> list[HealthCheck]:
    def check_log(unit: Unit) -> None:
        if not unit.tail.healthy:
            raise Unhealthy(unit.tail.availability.problem() or "the log has not been read yet")

    def check_views() -> None:
        check_log(units[0])
        if unreadable := [name for unit in units for name in unit.rereading.missing()]:
            raise Unhealthy(f"objects of {', '.join(unreadable)} cannot be decrypted")

    def check_writable(unit: Unit) -> None:
        if problem := unit.tail.availability.append_problem():
            raise Unhealthy(problem)

    # As kube-apiserver's etcd and etcd-override-N.
    names = ["log", *(f"log-override-{number}" for number in range(len(units) - 1))]
    checks = [HealthCheck(name, partial(check_log, unit), live=False) for name, unit in zip(names, units, strict=True)]
    checks += [
        HealthCheck(f"{name}-writable", partial(check_writable, unit), live=False)
        for name, unit in zip(names, units, strict=True)
    ]
    return [*checks, HealthCheck("informer-sync", check_views, live=False)]
