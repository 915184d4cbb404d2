"""Role, ClusterRole, RoleBinding and ClusterRoleBinding.

Source: Kubernetes' ``registry/rbac``, ``apis/rbac`` and ``pkg/printers/internalversion``.

Access rules that every cluster has from its first start: those of Kubernetes (api/kinds), and two roles of our own.

They have a label and an annotation that identify them to administrators. Objects with
``rbac.authorization.kubernetes.io/autoupdate: "false"`` are not changed.
"""

from __future__ import annotations

from typing import Any, Final

from kubechronicle.api.builtin.common.cell_text import Since
from kubechronicle.api.builtin.common.checks import dns_subdomain, label_selector, wrong
from kubechronicle.api.builtin.common.go_shapes import record
from kubechronicle.api.builtin.common.kind import BuiltinKind
from kubechronicle.api.builtin.common.printer import AGE, NAME, Column, Printer, age_of, field_column, name_of, wide
from kubechronicle.api.errors.field_errors import Cause, invalid_value, not_supported, required
from kubechronicle.api.features.gates import FeatureGates
from kubechronicle.api.kinds import bootstrap
from kubechronicle.api.meta.metadata import IMMUTABLE
from kubechronicle.api.strategy.strategy import Check, Strategy, Validate, ValidateUpdate
from kubechronicle.api.values import names
from kubechronicle.api.values.objects import Object, ReadOnlyObject

# -- defaults ---------------------------------------------------------------------------------------------------------

RBAC: Final = "rbac.authorization.k8s.io"


def default_subject(obj: Object) -> None:
    """Set the API group of users and groups to RBAC's."""
    if not obj.get("apiGroup") and obj.get("kind") in ("User", "Group"):
        obj["apiGroup"] = RBAC


# -- preparation ------------------------------------------------------------------------------------------------------


def _rbac(validate: Validate, validate_update: ValidateUpdate = lambda new, old: []) -> Strategy:
    return Strategy(
        unsafe_deletion=False,
        update_checks=(Check.METADATA, Check.OBJECT, Check.METADATA_CHANGE, Check.CHANGE),
        status=False,
        names="rbac",
        create_on_update=True,
        validate=validate,
        validate_update=validate_update,
    )


# -- validation -------------------------------------------------------------------------------------------------------


def _rules(obj: Object, *, namespaced: bool) -> list[Cause]:
    causes: list[Cause] = []
    for index, rule in enumerate(obj.get("rules") or ()):
        field = f"rules[{index}]"
        urls = rule.get("nonResourceURLs")
        if urls:
            path = f"{field}.nonResourceURLs"
            if namespaced:
                detail = "namespaced rules cannot apply to non-resource URLs"
                causes.append(invalid_value(path, urls, detail))
            if rule.get("apiGroups") or rule.get("resources") or rule.get("resourceNames"):
                detail = "rules cannot apply to both regular resources and non-resource URLs"
                causes.append(invalid_value(path, urls, detail))
            continue
        if not rule.get("apiGroups"):
            causes.append(required(f"{field}.apiGroups", "resource rules must supply at least one api group"))
        if not rule.get("resources"):
            causes.append(required(f"{field}.resources", "resource rules must supply at least one resource"))
    return causes


def validate_role(obj: Object) -> list[Cause]:
    """Check the rules of a Role."""
    return _rules(obj, namespaced=True)


def validate_cluster_role(obj: Object) -> list[Cause]:
    """Check the rules of a ClusterRole, and its aggregation selectors."""
    causes = _rules(obj, namespaced=False)
    aggregation = obj.get("aggregationRule")
    if aggregation is None:
        return causes
    selectors = aggregation.get("clusterRoleSelectors") or ()
    if not selectors:
        detail = "at least one clusterRoleSelector required if aggregationRule is non-nil"
        causes.append(required("aggregationRule.clusterRoleSelectors", detail))
    for index, selector in enumerate(selectors):
        path = f"aggregationRule.clusterRoleSelectors[{index}]"
        found = label_selector(selector, path)
        causes += [*found, invalid_value(path, None, "invalid label selector.")] if found else []
    return causes


def _binding(obj: Object, kinds: tuple[str, ...], *, namespaced: bool) -> list[Cause]:
    causes: list[Cause] = []
    reference = obj.get("roleRef") or {}
    if reference.get("apiGroup", "") != RBAC:
        causes.append(not_supported("roleRef.apiGroup", reference.get("apiGroup", ""), (RBAC,)))
    if reference.get("kind", "") not in kinds:
        causes.append(not_supported("roleRef.kind", reference.get("kind", ""), kinds))
    name = reference.get("name", "")
    causes += wrong("roleRef.name", name, names.path_segment(name)) if name else []
    for index, subject in enumerate(obj.get("subjects") or ()):
        causes += _subject(subject, f"subjects[{index}]", namespaced=namespaced)
    return causes


def _subject(subject: Object, field: str, *, namespaced: bool) -> list[Cause]:
    kind, name, group = subject.get("kind", ""), subject.get("name", ""), subject.get("apiGroup", "")
    causes: list[Cause] = []
    if kind == "ServiceAccount":
        if name:
            causes += dns_subdomain(name, f"{field}.name")
        if group:
            causes.append(not_supported(f"{field}.apiGroup", group, ("",)))
        if not namespaced and not subject.get("namespace"):
            causes.append(required(f"{field}.namespace"))
    elif kind in ("User", "Group"):
        if group != RBAC:
            causes.append(not_supported(f"{field}.apiGroup", group, (RBAC,)))
    else:
        causes.append(not_supported(f"{field}.kind", kind, ("ServiceAccount", "User", "Group")))
    return causes


