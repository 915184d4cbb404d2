"""`kubechronicle serve`: the composition root. Settings become a database, certificates, a plan, and a running server.

Started in this order and stopped in the reverse: database, migrations, certificates, log, supervision tree (its
listener last), the one line that tells where the server is. Errors up to that line are the operator's.

SIGTERM and SIGINT drain: /readyz fails, --shutdown-delay-duration passes, this server leaves the endpoints of the
Service `kubernetes`, watches end, answers under way finish, Postgres stops, exit code 0. A second signal skips waiting.

With --workers, this process prepares everything, and several others do the serving (workers.py, worker.py).
"""

from __future__ import annotations

import gc
import logging
import os
import signal
import socket
import ssl
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import trio

from kubechronicle.actors.admission import plugins
from kubechronicle.actors.allocation.network import ServiceNetwork
from kubechronicle.actors.loops.server_endpoints import Advertised
from kubechronicle.api import runtime_config
from kubechronicle.api.registry import Registry
from kubechronicle.eventlog.errors import LogError
from kubechronicle.eventlog.postgres import PostgresLog, migrate, open_postgres_log
from kubechronicle.eventlog.retention import RetentionPolicy
from kubechronicle.http.app import HttpSettings
from kubechronicle.http.authentication.service_accounts import ServiceAccountIssuer
from kubechronicle.http.authorization.in_force import AuthorizationPlan
from kubechronicle.http.serve_config import ServeConfig
from kubechronicle.ops import authentication, service_account_keys
from kubechronicle.ops.assembly import Assembly, Plan, assemble
from kubechronicle.ops.authorization import authorization_plan
from kubechronicle.ops.controllers import CONTROLLER_ALIASES, CONTROLLERS
from kubechronicle.ops.database import server_database
from kubechronicle.ops.errors import OperatorError
from kubechronicle.ops.pki import Names, Pki, serving_names
from kubechronicle.ops.place import Place, bracketed, find_place
from kubechronicle.ops.retention import retention_policies
from kubechronicle.ops.settings import Settings
from kubechronicle.ops.version import program_version

log = logging.getLogger(__name__)

