"""The RBAC authorizer against an obvious one: every rule of every binding, looked at one by one, on random policies."""

from __future__ import annotations

import random
from collections.abc import Iterable
from itertools import count
from typing import Any

import orjson
import pytest

from kubechronicle.api import rbac
from kubechronicle.api.selectors import describe
from kubechronicle.eventlog.records import Key, Operation, Record
from kubechronicle.eventlog.views import Views
from kubechronicle.http.authentication.user import User
from kubechronicle.http.authorization.decision import Decision
from kubechronicle.http.authorization.rbac import GROUP, RbacAuthorizer
from kubechronicle.http.request_info import RequestInfo

Object = dict[str, Any]
NAMESPACES = ("one", "two")
VERBS = ("get", "list", "create", "*")
GROUPS = ("", "apps", "*")
RESOURCES = ("pods", "pods/log", "pods/status", "deployments", "deployments/status", "*", "*/status")
NAMES = ("a", "b")
PATHS = ("/healthz", "/healthz/*", "/api", "*", "/version")
SUBJECTS = (
    {"kind": "User", "name": "ann"}, {"kind": "User", "name": "bob"}, {"kind": "Group", "name": "staff"},
    {"kind": "Group", "name": "system:authenticated"}, {"kind": "ServiceAccount", "name": "bot", "namespace": "one"},
    {"kind": "ServiceAccount", "name": "bot"},
)  # fmt: skip
USERS = (
    User(name="ann", groups=("staff", "system:authenticated")),
    User(name="bob", groups=("system:authenticated",)),
    User(name="system:serviceaccount:one:bot", groups=("system:serviceaccounts",)),
    User(name="system:anonymous"),
)


class Cluster:
    """Objects of the four kinds, kept in views as the log would, and in a dictionary for the obvious reading."""

    def __init__(self) -> None:
        self.views = Views(describe)
        self.objects: dict[Key, Object] = {}
        self._revisions: dict[Key, int] = {}
        self._next = count(1)

    def put(self, plural: str, namespace: str, name: str, **fields: Any) -> None:
        metadata = {"name": name, **({"namespace": namespace} if namespace else {})}
        key = Key(f"{plural}.{GROUP}", namespace, name)
        operation = Operation.UPDATE if key in self.objects else Operation.CREATE
        self._apply(key, operation, {"apiVersion": f"{GROUP}/v1", "kind": "X", "metadata": metadata, **fields})

    def delete(self, key: Key) -> None:
        self._apply(key, Operation.DELETE, self.objects[key])

    def _apply(self, key: Key, operation: Operation, obj: Object) -> None:
        from datetime import UTC, datetime

        revision = next(self._next)
        self.views.apply([
            Record(
                revision=revision, key=key, uid="u", create_revision=1, version=1,
                previous_revision=self._revisions.get(key, 0), operation=operation, body=orjson.dumps(obj),
                committed_at=datetime(2026, 1, 1, tzinfo=UTC),
            )
        ])  # fmt: skip
        if operation is Operation.DELETE:
            del self.objects[key], self._revisions[key]
        else:
            self.objects[key], self._revisions[key] = obj, revision


def obvious(cluster: Cluster, user: User, info: RequestInfo) -> bool:
    """Kubernetes' rules as its documentation tells them, without any index."""
    for key, binding in cluster.objects.items():
        if key.resource == f"clusterrolebindings.{GROUP}":
            space = ""
        elif key.resource == f"rolebindings.{GROUP}" and info.is_resource and key.namespace == info.namespace != "":
            space = key.namespace
        else:
            continue
        if not any(is_subject(each, user, space) for each in binding["subjects"]):
            continue
        reference = binding["roleRef"]
        plural, where = ("roles", space) if reference["kind"] == "Role" else ("clusterroles", "")
        role = cluster.objects.get(Key(f"{plural}.{GROUP}", where, reference["name"]), {"rules": []})
        if any(allows(rule, info) for rule in role["rules"]):
            return True
    return False


def is_subject(subject: Object, user: User, space: str) -> bool:
    if subject["kind"] == "User":
        return bool(subject["name"] == user.name)
    if subject["kind"] == "Group":
        return subject["name"] in user.groups
    return user.name == f"system:serviceaccount:{subject.get('namespace', space)}:{subject['name']}"


def allows(rule: Object, info: RequestInfo) -> bool:
    if info.verb not in rule["verbs"] and "*" not in rule["verbs"]:
        return False
    if not info.is_resource:
        for pattern in rule.get("nonResourceURLs", ()):
            if pattern == info.path or (pattern[-1] == "*" and info.path.startswith(pattern[:-1])):
                return True
        return False
    if info.group not in rule.get("apiGroups", ()) and "*" not in rule.get("apiGroups", ()):
        return False
    asked = info.resource + ("/" + info.subresource if info.subresource else "")
    for resource in rule.get("resources", ()):
        if resource in ("*", asked) or (info.subresource and resource == "*/" + info.subresource):
            return not rule.get("resourceNames") or info.name in rule["resourceNames"]
    return False


def some(draw: random.Random, values: Iterable[Any]) -> list[Any]:
    listed = list(values)
    return draw.sample(listed, draw.randint(1, 2))


def random_rule(draw: random.Random) -> Object:
    if draw.random() < 0.2:
        return {"verbs": some(draw, VERBS), "nonResourceURLs": some(draw, PATHS)}
    rule = {"verbs": some(draw, VERBS), "apiGroups": some(draw, GROUPS), "resources": some(draw, RESOURCES)}
    if draw.random() < 0.3:
        rule["resourceNames"] = some(draw, NAMES)
    return rule


