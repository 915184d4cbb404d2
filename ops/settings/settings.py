"""The Settings record, and how it is loaded from flags, config file, environment and defaults.

The tables in flags/ list every setting; the command line, the config file and docs/settings.md follow from them. A
setting has kube-apiserver's name where the meaning is the same. Precedence: flag, config file, environment
(DATABASE_URL only), default.

A wrong value, an unknown name or a missing file is an OperatorError: one line that names the flag and says how to fix
it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from kubechronicle.ops.errors import OperatorError
from kubechronicle.ops.settings import conversion, types
from kubechronicle.ops.settings.flags import FLAGS, foreign
from kubechronicle.ops.settings.flags.flag import Flag


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The validated settings. The field of ``--secure-port`` is ``secure_port``. Times are in seconds."""

    bind_address: types.IPAddress
    secure_port: types.Port
    advertise_address: types.IPAddress | None
    external_hostname: types.Hostname | None
    tls_cert_file: types.ReadableFile | None
    tls_private_key_file: types.ReadableFile | None
    cert_dir: types.Directory | None
    tls_min_version: types.TLSVersion | None
    tls_cipher_suites: tuple[types.Name, ...] | None
    tls_curve_preferences: tuple[types.Name, ...] | None
    tls_sni_cert_key: types.NamedFiles | None
    disable_http2_serving: bool
    http2_max_streams_per_connection: types.Count
    goaway_chance: types.Rate
    permit_port_sharing: bool
    cors_allowed_origins: tuple[types.Name, ...] | None
    strict_transport_security_directives: tuple[types.Name, ...] | None
    client_ca_file: types.ReadableFile | None
    root_ca_file: types.ReadableFile | None
    enable_ui: bool
    enable_logs_handler: bool
    token_auth_file: types.ReadableFile | None
    authentication_token_webhook_config_file: types.ReadableFile | None
    authentication_token_webhook_version: types.ReviewVersion
    authentication_token_webhook_cache_ttl: types.Seconds
    enable_bootstrap_token_auth: bool
    service_account_issuer: tuple[types.Name, ...]
    service_account_signing_key_file: types.ReadableFile | None
    service_account_key_file: tuple[types.ReadableFile, ...] | None
    service_account_signing_endpoint: types.Text | None
    service_account_jwks_uri: types.Text | None
    service_account_max_token_expiration: types.Seconds
    service_account_extend_token_expiration: bool
    service_account_lookup: bool
    api_audiences: tuple[types.Name, ...] | None
    oidc_issuer_url: types.Text | None
    oidc_client_id: types.Text | None
    oidc_username_claim: types.Text | None
    oidc_username_prefix: types.Text | None
    oidc_groups_claim: types.Text | None
    oidc_groups_prefix: types.Text | None
    oidc_required_claim: types.SeparatePairs | None
    oidc_signing_algs: tuple[types.Name, ...] | None
    oidc_ca_file: types.ReadableFile | None
    authentication_config: types.ReadableFile | None
    anonymous_auth: bool | None
    requestheader_client_ca_file: types.ReadableFile | None
    requestheader_allowed_names: tuple[types.Name, ...] | None
    requestheader_username_headers: tuple[types.Name, ...] | None
    requestheader_uid_headers: tuple[types.Name, ...] | None
    requestheader_group_headers: tuple[types.Name, ...] | None
    requestheader_extra_headers_prefix: tuple[types.Name, ...] | None
    proxy_client_cert_file: types.ReadableFile | None
    proxy_client_key_file: types.ReadableFile | None
    enable_aggregator_routing: bool
    aggregator_reject_forwarding_redirect: bool
    authorization_mode: tuple[types.AuthorizationMode, ...] | None
    authorization_policy_file: types.ReadableFile | None
    authorization_webhook_config_file: types.ReadableFile | None
    authorization_webhook_version: types.ReviewVersion | None
    authorization_webhook_cache_authorized_ttl: types.Seconds | None
    authorization_webhook_cache_unauthorized_ttl: types.Seconds | None
    authorization_config: types.ReadableFile | None
    audit_policy_file: types.ReadableFile | None
    audit_changes: bool
    audit_log_path: types.Text | None
    audit_log_maxage: types.Count
    audit_log_maxbackup: types.Count
    audit_log_maxsize: types.Count
    audit_log_format: types.AuditFormat
    audit_log_version: types.AuditVersion
    audit_log_compress: bool
    audit_log_mode: types.AuditMode
    audit_log_batch_buffer_size: types.Count
    audit_log_batch_max_size: types.Count
    audit_log_batch_max_wait: types.Seconds
    audit_log_batch_throttle_enable: bool
    audit_log_batch_throttle_qps: types.Rate
    audit_log_batch_throttle_burst: types.Count
    audit_log_truncate_enabled: bool
    audit_log_truncate_max_batch_size: types.Count
    audit_log_truncate_max_event_size: types.Count
    audit_webhook_config_file: types.ReadableFile | None
    audit_webhook_version: types.AuditVersion
    audit_webhook_initial_backoff: types.Seconds
    audit_webhook_mode: types.AuditMode
    audit_webhook_batch_buffer_size: types.Count
    audit_webhook_batch_max_size: types.Count
    audit_webhook_batch_max_wait: types.Seconds
    audit_webhook_batch_throttle_enable: bool
    audit_webhook_batch_throttle_qps: types.Rate
    audit_webhook_batch_throttle_burst: types.Count
    audit_webhook_truncate_enabled: bool
    audit_webhook_truncate_max_batch_size: types.Count
    audit_webhook_truncate_max_event_size: types.Count
    audit_reads_policy_file: types.ReadableFile | None
    audit_reads_retention: types.Count
    simulated_nodes: types.Count | None
    simulated_scheduler: bool
    simulation_stages: types.ReadableFile | None
    kubelet_preferred_address_types: tuple[types.Name, ...]
    kubelet_port: types.Port
    kubelet_timeout: types.Seconds
    kubelet_certificate_authority: types.ReadableFile | None
    kubelet_client_certificate: types.ReadableFile | None
    kubelet_client_key: types.ReadableFile | None
    max_connection_bytes_per_sec: types.Count
    egress_selector_config_file: types.ReadableFile | None
    encryption_provider_config: types.ReadableFile | None
    encryption_provider_config_automatic_reload: bool
    database_url: types.DatabaseURL | None
    database_direct_url: types.DatabaseURL | None
    database_url_overrides: types.DatabaseOverrides | None
    history_database_url: types.DatabaseURL | None
    shared_keys_encryption_file: types.ReadableFile | None
    storage_initialization_timeout: types.Seconds
    data_dir: types.Directory
    workers: types.WorkerCount
    ephemeral: bool
    ephemeral_linger: types.Seconds
    ephemeral_archive: types.Text | None
    service_cluster_ip_range: types.ServiceRanges
    service_node_port_range: types.PortRange
    runtime_config: types.Pairs | None
    feature_gates: types.Pairs | None
    emulated_version: tuple[types.Name, ...] | None
    min_compatibility_version: tuple[types.Name, ...] | None
    emulation_forward_compatible: bool
    runtime_config_emulation_forward_compatible: bool
    history_retention: types.SeparatePairs | None
    history_retention_file: types.ReadableFile | None
    history_archive: types.Directory | None
    witness: tuple[types.Name, ...] | None
    record: types.ReadableFile | None
    controllers: types.Controllers
    event_ttl: types.EventTTL
    kubernetes_service_node_port: types.Port
    endpoint_reconciler_type: types.EndpointReconcilerType
    default_not_ready_toleration_seconds: types.Count
    default_unreachable_toleration_seconds: types.Count
    allow_privileged: bool
    admission_control: tuple[types.Name, ...] | None
    enable_admission_plugins: tuple[types.Name, ...] | None
    disable_admission_plugins: tuple[types.Name, ...] | None
    admission_control_config_file: types.ReadableFile | None
    request_timeout: types.Seconds
    min_request_timeout: types.Count
    max_requests_inflight: types.Count
    max_mutating_requests_inflight: types.Count
    enable_priority_and_fairness: bool
    tracing_config_file: types.ReadableFile | None
    profiling: bool
    disabled_metrics: tuple[types.Name, ...] | None
    allow_metric_labels: types.LabelValues | None
    allow_metric_labels_manifest: types.ReadableFile | None
    encoding_cache_mib: types.Count | None
    shutdown_delay_duration: types.Seconds
    shutdown_send_retry_after: bool
    shutdown_watch_termination_grace_period: types.Seconds
    livez_grace_period: types.Seconds
    logging_format: types.LoggingFormat
    v: types.Count
    vmodule: types.Pairs | None

    def fields_given(self, *prefixes: str) -> list[str]:
        """Return the names of fields with one of these prefixes that have a value."""
        return [field.name for field in fields(self) if field.name.startswith(prefixes) and self._has(field.name)]

    def _has(self, name: str) -> bool:
        return getattr(self, name) is not None


