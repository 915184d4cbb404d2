"""The FlowSchema of a request, with the bootstrap objects and with others."""

from __future__ import annotations

from typing import Any

import pytest

from kubechronicle.api.builtin.flowcontrol import bootstrap
from kubechronicle.api.flow_control.schemas import FlowSchema, classify, compiled, in_order
from kubechronicle.api.meta.request_info import Query, resolve

LEVELS = list(bootstrap.level_specs())
BOOTSTRAP = in_order(
    [compiled({"metadata": {"name": name}, "spec": spec}) for name, spec in bootstrap.schema_specs().items()], LEVELS
)
PEOPLE = ("system:authenticated",)
NODES = ("system:nodes", *PEOPLE)
ACCOUNTS = ("system:serviceaccounts", *PEOPLE)


def schema(name: str, level: str = "workload-low", precedence: int = 1000, **rule: Any) -> FlowSchema:
    spec = {
        "priorityLevelConfiguration": {"name": level},
        "matchingPrecedence": precedence,
        "rules": [{"subjects": [{"kind": "Group", "group": {"name": "*"}}], **rule}],
    }
    return compiled({"metadata": {"name": name}, "spec": spec})


@pytest.mark.parametrize(
    ("method", "path", "user", "groups", "expected"),
    [
        ("GET", "/api/v1/pods", "root", ("system:masters",), "exempt"),
        ("GET", "/readyz", "system:anonymous", ("system:unauthenticated",), "probes"),
        ("GET", "/readyz/log", "alice", PEOPLE, "probes"),
        ("GET", "/readyzz", "alice", PEOPLE, "global-default"),
        ("PUT", "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/x", "system:kube-scheduler", PEOPLE,
         "system-leader-election"),
        ("DELETE", "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/x", "system:kube-scheduler", PEOPLE,
         "kube-scheduler"),
        ("PATCH", "/api/v1/nodes/a/status", "system:node:a", NODES, "system-node-high"),
        ("PUT", "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/a", "system:node:a", NODES,
         "system-node-high"),
        ("PATCH", "/api/v1/namespaces/a/pods/b/status", "system:node:a", NODES, "system-nodes"),
        ("GET", "/api/v1/pods", "system:serviceaccount:kube-system:gc", ACCOUNTS, "kube-system-service-accounts"),
        ("GET", "/api/v1/pods", "system:serviceaccount:kube-system2:gc", ACCOUNTS, "service-accounts"),
        ("GET", "/api/v1/pods", "alice", PEOPLE, "global-default"),
        ("GET", "/api/v1/pods", "nobody", (), "catch-all"),
    ],
)  # fmt: skip
def test_bootstrap(method: str, path: str, user: str, groups: tuple[str, ...], expected: str) -> None:
    assert classify(BOOTSTRAP, user, groups, resolve(method, path, Query(""))).name == expected


RULE = {"verbs": ["list"], "apiGroups": ["apps"], "resources": ["deployments", "deployments/scale"]}


@pytest.mark.parametrize(
    ("rule", "path", "matches"),
    [
        ({"namespaces": ["*"]}, "/apis/apps/v1/namespaces/a/deployments", True),
        ({"namespaces": ["*"]}, "/apis/apps/v1/deployments", False),
        ({"clusterScope": True}, "/apis/apps/v1/deployments", True),
        ({"clusterScope": True}, "/apis/apps/v1/namespaces/a/deployments", False),
        ({"namespaces": ["b"]}, "/apis/apps/v1/namespaces/a/deployments", False),
        ({"namespaces": ["*"]}, "/apis/apps/v1/namespaces/a/statefulsets", False),
        ({"namespaces": ["*"], "apiGroups": ["*"]}, "/apis/batch/v1/namespaces/a/deployments", True),
        ({"namespaces": ["*"], "verbs": ["get"]}, "/apis/apps/v1/namespaces/a/deployments", False),
    ],
)
def test_resource_rules(rule: dict[str, Any], path: str, matches: bool) -> None:
    one = schema("one", resourceRules=[{**RULE, **rule}])
    assert one.matches("u", (), resolve("GET", path, Query(""))) is matches


@pytest.mark.parametrize(
    ("url", "path", "matches"),
    [("*", "/x", True), ("/a/*", "/a/b/c", True), ("/a/*", "/ab", False), ("/a", "/a/b", True), ("/a", "/a", True)],
)
def test_paths(url: str, path: str, matches: bool) -> None:
    one = schema("one", nonResourceRules=[{"verbs": ["get"], "nonResourceURLs": [url]}])
    assert one.matches("u", (), resolve("GET", path, Query(""))) is matches


def test_order_and_missing_levels() -> None:
    ordered = in_order(
        [schema("b", precedence=5), schema("a", precedence=5), schema("c", precedence=4), schema("d", level="gone")],
        ["workload-low", "exempt", "catch-all"],
    )
    assert [one.name for one in ordered] == ["exempt", "c", "a", "b", "catch-all"]
