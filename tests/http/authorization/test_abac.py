"""The ABAC policy file: its lines, and the indexed decision compared with a model that checks every line."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from time import process_time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kubechronicle.api.meta.request_info import RequestInfo
from kubechronicle.http.authentication.user import User
from kubechronicle.http.authorization.abac import AbacAuthorizer, PolicyFileError, parse_policies, read_policy_file
from kubechronicle.http.authorization.decision import Decision

Spec = dict[str, Any]
HEAD = {"apiVersion": "abac.authorization.kubernetes.io/v1beta1", "kind": "Policy"}
BOB = User(name="bob", groups=("staff", "system:authenticated"))
ANN = User(name="ann", groups=("system:authenticated",))
NOBODY = User(name="system:anonymous", groups=("system:unauthenticated",))
USERS = (BOB, ANN, NOBODY, User(name="bob"), User(name=""), User(name="*", groups=("*",)))


def authorizer(*lines: Spec | str) -> AbacAuthorizer:
    text = "\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines)
    return AbacAuthorizer(parse_policies(text.encode(), "policies"))


def policy(**spec: Any) -> Spec:
    return {**HEAD, "spec": spec}


def resource(verb: str = "get", plural: str = "pods", namespace: str = "one", group: str = "") -> RequestInfo:
    return RequestInfo(path="/", verb=verb, is_resource=True, group=group, namespace=namespace, resource=plural)


LOG = replace(resource(), subresource="log", name="a")


def path(text: str, verb: str = "get") -> RequestInfo:
    return RequestInfo(path=text, verb=verb)


def allows(abac: AbacAuthorizer, user: User, info: RequestInfo) -> bool:
    verdict = abac.decide(user, info)
    if verdict.decision is Decision.NO_OPINION:
        assert verdict.reason == "No policy matched."
    return verdict.decision is Decision.ALLOW


EVERYTHING = {"namespace": "*", "resource": "*", "apiGroup": "*"}


@pytest.mark.parametrize(
    ("line", "allowed", "refused"),
    [
        (
            policy(user="bob", **EVERYTHING),
            [(BOB, resource()), (BOB, resource("delete", "nodes", ""))],
            [(ANN, resource()), (BOB, path("/version"))],
        ),
        (
            policy(user="bob", readonly=True, **EVERYTHING),
            [(BOB, resource(verb)) for verb in ("get", "list", "watch")],
            [(BOB, resource("create")), (BOB, resource("deletecollection"))],
        ),
        (
            policy(user="bob", namespace="one", resource="pods"),
            [(BOB, resource()), (BOB, LOG)],
            [
                (BOB, resource(namespace="two")),
                (BOB, resource(namespace="")),
                (BOB, resource(plural="secrets")),
                (BOB, resource(group="apps")),
            ],
        ),
        (
            policy(user="bob", group="staff", **EVERYTHING),
            [(BOB, resource())],
            [(User(name="bob"), resource()), (User(name="ann", groups=("staff",)), resource())],
        ),
        (policy(group="staff", **EVERYTHING), [(BOB, resource())], [(ANN, resource())]),
        (policy(user="*", **EVERYTHING), [(BOB, resource()), (ANN, resource())], [(NOBODY, resource())]),
        (policy(group="*", user="ann", **EVERYTHING), [(BOB, resource())], [(NOBODY, resource())]),
        (
            policy(group="system:unauthenticated", nonResourcePath="*", readonly=True),
            [(NOBODY, path("/version"))],
            [(NOBODY, path("/version", "post")), (ANN, path("/version")), (NOBODY, resource())],
        ),
        (
            policy(user="bob", nonResourcePath="/healthz/*"),
            [(BOB, path("/healthz/")), (BOB, path("/healthz/a/b"))],
            [(BOB, path("/healthz")), (BOB, path("/version"))],
        ),
        (
            policy(user="bob", nonResourcePath="/api**"),
            [(BOB, path("/apis")), (BOB, path("/api"))],
            [(BOB, path("/a"))],
        ),
        (policy(user="bob", nonResourcePath="/a*b"), [(BOB, path("/a*b"))], [(BOB, path("/acb"))]),
        (policy(**EVERYTHING), [], [(BOB, resource()), (User(name=""), resource())]),
        ({"user": "bob"}, [(BOB, resource("delete", group="apps")), (BOB, path("/x", "post"))], [(ANN, resource())]),
        (
            {"user": "bob", "resource": "pods"},
            [(BOB, resource(group="any")), (BOB, resource(namespace=""))],
            [(BOB, resource(plural="secrets")), (BOB, path("/version"))],
        ),
        (
            {"group": "staff", "namespace": "one", "readonly": True},
            [(BOB, resource(plural="secrets"))],
            [(BOB, resource("update")), (BOB, resource(namespace="two")), (BOB, path("/version"))],
        ),
        (
            {"readonly": True},
            [(ANN, resource()), (ANN, path("/version"))],
            [(NOBODY, resource()), (ANN, resource("patch"))],
        ),
        ({"user": "*"}, [(ANN, resource())], [(NOBODY, resource())]),
        (
            {"apiVersion": "abac.authorization.kubernetes.io/v0", "kind": "Policy", "user": "ann"},
            [(ANN, resource())],
            [(BOB, resource())],
        ),
    ],
)
def test_lines(line: Spec, allowed: list[tuple[User, RequestInfo]], refused: list[tuple[User, RequestInfo]]) -> None:
    abac = authorizer(line)
    for user, info in allowed:
        assert allows(abac, user, info), (user, info)
    for user, info in refused:
        assert not allows(abac, user, info), (user, info)


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ('{"user": }', "couldn't get version/kind; json parse error: invalid character '}' looking for beginning of"),
        ('{"user": "bob"', "couldn't get version/kind; json parse error: unexpected end of JSON input"),
        ("bob", "couldn't get version/kind; json parse error: json: cannot unmarshal string into Go value"),
        (policy(user=1), "json: cannot unmarshal number into Go struct field PolicySpec.spec.user of type string"),
        (policy(readonly="yes"), "json: cannot unmarshal string into Go struct field PolicySpec.spec.readonly of type"),
        (
            {**HEAD, "kind": "Rule"},
            'no kind "Rule" is registered for version "abac.authorization.kubernetes.io/v1beta1"',
        ),
        ({**HEAD, "apiVersion": "v1"}, 'no kind "Policy" is registered for version "v1"'),
        ({"apiVersion": HEAD["apiVersion"], "spec": {}}, "Object 'Kind' is missing"),
        ({"spec": {"user": "bob"}}, "it has a spec, but does not say apiVersion"),
        ({"user": "b" * 70_000}, "it is longer than 65536 bytes"),
    ],
)
def test_an_error_names_its_line(line: Spec | str, why: str) -> None:
    text = line if isinstance(line, str) else json.dumps(line)
    with pytest.raises(PolicyFileError) as refused:
        authorizer("# a comment", "", policy(user="ann"), line)
    message = str(refused.value)
    assert message.startswith(f"error reading policy file policies, line 4: {text[:300]}: {why}"), message
    assert "\n" not in message


def test_a_file(tmp_path: Path) -> None:
    file = tmp_path / "policies.jsonl"
    file.write_bytes(b"# who\r\n\r\n  # indented\n" + json.dumps(policy(user="bob", **EVERYTHING)).encode() + b"\r\n")
    assert allows(AbacAuthorizer(read_policy_file(file)), BOB, resource())
    with pytest.raises(PolicyFileError, match="nowhere: No such file"):
        read_policy_file(tmp_path / "nowhere")


def test_rules_are_listed_in_the_order_of_the_file() -> None:
    abac = authorizer(
        policy(user="bob", namespace="one", resource="pods", readonly=True),
        policy(group="staff", namespace="*", resource="*", apiGroup="apps"),
        policy(user="bob", namespace="two", resource="secrets"),
        policy(user="ann", **EVERYTHING),
        policy(user="*", namespace="*", nonResourcePath="/healthz*", readonly=True),
        policy(user="bob", nonResourcePath="/version"),
    )
    reads = ["get", "list", "watch"]
    listed = abac.rules(BOB, "one")
    assert listed.rules == [
        {"verbs": reads, "apiGroups": [""], "resources": ["pods"]},
        {"verbs": ["*"], "apiGroups": ["apps"], "resources": ["*"]},
        {"verbs": reads, "nonResourceURLs": ["/healthz*"]},
    ]
    assert not listed.incomplete
    assert not listed.errors
    assert abac.rules(BOB, "").rules[-1] == {"verbs": ["*"], "nonResourceURLs": ["/version"]}


# -- the model --------------------------------------------------------------------------------------------------------


def model_allows(lines: list[Spec], user: User, info: RequestInfo) -> bool:
    """Decide by the documentation, from the unparsed lines."""
    return any(line_allows(line.get("spec", line), "spec" not in line, user, info) for line in lines)


def line_allows(spec: Spec, old: bool, user: User, info: RequestInfo) -> bool:
    wanted_user, wanted_group = spec.get("user", ""), spec.get("group", "")
    if wanted_user == "*" or wanted_group == "*" or (old and not wanted_user and not wanted_group):
        if "system:authenticated" not in user.groups:
            return False
    elif not wanted_user and not wanted_group:
        return False
    else:
        if wanted_user and wanted_user != user.name:
            return False
        if wanted_group and wanted_group not in user.groups:
            return False
    if spec.get("readonly", False) and info.verb not in ("get", "list", "watch"):
        return False
    namespace, kind, group = spec.get("namespace", ""), spec.get("resource", ""), spec.get("apiGroup", "")
    place = spec.get("nonResourcePath", "")
    if old:
        place = "" if namespace or kind else "*"
        namespace, kind, group = namespace or "*", kind or "*", "*"
    if info.is_resource:
        return namespace in ("*", info.namespace) and kind in ("*", info.resource) and group in ("*", info.group)
    return bool(place == info.path or (place[-1:] == "*" and info.path.startswith(place.rstrip("*"))))


NAMES = st.sampled_from(["", "bob", "ann", "*"])
GROUPS = st.sampled_from(["", "", "staff", "system:authenticated", "system:unauthenticated", "*"])
SPECS: dict[str, st.SearchStrategy[Any]] = {
    "user": NAMES,
    "group": GROUPS,
    "readonly": st.booleans(),
    "namespace": st.sampled_from(["", "one", "two", "*"]),
    "resource": st.sampled_from(["", "pods", "secrets", "*"]),
}
NEW_SPECS = {
    **SPECS,
    "apiGroup": st.sampled_from(["", "apps", "*"]),
    "nonResourcePath": st.sampled_from(["", "/version", "/healthz", "/healthz/*", "/h*", "*", "/apis/*"]),
}
LINES = st.lists(
    st.one_of(
        st.fixed_dictionaries({}, optional=NEW_SPECS).map(lambda spec: {**HEAD, "spec": spec}),
        st.fixed_dictionaries({}, optional=SPECS),
    ),
    max_size=6,
)
VERBS = st.sampled_from(["get", "list", "watch", "create", "deletecollection", "post"])
REQUESTS = st.one_of(
    st.builds(
        resource,
        VERBS,
        st.sampled_from(["pods", "secrets", ""]),
        st.sampled_from(["", "one", "two"]),
        st.sampled_from(["", "apps"]),
    ),
    st.builds(path, st.sampled_from(["/version", "/healthz", "/healthz/ping", "/", "", "/apis/apps", "/apis"]), VERBS),
)


@settings(max_examples=250, deadline=None)
@given(LINES, st.lists(st.tuples(st.sampled_from(USERS), REQUESTS), min_size=8, max_size=8))
def test_every_decision_equals_the_model(lines: list[Spec], requests: list[tuple[User, RequestInfo]]) -> None:
    abac = authorizer(*lines)
    for user, info in requests:
        assert allows(abac, user, info) == model_allows(lines, user, info), (user, info)


def test_ten_thousand_lines_cost_no_more_than_ten() -> None:
    def cost(abac: AbacAuthorizer) -> float:
        best = 1.0
        for _ in range(5):
            started = process_time()
            for _ in range(200):
                assert not allows(abac, BOB, resource("delete"))
            best = min(best, (process_time() - started) / 200)
        return best

    few = [policy(user=f"user-{number}", namespace="one", resource="pods") for number in range(10)]
    many = [
        policy(user=f"user-{number}", group=f"group-{number % 7}", namespace=f"n-{number}", resource="pods")
        for number in range(5000)
    ] + [policy(user="bob", namespace=f"n-{number}", nonResourcePath=f"/p/{number}/*") for number in range(5000)]
    assert cost(authorizer(*many)) < 10 * cost(authorizer(*few)) + 20e-6
