"""The RBAC authorizer on random policies, compared with a model that checks every rule of every binding."""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest
from view_objects import Object, ViewObjects

from kubechronicle.api.access import rbac
from kubechronicle.api.meta.request_info import RequestInfo
from kubechronicle.eventlog.records import Key
from kubechronicle.http.authentication.user import User
from kubechronicle.http.authorization import rbac as authorizers
from kubechronicle.http.authorization.decision import Decision
from kubechronicle.http.authorization.rbac import GROUP, RbacAuthorizer

NAMESPACES = ("one", "two")
VERBS = ("get", "list", "watch", "create", "deletecollection", "*")
GROUPS = ("", "apps", "*")
RESOURCES = (
    "pods",
    "pods/log",
    "pods/status",
    "deployments",
    "deployments/scale",
    "*",
    "*/status",
    "*/scale",
    "pods/*",
)
NAMES = ("a", "b")
PATHS = ("/healthz", "/healthz/*", "/api", "/api*", "/apis/**", "*", "/version", "/healthz/ping*")
ASKED_PATHS = ("/healthz", "/healthz/", "/healthz/ping", "/healthz/ping/x", "/api", "/apis", "/apis/apps", "/version")
SUBJECTS: tuple[Object, ...] = (
    {"kind": "User", "name": "ann"},
    {"kind": "User", "name": "bob", "apiGroup": GROUP},
    {"kind": "Group", "name": "staff"},
    {"kind": "Group", "name": "system:authenticated", "apiGroup": ""},
    {"kind": "Group", "name": "ann"},
    {"kind": "User", "name": "staff"},
    {"kind": "User", "name": "system:serviceaccount:two:bot"},
    {"kind": "Group", "name": "system:serviceaccounts:one"},
    {"kind": "ServiceAccount", "name": "bot", "namespace": "one"},
    {"kind": "ServiceAccount", "name": "bot"},
    {"kind": "ServiceAccount", "name": "bot", "namespace": ""},
    {"kind": "Robot", "name": "bob"},
)
USERS = (
    User(name="ann", groups=("staff", "system:authenticated")),
    User(name="bob", groups=("system:authenticated",)),
    User(name="staff"),
    User(name="system:serviceaccount:one:bot", groups=("system:serviceaccounts", "system:serviceaccounts:one")),
    User(name="system:serviceaccount:two:bot", groups=("system:serviceaccounts", "system:serviceaccounts:two")),
    User(name="system:serviceaccount::bot"),
    User(name="system:anonymous", groups=("system:unauthenticated",)),
)


class Cluster(ViewObjects):
    """Roles and bindings."""

    def put_rbac(self, plural: str, namespace: str, name: str, **fields: Any) -> None:
        self.put(f"{plural}.{GROUP}", namespace, name, {"apiVersion": f"{GROUP}/v1", **fields})


def model_allows(cluster: Cluster, user: User, info: RequestInfo) -> bool:
    """Decide by the documentation of Kubernetes, without an index."""
    return any(allows(rule, info) for rule in held_rules(cluster, user, info.namespace if info.is_resource else ""))


def held_rules(cluster: Cluster, user: User, namespace: str) -> list[Object]:
    """Return the rules bound to a user: cluster role bindings by name first, then those of the namespace."""
    rules: list[Object] = []
    for plural, space in (("clusterrolebindings", ""), ("rolebindings", namespace)):
        bindings = {key.name: each for key, each in cluster.objects.items() if key[:2] == (f"{plural}.{GROUP}", space)}
        for name in sorted(bindings):
            for subject in bindings[name].get("subjects") or ():
                if is_subject(subject, user, space):
                    rules += rules_of(cluster, bindings[name]["roleRef"], space)
                    break
    return rules


