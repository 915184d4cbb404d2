"""Who decides what users may do, as the settings say it: --authorization-mode and what goes with it, or the file of
--authorization-config."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from kubechronicle.http.authorization import configuration
from kubechronicle.http.authorization.abac import Policy, PolicyFileError, read_policy_file
from kubechronicle.http.authorization.configuration import ConfigurationError
from kubechronicle.http.authorization.in_force import DEFAULT_MODES, AuthorizationPlan
from kubechronicle.ops.errors import OperatorError
from kubechronicle.ops.settings import Settings

# In the order in which an error lists them.
MODES = ("AlwaysAllow", "AlwaysDeny", "ABAC", "RBAC", "Node")


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
    return AuthorizationPlan(configured=configuration.of_modes(modes), policies=_policies(settings, modes))


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
    policies = _policies(settings, [each.type for each in configured])
    return AuthorizationPlan(configured=configured, policies=policies, file=file, content=content)


def _mode_flags(settings: Settings) -> list[str]:
    """Those given that the file stands in place of."""
    return [
        name
        for name in Settings.__dataclass_fields__
        if name.startswith(("authorization_mode", "authorization_webhook")) and getattr(settings, name) is not None
    ]


def _policies(settings: Settings, types: Sequence[str]) -> list[Policy] | None:
    if configuration.ABAC not in types:
        return None
    if settings.authorization_policy_file is None:
        raise OperatorError("--authorization-policy-file: ABAC needs it, a file of policies")
    try:
        return read_policy_file(settings.authorization_policy_file)
    except PolicyFileError as error:
        raise OperatorError(f"--authorization-policy-file: {error}") from None
