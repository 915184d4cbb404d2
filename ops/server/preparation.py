"""Preparation of a server: bring certificates and schema up to date, and make a plan from the checked settings.

Errors are OperatorErrors.
"""

from __future__ import annotations

import logging
import socket
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final, TypeVar

import trio

from kubechronicle.actors.allocation.ranges import ServiceNetwork
from kubechronicle.actors.loops.server_endpoints import Advertised, server_id
from kubechronicle.api.configuration import webhook_admission
from kubechronicle.eventlog.postgres.connection import check_pooler, migrate
from kubechronicle.eventlog.postgres.postmaster_epoch import PostmasterEpoch
from kubechronicle.eventlog.postgres.session import ConnectionLost
from kubechronicle.http.app import HttpSettings
from kubechronicle.http.authentication.token_issuer import ServiceAccountIssuer
from kubechronicle.http.proxying.dialing import ClientFiles, ClientTls, DialError
from kubechronicle.http.proxying.kubelets import KubeletSettings
from kubechronicle.http.wire.serve_config import ServeConfig
from kubechronicle.ops import terminal
from kubechronicle.ops.addresses import ListenAddresses, bracketed
from kubechronicle.ops.errors import OperatorError
from kubechronicle.ops.memory_limit import memory_limit
from kubechronicle.ops.pki import Names, Pki, serving_names
from kubechronicle.ops.postgres.embedded_postgres import Running
from kubechronicle.ops.server import authentication, listening, service_account_keys
from kubechronicle.ops.server.collectors.server_metrics import shown_metrics
from kubechronicle.ops.server.inputs import Inputs
from kubechronicle.ops.server.outside.egress import warn_of_etcd
from kubechronicle.ops.server.plan import Plan
from kubechronicle.ops.server.trust import compare_trust, name_of, trust_of
from kubechronicle.ops.settings.settings import Settings
from kubechronicle.ops.settings.shown import configuration, shown
from kubechronicle.ops.shared_keys import encryption_key, share_keys
from kubechronicle.ops.version import program_version

log = logging.getLogger(__name__)
T = TypeVar("T")