def model_reason(cluster: Cluster, user: User, info: RequestInfo) -> str:
    """Return the reason of the first binding that allows a request, or the missing roles."""
    namespace = info.namespace if info.is_resource else ""
    missing: dict[str, None] = {}
    for plural, space in (("clusterrolebindings", ""), *((("rolebindings", namespace),) if namespace else ())):
        bindings = {key.name: each for key, each in cluster.objects.items() if key[:2] == (f"{plural}.{GROUP}", space)}
        for name, binding in sorted(bindings.items()):
            subject = next((each for each in binding.get("subjects") or () if is_subject(each, user, space)), None)
            if subject is None:
                continue
            kind, role = binding["roleRef"]["kind"], binding["roleRef"]["name"]
            if any(allows(rule, info) for rule in rules_of(cluster, binding["roleRef"], space)):
                who = subject["name"]
                if subject["kind"] == "ServiceAccount":
                    who = f"{who}/{subject.get('namespace') or space}"
                shown = f'RoleBinding "{name}/{space}"' if space else f'ClusterRoleBinding "{name}"'
                return f'RBAC: allowed by {shown} of {kind} "{role}" to {subject["kind"]} "{who}"'
            if Key(f"{kind.lower()}s.{GROUP}", space if kind == "Role" else "", role) not in cluster.objects:
                missing[f'{kind.lower()}.{GROUP} "{role}" not found'] = None
    return "RBAC: " + (next(iter(missing)) if len(missing) == 1 else f"[{', '.join(missing)}]") if missing else ""


def rules_of(cluster: Cluster, reference: Object, space: str) -> list[Object]:
    if reference["kind"] == "Role":
        role = cluster.objects.get(Key(f"roles.{GROUP}", space, reference["name"]))
    else:
        role = cluster.objects.get(Key(f"clusterroles.{GROUP}", "", reference["name"]))
    return role.get("rules") or [] if role is not None else []


def is_subject(subject: Object, user: User, space: str) -> bool:
    kind, name = subject["kind"], subject["name"]
    if kind == "User":
        return bool(name == user.name)
    if kind == "Group":
        return name in user.groups
    where = subject.get("namespace") or space
    return kind == "ServiceAccount" and where != "" and user.name == f"system:serviceaccount:{where}:{name}"


def allows(rule: Object, info: RequestInfo) -> bool:
    if info.verb not in rule["verbs"] and "*" not in rule["verbs"]:
        return False
    if not info.is_resource:
        for pattern in rule.get("nonResourceURLs") or ():
            if pattern == info.path or (pattern[-1] == "*" and info.path.startswith(pattern.rstrip("*"))):
                return True
        return False
    if info.group not in rule.get("apiGroups", ()) and "*" not in rule.get("apiGroups", ()):
        return False
    if rule.get("resourceNames") and info.name not in rule["resourceNames"]:
        return False
    requested = info.resource + ("/" + info.subresource if info.subresource else "")
    for resource in rule.get("resources") or ():
        if resource in ("*", requested) or (info.subresource and resource == "*/" + info.subresource):
            return True
    return False


def some(draw: random.Random, values: Iterable[Any], most: int = 2) -> list[Any]:
    listed = list(values)
    return draw.sample(listed, draw.randint(1, most))


def random_rule(draw: random.Random) -> Object:
    if draw.random() < 0.2:
        return {"verbs": some(draw, VERBS), "nonResourceURLs": some(draw, PATHS)}
    rule = {"verbs": some(draw, VERBS), "apiGroups": some(draw, GROUPS), "resources": some(draw, RESOURCES)}
    if draw.random() < 0.4:
        rule["resourceNames"] = some(draw, NAMES)
    return rule


