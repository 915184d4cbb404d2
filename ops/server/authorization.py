"""Authorization settings: --authorization-mode and its flags, or the file of --authorization-config."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from kubechronicle.api.configuration.structuring import Duration
from kubechronicle.api.values.durations import SECOND
from kubechronicle.http.authorization import configuration
from kubechronicle.http.authorization.abac import AbacPolicy, PolicyFileError, read_policy_file
from kubechronicle.http.authorization.configuration import (
    AuthorizationConfigurationError,
    WebhookConfiguration,
    WebhookConnectionInfo,
)
from kubechronicle.http.authorization.current_authorizers import DEFAULT_MODES, AuthorizationPlan
from kubechronicle.http.authorization.webhooks import DEFAULT_VERSION
from kubechronicle.http.outgoing.kubeconfig import KubeconfigError, read_kubeconfig
from kubechronicle.ops.errors import OperatorError
from kubechronicle.ops.settings.settings import Settings

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