@dataclass(frozen=True, slots=True)
class _Value:
    """A value before its conversion. ``origin`` is added to an error about it."""

    raw: Any
    origin: str = ""


BY_NAME = {flag.name: flag for flag in FLAGS}


def load(
    flags: Mapping[str, Any], *, config_file: Path | None = None, environment: Mapping[str, str] = os.environ
) -> Settings:
    """Return the settings in force. Raise OperatorError.

    ``flags``: values from the command line by name; a list for a flag that is given several times and keeps commas.
    """
    values: dict[str, _Value] = {}
    for flag in FLAGS:
        if flag.default:
            values[flag.name] = _Value(flag.default)
        if flag.environment and environment.get(flag.environment):
            values[flag.name] = _Value(environment[flag.environment], f" (from ${flag.environment})")
    if config_file is not None:
        for name, raw in read_config(config_file).items():
            if name in foreign.BY_NAME:
                continue
            values[name] = _Value(raw, f" (in {config_file})")
    values.update((name, _Value(raw)) for name, raw in flags.items())
    settings = _with_certificate_of_directory(_structure(values))
    _check(settings)
    return settings


def read_config(path: Path) -> dict[str, Any]:
    """Return a YAML mapping of flag names, without the leading dashes, to values. Raise OperatorError."""
    import yaml

    try:
        document = yaml.safe_load(path.read_bytes())
    except OSError as error:
        raise OperatorError(f"--config: cannot read {path}: {error.strerror}") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        mark = getattr(error, "problem_mark", None)
        where = f" at line {mark.line + 1}" if mark is not None else ""
        raise OperatorError(f"--config: {path} is not YAML{where}: {getattr(error, 'problem', error)}") from None
    if document is None:
        return {}
    if not isinstance(document, dict):
        raise OperatorError(f"--config: {path} must be a mapping such as `secure-port: 6443`")
    for name in document:
        if name not in BY_NAME and name not in foreign.BY_NAME:
            raise OperatorError(f"--config: {path}: unknown setting {str(name)!r}{suggestion(str(name))}")
    return document


