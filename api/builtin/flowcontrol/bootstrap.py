"""FlowSchemas and PriorityLevelConfigurations that every cluster has from its first start (v1.36).

Two of each kind, ``exempt`` and ``catch-all``, are mandatory: their specs are fixed. The others are suggestions, which
an administrator may change. A text of rules has one rule a line: verbs, API groups, resources and scopes, each a list
with commas. ``""`` is the core group, and the scopes are namespaces, or ``cluster`` for resources without one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from kubechronicle.api.values.objects import Object

GROUP: Final = "flowcontrol.apiserver.k8s.io"
AUTOUPDATE: Final = "apf.kubernetes.io/autoupdate-spec"
EXEMPT: Final = "exempt"
CATCH_ALL: Final = "catch-all"
MANDATORY: Final = (EXEMPT, CATCH_ALL)

SUGGESTED_LEVELS: Final[Mapping[str, tuple[int, int, int, int]]] = {
    "system": (30, 33, 64, 6),
    "node-high": (40, 25, 64, 6),
    "leader-election": (10, 0, 16, 4),
    "workload-high": (40, 50, 128, 6),
    "workload-low": (100, 90, 128, 6),
    "global-default": (20, 50, 128, 6),
}
"""Name -> (shares, percent of them that may be lent, queues, queues of a flow)."""

QUEUE_LENGTH: Final = 50
CATCH_ALL_SHARES: Final = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class _Schema:
    """``subjects``: "u" users, "g" groups, "s" service accounts (NAMESPACE/NAME). ``resources``: rules of resources.

    ``urls``: verbs and paths of other requests. ``by``: the part of a request that tells flows apart.
    """

    precedence: int
    level: str
    subjects: tuple[str, ...]
    by: str = "ByUser"
    resources: str = "* * * cluster,*"
    urls: str = "* *"


_MANAGER: Final = "u system:kube-controller-manager"
_SCHEDULER: Final = "u system:kube-scheduler"
_SYSTEM_ACCOUNTS: Final = "s kube-system/*"
_EVERYBODY: Final = ("g system:unauthenticated", "g system:authenticated")

_SCHEMAS: Final[Mapping[str, _Schema]] = {
    "exempt": _Schema(precedence=1, level=EXEMPT, subjects=("g system:masters",), by=""),
    "probes": _Schema(
        precedence=2,
        level=EXEMPT,
        subjects=_EVERYBODY,
        by="",
        resources="",
        urls="get /healthz,/readyz,/livez",
    ),
    "system-leader-election": _Schema(
        precedence=100,
        level="leader-election",
        subjects=(_MANAGER, _SCHEDULER, _SYSTEM_ACCOUNTS),
        resources="get,create,update coordination.k8s.io leases *",
        urls="",
    ),
    "system-node-high": _Schema(
        precedence=400,
        level="node-high",
        subjects=("g system:nodes",),
        resources='* "" nodes,nodes/status cluster,*\n* coordination.k8s.io leases *',
        urls="",
    ),
    "system-nodes": _Schema(precedence=500, level="system", subjects=("g system:nodes",)),
    "kube-controller-manager": _Schema(precedence=800, level="workload-high", subjects=(_MANAGER,), by="ByNamespace"),
    "kube-scheduler": _Schema(precedence=800, level="workload-high", subjects=(_SCHEDULER,), by="ByNamespace"),
    "kube-system-service-accounts": _Schema(
        precedence=900, level="workload-high", subjects=(_SYSTEM_ACCOUNTS,), by="ByNamespace"
    ),
    "service-accounts": _Schema(precedence=9000, level="workload-low", subjects=("g system:serviceaccounts",)),
    "global-default": _Schema(precedence=9900, level="global-default", subjects=_EVERYBODY),
    "catch-all": _Schema(precedence=10000, level=CATCH_ALL, subjects=_EVERYBODY),
}


def level_specs() -> dict[str, Object]:
    """Return the specs of the priority levels by name, with all defaults."""
    specs: dict[str, Object] = {
        EXEMPT: {"type": "Exempt", "exempt": {"nominalConcurrencyShares": 0, "lendablePercent": 0}},
        CATCH_ALL: _limited(CATCH_ALL_SHARES, 0, {"type": "Reject"}),
    }
    for name, (shares, lent, queues, hand) in SUGGESTED_LEVELS.items():
        queuing = {"queues": queues, "handSize": hand, "queueLengthLimit": QUEUE_LENGTH}
        specs[name] = _limited(shares, lent, {"type": "Queue", "queuing": queuing})
    return specs


def _limited(shares: int, lent: int, response: Object) -> Object:
    limited = {"nominalConcurrencyShares": shares, "lendablePercent": lent, "limitResponse": response}
    return {"type": "Limited", "limited": limited}


def schema_specs() -> dict[str, Object]:
    """Return the specs of the flow schemas by name, with all defaults."""
    return {name: _spec(schema) for name, schema in _SCHEMAS.items()}


def _spec(schema: _Schema) -> Object:
    rule: Object = {"subjects": [_subject(text) for text in schema.subjects]}
    if schema.resources:
        rule["resourceRules"] = [_resources(line) for line in schema.resources.splitlines()]
    if schema.urls:
        verbs, paths = schema.urls.split(" ")
        rule["nonResourceRules"] = [{"verbs": verbs.split(","), "nonResourceURLs": paths.split(",")}]
    spec: Object = {
        "priorityLevelConfiguration": {"name": schema.level},
        "matchingPrecedence": schema.precedence,
        "rules": [rule],
    }
    if schema.by:
        spec["distinguisherMethod"] = {"type": schema.by}
    return spec


def _subject(text: str) -> Object:
    letter, _, name = text.partition(" ")
    if letter == "s":
        namespace, _, account = name.partition("/")
        return {"kind": "ServiceAccount", "serviceAccount": {"namespace": namespace, "name": account}}
    kind = {"u": "User", "g": "Group"}[letter]
    return {"kind": kind, kind.lower(): {"name": name}}


def _resources(line: str) -> Object:
    verbs, groups, resources, scopes = (word.split(",") for word in line.replace('""', "").split(" "))
    rule: Object = {"verbs": verbs, "apiGroups": groups, "resources": resources}
    if "cluster" in scopes:
        rule["clusterScope"] = True
    return {**rule, "namespaces": [scope for scope in scopes if scope != "cluster"]}