def change(draw: random.Random, cluster: Cluster) -> None:
    """Create, replace or delete one role or binding."""
    if cluster.objects and draw.random() < 0.2:
        cluster.delete(draw.choice(list(cluster.objects)))
        return
    if draw.random() < 0.05:
        cluster.forget_history()
    space, name = draw.choice(("", *NAMESPACES)), draw.choice(("r", "s", "t"))
    if draw.random() < 0.5:
        rules = [random_rule(draw) for _ in range(draw.randint(0, 3))]
        fields = {"rules": rules} if rules else {"rules": None} if draw.random() < 0.5 else {}
        cluster.put_rbac("roles" if space else "clusterroles", space, name, **fields)
        return
    kind = draw.choice(("Role", "ClusterRole")) if space else "ClusterRole"
    reference = {"apiGroup": GROUP, "kind": kind, "name": draw.choice(("r", "s", "t", "missing"))}
    plural = "rolebindings" if space else "clusterrolebindings"
    fields = {"subjects": some(draw, SUBJECTS, 3)} if draw.random() < 0.95 else {}
    cluster.put_rbac(plural, space, name, roleRef=reference, **fields)


def random_request(draw: random.Random) -> RequestInfo:
    if draw.random() < 0.2:
        return RequestInfo(path=draw.choice(ASKED_PATHS), verb=draw.choice(("get", "create")))
    resource = draw.choice(("pods", "deployments", "jobs"))
    return RequestInfo(
        path="/",
        verb=draw.choice((*VERBS[:-1], "delete")),
        is_resource=True,
        group=draw.choice(("", "apps", "batch")),
        namespace=draw.choice(("", *NAMESPACES)),
        resource=resource,
        subresource=draw.choice(("", "", "", "log", "status", "scale", "*")),
        name=draw.choice(("", *NAMES, "c")),
    )


@pytest.mark.parametrize("seed", range(30))
def test_every_decision_equals_the_model(seed: int) -> None:
    draw, cluster = random.Random(seed), Cluster()
    authorizer = RbacAuthorizer(cluster.views)
    seen = set()
    for _ in range(20):
        change(draw, cluster)
    for _ in range(60):
        change(draw, cluster)
        for _ in range(16):
            user, info = draw.choice(USERS), random_request(draw)
            wanted = model_allows(cluster, user, info)
            seen.add(wanted)
            assert (authorizer.decide(user, info).decision is Decision.ALLOW) == wanted, (user, info)
            explained = authorizer.explain(user, info)
            assert (explained.decision is Decision.ALLOW) == wanted, (user, info)
            assert explained.reason == model_reason(cluster, user, info)
            if not wanted:
                assert authorizer.decide(user, info).reason == explained.reason
        user, space = draw.choice(USERS), draw.choice(("", *NAMESPACES))
        assert authorizer.rules(user, space).rules == held_rules(cluster, user, space)
    assert seen == {True, False}


TO_R = {"kind": "ClusterRole", "name": "r"}
POD = RequestInfo(path="/", verb="get", is_resource=True, namespace="one", resource="pods", name="a")


