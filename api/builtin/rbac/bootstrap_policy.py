"""Access rules that every cluster has from its first start: those of Kubernetes (api/kinds), and two roles of our own.

They have a label and an annotation that identify them to administrators. Objects with
``rbac.authorization.kubernetes.io/autoupdate: "false"`` are not changed.
"""

from __future__ import annotations

from typing import Any, Final

from kubechronicle.api.features.gates import FeatureGates
from kubechronicle.api.kinds import bootstrap
from kubechronicle.api.values.objects import Object

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
