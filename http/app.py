"""Assembly of the HTTP application: the filters around the router, the handlers' backend, the health checks."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final

from kubechronicle.actors.branches.branches import Branches
from kubechronicle.actors.history.verdicts import AuditedPolicies
from kubechronicle.actors.store import Store
from kubechronicle.api.codecs import negotiate
from kubechronicle.api.features.gates import FeatureGates
from kubechronicle.api.flow_control.queues import SIZES_GATE
from kubechronicle.api.openapi.schemas import SchemaChoices
from kubechronicle.api.registry import discovery
from kubechronicle.api.values.objects import Object
from kubechronicle.eventlog.reset import Reset
from kubechronicle.http import filters
from kubechronicle.http.aggregation.discovery import Aggregation
from kubechronicle.http.audit.accesses import AccessRecorder
from kubechronicle.http.audit.audit import Audit
from kubechronicle.http.audit.reads import ReadRecorder
from kubechronicle.http.authentication.chain import AuthenticationChain
from kubechronicle.http.authentication.token_issuer import ServiceAccountIssuer
from kubechronicle.http.authentication.user import ANONYMOUS_GATE
from kubechronicle.http.authorization import impersonation
from kubechronicle.http.authorization.decision import AuthorizationChain
from kubechronicle.http.edge import EdgeSettings
from kubechronicle.http.flow_control.control import FlowControl
from kubechronicle.http.flow_control.metrics import FlowControlMetrics
from kubechronicle.http.handlers.backend import Backend
from kubechronicle.http.handlers.discovery import Discovery, openid_pages
from kubechronicle.http.handlers.drain import Drain
from kubechronicle.http.handlers.openapi import OpenApi
from kubechronicle.http.handlers.responses import EncoderChoice
from kubechronicle.http.handlers.ui import Ui
from kubechronicle.http.health import FailingPart, Health, HealthCheck
from kubechronicle.http.messages import Application
from kubechronicle.http.metrics import MetricFilter, Metrics
from kubechronicle.http.operators import OperatorPages, Slis
from kubechronicle.http.outgoing.networks import DIRECT, Networks
from kubechronicle.http.proxying.kept_streams import KeptStreams
from kubechronicle.http.proxying.kubelets import Kubelets, KubeletSettings
from kubechronicle.http.representation.compression import Compression
from kubechronicle.http.representation.encoding_cache import MOST_BYTES, EncodingCache
from kubechronicle.http.router import OwnPages, is_served, router

if TYPE_CHECKING:
    from kubechronicle.http.tracing import Tracing


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpSettings:
    """Settings of the application. Times are in seconds; a limit of 0 means none.

    ``server_address``: host:port for clients, in discovery.
    ``features``: the feature gates, with the emulated version.
    ``encoding_cache``: bytes of the cache of encoded objects and lists.
    ``ui``: serve the web page. ``logs``: serve the files of /var/log.
    ``flags``: the values of the flags, for /flagz. ``configuration``: the same as JSON, for /configz.
    ``profiling``: offer CPU profiles.
    ``kubelets``: connections to the kubelets of nodes.
    ``livez_grace``: seconds after the start in which /livez does not fail.
    ``reads_only``: the history that the server has, of one that changes nothing; "": it takes writes.
    ``session_rate``: bytes a second in each direction of a session; 0: no limit.
    """

    server_address: str
    server_version: str
    features: FeatureGates = field(default_factory=FeatureGates)
    request_timeout: float = 60.0
    min_request_timeout: float = 1800.0
    max_requests_inflight: int = 400
    max_mutating_requests_inflight: int = 200
    priority_and_fairness: bool = True
    profiling: bool = True
    flags: Mapping[str, str] = field(default_factory=dict)
    configuration: Mapping[str, object] = field(default_factory=dict)
    encoding_cache: int = MOST_BYTES
    ui: bool = False
    logs: bool = False
    kubelets: KubeletSettings = field(default_factory=KubeletSettings)
    edge: EdgeSettings = field(default_factory=EdgeSettings)
    livez_grace: float = 0.0
    session_rate: int = 0
    shown_metrics: MetricFilter = field(default_factory=MetricFilter)
    reads_only: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorders:
    """Records of requests. None: nothing is recorded.

    ``audit``: of requests. ``reads``: of reads, in the database. ``accesses``: of refusals, sessions and tokens.
    """

    audit: Audit | None = None
    reads: ReadRecorder | None = None
    accesses: AccessRecorder | None = None
    tracing: Tracing | None = None


NO_RECORDERS: Final = Recorders()


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpApplication:
    """The assembled application. ``drain.begin()`` ends the watches; ``metrics`` accepts further readings.

    ``health``: its readiness, as /readyz tells it.
    ``flow_control``: priority and fairness, to be run beside the server; None: it is off.
    ``kept``: idle connections of proxied requests, to be run beside the server.
    """

    application: Application
    drain: Drain
    health: Health
    metrics: Metrics
    flow_control: FlowControl | None
    kept: KeptStreams


def build_application(
    store: Store,
    authentication: AuthenticationChain,
    authorization: AuthorizationChain,
    checks: Sequence[HealthCheck],
    settings: HttpSettings,
    issuer: ServiceAccountIssuer | None = None,
    aggregation: Aggregation | None = None,
    networks: Networks = DIRECT,
    *,
    recorders: Recorders = NO_RECORDERS,
    branches: Branches | None = None,
    reset: Reset | None = None,
    troubles: Callable[[], Iterable[FailingPart]] = tuple,
) -> HttpApplication:
    """Assemble the application.

    ``issuer``: of service account tokens; None if none are issued.
    ``aggregation``: the API groups of other servers; None: there are none.
    ``branches``: the branches that are open here; None: there are none.
    ``reset``: of a server for tests; None: nobody may reset this one.
    ``troubles``: what fails now, for /readyz.
    """
    metrics, drain = Metrics(settings.shown_metrics), Drain()
    live_from = time.monotonic() + settings.livez_grace if settings.livez_grace else 0.0
    health = Health(checks, live_from, troubles)
    ui = Ui() if settings.ui else None
    version = discovery.version_info(settings.server_version, settings.features.versions)
    pages = OperatorPages(
        version,
        settings.flags,
        Slis(health),
        profiling=settings.profiling,
        configuration=settings.configuration,
        features=settings.features,
    )
    documents, openapi = _documents(store, settings, version, issuer, health, ui, pages)
    backend = _backend(store, authentication, authorization, settings, issuer, networks, metrics, drain, branches)
    metrics.register(authentication.metrics)
    flow_control = _flow_control(store, settings, metrics)
    services = _services(store, settings, authentication, authorization, metrics, drain, flow_control, recorders)
    own = OwnPages(
        health=health,
        metrics=metrics,
        ui=ui,
        flow_control=flow_control,
        pages=pages,
        reset=reset,
        logs=settings.logs,
    )
    handler = router(own, documents, openapi, backend, aggregation=aggregation, reads_only=settings.reads_only)
    application = filters.build(services, handler)
    return HttpApplication(
        application=application,
        drain=drain,
        health=health,
        metrics=metrics,
        flow_control=flow_control,
        kept=backend.kept,
    )


def _services(
    store: Store,
    settings: HttpSettings,
    authentication: AuthenticationChain,
    authorization: AuthorizationChain,
    metrics: Metrics,
    drain: Drain,
    flow_control: FlowControl | None,
    recorders: Recorders,
) -> filters.Services:
    """Return what the filters need."""
    return filters.Services(
        metrics=metrics,
        authentication=authentication,
        authorization=authorization,
        is_served=partial(is_served, store),
        formats=negotiate.WITH_CBOR if settings.features.enabled(negotiate.CBOR_GATE) else negotiate.WITHOUT_CBOR,
        ends_anonymous=settings.features.enabled(ANONYMOUS_GATE),
        constrained_impersonation=settings.features.enabled(impersonation.GATE),
        catch_up=store.reads.wait_consistent,
        request_timeout=settings.request_timeout,
        max_requests_inflight=settings.max_requests_inflight,
        max_mutating_requests_inflight=settings.max_mutating_requests_inflight,
        flow_control=flow_control,
        tracing=recorders.tracing,
        audit=recorders.audit,
        reads=recorders.reads,
        accesses=recorders.accesses,
        edge=settings.edge,
        drain=drain,
    )


def _documents(
    store: Store,
    settings: HttpSettings,
    version: Object,
    issuer: ServiceAccountIssuer | None,
    health: Health,
    ui: Ui | None,
    operators: OperatorPages,
) -> tuple[Discovery, OpenApi]:
    """Return discovery, with the paths of all pages, and the OpenAPI documents."""

    def paths() -> list[str]:
        pages = [*(ui.paths() if ui is not None else []), *(["/logs"] if settings.logs else [])]
        others = [*openapi.paths(), *health.paths(), "/metrics", *operators.paths()]
        return sorted([*documents.paths(), *others, *pages])

    tokens = openid_pages(issuer, settings.server_address) if issuer is not None else {}
    documents = Discovery(
        version=version,
        features=settings.features,
        server_address=settings.server_address,
        paths=paths,
        openid_pages=tokens,
    )
    openapi = OpenApi(
        lambda: store.registry,
        version=version["gitVersion"],
        pages=documents.paths(),
        choices=SchemaChoices.of(settings.features),
    )
    return documents, openapi


def _backend(
    store: Store,
    authentication: AuthenticationChain,
    authorization: AuthorizationChain,
    settings: HttpSettings,
    issuer: ServiceAccountIssuer | None,
    networks: Networks,
    metrics: Metrics,
    drain: Drain,
    branches: Branches | None,
) -> Backend:
    """Return the parts that the handlers of resources share."""
    logs = store.reads.logs
    encodings = EncodingCache(settings.encoding_cache, lambda: sum(reads.views.bytes for reads in logs))
    for reads in logs:
        reads.views.on_erased(encodings.clear)
    metrics.add_readings(encodings.readings)
    compression, enabled = Compression(encodings), settings.features.enabled
    return Backend(
        store=store,
        reads=store.reads,
        authentication=authentication,
        authorization=authorization,
        metrics=metrics,
        min_watch=settings.min_request_timeout,
        drain=drain,
        issuer=issuer,
        encodings=encodings,
        encoders=EncoderChoice(encodings),
        compression=compression,
        compressing=compression if enabled(negotiate.COMPRESSION) else None,
        watch_list=enabled("WatchList"),
        sharded=enabled("ShardedListAndWatch"),
        kubelets=Kubelets(settings.kubelets, networks),
        networks=networks,
        session_rate=settings.session_rate,
        features=settings.features,
        audited=AuditedPolicies(store.reads),
        branches=branches,
    )


def _flow_control(store: Store, settings: HttpSettings, metrics: Metrics) -> FlowControl | None:
    """Return priority and fairness over the seats of both limits of requests in flight; None: it is off."""
    seats = settings.max_requests_inflight + settings.max_mutating_requests_inflight
    if not (settings.priority_and_fairness and seats):
        return None
    by_size = settings.features.enabled(SIZES_GATE)
    control = FlowControl(store.reads.views, seats, find=store.reads.find_view, by_size=by_size)
    metrics.register(FlowControlMetrics(control))
    return control
