"""Defaults of RoleBindings and ClusterRoleBindings."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from kubechronicle.api.values.objects import Object

RBAC: Final = "rbac.authorization.k8s.io"

VALUES: Final[Mapping[str, Mapping[str, Any]]] = {
    "rbac.v1.RoleRef": {"apiGroup": RBAC},
}


def subject(obj: Object) -> None:
    """Set the API group of users and groups to RBAC's."""
    if not obj.get("apiGroup") and obj.get("kind") in ("User", "Group"):
        obj["apiGroup"] = RBAC


FUNCTIONS: Final[Mapping[str, Callable[[Object], None]]] = {
    "rbac.v1.Subject": subject,
}
