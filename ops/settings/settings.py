"""All settings: tables (settings_flags/), from which command line, config file and docs/settings.md follow, and the
Settings record.

Flags are named as kube-apiserver's where the notion is the same. Precedence: flag, then config file, then environment
(DATABASE_URL only), then default. A wrong value, an unknown name or a missing file is an OperatorError that says in one
line what is wrong and how to mend it.

Every flag listed here does something; one for a feature to come is added with the feature.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, get_type_hints

from kubechronicle.ops.errors import OperatorError
from kubechronicle.ops.settings import types
from kubechronicle.ops.settings.flags import FLAGS


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The validated settings; the field of ``--secure-port`` is ``secure_port``. Times in seconds."""

    bind_address: types.IPAddress
    secure_port: types.Port
    advertise_address: types.IPAddress | None
    external_hostname: types.Hostname | None
    tls_cert_file: types.ReadableFile | None
    tls_private_key_file: types.ReadableFile | None
    client_ca_file: types.ReadableFile | None
    root_ca_file: types.ReadableFile | None
    enable_ui: types.Switch
    token_auth_file: types.ReadableFile | None
    authentication_token_webhook_config_file: types.ReadableFile | None
    authentication_token_webhook_version: types.Text
    authentication_token_webhook_cache_ttl: types.Seconds
    enable_bootstrap_token_auth: types.Switch
    service_account_issuer: types.Names
    service_account_signing_key_file: types.ReadableFile | None
    service_account_key_file: types.ReadableFiles | None
    service_account_jwks_uri: types.Text | None
    service_account_max_token_expiration: types.Seconds
    service_account_extend_token_expiration: types.Switch
    api_audiences: types.Names | None
    oidc_issuer_url: types.Text | None
    oidc_client_id: types.Text | None
    oidc_username_claim: types.Text | None
    oidc_username_prefix: types.Text | None
    oidc_groups_claim: types.Text | None
    oidc_groups_prefix: types.Text | None
    oidc_required_claim: types.WholePairs | None
    oidc_signing_algs: types.Names | None
    oidc_ca_file: types.ReadableFile | None
    authentication_config: types.ReadableFile | None
    anonymous_auth: types.Switch | None
    requestheader_client_ca_file: types.ReadableFile | None
    requestheader_allowed_names: types.Names | None
    requestheader_username_headers: types.Names | None
    requestheader_uid_headers: types.Names | None
    requestheader_group_headers: types.Names | None
    requestheader_extra_headers_prefix: types.Names | None
    authorization_mode: types.Names | None
    authorization_policy_file: types.ReadableFile | None
    authorization_webhook_config_file: types.ReadableFile | None
    authorization_webhook_version: types.Text | None
    authorization_webhook_cache_authorized_ttl: types.Seconds | None
    authorization_webhook_cache_unauthorized_ttl: types.Seconds | None
    authorization_config: types.ReadableFile | None
    database_url: types.DatabaseURL | None
    data_dir: types.Directory
    workers: types.Count
    service_cluster_ip_range: types.ServiceRanges
    service_node_port_range: types.PortRange
    runtime_config: types.Pairs | None
    history_retention: types.WholePairs | None
    history_retention_file: types.ReadableFile | None
    history_archive: types.Directory | None
    controllers: types.Controllers
    event_ttl: types.Seconds
    enable_admission_plugins: types.Names | None
    disable_admission_plugins: types.Names | None
    request_timeout: types.Seconds
    min_request_timeout: types.Count
    max_requests_inflight: types.Count
    max_mutating_requests_inflight: types.Count
    encoding_cache_mib: types.Count
    shutdown_delay_duration: types.Seconds
    v: types.Count


BY_NAME = {flag.name: flag for flag in FLAGS}
MOST_WORKERS = 64
LONGEST_EVENT_TTL = 290 * 365 * 86400.0  # a Go duration holds little more
CONTROLLERS_EMPTY = "controllers"  # the one flag whose empty value means something other than its default


def load(
    flags: Mapping[str, Any], *, config_file: Path | None = None, environment: Mapping[str, str] = os.environ
) -> Settings:
    """The settings in force. ``flags``: what the command line gave, texts by name, lists of them for whole
    ones. OperatorError."""
    given: dict[str, tuple[Any, str]] = {}
    for flag in FLAGS:
        if flag.default:
            given[flag.name] = (flag.default, "")
        if flag.environment and environment.get(flag.environment):
            given[flag.name] = (environment[flag.environment], f" (from ${flag.environment})")
    if config_file is not None:
        given.update({name: (value, f" (in {config_file})") for name, value in read_config(config_file).items()})
    given.update({name: (value, "") for name, value in flags.items()})
    settings = _structure(given)
    _check_together(settings)
    return settings


def read_config(path: Path) -> dict[str, Any]:
    """A YAML mapping of flag names, without the leading dashes, to values. OperatorError."""
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
        if name not in BY_NAME:
            raise OperatorError(f"--config: {path}: unknown setting {str(name)!r}{suggestion(str(name))}")
    return document


def suggestion(name: str) -> str:
    """The nearest known name, for an error message."""
    from difflib import get_close_matches

    near = get_close_matches(name.lstrip("-").replace("_", "-"), list(BY_NAME), n=1)
    return f"; did you mean {near[0]!r}?" if near else "; `kubechronicle serve --help` lists them all"


def _structure(given: Mapping[str, tuple[Any, str]]) -> Settings:
    converter = types.make_converter()
    hints = get_type_hints(Settings)
    values: dict[str, Any] = {}
    for flag in FLAGS:
        value, origin = given.get(flag.name, ("", ""))
        if value in ("", None) and flag.name != CONTROLLERS_EMPTY:
            if flag.default:
                raise OperatorError(f"--{flag.name}: needs a value{origin}; leave it out for {flag.default}")
            values[flag.field] = None
            continue
        try:
            values[flag.field] = converter.structure("" if value is None else value, _without_none(hints[flag.field]))
        except ValueError as error:
            raise OperatorError(f"--{flag.name}: {error}{origin}") from None
    return Settings(**values)


def _without_none(hint: Any) -> Any:
    """``T`` of ``T | None``."""
    arguments = getattr(hint, "__args__", ())
    if type(None) not in arguments:
        return hint
    rest = [argument for argument in arguments if argument is not type(None)]
    return rest[0] if len(rest) == 1 else types.IPAddress


def _check_together(settings: Settings) -> None:
    """What only shows when settings are seen side by side."""
    if (settings.tls_cert_file is None) != (settings.tls_private_key_file is None):
        raise OperatorError("--tls-cert-file and --tls-private-key-file: give both or neither")
    if not 1 <= settings.workers <= MOST_WORKERS:
        raise OperatorError(f"--workers: must be 1 to {MOST_WORKERS}, got {settings.workers}")
    if settings.event_ttl > LONGEST_EVENT_TTL:
        raise OperatorError("--event-ttl: must be less than 290 years; 0s keeps Events for ever")
    if settings.advertise_address is not None and settings.advertise_address.is_unspecified:
        raise OperatorError("--advertise-address: must be one address, not all; leave it out to have it chosen")


assert {flag.field for flag in FLAGS} == {field.name for field in fields(Settings)}
