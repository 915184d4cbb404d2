"""Table columns of RoleBindings and ClusterRoleBindings. | Source: Kubernetes' ``pkg/printers/internalversion``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from kubechronicle.api.builtin.common.cell_text import Since
from kubechronicle.api.builtin.common.printer import AGE, NAME, Column, Printer, age_of, name_of, wide
from kubechronicle.api.values.objects import ReadOnlyObject


def _binding(obj: ReadOnlyObject, since: Since) -> list[Any]:
    role, subjects = obj.get("roleRef") or {}, obj.get("subjects") or ()
    by_kind: dict[str, list[str]] = {"User": [], "Group": [], "ServiceAccount": []}
    for subject in subjects:
        kind, name = subject.get("kind", ""), subject.get("name", "")
        if kind == "ServiceAccount":
            name = f"{subject.get('namespace', '')}/{name}"
        by_kind.setdefault(kind, []).append(name)
    listed = (", ".join(by_kind[kind]) for kind in ("User", "Group", "ServiceAccount"))
    return [name_of(obj), f"{role.get('kind', '')}/{role.get('name', '')}", age_of(obj, since), *listed]


def _subjects(where: str) -> tuple[Column, ...]:
    return tuple(wide(name, f"{name} in the {where}") for name in ("Users", "Groups", "ServiceAccounts"))


_ROLE_TEXT: Final = " If the RoleRef cannot be resolved, the Authorizer must return an error."

PRINTERS: Final[Mapping[str, Printer]] = {
    "rolebindings.rbac.authorization.k8s.io": Printer(
        (
            NAME,
            Column(
                "Role",
                text="RoleRef can reference a Role in the current namespace or a ClusterRole in the global namespace."
                + _ROLE_TEXT,
            ),
            AGE,
            *_subjects("roleBinding"),
        ),
        _binding,
    ),
    "clusterrolebindings.rbac.authorization.k8s.io": Printer(
        (
            NAME,
            Column("Role", text="RoleRef can only reference a ClusterRole in the global namespace." + _ROLE_TEXT),
            AGE,
            *_subjects("clusterRoleBinding"),
        ),
        _binding,
    ),
}