# Seconds an orderly end may take in all before it is cut short: kubelets give a pod 30, systemd a service 90.
DRAIN_TIMEOUT = 25.0
# Seconds between two applications of the retention policies; kube-apiserver's --etcd-compaction-interval.
RETENTION_INTERVAL = 300.0
FIRST_RETENTION = 30.0  # seconds after the start, when clients have finished coming back
CERTIFICATE_INTERVAL = 86400.0  # seconds between looks at the expiry of our certificates
# Seconds in which the clients of a server that is replaced go by themselves (Server.drain).
PATIENCE = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Inputs:
    """What the settings name, read and checked before anything is started."""

    authorization: AuthorizationPlan
    controllers: frozenset[str]
    admission_plugins: frozenset[str]
    registry: Registry
    place: Place
    retention: tuple[RetentionPolicy, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """All that is there once, however many processes serve. ``embedded``: the database is one of our own."""

    inputs: Inputs
    database_url: str
    embedded: bool
    pki: Pki
    names: Names
    issuer: ServiceAccountIssuer
    kubeconfig: Path

    def tell(self) -> None:
        """The one line of standard output."""
        command = f"kubectl --kubeconfig {_short(self.kubeconfig)} get namespaces"
        print(f"kubechronicle is ready at {self.inputs.place.url}; try: {command}", flush=True)


async def serve(settings: Settings) -> None:
    """Run until a signal asks to stop. OperatorError, SetupError, LogUnavailable, SupervisorGaveUp."""
    if settings.workers > 1:
        from kubechronicle.ops import workers

        await workers.serve(settings)
        return
    stop = Stop(settings)
    async with trio.open_nursery() as signals:
        await signals.start(stop.wait_for_signals)
        with stop.scope:
            async with prepared(settings) as ready:
                plan = make_plan(settings, ready.inputs, ready.pki, ready.issuer)
                renewing = partial(renew_certificates, ready.pki, ready.names)
                await run_server(plan, ready.database_url, stop, ready.tell, beside=[renewing])
        signals.cancel_scope.cancel()


@asynccontextmanager
async def prepared(settings: Settings) -> AsyncGenerator[Prepared]:
    """Inputs looked at, then a migrated database, certificates and keys, for as long as the block lasts."""
    inputs = check_inputs(settings)
    async with server_database(settings) as url:
        for name in await migrate(url):
            log.info("Applied migration", extra={"migration": name})
        pki, names = Pki(settings.data_dir), _names(settings, inputs.place)
        for name in await trio.to_thread.run_sync(pki.ensure, names):
            log.info("Made certificate", extra={"certificate": name})
        yield Prepared(
            inputs=inputs,
            database_url=url,
            embedded=settings.database_url is None,
            pki=pki,
            names=names,
            issuer=await trio.to_thread.run_sync(service_account_keys.issuer_of, settings, pki.directory),
            kubeconfig=pki.write_admin_kubeconfig(server=inputs.place.url, serving_ca=settings.tls_cert_file),
        )


async def run_server(
    plan: Plan,
    database_url: str,
    stop: Stop,
    tell: Callable[[], object],
    *,
    beside: Iterable[Callable[[], Awaitable[None]]] = (),
) -> None:
    """Serve over the database until stopped. ``tell`` is called when the server is ready, ``beside`` runs meanwhile."""
    instance = f"{socket.gethostname()}-{os.getpid()}"
    async with open_postgres_log(database_url, instance=instance) as revision_log, trio.open_nursery() as nursery:
        assembly = assemble(revision_log, plan)
        nursery.start_soon(_retain, revision_log, plan)
        for task in beside:
            nursery.start_soon(task)
        await nursery.start(_run_then_stop, assembly, nursery.cancel_scope)
        stop.assembly = assembly
        gc.freeze()  # what was loaded stays: looking through it for cycles took a second, every so often
        tell()


def check_inputs(settings: Settings, place: Place | None = None) -> Inputs:
    """Everything that can be found wrong without starting anything; ``place``, if that is decided. OperatorError."""
    _check_certificates(settings)
    authentication.check(settings)
    service_account_keys.check(settings)
    return Inputs(
        authorization=authorization_plan(settings),
        controllers=_controllers(settings),
        admission_plugins=_admission_plugins(settings),
        registry=_registry(settings),
        retention=retention_policies(settings),
        place=place or find_place(settings),
    )


def make_plan(settings: Settings, inputs: Inputs, pki: Pki, issuer: ServiceAccountIssuer) -> Plan:
    place, (certificate, key) = inputs.place, pki.serving_files
    let_in = authentication.let_in(settings, [file for file in (pki.ca_file, settings.client_ca_file) if file])
    return Plan(
        listen=ServeConfig(
            host=place.host,
            port=place.port,
            tls_cert_file=str(settings.tls_cert_file or certificate),
            tls_private_key_file=str(settings.tls_private_key_file or key),
            client_ca_files=tuple(map(str, let_in.files)),
        ),
        advertised=Advertised(address=str(place.advertised), port=place.port),
        services=ServiceNetwork(
            ranges=tuple(map(str, settings.service_cluster_ip_range.networks)),
            node_ports=settings.service_node_port_range.ports,
        ),
        http=HttpSettings(
            server_address=f"{bracketed(place.advertised)}:{place.port}",
            server_version=program_version(),
            request_timeout=settings.request_timeout,
            min_request_timeout=settings.min_request_timeout,
            max_requests_inflight=settings.max_requests_inflight,
            max_mutating_requests_inflight=settings.max_mutating_requests_inflight,
            ui=bool(settings.enable_ui),
        ),
        authenticators=let_in.authenticators,
        static_tokens=let_in.static_tokens,
        token_webhook=let_in.token_webhook,
        jwt=let_in.jwt,
        anonymous=let_in.anonymous,
        proxy_headers=let_in.proxy_headers,
        trust=let_in.trust,
        issuer=issuer,
        bootstrap_tokens=bool(settings.enable_bootstrap_token_auth),
        authorization=inputs.authorization,
        controllers=inputs.controllers,
        root_ca=(settings.root_ca_file or settings.tls_cert_file or pki.ca_file).read_bytes(),
        admission_plugins=inputs.admission_plugins,
        registry=inputs.registry,
        retention=inputs.retention,
        history_archive=settings.history_archive,
        server=f"apiserver-{socket.gethostname()}",
    )


class Stop:
    """Turns signals into an orderly end, and a second one into a quick one. ``scope`` is everything that serves."""

    def __init__(self, settings: Settings) -> None:
        self.scope = trio.CancelScope()
        self.assembly: Assembly | None = None
        self._delay = settings.shutdown_delay_duration

    async def wait_for_signals(self, *, task_status: trio.TaskStatus[None]) -> None:
        with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as received:
            task_status.started()
            number = await anext(received)
            log.info("Stopping", extra={"signal": signal.Signals(number).name})
            if self.assembly is None:
                self.scope.cancel()
                return
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._drain, self.assembly, nursery.cancel_scope)
                await anext(received)
                log.warning("Stopping at once")
                nursery.cancel_scope.cancel()
            self.scope.cancel()

    async def hand_over(self) -> None:
        """End in order, with another process serving in the place of this one: the server as a whole goes on."""
        if self.assembly is not None:
            with trio.move_on_after(PATIENCE + DRAIN_TIMEOUT):
                await self.assembly.hand_over(PATIENCE)
        self.scope.cancel()

    async def _drain(self, assembly: Assembly, done: trio.CancelScope) -> None:
        assembly.draining = True  # /readyz fails from here on
        await trio.sleep(self._delay)
        with trio.move_on_after(DRAIN_TIMEOUT) as limit:
            try:
                await assembly.drain()
            except LogError as error:
                log.warning("Could not leave the endpoints", extra={"err": str(error)})
        if limit.cancelled_caught:
            log.warning("Draining took too long and was cut short", extra={"seconds": DRAIN_TIMEOUT})
        done.cancel()


