"""The emulated version and the feature gates of a server, from its settings. Errors are OperatorErrors."""

from __future__ import annotations

import logging
from typing import Final

from kubechronicle.actors.admission import node_restriction, plugins
from kubechronicle.actors.loops import elections, storage_versions
from kubechronicle.api.builtin.core.pod.options import GATES
from kubechronicle.api.builtin.kinds import GATED_FIELDS, STRATEGIES
from kubechronicle.api.builtin.rbac import GATES as GATES_OF_ROLES
from kubechronicle.api.codecs.negotiate import CBOR_GATE, COMPRESSION_GATES
from kubechronicle.api.configuration import webhook_admission
from kubechronicle.api.configuration.encryption import KMS_V1_GATE
from kubechronicle.api.features.gates import PROGRAM, EffectiveVersion, FeatureGates, effective_version, gates_of, parse
from kubechronicle.api.flow_control.queues import SIZES_GATE
from kubechronicle.api.meta.options import UNSAFE_GATE
from kubechronicle.api.registry.discovery import HASH_GATE
from kubechronicle.api.registry.resources import GATES as GATES_OF_RESOURCES
from kubechronicle.api.subresources.pod_log import SPLIT_STREAMS
from kubechronicle.api.subresources.pod_streams import REQUIRES_CREATE, WEBSOCKET_GATES
from kubechronicle.api.subresources.token_request import HOOKS_GATE, UIDS_GATE
from kubechronicle.http import operators
from kubechronicle.http.authentication import credentials, user
from kubechronicle.http.authentication.oidc.validation import EGRESS_GATE, KEYS_GATE
from kubechronicle.http.authorization import impersonation, node
from kubechronicle.ops.errors import OperatorError
from kubechronicle.ops.settings.settings import Settings

SIGNER_GATE: Final = "ExternalServiceAccountTokenSigner"
"""The gate of --service-account-signing-endpoint; the emulated versions 1.34 and 1.35 can do without it."""

log = logging.getLogger(__name__)

NAMED: Final = (
    webhook_admission.GATE, "AllAlpha", "AllBeta", "WatchList", "ShardedListAndWatch", CBOR_GATE, UNSAFE_GATE,
    HOOKS_GATE, *plugins.GATES.values(), *GATES_OF_RESOURCES.values(),
    impersonation.GATE, credentials.CERTIFICATE_UID_GATE, credentials.PROXY_UID_GATE, *node.GATES,
    *operators.GATES.values(), REQUIRES_CREATE, *WEBSOCKET_GATES, *COMPRESSION_GATES, KMS_V1_GATE,
    user.ANONYMOUS_GATE, SIZES_GATE, KEYS_GATE, SIGNER_GATE,
    HASH_GATE, *node_restriction.GATES, elections.GATE, storage_versions.GATE, UIDS_GATE, SPLIT_STREAMS, EGRESS_GATE,
    "OpenAPIEnums",
    *GATES.values(), *GATES_OF_ROLES,
    *(name for fields in GATED_FIELDS.values() for field in fields for name in (field.gate, *field.gates)),
    *(name for each in STRATEGIES.values() for name in (*each.with_gates, *each.without_gates, *each.options_in_use)),
)  # fmt: skip
"""The gates that this server's code asks for."""
WITH_EFFECT: Final = gates_of(PROGRAM).keys() & NAMED
"""The gates that switch a feature of this server. Others concern other components, or are not built yet."""


def feature_gates(settings: Settings) -> FeatureGates:
    """Return the gates in force, at the emulated version."""
    found = _versions(settings)
    try:
        return FeatureGates(found, parse(settings.feature_gates.pairs if settings.feature_gates else ()))
    except ValueError as error:
        raise OperatorError(f"--feature-gates: {error}") from None


def _versions(settings: Settings) -> EffectiveVersion:
    try:
        found = effective_version(settings.emulated_version or (), ())
    except ValueError as error:
        raise OperatorError(f"--emulated-version: {error}") from None
    try:
        found = effective_version(settings.emulated_version or (), settings.min_compatibility_version or ())
    except ValueError as error:
        raise OperatorError(f"--min-compatibility-version: {error}") from None
    if problems := found.problems():
        flag = "min-compatibility-version" if problems[0].startswith("min") else "emulated-version"
        raise OperatorError(f"--{flag}: {problems[0]}")
    for name in ("emulation_forward_compatible", "runtime_config_emulation_forward_compatible"):
        if getattr(settings, name) and not found.emulates:
            why = "cannot be set to true if the emulation version is the same as the binary version"
            raise OperatorError(f"--{name.replace('_', '-')}: {why}")
    return found


def warn_of_gates(settings: Settings, gates: FeatureGates) -> None:
    """Log the gates that the operator has set otherwise, and that change nothing here."""
    given = parse(settings.feature_gates.pairs if settings.feature_gates else ())
    for name, value in given.items():
        if name not in WITH_EFFECT and value != gates.spec(name).default:
            log.warning(f"--feature-gates: {name} changes nothing here")