def suggestion(name: str) -> str:
    """Return the nearest known name, as the end of an error message."""
    from difflib import get_close_matches

    dashes = "--" if name.startswith("-") else ""
    bare = name.lstrip("-").replace("_", "-")
    if dashes and bare in BY_NAME:  # which another command refuses
        return f"; `kubechronicle serve` has --{bare}"
    near = get_close_matches(bare, [*BY_NAME, *foreign.BY_NAME], n=1)
    return f"; did you mean '{dashes}{near[0]}'?" if near else "; `kubechronicle serve --help` lists them all"


def _structure(values: Mapping[str, _Value]) -> Settings:
    """Convert all values. An empty value counts as none, except for a flag that may be empty."""
    raw = {}
    for flag in FLAGS:
        value = values[flag.name].raw if flag.name in values else None
        raw[flag.field] = (value or "" if flag.may_be_empty else None) if value in ("", None) else value
    try:
        return conversion.converter().structure(raw, Settings)
    except ValueError:
        flag, problem = _find_problem(raw)
        origin = values[flag.name].origin if flag.name in values else ""
        if raw[flag.field] is None:
            text = f"needs a value{origin}; leave it out for {flag.default}"
        else:
            text = f"{problem}{origin}"
        raise OperatorError(f"--{flag.name}: {text}") from None


def _find_problem(raw: dict[str, Any]) -> tuple[Flag, Exception]:
    """Return the first flag with a value that cannot be converted, and the error."""
    converter = conversion.converter(detailed=True)
    from cattrs import ClassValidationError  # loaded by now

    try:
        converter.structure(raw, Settings)
    except ClassValidationError as error:
        problem, note = error.group_exceptions()[0][0]
        return next(flag for flag in FLAGS if flag.field == note.name), problem
    raise AssertionError("the second conversion of the same values succeeded")


def _with_certificate_of_directory(settings: Settings) -> Settings:
    """Take the certificate and key that lie in --cert-dir, as kube-apiserver does."""
    if settings.cert_dir is None or settings.tls_cert_file is not None or settings.tls_private_key_file is not None:
        return settings
    pair = [settings.cert_dir / name for name in ("apiserver.crt", "apiserver.key")]
    found = [path for path in pair if path.exists()]
    if len(found) == 1:
        (missing,) = {*pair} - {*found}
        raise OperatorError(f"--cert-dir: {found[0]} is there, but {missing} is not")
    for path in found:
        if not path.is_file() or not os.access(path, os.R_OK):
            raise OperatorError(f"--cert-dir: {path} is no file that can be read")
    if not found:
        return settings
    certificate, key = map(types.ReadableFile, pair)
    return replace(settings, tls_cert_file=certificate, tls_private_key_file=key)


def _check(settings: Settings) -> None:
    """Check rules that no type can express."""
    if (settings.tls_cert_file is None) != (settings.tls_private_key_file is None):
        raise OperatorError("--tls-cert-file and --tls-private-key-file: give both or neither")
    if (settings.proxy_client_cert_file is None) != (settings.proxy_client_key_file is None):
        raise OperatorError("--proxy-client-cert-file and --proxy-client-key-file: give both or neither")
    if (settings.kubelet_client_certificate is None) != (settings.kubelet_client_key is None):
        raise OperatorError("--kubelet-client-certificate and --kubelet-client-key: give both or neither")
    for pattern, level in settings.vmodule.pairs if settings.vmodule is not None else ():
        if not level.isdecimal():
            raise OperatorError(f"--vmodule: {pattern}={level}: must be PATTERN=N, such as listener=4")
    if settings.goaway_chance > 0.02:
        raise OperatorError("--goaway-chance: must be between 0 and 0.02")
    if settings.vmodule is not None and settings.logging_format != "text":
        raise OperatorError("--vmodule: works with --logging-format text only")
    if settings.advertise_address is not None and settings.advertise_address.is_unspecified:
        raise OperatorError("--advertise-address: must be one address, not all; leave it out to have it chosen")


assert {flag.field for flag in FLAGS} == {field.name for field in fields(Settings)}