async def _run_then_stop(
    assembly: Assembly, scope: trio.CancelScope, *, task_status: trio.TaskStatus[None]
) -> None:
    """Run the tree; when it has ended in order, so do the tasks beside it."""
    await assembly.run(task_status=task_status)
    scope.cancel()


async def _retain(revision_log: PostgresLog, plan: Plan) -> None:
    if plan.leading is not None:
        await plan.leading.wait()
    await trio.sleep(FIRST_RETENTION)
    while True:
        try:
            done = await revision_log.retain(plan.retention, archive=plan.history_archive)
            if done.compacted or done.dropped:
                log.info("Forgot old history", extra={"compacted": done.compacted, "dropped": done.dropped})
        except LogError as error:
            log.warning("Retention failed, trying again later", extra={"err": str(error)})
        await trio.sleep(RETENTION_INTERVAL)


async def renew_certificates(pki: Pki, names: Names) -> None:
    """The listener notices a changed file by itself."""
    while True:
        await trio.sleep(CERTIFICATE_INTERVAL)
        try:
            for name in await trio.to_thread.run_sync(pki.ensure, names):
                log.info("Renewed certificate", extra={"certificate": name})
        except OperatorError as error:
            log.error("Certificates could not be renewed", extra={"err": str(error)})


def _controllers(settings: Settings) -> frozenset[str]:
    try:
        return frozenset(settings.controllers.chosen_from(CONTROLLERS, CONTROLLER_ALIASES))
    except ValueError as error:
        raise OperatorError(f"--controllers: {error}") from None


def _admission_plugins(settings: Settings) -> frozenset[str]:
    flags = {
        "enable-admission-plugins": settings.enable_admission_plugins,
        "disable-admission-plugins": settings.disable_admission_plugins,
    }
    chosen = {flag: frozenset(listed.names if listed is not None else ()) for flag, listed in flags.items()}
    for flag, names in chosen.items():
        if unknown := sorted(names - set(plugins.NAMES)):
            known = ", ".join(plugins.NAMES)
            raise OperatorError(f"--{flag}: there is no admission plugin {unknown[0]!r}, only {known}")
    enabled, disabled = chosen.values()
    if both := sorted(enabled & disabled):
        raise OperatorError(f"--enable-admission-plugins and --disable-admission-plugins: {both[0]} is in both")
    return (plugins.DEFAULT | enabled) - disabled


def _registry(settings: Settings) -> Registry:
    try:
        return runtime_config.registry_for(dict(settings.runtime_config.pairs) if settings.runtime_config else {})
    except ValueError as error:
        raise OperatorError(f"--runtime-config: {error}") from None


def _names(settings: Settings, place: Place) -> Names:
    service = settings.service_cluster_ip_range.networks[0][1]
    return serving_names(
        addresses=[settings.bind_address, place.advertised, service], external_hostname=settings.external_hostname
    )


def _check_certificates(settings: Settings) -> None:
    """That the files given can be used; what is made in DATA_DIR/pki is checked there."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    certificate, key = settings.tls_cert_file, settings.tls_private_key_file
    if certificate is not None and key is not None:
        try:
            context.load_cert_chain(certificate, key)
        except ssl.SSLError as error:
            why = f"{certificate} and {key} are no certificate (PEM) and its key: {error.reason or error}"
            raise OperatorError(f"--tls-cert-file, --tls-private-key-file: {why}") from None


def _short(path: Path) -> Path:
    """Relative to here if that is shorter to type."""
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path