def change(draw: random.Random, cluster: Cluster) -> None:
    """Make, replace or delete one role or binding."""
    if cluster.objects and draw.random() < 0.2:
        cluster.delete(draw.choice(list(cluster.objects)))
        return
    space, name = draw.choice(("", *NAMESPACES)), draw.choice(("r", "s", "t"))
    if draw.random() < 0.5:
        cluster.put("roles" if space else "clusterroles", space, name, rules=[random_rule(draw) for _ in range(2)])
        return
    kind = draw.choice(("Role", "ClusterRole")) if space else "ClusterRole"
    reference = {"apiGroup": GROUP, "kind": kind, "name": draw.choice(("r", "s", "t", "missing"))}
    subjects = [each for each in some(draw, SUBJECTS) if space or each != SUBJECTS[-1]]
    plural = "rolebindings" if space else "clusterrolebindings"
    cluster.put(plural, space, name, roleRef=reference, subjects=subjects)


def random_request(draw: random.Random) -> RequestInfo:
    if draw.random() < 0.2:
        path = draw.choice(("/healthz", "/healthz/ping", "/api", "/version", "/apis"))
        return RequestInfo(path=path, verb=draw.choice(("get", "create")))
    resource, _, subresource = draw.choice(RESOURCES[:5]).partition("/")
    return RequestInfo(
        path="/", verb=draw.choice(("get", "list", "create", "delete")), is_resource=True,
        group=draw.choice(("", "apps", "batch")), namespace=draw.choice(("", *NAMESPACES)), resource=resource,
        subresource=subresource, name=draw.choice(("", *NAMES)),
    )  # fmt: skip


@pytest.mark.parametrize("seed", range(60))
def test_every_decision_is_the_obvious_one(seed: int) -> None:
    draw, cluster = random.Random(seed), Cluster()
    authorizer = RbacAuthorizer(cluster.views)
    seen = set()
    for _ in range(60):
        change(draw, cluster)
        for _ in range(12):
            user, info = draw.choice(USERS), random_request(draw)
            wanted = obvious(cluster, user, info)
            seen.add(wanted)
            assert (authorizer.decide(user, info).decision is Decision.ALLOW) == wanted, (user, info)
            assert (authorizer.explain(user, info).decision is Decision.ALLOW) == wanted, (user, info)
    assert seen == {True, False}


def test_a_binding_counts_from_the_next_request_and_ends_with_it() -> None:
    cluster = Cluster()
    authorizer = RbacAuthorizer(cluster.views)
    ann = User(name="ann")
    info = RequestInfo(path="/", verb="get", is_resource=True, namespace="one", resource="pods", name="a")
    assert authorizer.decide(ann, info).decision is Decision.NO_OPINION
    cluster.put("rolebindings", "one", "b", roleRef={"kind": "Role", "name": "r"}, subjects=[SUBJECTS[0]])
    assert authorizer.decide(ann, info).reason == f'RBAC: role.{GROUP} "r" not found'
    cluster.put("roles", "one", "r", rules=[{"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}])
    assert authorizer.decide(ann, info).decision is Decision.ALLOW
    assert authorizer.explain(ann, info).reason == 'RBAC: allowed by RoleBinding "b/one" of Role "r" to User "ann"'
    cluster.delete(Key(f"rolebindings.{GROUP}", "one", "b"))
    assert authorizer.decide(ann, info).decision is Decision.NO_OPINION


def test_what_has_scrolled_out_of_memory_is_found_gone() -> None:
    cluster = Cluster()
    authorizer = RbacAuthorizer(cluster.views)
    info = RequestInfo(path="/", verb="get", is_resource=True, namespace="one", resource="pods", name="a")
    cluster.put("clusterroles", "", "r", rules=[{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}])
    cluster.put("clusterrolebindings", "", "b", roleRef={"kind": "ClusterRole", "name": "r"}, subjects=[SUBJECTS[0]])
    assert authorizer.decide(USERS[0], info).decision is Decision.ALLOW
    cluster.delete(Key(f"clusterrolebindings.{GROUP}", "", "b"))
    for view in cluster.views:
        view.window.reset(cluster.views.applied)
    assert authorizer.decide(USERS[0], info).decision is Decision.NO_OPINION


RULES = [{"verbs": ["get", "list"], "apiGroups": [""], "resources": ["pods"]}]


@pytest.mark.parametrize(
    ("held", "wanted", "missing"),
    [
        (RULES, RULES, []),
        ([], RULES, ['{APIGroups:[""], Resources:["pods"], Verbs:["get" "list"]}']),
        (
            RULES,
            [{"verbs": ["get", "delete"], "apiGroups": [""], "resources": ["pods", "secrets"]}],
            [
                '{APIGroups:[""], Resources:["pods"], Verbs:["delete"]}',
                '{APIGroups:[""], Resources:["secrets"], Verbs:["get" "delete"]}',
            ],
        ),
        ([{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}], RULES, []),
        ([{"verbs": ["*"], "apiGroups": [""], "resources": ["*/log"]}], [{**RULES[0], "resources": ["pods/log"]}], []),
        ([{**RULES[0], "resourceNames": ["a"]}], [{**RULES[0], "resourceNames": ["a"]}], []),
        (
            [{**RULES[0], "resourceNames": ["a"]}],
            RULES,
            ['{APIGroups:[""], Resources:["pods"], Verbs:["get" "list"]}'],
        ),
        (
            [{"verbs": ["get"], "nonResourceURLs": ["/healthz/*"]}],
            [{"verbs": ["get"], "nonResourceURLs": ["/healthz/ping", "/version"]}],
            ['{NonResourceURLs:["/version"], Verbs:["get"]}'],
        ),
    ],
)
def test_what_is_not_covered(held: list[Object], wanted: list[Object], missing: list[str]) -> None:
    assert rbac.describe(rbac.not_covered(held, wanted)) == missing
