"""The inputs of a server: its settings and the files they name, checked before anything is started or made.

Errors are OperatorErrors.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from kubechronicle.actors.admission import plugins
from kubechronicle.api.configuration.admission import PluginConfigurations
from kubechronicle.api.configuration.admission_manifests import Manifests
from kubechronicle.api.configuration.egress_selector import EgressSelection
from kubechronicle.api.configuration.tracing import TracingConfiguration
from kubechronicle.api.features.gates import FeatureGates
from kubechronicle.api.registry import runtime_config
from kubechronicle.api.registry.registry import Registry
from kubechronicle.eventlog.postgres.setup.urls import parse as parse_url
from kubechronicle.eventlog.retention.retention import RetentionPolicy
from kubechronicle.http.authorization.current_authorizers import AuthorizationPlan
from kubechronicle.http.outgoing.image_reviews import ImageWebhook
from kubechronicle.http.outgoing.kubeconfig import WebhookUsers
from kubechronicle.ops.errors import OperatorError
from kubechronicle.ops.server import authentication, service_account_keys
from kubechronicle.ops.server.admission import (
    chosen_plugins,
    image_webhook,
    manifests,
    plugin_configurations,
    webhook_users,
)
from kubechronicle.ops.server.audit import AuditPlan, ReadsPlan, audit_plan, reads_plan, record_plan
from kubechronicle.ops.server.authorization import authorization_plan
from kubechronicle.ops.server.collectors.server_metrics import shown_metrics
from kubechronicle.ops.server.controllers import CONTROLLER_ALIASES, CONTROLLERS
from kubechronicle.ops.server.databases.overrides import Override, overrides_of
from kubechronicle.ops.server.encryption.chains import EncryptionPlan, encryption_plan
from kubechronicle.ops.server.listening import transport
from kubechronicle.ops.server.listening.addresses import ListenAddresses
from kubechronicle.ops.server.outside.egress import egress_selections
from kubechronicle.ops.server.outside.tracing import tracing_configuration
from kubechronicle.ops.server.retention import retention_policies
from kubechronicle.ops.server.simulation.simulated import simulation_of
from kubechronicle.ops.server.witnessing import witness_urls
from kubechronicle.ops.settings.feature_gates import feature_gates, warn_of_gates
from kubechronicle.ops.settings.settings import Settings
from kubechronicle.ops.shared_keys import FLAG, encryption_key

if TYPE_CHECKING:
    from kubechronicle.actors.loops.simulated_nodes import Simulation


@dataclass(frozen=True, slots=True, kw_only=True)
class Inputs:
    """Values from the settings and the files they name, checked before anything is started."""

    authorization: AuthorizationPlan
    controllers: frozenset[str]
    admission_plugins: frozenset[str]
    admission: PluginConfigurations
    manifests: Mapping[str, tuple[Path, Manifests]]
    webhook_users: Mapping[str, WebhookUsers]
    image_webhook: ImageWebhook | None
    egress: tuple[EgressSelection, ...] | None
    tracing: TracingConfiguration | None
    audit: AuditPlan | None
    encryption: EncryptionPlan | None
    reads: ReadsPlan | None
    features: FeatureGates
    registry: Registry
    addresses: ListenAddresses
    retention: tuple[RetentionPolicy, ...]
    witnesses: tuple[str, ...]
    accesses: ReadsPlan | None
    overrides: tuple[Override, ...]
    simulation: Simulation | None


def check_inputs(settings: Settings, addresses: ListenAddresses) -> Inputs:
    """Check everything that can be checked without starting anything. Raise OperatorError."""
    if settings.database_direct_url is not None and settings.database_url is None:
        raise OperatorError("--database-direct-url: give the address of the pooler too, by --database-url")
    if settings.history_database_url is not None and settings.database_url is None:
        raise OperatorError("--history-database-url: give the primary too, by --database-url")
    if settings.shared_keys_encryption_file is not None:
        if settings.database_url is None:
            raise OperatorError(f"{FLAG}: give --database-url too; an embedded database has one server")
        encryption_key(settings.shared_keys_encryption_file)
    _check_urls(settings)
    _check_certificates(settings)
    transport.tls_options(settings)
    transport.named_certificates(settings)
    transport.edge_settings(settings)
    shown_metrics(settings)
    features = feature_gates(settings)
    warn_of_gates(settings, features)
    authentication.check(settings)
    service_account_keys.check(settings, features)
    authorization = authorization_plan(settings)
    admission_plugins = chosen_plugins(settings, authorization)
    admission = plugin_configurations(settings, admission_plugins)
    registry = _registry(settings, features)
    return Inputs(
        authorization=authorization,
        controllers=_controllers(settings),
        admission_plugins=plugins.with_gates(admission_plugins, features),
        admission=admission,
        manifests=manifests(admission),
        webhook_users=webhook_users(admission),
        image_webhook=image_webhook(admission),
        egress=egress_selections(settings),
        tracing=tracing_configuration(settings),
        audit=audit_plan(settings),
        encryption=encryption_plan(settings),
        reads=reads_plan(settings),
        features=features,
        registry=registry,
        simulation=simulation_of(settings, registry),
        retention=retention_policies(settings),
        witnesses=witness_urls(settings),
        accesses=record_plan(settings),
        addresses=addresses,
        overrides=overrides_of(settings.database_url_overrides),
    )


def _controllers(settings: Settings) -> frozenset[str]:
    try:
        return frozenset(settings.controllers.chosen_from(CONTROLLERS, CONTROLLER_ALIASES))
    except ValueError as error:
        raise OperatorError(f"--controllers: {error}") from None


def _registry(settings: Settings, features: FeatureGates) -> Registry:
    emulation = runtime_config.Emulation(
        gates=features,
        forward=settings.emulation_forward_compatible,
        enables=settings.runtime_config_emulation_forward_compatible,
    )
    try:
        return runtime_config.registry_for(
            dict(settings.runtime_config.pairs) if settings.runtime_config else {}, emulation
        )
    except ValueError as error:
        raise OperatorError(f"--runtime-config: {error}") from None


def _check_urls(settings: Settings) -> None:
    """Check the parameters of the databases' URLs before anything is made. SetupError."""
    for url in (settings.database_url, settings.database_direct_url, settings.history_database_url):
        if url is not None:
            parse_url(url)
    for override in overrides_of(settings.database_url_overrides):
        parse_url(override.url)


