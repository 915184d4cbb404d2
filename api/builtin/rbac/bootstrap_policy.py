"""Access rules that every cluster has from its first start: objects made of the tables of roles and bindings.

They have a label and an annotation that identify them to administrators. Objects with
``rbac.authorization.kubernetes.io/autoupdate: "false"`` are not changed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

from kubechronicle.api.builtin.rbac.bootstrap_controller_roles import CONTROLLER_ROLES
from kubechronicle.api.builtin.rbac.bootstrap_roles import CLUSTER_ROLES
from kubechronicle.api.features.gates import FeatureGates
from kubechronicle.api.values.objects import Object

_CONDITION: Final = re.compile(r"([A-Z][A-Za-z0-9+]*)\?")
GROUP: Final = "rbac.authorization.k8s.io"
AUTOUPDATE: Final = "rbac.authorization.kubernetes.io/autoupdate"
AGGREGATE: Final = "rbac.authorization.k8s.io/aggregate-to-"
CONTROLLER: Final = "system:controller:"

AGGREGATED: Final = ("admin", "edit", "view")
"""Roles aggregated from all roles with the label "aggregate-to-NAME"."""

PART_OF: Final[Mapping[str, str]] = {
    "edit": "admin",
    "view": "edit",
    "system:aggregate-to-admin": "admin",
    "system:aggregate-to-edit": "edit",
    "system:aggregate-to-view": "view",
    "system:kubechronicle:aggregate-to-view": "view",
}
"""Role -> aggregated role that it is part of."""

BOUND_TO: Final[Mapping[str, tuple[str, ...]]] = {
    "cluster-admin": ("g system:masters",),
    "system:basic-user": ("g system:authenticated",),
    "system:cluster-trust-bundle-discovery": ("g system:serviceaccounts",),
    "system:discovery": ("g system:authenticated",),
    "system:kubechronicle:tag-reader": ("g system:authenticated",),
    "system:kube-controller-manager": ("u system:kube-controller-manager",),
    "system:kube-dns": ("s kube-system/kube-dns",),
    "system:kube-scheduler": ("u system:kube-scheduler",),
    "system:monitoring": ("g system:monitoring",),
    "system:node": (),
    "system:node-proxier": ("u system:kube-proxy",),
    "system:public-info-viewer": ("g system:authenticated", "g system:unauthenticated"),
    "system:service-account-issuer-discovery": ("g system:serviceaccounts",),
    "system:volume-scheduler": ("u system:kube-scheduler",),
}
"""Cluster role -> subjects: "u" users, "g" groups, "s" service accounts (NAMESPACE/NAME).

The binding is named after the role. The binding of system:node has no subjects, because nodes have their own
authorizer.
"""

_LEASES: Final = """
    create,get,list,update,watch coordination.k8s.io leases
    create,get,list,update,watch coordination.k8s.io leasecandidates
