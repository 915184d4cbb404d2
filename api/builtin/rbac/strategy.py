"""Strategies of rbac.authorization.k8s.io, which differ only in their validation.

Sources are the ``strategy.go`` files of Kubernetes' ``registry/rbac``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from kubechronicle.api.builtin.rbac import validation
from kubechronicle.api.strategy.strategy import Check, Strategy, Validate, ValidateUpdate


def _rbac(validate: Validate, validate_update: ValidateUpdate = lambda new, old: []) -> Strategy:
    return Strategy(
        update_checks=(Check.METADATA, Check.OBJECT, Check.METADATA_CHANGE, Check.CHANGE),
        status=False,
        names="segment",
        create_on_update=True,
        validate=validate,
        validate_update=validate_update,
    )


STRATEGIES: Final[Mapping[str, Strategy]] = {
    "roles.rbac.authorization.k8s.io": _rbac(validation.role),
    "clusterroles.rbac.authorization.k8s.io": _rbac(validation.cluster_role),
    "rolebindings.rbac.authorization.k8s.io": _rbac(validation.role_binding, validation.role_ref_update),
    "clusterrolebindings.rbac.authorization.k8s.io": _rbac(validation.cluster_role_binding, validation.role_ref_update),
}
