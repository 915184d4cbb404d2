"""The strategies of admissionregistration.k8s.io.

Sources are the ``strategy.go`` files of Kubernetes' ``registry/admissionregistration``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from kubechronicle.api.builtin.admissionregistration import static_names, validation_policies, validation_webhooks
from kubechronicle.api.builtin.common.status_strategies import only_status
from kubechronicle.api.strategy.strategy import Check, Strategy, Validate

_WEBHOOKS: Final = Strategy(
    update_checks=(Check.CHANGE, Check.METADATA, Check.OBJECT),
    status=False,
    kube_finalizers=False,
    generation=True,
    generation_fields=("webhooks",),
    generation_counts_empties=True,
    unconditional_update=False,
    validate=validation_webhooks.webhooks,
    warnings=static_names.warnings,
)


def _policy(validate: Validate) -> Strategy:
    return Strategy(
        update_checks=(Check.CHANGE, Check.METADATA, Check.OBJECT),
        status=False,
        kube_finalizers=False,
        generation=True,
        unconditional_update=False,
        validate=validate,
        warnings=static_names.warnings,
    )


STRATEGIES: Final[Mapping[str, Strategy]] = {
    "validatingwebhookconfigurations.admissionregistration.k8s.io": _WEBHOOKS,
    "mutatingwebhookconfigurations.admissionregistration.k8s.io": _WEBHOOKS,
    "validatingadmissionpolicies.admissionregistration.k8s.io": Strategy(
        update_checks=(Check.CHANGE, Check.METADATA, Check.OBJECT),
        kube_finalizers=False,
        generation=True,
        unconditional_update=False,
        validate=validation_policies.validating_policy,
        warnings=static_names.warnings,
        subresources=only_status(validation_policies.policy_status, checks=(Check.CHANGE,)),
    ),
    "validatingadmissionpolicybindings.admissionregistration.k8s.io": _policy(validation_policies.validating_binding),
    "mutatingadmissionpolicies.admissionregistration.k8s.io": _policy(validation_policies.mutating_policy),
    "mutatingadmissionpolicybindings.admissionregistration.k8s.io": _policy(validation_policies.mutating_binding),
}