def validate_role_binding(obj: Object) -> list[Cause]:
    """Check the role reference and the subjects of a RoleBinding."""
    return _binding(obj, ("Role", "ClusterRole"), namespaced=True)


def validate_cluster_role_binding(obj: Object) -> list[Cause]:
    """Check the role reference and the subjects of a ClusterRoleBinding."""
    return _binding(obj, ("ClusterRole",), namespaced=False)


def validate_role_ref_update(new: Object, old: Object) -> list[Cause]:
    """Reject a changed role reference."""
    if new.get("roleRef") == old.get("roleRef"):
        return []
    return [invalid_value("roleRef", record(new.get("roleRef") or {}, "RoleRef"), IMMUTABLE)]


# -- table columns ----------------------------------------------------------------------------------------------------


def _binding_cells(obj: ReadOnlyObject, since: Since) -> list[Any]:
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


# -- the kinds --------------------------------------------------------------------------------------------------------

KINDS: Final = (
    BuiltinKind(
        resource="roles.rbac.authorization.k8s.io",
        strategy=_rbac(validate_role),
        default_values={"rbac.v1.RoleRef": {"apiGroup": RBAC}},
        default_functions={"rbac.v1.Subject": default_subject},
    ),
    BuiltinKind(resource="clusterroles.rbac.authorization.k8s.io", strategy=_rbac(validate_cluster_role)),
    BuiltinKind(
        resource="rolebindings.rbac.authorization.k8s.io",
        strategy=_rbac(validate_role_binding, validate_role_ref_update),
        printer=Printer(
            (
                NAME,
                field_column("Role", "rbac.v1beta1.RoleBinding.roleRef"),
                AGE,
                *_subjects("roleBinding"),
            ),
            _binding_cells,
        ),
    ),
    BuiltinKind(
        resource="clusterrolebindings.rbac.authorization.k8s.io",
        strategy=_rbac(validate_cluster_role_binding, validate_role_ref_update),
        printer=Printer(
            (
                NAME,
                field_column("Role", "rbac.v1beta1.ClusterRoleBinding.roleRef"),
                AGE,
                *_subjects("clusterRoleBinding"),
            ),
            _binding_cells,
        ),
    ),
)


GROUP: Final = "rbac.authorization.k8s.io"
AUTOUPDATE: Final = "rbac.authorization.kubernetes.io/autoupdate"
AGGREGATE: Final = "rbac.authorization.k8s.io/aggregate-to-"

GATES: Final = bootstrap.gates()
"""The feature gates that add roles or rules."""

_HISTORY: Final = "history.kubechronicle.dev"
_READ: Final = ("get", "list", "watch")
_TAG_READER: Final = "system:kubechronicle:tag-reader"


def cluster_roles(gates: FeatureGates | None = None) -> list[Object]:
    """Return the ClusterRoles to create under feature gates; aggregated ones have no rules. None: the usual gates."""
    # Who reads a namespace reads its history. Contents need the right to the object as well.
    revisions = _of_history("ClusterRole", "system:kubechronicle:aggregate-to-view", rules=_may_read("revisions"))
    revisions["metadata"]["labels"][AGGREGATE + "view"] = "true"
    # A tag is a name for a moment, which anybody may use who may read at that moment.
    tags = _of_history("ClusterRole", _TAG_READER, rules=_may_read("tags"))
    return [*_of_kubernetes("ClusterRole", "clusterroles", gates), revisions, tags]


def cluster_role_bindings(gates: FeatureGates | None = None) -> list[Object]:
    """Return the ClusterRoleBindings under feature gates, each named after its cluster role."""
    tags = _of_history(
        "ClusterRoleBinding",
        _TAG_READER,
        roleRef={"apiGroup": GROUP, "kind": "ClusterRole", "name": _TAG_READER},
        subjects=[{"apiGroup": GROUP, "kind": "Group", "name": "system:authenticated"}],
    )
    return [*_of_kubernetes("ClusterRoleBinding", "clusterrolebindings", gates), tags]


def roles() -> list[Object]:
    """Return the Roles in the system namespaces."""
    return _of_kubernetes("Role", "roles")


def role_bindings() -> list[Object]:
    """Return the RoleBindings in the system namespaces."""
    return _of_kubernetes("RoleBinding", "rolebindings")


def _of_kubernetes(kind: str, resource: str, gates: FeatureGates | None = None) -> list[Object]:
    found = bootstrap.objects(resource, (gates or FeatureGates()).enabled)
    return [{"apiVersion": f"{GROUP}/v1", "kind": kind, **each} for each in found]


def _of_history(kind: str, name: str, **fields: Any) -> Object:
    metadata: Object = {
        "name": name,
        "labels": {"kubernetes.io/bootstrapping": "rbac-defaults"},
        "annotations": {AUTOUPDATE: "true"},
    }
    return {"apiVersion": f"{GROUP}/v1", "kind": kind, "metadata": metadata, **fields}


def _may_read(resource: str) -> list[Object]:
    return [{"verbs": [*_READ], "apiGroups": [_HISTORY], "resources": [resource]}]