"""
_EVENTS: Final = 'create,patch,update "",events.k8s.io events'

ROLES: Final[Mapping[tuple[str, str], tuple[str, str, tuple[str, ...]]]] = {
    ("kube-public", "system:controller:bootstrap-signer"): (
        "system:controller:bootstrap-signer",
        f'get,list,watch "" configmaps\nupdate "" configmaps cluster-info\n{_EVENTS}',
        ("s kube-system/bootstrap-signer",),
    ),
    ("kube-system", "extension-apiserver-authentication-reader"): (
        "system::extension-apiserver-authentication-reader",
        'get,list,watch "" configmaps extension-apiserver-authentication',
        ("u system:kube-controller-manager", "u system:kube-scheduler"),
    ),
    ("kube-system", "system::leader-locking-kube-controller-manager"): (
        "system::leader-locking-kube-controller-manager",
        _LEASES,
        (
            "u system:kube-controller-manager",
            "s kube-system/kube-controller-manager",
            "s kube-system/leader-election-controller",
        ),
    ),
    ("kube-system", "system::leader-locking-kube-scheduler"): (
        "system::leader-locking-kube-scheduler",
        _LEASES,
        ("u system:kube-scheduler", "s kube-system/kube-scheduler"),
    ),
    ("kube-system", "system:controller:bootstrap-signer"): (
        "system:controller:bootstrap-signer",
        'get,list,watch "" secrets',
        ("s kube-system/bootstrap-signer",),
    ),
    ("kube-system", "system:controller:cloud-provider"): (
        "system:controller:cloud-provider",
        'create,get,list,watch "" configmaps',
        ("s kube-system/cloud-provider",),
    ),
    ("kube-system", "system:controller:token-cleaner"): (
        "system:controller:token-cleaner",
        f'delete,get,list,watch "" secrets\n{_EVENTS}',
        ("s kube-system/token-cleaner",),
    ),
}
"""(namespace, role) -> (name of the binding, rules, subjects as in BOUND_TO)."""


GATES: Final = frozenset(
    gate
    for text in (*CLUSTER_ROLES.values(), *CONTROLLER_ROLES.values())
    for gates in _CONDITION.findall(text)
    for gate in gates.split("+")
)
"""The feature gates that add roles or rules."""


def cluster_roles(gates: FeatureGates | None = None) -> list[Object]:
    """Return the ClusterRoles to create under feature gates; aggregated ones have no rules. None: the usual gates."""
    gates = gates or FeatureGates()
    made = []
    for name, text in _texts(gates).items():
        role = _object("ClusterRole", name, rules=parse_rules(text, gates) or None)
        if name in PART_OF:
            role["metadata"]["labels"][AGGREGATE + PART_OF[name]] = "true"
        if name in AGGREGATED:
            role["aggregationRule"] = {"clusterRoleSelectors": [{"matchLabels": {AGGREGATE + name: "true"}}]}
        made.append(role)
    return made


def _texts(gates: FeatureGates) -> dict[str, str]:
    """Return the rules of each cluster role that there is under the gates."""
    found = {}
    for name, text in {**CLUSTER_ROLES, **{CONTROLLER + name: text for name, text in CONTROLLER_ROLES.items()}}.items():
        first, _, rest = text.lstrip().partition("\n")
        condition = _CONDITION.fullmatch(first)
        if condition is None:
            found[name] = text
        elif _on(condition[1], gates):
            found[name] = rest
    return found


def _on(condition: str, gates: FeatureGates) -> bool:
    return all(gates.enabled(name) for name in condition.split("+"))


def cluster_role_bindings(gates: FeatureGates | None = None) -> list[Object]:
    """Return the ClusterRoleBindings under feature gates, each named after its cluster role."""
    roles = _texts(gates or FeatureGates())
    controllers = {CONTROLLER + name: (f"s kube-system/{name}",) for name in CONTROLLER_ROLES}
    return [
        _binding("ClusterRoleBinding", name, ("ClusterRole", name), subjects)
        for name, subjects in {**BOUND_TO, **controllers}.items()
        if name in roles
    ]


def roles() -> list[Object]:
    """Return the Roles in the system namespaces."""
    return [
        _object("Role", name, namespace, rules=parse_rules(text)) for (namespace, name), (_, text, _) in ROLES.items()
    ]


def role_bindings() -> list[Object]:
    """Return the RoleBindings in the system namespaces."""
    return [
        _binding("RoleBinding", binding, ("Role", role), subjects, namespace)
        for (namespace, role), (binding, _, subjects) in ROLES.items()
    ]


def parse_rules(text: str, gates: FeatureGates | None = None) -> list[Object]:
    """Return the PolicyRules of a table's text (see bootstrap_roles.py) under feature gates. None: the usual gates."""
    gates = gates or FeatureGates()
    rules: list[Object] = []
    for line in re.sub(r",\s+", ",", text).strip().splitlines():
        given = line.split()
        condition = _CONDITION.fullmatch(given[0])
        if condition is not None and not _on(condition[1], gates):
            continue
        words = [_items(word, gates) for word in (given if condition is None else given[1:])]
        if len(words) == 2:
            rules.append({"verbs": words[0], "nonResourceURLs": words[1]})
        else:
            rule: Object = {"verbs": words[0], "apiGroups": words[1], "resources": words[2]}
            if len(words) > 3:
                rule["resourceNames"] = words[3]
            rules.append(rule)
    return rules


def _items(word: str, gates: FeatureGates) -> list[str]:
    """Return the items of a list with commas that are there under the gates."""
    items = []
    for each in word.split(","):
        condition, mark, item = each.partition("?")
        if not mark or _on(condition, gates):
            items.append("" if each == '""' else item if mark else each)
    return items


def _object(kind: str, name: str, namespace: str = "", **fields: Any) -> Object:
    metadata: Object = {
        "name": name,
        "labels": {"kubernetes.io/bootstrapping": "rbac-defaults"},
        "annotations": {AUTOUPDATE: "true"},
    }
    if namespace:
        metadata["namespace"] = namespace
    return {"apiVersion": f"{GROUP}/v1", "kind": kind, "metadata": metadata, **fields}


def _binding(kind: str, name: str, role: tuple[str, str], subjects: Iterable[str], namespace: str = "") -> Object:
    made = _object(kind, name, namespace, roleRef={"apiGroup": GROUP, "kind": role[0], "name": role[1]})
    listed = [_subject(*text.split(" ")) for text in subjects]
    if listed:
        made["subjects"] = listed
    return made


def _subject(letter: str, name: str) -> Object:
    if letter == "s":
        namespace, _, account = name.partition("/")
        return {"kind": "ServiceAccount", "name": account, "namespace": namespace}
    return {"apiGroup": GROUP, "kind": {"u": "User", "g": "Group"}[letter], "name": name}
