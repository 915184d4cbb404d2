"""From settings to a plan: what they name is read and checked, then certificates, keys and the database's schema are
brought up to date. Errors are the operator's."""

from __future__ import annotations

import logging
import socket
import ssl
from dataclasses import dataclass
from pathlib import Path

import trio

from kubechronicle.actors.admission import plugins
from kubechronicle.actors.allocation.network import ServiceNetwork
from kubechronicle.actors.loops.services.server_endpoints import Advertised
from kubechronicle.api.registry import runtime_config
from kubechronicle.api.registry.registry import Registry
from kubechronicle.eventlog.postgres.connection import migrate
from kubechronicle.eventlog.postgres.postmaster_epoch import PostmasterEpoch
from kubechronicle.eventlog.retention.retention import RetentionPolicy
from kubechronicle.http.app import HttpSettings
from kubechronicle.http.authentication.service_accounts import ServiceAccountIssuer
from kubechronicle.http.authorization.in_force import AuthorizationPlan
from kubechronicle.http.wire.serve_config import ServeConfig
from kubechronicle.ops.errors import OperatorError
from kubechronicle.ops.pki import Names, Pki, serving_names
from kubechronicle.ops.postgres.embedded_postgres import Running
from kubechronicle.ops.server import authentication, service_account_keys
from kubechronicle.ops.server.assembly import Plan
from kubechronicle.ops.server.authorization import authorization_plan
from kubechronicle.ops.server.controllers import CONTROLLER_ALIASES, CONTROLLERS
from kubechronicle.ops.server.place import Place, bracketed
from kubechronicle.ops.server.retention import retention_policies
from kubechronicle.ops.settings.settings import Settings
from kubechronicle.ops.version import program_version

log = logging.getLogger(__name__)


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
    """All that is there once, however many processes serve. ``embedded``: the database is one of our own, and then
    ``reign`` tells which of its postmasters may be there."""

    inputs: Inputs
    database_url: str
    embedded: bool
    reign: PostmasterEpoch | None
    pki: Pki
    names: Names
    issuer: ServiceAccountIssuer
    kubeconfig: Path

    def tell(self) -> None:
        """The one line of standard output."""
        command = f"kubectl --kubeconfig {_short(self.kubeconfig)} get namespaces"
        print(f"kubechronicle is ready at {self.inputs.place.url}; try: {command}", flush=True)


async def prepare(settings: Settings, inputs: Inputs, database: Running) -> Prepared:
    """Certificates and keys while the database starts, then its migrations."""
    pki, names = Pki(settings.data_dir), _names(settings, inputs.place)
    for name in await trio.to_thread.run_sync(pki.ensure, names):
        log.info("Made certificate", extra={"certificate": name})
    issuer = await trio.to_thread.run_sync(service_account_keys.issuer_of, settings, pki.directory)
    url = await database()
    for name in await migrate(url):
        log.info("Applied migration", extra={"migration": name})
    return Prepared(
        inputs=inputs,
        database_url=url,
        embedded=settings.database_url is None,
        reign=database.reign,
        pki=pki,
        names=names,
        issuer=issuer,
        kubeconfig=pki.write_admin_kubeconfig(server=inputs.place.url, serving_ca=settings.tls_cert_file),
    )


def check_inputs(settings: Settings, place: Place) -> Inputs:
    """Everything that can be found wrong without starting anything. OperatorError."""
    _check_certificates(settings)
    authentication.check(settings)
    service_account_keys.check(settings)
    return Inputs(
        authorization=authorization_plan(settings),
        controllers=_controllers(settings),
        admission_plugins=_admission_plugins(settings),
        registry=_registry(settings),
        retention=retention_policies(settings),
        place=place,
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
            encoding_cache=settings.encoding_cache_mib * 1024 * 1024,
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
        event_ttl=int(settings.event_ttl),  # kube-apiserver cuts off the rest, too
        history_archive=settings.history_archive,
        server=f"apiserver-{socket.gethostname()}",
    )


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
