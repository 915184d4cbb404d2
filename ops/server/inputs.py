"""The inputs of a server: its settings and the files they name, checked before anything is started or made.

Errors are OperatorErrors.

Authorization settings: --authorization-mode and its flags, or the file of --authorization-config.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from kubechronicle.actors.admission import plugins
from kubechronicle.api.configuration.admission import PluginConfigurations
from kubechronicle.api.configuration.admission_manifests import Manifests
from kubechronicle.api.configuration.egress_selector import EgressSelection
from kubechronicle.api.configuration.structuring import Duration
from kubechronicle.api.configuration.tracing import TracingConfiguration
from kubechronicle.api.features.gates import FeatureGates
from kubechronicle.api.registry import runtime_config
from kubechronicle.api.registry.registry import Registry
from kubechronicle.api.values.durations import SECOND
from kubechronicle.eventlog.postgres.urls import parse as parse_url
from kubechronicle.eventlog.retention.retention import RetentionPolicy
from kubechronicle.http.authorization import configuration
from kubechronicle.http.authorization.abac import AbacPolicy, PolicyFileError, read_policy_file
from kubechronicle.http.authorization.configuration import (
    AuthorizationConfigurationError,
    WebhookConfiguration,
    WebhookConnectionInfo,
)
from kubechronicle.http.authorization.current_authorizers import DEFAULT_MODES, AuthorizationPlan
from kubechronicle.http.authorization.webhooks import DEFAULT_VERSION
from kubechronicle.http.outgoing.image_reviews import ImageWebhook
from kubechronicle.http.outgoing.kubeconfig import KubeconfigError, WebhookUsers, read_kubeconfig
from kubechronicle.ops.addresses import ListenAddresses
from kubechronicle.ops.errors import OperatorError
from kubechronicle.ops.server import authentication, listening, service_account_keys
from kubechronicle.ops.server.admission import (
    chosen_plugins,
    image_webhook,
    manifests,
    plugin_configurations,
    webhook_users,
)
from kubechronicle.ops.server.audit import AuditPlan, ReadsPlan, audit_plan, reads_plan, record_plan
from kubechronicle.ops.server.collectors.server_metrics import shown_metrics
from kubechronicle.ops.server.controllers import CONTROLLER_ALIASES, CONTROLLERS
from kubechronicle.ops.server.databases.overrides import Override, overrides_of
from kubechronicle.ops.server.encryption.chains import EncryptionPlan, encryption_plan
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


WEBHOOK_FILE = "authorization-webhook-config-file"
_MODE_FIELDS = ("authorization_mode", "authorization_webhook")
"""Beginnings of the fields that --authorization-config replaces."""


def authorization_plan(settings: Settings) -> AuthorizationPlan:
    """Return the authorizers. Raise OperatorError."""
    if settings.authorization_config is not None:
        return _of_file(settings, settings.authorization_config)
    modes = settings.authorization_mode if settings.authorization_mode is not None else DEFAULT_MODES
    for position, mode in enumerate(modes):
        if mode in modes[:position]:
            raise OperatorError(f"--authorization-mode: {mode} is listed twice")
    if configuration.ABAC not in modes and settings.authorization_policy_file is not None:
        raise OperatorError("--authorization-policy-file: cannot be used without the mode ABAC")
    webhook = _webhook(settings, modes)
    return AuthorizationPlan(configured=configuration.of_modes(modes, webhook), policies=_policies(settings, modes))


def _of_file(settings: Settings, file: Path) -> AuthorizationPlan:
    if settings.fields_given(*_MODE_FIELDS):
        raise OperatorError(
            "--authorization-config can not be specified when --authorization-mode or --authorization-webhook-* flags "
            "are defined"
        )
    try:
        content = file.read_bytes()
        configured = configuration.load(content)
    except OSError as error:
        raise OperatorError(f"--authorization-config: cannot read {file}: {error.strerror}") from None
    except AuthorizationConfigurationError as error:
        raise OperatorError(f"--authorization-config: {file}: {error}") from None
    for each in configured:
        file_of_webhook = each.webhook.connection_info.kube_config_file if each.webhook is not None else None
        if file_of_webhook is not None:
            _check_kubeconfig("authorization-config", Path(file_of_webhook))
    policies = _policies(settings, [each.type for each in configured])
    return AuthorizationPlan(configured=configured, policies=policies, file=file, content=content)


def _webhook(settings: Settings, modes: Sequence[str]) -> WebhookConfiguration | None:
    """Return the webhook of the mode Webhook."""
    file = settings.authorization_webhook_config_file
    if configuration.WEBHOOK not in modes:
        if fields := settings.fields_given("authorization_webhook"):
            raise OperatorError(f"--{fields[0].replace('_', '-')}: cannot be used without the mode Webhook")
        return None
    if file is None:
        raise OperatorError(f"--{WEBHOOK_FILE}: the mode Webhook needs it: a kubeconfig file of the webhook")
    version = settings.authorization_webhook_version or DEFAULT_VERSION
    _check_kubeconfig(WEBHOOK_FILE, file)
    authorized = settings.authorization_webhook_cache_authorized_ttl
    unauthorized = settings.authorization_webhook_cache_unauthorized_ttl
    return WebhookConfiguration(
        authorized_ttl=_nanoseconds(authorized, configuration.AUTHORIZED_TTL),
        unauthorized_ttl=_nanoseconds(unauthorized, configuration.UNAUTHORIZED_TTL),
        timeout=configuration.MAX_TIMEOUT,
        subject_access_review_version=version,
        failure_policy=configuration.NO_OPINION,
        connection_info=WebhookConnectionInfo(type=configuration.KUBECONFIG, kube_config_file=str(file)),
    )


def _nanoseconds(seconds: float | None, otherwise: Duration) -> Duration:
    return otherwise if seconds is None else Duration(round(seconds * SECOND))


def _check_kubeconfig(flag: str, file: Path) -> None:
    try:
        read_kubeconfig(file)
    except KubeconfigError as error:
        raise OperatorError(f"--{flag}: {error}") from None


def _policies(settings: Settings, types: Sequence[str]) -> list[AbacPolicy] | None:
    if configuration.ABAC not in types:
        return None
    if settings.authorization_policy_file is None:
        raise OperatorError("--authorization-policy-file: the mode ABAC needs it: a file of policies")
    try:
        return read_policy_file(settings.authorization_policy_file)
    except PolicyFileError as error:
        raise OperatorError(f"--authorization-policy-file: {error}") from None


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
    listening.tls_options(settings)
    listening.named_certificates(settings)
    listening.edge_settings(settings)
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
