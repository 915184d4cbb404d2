"""Who decides what users may do, as the settings say it: --authorization-mode and what goes with it, or the file of
--authorization-config."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from kubechronicle.api.values.durations import SECOND
from kubechronicle.http.authorization import configuration
from kubechronicle.http.authorization.abac import Policy, PolicyFileError, read_policy_file
from kubechronicle.http.authorization.configuration import ConfigurationError, WebhookConfiguration
from kubechronicle.http.authorization.in_force import DEFAULT_MODES, AuthorizationPlan
from kubechronicle.http.authorization.webhook import VERSIONS
from kubechronicle.http.authorization.webhooks import DEFAULT_VERSION
from kubechronicle.http.outgoing.kubeconfig import KubeconfigError, read_kubeconfig
from kubechronicle.ops.errors import OperatorError
from kubechronicle.ops.settings.settings import Settings

# In the order in which an error lists them.
MODES = ("AlwaysAllow", "AlwaysDeny", "ABAC", "Webhook", "RBAC", "Node")
WEBHOOK_FILE = "authorization-webhook-config-file"


def authorization_plan(settings: Settings) -> AuthorizationPlan:
    """OperatorError: what the settings say can't be used."""
    if settings.authorization_config is not None:
        return _of_file(settings, settings.authorization_config)
    modes = settings.authorization_mode.names if settings.authorization_mode is not None else DEFAULT_MODES
    for position, mode in enumerate(modes):
        if mode not in MODES:
            raise OperatorError(f"--authorization-mode: there is no mode {mode!r}, only {', '.join(MODES)}")
        if mode in modes[:position]:
            raise OperatorError(f"--authorization-mode: {mode} is there twice")
    if configuration.ABAC not in modes and settings.authorization_policy_file is not None:
        raise OperatorError("--authorization-policy-file: cannot be used without the mode ABAC")
    webhook = _webhook(settings, modes)
    return AuthorizationPlan(configured=configuration.of_modes(modes, webhook), policies=_policies(settings, modes))


def _of_file(settings: Settings, file: Path) -> AuthorizationPlan:
    if _mode_flags(settings):
        raise OperatorError(
            "--authorization-config can not be specified when --authorization-mode or --authorization-webhook-* flags "
            "are defined"
        )
    try:
        content = file.read_bytes()
        configured = configuration.load(content)
    except OSError as error:
        raise OperatorError(f"--authorization-config: cannot read {file}: {error.strerror}") from None
    except ConfigurationError as error:
        raise OperatorError(f"--authorization-config: {file}: {error}") from None
    for each in configured:
        if each.webhook is not None and each.webhook.kubeconfig_file is not None:
            _check_kubeconfig("authorization-config", Path(each.webhook.kubeconfig_file))
    policies = _policies(settings, [each.type for each in configured])
    return AuthorizationPlan(configured=configured, policies=policies, file=file, content=content)


def _mode_flags(settings: Settings) -> list[str]:
    """Those given that the file stands in place of."""
    return [
        name
        for name in Settings.__dataclass_fields__
        if name.startswith(("authorization_mode", "authorization_webhook")) and getattr(settings, name) is not None
    ]


def _webhook(settings: Settings, modes: Sequence[str]) -> WebhookConfiguration | None:
    """Whom the mode Webhook asks."""
    file = settings.authorization_webhook_config_file
    if configuration.WEBHOOK not in modes:
        if given := [name for name in _mode_flags(settings) if name != "authorization_mode"]:
            raise OperatorError(f"--{given[0].replace('_', '-')}: cannot be used without the mode Webhook")
        return None
    if file is None:
        raise OperatorError(f"--{WEBHOOK_FILE}: the mode Webhook needs it, a kubeconfig file that tells whom to ask")
    version = settings.authorization_webhook_version or DEFAULT_VERSION
    if version not in VERSIONS:
        raise OperatorError(f"--authorization-webhook-version: must be {' or '.join(VERSIONS)}, got {version!r}")
    _check_kubeconfig(WEBHOOK_FILE, file)
    authorized = settings.authorization_webhook_cache_authorized_ttl
    unauthorized = settings.authorization_webhook_cache_unauthorized_ttl
    return WebhookConfiguration(
        authorized_ttl=_nanoseconds(authorized, configuration.AUTHORIZED_TTL),
        unauthorized_ttl=_nanoseconds(unauthorized, configuration.UNAUTHORIZED_TTL),
        timeout=configuration.MAX_TIMEOUT,
        review_version=version,
        failure_policy=configuration.NO_OPINION,
        connection_type=configuration.KUBECONFIG,
        kubeconfig_file=str(file),
    )


def _nanoseconds(seconds: float | None, otherwise: int) -> int:
    return otherwise if seconds is None else round(seconds * SECOND)


def _check_kubeconfig(flag: str, file: Path) -> None:
    try:
        read_kubeconfig(file)
    except KubeconfigError as error:
        raise OperatorError(f"--{flag}: {error}") from None


def _policies(settings: Settings, types: Sequence[str]) -> list[Policy] | None:
    if configuration.ABAC not in types:
        return None
    if settings.authorization_policy_file is None:
        raise OperatorError("--authorization-policy-file: ABAC needs it, a file of policies")
    try:
        return read_policy_file(settings.authorization_policy_file)
    except PolicyFileError as error:
        raise OperatorError(f"--authorization-policy-file: {error}") from None