SHARE_OF_ENCODINGS: Final = 4
"""The cache of encodings may take one part of so many of the memory limit."""
LOOK: Final = 0.5
"""Seconds between attempts to reach a database that takes no connections yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedServer:
    """Everything that a server has once, however many worker processes it has."""

    inputs: Inputs
    database_url: str
    postmaster_epoch: PostmasterEpoch | None
    """The epoch of the embedded database's postmaster; None for a database of the operator's."""
    pki: Pki
    names: Names
    issuer: ServiceAccountIssuer
    kubeconfig: Path
    is_first: bool
    """The data directory is new."""
    has_page: bool

    def print_ready(self) -> None:
        """Print the only line on standard output; the first time, five more on a terminal."""
        command = f"kubectl --kubeconfig {_short(self.kubeconfig)} get namespaces"
        out = terminal.stdout()
        out.line(f"kubechronicle is ready at {self.inputs.addresses.url}; try: {command}")
        if self.is_first and out.is_terminal:
            for purpose, text in self._first_steps():
                out.line(f"  {purpose:<10} {text}")
        out.flush()

    def _first_steps(self) -> list[tuple[str, str]]:
        """Return the lines for a person who has started a server for the first time."""
        kept, page = _short(self.kubeconfig.parent), "kubechronicle ui"
        return [
            ("shell", f"export KUBECONFIG={_short(self.kubeconfig)}"),
            ("history", "kubectl chronicle log -A; kubectl chronicle --help lists more questions"),
            ("page", page if self.has_page else f"start with --enable-ui, then: {page}"),
            ("users", f"kubechronicle kubeconfig --user jane --data-dir {kept}"),
            ("data", f"all is in {kept}; Ctrl-C stops the server, and the next start continues"),
        ]


async def prepare(settings: Settings, inputs: Inputs, database: Running | None) -> PreparedServer:
    """Make certificates and keys while the database starts, then make its schema or migrate it.

    ``database``: None for a log in memory.
    """
    warn_of_etcd(inputs.egress)
    pki, names = Pki(settings.data_dir), _names(settings, inputs.addresses)
    shared = settings.shared_keys_encryption_file
    is_first = not pki.kubeconfig_file.exists()
    issuer = await _make_keys(settings, pki, names) if shared is None else None
    url = await _prepare_databases(settings, inputs, database) if database is not None else ""
    if issuer is None:
        issuer = await _share_keys(settings, pki, names)
    if settings.database_url is not None:
        name = name_of(f"{bracketed(inputs.addresses.advertised)}:{inputs.addresses.port}")
        await compare_trust(settings.database_direct_url or url, name, trust_of(settings, pki, issuer))
    return PreparedServer(
        inputs=inputs,
        database_url=url,
        postmaster_epoch=database.postmaster_epoch if database is not None else None,
        pki=pki,
        names=names,
        issuer=issuer,
        kubeconfig=pki.write_admin_kubeconfig(server=inputs.addresses.url, serving_ca=settings.tls_cert_file),
        is_first=is_first,
        has_page=settings.enable_ui,
    )


async def _prepare_databases(settings: Settings, inputs: Inputs, database: Running) -> str:
    """Make or migrate the schemas, and return the URL of the database."""
    url = await database()
    patience = settings.storage_initialization_timeout if settings.database_url is not None else 0.0
    for name in await patiently(partial(migrate, settings.database_direct_url or url), patience):
        log.log(logging.INFO - 1, "Changed the schema", extra={"file": name})
    for override in inputs.overrides:
        for name in await patiently(partial(migrate, override.url), settings.storage_initialization_timeout):
            log.log(logging.INFO - 1, "Changed the schema", extra={"file": name, "database": override.name})
    if settings.database_direct_url is not None:
        await patiently(partial(check_pooler, url), patience)
    return url


async def _make_keys(settings: Settings, pki: Pki, names: Names) -> ServiceAccountIssuer:
    for name in await trio.to_thread.run_sync(pki.ensure, names):
        log.log(logging.INFO - 1, "Made certificate", extra={"certificate": name})
    return await service_account_keys.make_issuer(settings, pki.directory)


async def _share_keys(settings: Settings, pki: Pki, names: Names) -> ServiceAccountIssuer:
    """Make the keys that the other servers on the database have not made yet, and take all others. OperatorError."""
    assert settings.shared_keys_encryption_file is not None
    assert settings.database_url is not None
    key = encryption_key(settings.shared_keys_encryption_file)
    issuers: list[ServiceAccountIssuer] = []

    async def make() -> None:
        issuers.append(await _make_keys(settings, pki, names))

    for name in await share_keys(settings.database_direct_url or settings.database_url, key, pki.directory, make):
        log.info("Took keys that the servers on this database share", extra={"keys": name})
    return issuers[0]


async def patiently(attempt: Callable[[], Awaitable[T]], patience: float) -> T:
    """Return the result of the first attempt that finds a database, or a pooler, that answers. LogError.

    ``patience``: seconds to wait for one that takes no connections yet. A wrong password or name ends the start
    at once, since waiting mends neither.
    """
    deadline, logged = trio.current_time() + patience, False
    while True:
        try:
            return await attempt()
        except ConnectionLost as error:
            if trio.current_time() + LOOK > deadline:
                raise
            if not logged:
                log.warning("Waiting for the database", extra={"seconds": patience, "err": str(error)})
                logged = True
        await trio.sleep(LOOK)


def make_plan(settings: Settings, inputs: Inputs, pki: Pki, issuer: ServiceAccountIssuer) -> Plan:
    addresses = inputs.addresses
    client_cas = [file for file in (pki.ca_file, settings.client_ca_file) if file]
    own_proxy = authentication.has_own_front_proxy(settings)
    access = authentication.authentication_plan(settings, client_cas, pki.front_proxy_ca_file if own_proxy else None)
    return Plan(
        database_direct_url=settings.database_direct_url or "",
        history_database_url=settings.history_database_url or "",
        overrides=inputs.overrides,
        listen=_listen(settings, addresses, pki, access.files),
        advertised=Advertised(address=str(addresses.advertised), port=addresses.port),
        services=ServiceNetwork(
            ranges=tuple(map(str, settings.service_cluster_ip_range.networks)),
            node_ports=settings.service_node_port_range.ports,
        ),
        http=_http(settings, inputs, pki),
        authenticators=access.authenticators,
        static_tokens=access.static_tokens,
        token_webhook=access.token_webhook,
        jwt=access.jwt,
        anonymous=access.anonymous,
        proxy_headers=access.proxy_headers,
        trust=access.trust,
        issuer=issuer,
        bootstrap_tokens=settings.enable_bootstrap_token_auth,
        authorization=inputs.authorization,
        controllers=inputs.controllers,
        simulation=inputs.simulation,
        root_ca=(settings.root_ca_file or settings.tls_cert_file or pki.ca_file).read_bytes(),
        admission_plugins=inputs.admission_plugins,
        admission=inputs.admission,
        manifests=inputs.manifests,
        static_names=inputs.features.enabled(webhook_admission.GATE),
        webhook_users=inputs.webhook_users,
        image_webhook=inputs.image_webhook,
        egress=inputs.egress or (),
        tracing=inputs.tracing,
        audit=inputs.audit,
        features=inputs.features,
        encryption=inputs.encryption,
        reads=inputs.reads,
        accesses=inputs.accesses,
        registry=inputs.registry,
        retention=inputs.retention,
        proxy_client=_proxy_client(settings, pki),
        rejects_redirects=settings.aggregator_reject_forwarding_redirect,
        looks_tokens_up=settings.service_account_lookup,
        aggregator_routing=settings.enable_aggregator_routing,
        event_ttl=int(settings.event_ttl),  # rounded down, as in kube-apiserver
        history_archive=settings.history_archive,
        witnesses=inputs.witnesses,
        watch_grace=settings.shutdown_watch_termination_grace_period,
        keeps_endpoints=settings.endpoint_reconciler_type != "none",
        service_node_port=settings.kubernetes_service_node_port,
        allow_privileged=settings.allow_privileged,
        server=server_id(socket.gethostname()),
    )


def _listen(settings: Settings, addresses: ListenAddresses, pki: Pki, client_cas: Iterable[Path]) -> ServeConfig:
    """Return the settings of the listener. ``client_cas``: files with authorities of client certificates."""
    certificate, key = pki.serving_files
    return ServeConfig(
        host=addresses.host,
        port=addresses.port,
        tls_cert_file=str(settings.tls_cert_file or certificate),
        tls_private_key_file=str(settings.tls_private_key_file or key),
        client_ca_files=tuple(map(str, client_cas)),
        named_certificates=listening.named_certificates(settings),
        tls_options=listening.tls_options(settings),
        shared_port=settings.permit_port_sharing,
        limits=listening.limits(settings),
    )


def _http(settings: Settings, inputs: Inputs, pki: Pki) -> HttpSettings:
    addresses = inputs.addresses
    return HttpSettings(
        server_address=f"{bracketed(addresses.advertised)}:{addresses.port}",
        server_version=program_version(),
        features=inputs.features,
        request_timeout=settings.request_timeout,
        min_request_timeout=settings.min_request_timeout,
        max_requests_inflight=settings.max_requests_inflight,
        max_mutating_requests_inflight=settings.max_mutating_requests_inflight,
        priority_and_fairness=settings.enable_priority_and_fairness,
        profiling=settings.profiling,
        flags=shown(settings),
        configuration=configuration(settings),
        encoding_cache=_encoding_cache(settings),
        ui=settings.enable_ui,
        logs=settings.enable_logs_handler,
        kubelets=_kubelets(settings, pki),
        edge=listening.edge_settings(settings),
        shown_metrics=shown_metrics(settings),
        livez_grace=settings.livez_grace_period,
        session_rate=settings.max_connection_bytes_per_sec,
    )


def _encoding_cache(settings: Settings) -> int:
    """Return the most bytes of the cache of encodings in one process."""
    if settings.encoding_cache_mib is not None:
        return settings.encoding_cache_mib * 1024 * 1024
    return memory_limit() // SHARE_OF_ENCODINGS // settings.workers


def _kubelets(settings: Settings, pki: Pki) -> KubeletSettings:
    """Return the settings of connections to kubelets. Raise OperatorError for unusable files."""
    certificate, key = pki.kubelet_client_files
    files = ClientFiles(
        certificate=settings.kubelet_client_certificate or certificate,
        key=settings.kubelet_client_key or key,
        authorities=settings.kubelet_certificate_authority,
    )
    try:
        ClientTls(files).context()
    except DialError as error:
        raise OperatorError(f"--kubelet-client-certificate, --kubelet-certificate-authority: {error}") from None
    return KubeletSettings(
        address_types=settings.kubelet_preferred_address_types,
        port=settings.kubelet_port,
        timeout=settings.kubelet_timeout,
        files=files,
    )


def _proxy_client(settings: Settings, pki: Pki) -> tuple[Path, Path] | None:
    """Return the files of the certificate for extension API servers."""
    certificate, key = settings.proxy_client_cert_file, settings.proxy_client_key_file
    if certificate is not None and key is not None:
        return certificate, key
    return pki.front_proxy_files if authentication.has_own_front_proxy(settings) else None


def _names(settings: Settings, own: ListenAddresses) -> Names:
    service = settings.service_cluster_ip_range.networks[0][1]
    return serving_names(
        addresses=[settings.bind_address, own.advertised, service], external_hostname=settings.external_hostname
    )


def _short(path: Path) -> Path:
    """Return the path relative to the current directory if it is below it."""
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path