def _check_certificates(settings: Settings) -> None:
    """Check the operator's certificates and keys. Those in DATA_DIR/pki are checked by `Pki`."""
    own = "--tls-cert-file, --tls-private-key-file"
    if settings.cert_dir is not None and str(settings.tls_cert_file) == str(settings.cert_dir / "apiserver.crt"):
        own = "--cert-dir"
    for flags, certificate, key in (
        (own, settings.tls_cert_file, settings.tls_private_key_file),
        (
            "--kubelet-client-certificate, --kubelet-client-key",
            settings.kubelet_client_certificate,
            settings.kubelet_client_key,
        ),
        (
            "--proxy-client-cert-file, --proxy-client-key-file",
            settings.proxy_client_cert_file,
            settings.proxy_client_key_file,
        ),
    ):
        if certificate is None or key is None:
            continue
        try:
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certificate, key, password=_reject_encrypted)
        except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
            why = getattr(error, "reason", None) or error
            raise OperatorError(
                f"{flags}: {certificate} and {key} are no certificate (PEM) and its key: {why}"
            ) from None
    if (authority := settings.kubelet_certificate_authority) is not None:
        try:
            ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(authority)
        except OSError as error:
            why = getattr(error, "reason", None) or error
            raise OperatorError(
                f"--kubelet-certificate-authority: {authority} holds no certificates (PEM): {why}"
            ) from None


def _reject_encrypted() -> str:
    """OpenSSL would ask the terminal for the password of an encrypted key, and wait."""
    raise ValueError("the key is encrypted")