@pytest.mark.parametrize(
    ("rule", "allowed", "refused"),
    [
        (
            {"resources": ["pods"], "resourceNames": ["a"], "verbs": ["*"]},
            [{}, {"verb": "delete"}, {"verb": "watch"}],
            [{"name": "b"}, *({"verb": verb, "name": ""} for verb in ("list", "watch", "create", "deletecollection"))],
        ),
        (
            {"resources": ["*/scale"]},
            [{"subresource": "scale"}, {"resource": "x", "subresource": "scale"}],
            [{}, {"resource": "scale"}, {"subresource": "status"}, {"subresource": "ascale"}],
        ),
        ({"resources": ["pods/*"]}, [{"subresource": "*"}], [{}, {"subresource": "log"}]),
        ({"resources": ["pods"]}, [{}], [{"subresource": "log"}, {"group": "apps"}, {"verb": "list"}]),
        ({"resources": ["*"]}, [{}, {"subresource": "log"}, {"resource": "secrets"}], [{"group": "apps"}]),
        (
            {"resources": ["pods"], "apiGroups": ["*"], "verbs": ["*"]},
            [{"group": "x", "verb": "y"}],
            [{"resource": "secrets"}],
        ),
        (
            {"nonResourceURLs": ["/healthz/*"]},
            [{"path": "/healthz/a", "is_resource": False}],
            [{}, {"path": "/healthz", "is_resource": False}],
        ),
        (
            {"nonResourceURLs": ["*"], "resources": ["pods"]},
            [{}, {"path": "/x", "is_resource": False}],
            [{"resource": "secrets"}],
        ),
    ],
)
def test_rules(rule: Object, allowed: list[Object], refused: list[Object]) -> None:
    cluster = Cluster()
    authorizer = RbacAuthorizer(cluster.views)
    cluster.put_rbac("clusterroles", "", "r", rules=[{"verbs": ["get"], "apiGroups": [""], **rule}])
    cluster.put_rbac(
        "clusterrolebindings", "", "b", roleRef={"kind": "ClusterRole", "name": "r"}, subjects=SUBJECTS[:1]
    )
    for changes, wanted in (*((each, True) for each in allowed), *((each, False) for each in refused)):
        info = replace(POD, **changes)
        assert model_allows(cluster, USERS[0], info) == wanted, changes
        assert (authorizer.decide(USERS[0], info).decision is Decision.ALLOW) == wanted, changes


def test_a_binding_has_effect_from_the_next_request() -> None:
    cluster = Cluster()
    authorizer = RbacAuthorizer(cluster.views)
    ann = User(name="ann")
    assert authorizer.decide(ann, POD).decision is Decision.NO_OPINION
    cluster.put_rbac("rolebindings", "one", "b", roleRef={"kind": "Role", "name": "r"}, subjects=[SUBJECTS[0]])
    assert authorizer.decide(ann, POD).reason == f'RBAC: role.{GROUP} "r" not found'
    cluster.put_rbac("roles", "one", "r", rules=[{"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}])
    assert authorizer.decide(ann, POD).decision is Decision.ALLOW
    assert authorizer.explain(ann, POD).reason == 'RBAC: allowed by RoleBinding "b/one" of Role "r" to User "ann"'
    cluster.delete(Key(f"rolebindings.{GROUP}", "one", "b"))
    assert authorizer.decide(ann, POD).decision is Decision.NO_OPINION


def test_deletions_outside_the_window_are_detected() -> None:
    cluster = Cluster()
    authorizer = RbacAuthorizer(cluster.views)
    cluster.put_rbac("clusterroles", "", "r", rules=[{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}])
    cluster.put_rbac(
        "clusterrolebindings", "", "b", roleRef={"kind": "ClusterRole", "name": "r"}, subjects=[SUBJECTS[0]]
    )
    assert authorizer.decide(USERS[0], POD).decision is Decision.ALLOW
    cluster.delete(Key(f"clusterrolebindings.{GROUP}", "", "b"))
    cluster.forget_history()
    assert authorizer.decide(USERS[0], POD).decision is Decision.NO_OPINION


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
def test_uncovered_rules(held: list[Object], wanted: list[Object], missing: list[str]) -> None:
    assert rbac.describe(rbac.not_covered(held, wanted)) == missing


def test_reviews_of_long_names_do_not_fill_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(authorizers, "MAX_KEPT", 1 << 20)
    cluster = Cluster()
    authorizer = RbacAuthorizer(cluster.views)
    for number in range(40):
        long = f"{number}" + "x" * 100_000
        assert authorizer.decide(USERS[0], replace(POD, namespace=long)).decision is Decision.NO_OPINION
        assert authorizer.decide(User(name="a", groups=(long,)), POD).decision is Decision.NO_OPINION
    assert authorizer._kept_bytes <= 1 << 20
    texts = [str(key) for kept in authorizer._kept.values() for key in (*kept.general, *kept.refusals)]
    assert sum(map(len, (*texts, *authorizer._kept))) <= 1 << 20
