"""Impersonation: the headers, the rights it requires, and its record in the log."""

from __future__ import annotations

from typing import Any

import pytest
from in_process import JOE, MAPS, InProcess, configmap, open_server
from trio.testing import MockClock

from kubechronicle.api.errors.status import StatusError
from kubechronicle.api.features.gates import FeatureGates
from kubechronicle.api.meta.request_info import RequestInfo
from kubechronicle.http.authentication.user import User
from kubechronicle.http.authorization.decision import (
    ALLOWED,
    NO_OPINION,
    AuthorizationChain,
    Privileged,
    UserRules,
    Verdict,
)
from kubechronicle.http.authorization.impersonation import NODE_NAME_KEY, LastModes, impersonate, wanted_user
from kubechronicle.http.authorization.metrics import ImpersonationMetrics
from kubechronicle.http.messages import Headers

LIST_PODS = RequestInfo(path="/", verb="list", is_resource=True, namespace="ns", resource="pods")
BOT = User(name="system:serviceaccount:ns:bot", groups=("system:serviceaccounts",), extra={NODE_NAME_KEY: ("n1",)})


class Rights:
    """Allows exactly these (verb, group, resource[/subresource], name), and records each decision."""

    def __init__(self, *rights: tuple[str, str, str, str]) -> None:
        self.rights = set(rights)
        self.decisions: list[tuple[str, str, str, str]] = []

    def decide(self, user: User, info: RequestInfo) -> Verdict:
        resource = f"{info.resource}/{info.subresource}" if info.subresource else info.resource
        right = (info.verb, info.group, resource, info.name)
        self.decisions.append(right)
        return ALLOWED if right in self.rights else NO_OPINION

    explain = decide

    def rules(self, user: User, namespace: str) -> UserRules:
        return UserRules()


def on(mode: str) -> tuple[str, str, str, str]:
    return (f"impersonate-on:{mode}:list", "", "pods", "")


def right(mode: str, resource: str, name: str) -> tuple[str, str, str, str]:
    return (f"impersonate:{mode}", "authentication.k8s.io", resource, name)


@pytest.mark.parametrize(
    ("headers", "wanted"),
    [
        ({}, None),
        ({"Accept": "a"}, None),
        ({"Impersonate-User": "jane"}, User(name="jane")),
        (
            {"Impersonate-User": "jane", "Impersonate-Uid": "7", "Impersonate-Extra-Example.com%2fScopes": "view"},
            User(name="jane", uid="7", extra={"example.com/scopes": ("view",)}),
        ),
        (
            # Bytes are decoded as UTF-8. Invalid ones become U+FFFD, which no user name has.
            {"Impersonate-User": "Jos\u00c3\u00a9", "Impersonate-Group": "Jos\u00e9", "Impersonate-Extra-a%2": "b"},
            User(name="Jos\u00e9", groups=("Jos\ufffd",), extra={"a%2": ("b",)}),
        ),
        (
            {"Impersonate-User": "jane", "Impersonate-Extra-A%42c": "d"},
            User(name="jane", extra={"aBc": ("d",)}),
        ),
    ],
)
def test_the_user_of_the_headers(headers: dict[str, str], wanted: User | None) -> None:
    assert wanted_user(Headers(headers.items())) == wanted  # type: ignore[arg-type]


def test_values_of_repeated_headers_keep_their_order() -> None:
    headers = Headers(
        [
            ("Impersonate-User", "jane"),
            ("Impersonate-Group", "b"),
            ("Impersonate-Group", "a"),
            ("Impersonate-Extra-k", "2"),
            ("Impersonate-Extra-K", "1"),
        ]
    )
    assert wanted_user(headers) == User(name="jane", groups=("b", "a"), extra={"k": ("2", "1")})


@pytest.mark.parametrize(
    ("rights", "requestor", "wanted", "groups"),
    [
        ([("impersonate", "", "users", "jane")], BOT, User(name="jane"), ("system:authenticated",)),
        ([on("user-info"), right("user-info", "users", "jane")], BOT, User(name="jane"), ("system:authenticated",)),
        (
            [("impersonate", "", "serviceaccounts", "x")],
            BOT,
            User(name="system:serviceaccount:ns:x"),
            ("system:serviceaccounts", "system:serviceaccounts:ns", "system:authenticated"),
        ),
        (
            [on("serviceaccount"), right("serviceaccount", "serviceaccounts", "x")],
            BOT,
            User(name="system:serviceaccount:ns:x"),
            ("system:serviceaccounts", "system:serviceaccounts:ns", "system:authenticated"),
        ),
        (
            [on("arbitrary-node"), right("arbitrary-node", "nodes", "n2")],
            BOT,
            User(name="system:node:n2"),
            ("system:nodes", "system:authenticated"),
        ),
        (
            [on("associated-node"), right("associated-node", "nodes", "*")],
            BOT,
            User(name="system:node:n1"),
            ("system:nodes", "system:authenticated"),
        ),
        (
            [on("user-info"), right("user-info", "users", "jane"), right("user-info", "groups", "*")],
            BOT,
            User(name="jane", groups=("a", "b", "c", "d")),
            ("a", "b", "c", "d", "system:authenticated"),
        ),
        (
            [("impersonate", "", "users", "system:anonymous")],
            BOT,
            User(name="system:anonymous"),
            ("system:unauthenticated",),
        ),
    ],
)
def test_with_the_rights_the_identity_changes(rights: Any, requestor: User, wanted: User, groups: Any) -> None:
    user = impersonate(AuthorizationChain([Rights(*rights)]), requestor, wanted, LIST_PODS, LastModes())
    assert (user.name, user.groups) == (wanted.name, groups)


def test_checks_of_rights_are_counted_by_mode_and_decision() -> None:
    metrics, last_modes = ImpersonationMetrics(), LastModes()
    legacy = AuthorizationChain([Rights(("impersonate", "", "users", "jane"))])
    assert last_modes.last(BOT) == "legacy"
    impersonate(legacy, BOT, User(name="jane"), LIST_PODS, last_modes, metrics)
    checks = {key: sum(durations.counts) for key, durations in metrics.checks.items()}
    assert checks == {("user-info", "denied"): 1, ("legacy", "allowed"): 1}
    metrics.attempted(last_modes.last(BOT), 0.0005)
    metrics.attempted("", 0.003)
    samples = {
        (sample.name, *sample.labels.values()): sample.value
        for family in metrics.collect()
        for sample in family.samples
    }
    name = "apiserver_impersonation_attempts"
    assert samples[f"{name}_total", "legacy", "allowed"] == samples[f"{name}_total", "", "denied"] == 1
    assert samples[f"{name}_duration_seconds_bucket", "", "denied", "0.002"] == 0
    assert samples[f"{name}_duration_seconds_bucket", "", "denied", "0.004"] == 1
    assert samples["apiserver_impersonation_authorization_attempts_total", "user-info", "denied"] == 1


def test_the_mode_that_last_worked_is_tried_first_and_its_refusal_is_told() -> None:
    last_modes = LastModes()
    legacy = AuthorizationChain([Rights(("impersonate", "", "users", "jane"))])
    assert impersonate(legacy, BOT, User(name="jane"), LIST_PODS, last_modes).name == "jane"
    with pytest.raises(StatusError, match='cannot impersonate resource "users" in API group ""'):
        impersonate(legacy, BOT, User(name="joe"), LIST_PODS, last_modes)
    with pytest.raises(StatusError, match="impersonate-on:user-info:list"):
        impersonate(legacy, User(name="other"), User(name="joe"), LIST_PODS, last_modes)
    constrained = AuthorizationChain([Rights(on("user-info"), right("user-info", "users", "joe"))])
    assert impersonate(constrained, BOT, User(name="joe"), LIST_PODS, last_modes).name == "joe"
    with pytest.raises(StatusError, match="impersonate-on:user-info:list"):
        impersonate(AuthorizationChain([Rights()]), BOT, User(name="joe"), LIST_PODS, last_modes)


@pytest.mark.parametrize(
    ("rights", "wanted"),
    [
        ([], User(name="jane")),
        ([on("user-info")], User(name="jane")),
        ([right("user-info", "users", "jane")], User(name="jane")),
        ([("impersonate", "", "users", "jane")], User(name="jane", groups=("staff",))),
        ([("impersonate", "", "users", "jane")], User(name="jane", uid="7")),
        ([("impersonate", "", "users", "jane")], User(name="jane", extra={"k": ("v",)})),
        (
            [on("user-info"), right("user-info", "users", "jane"), right("user-info", "groups", "system:masters")],
            User(name="jane", groups=("system:masters",)),
        ),
        ([on("associated-node"), right("associated-node", "nodes", "*")], User(name="system:node:n2")),
        ([on("arbitrary-node"), right("arbitrary-node", "nodes", "n2")], User(name="system:node:n2", groups=("g",))),
        ([on("user-info"), right("user-info", "users", "system:node:n2")], User(name="system:node:n2")),
    ],
)
def test_without_one_right_the_request_is_forbidden(rights: Any, wanted: User) -> None:
    with pytest.raises(StatusError) as refused:
        impersonate(AuthorizationChain([Rights(*rights)]), BOT, wanted, LIST_PODS, LastModes())
    assert refused.value.code == 403


async def test_a_change_records_both_users(autojump_clock: MockClock) -> None:
    async with open_server() as server:
        headers = {"impersonate-user": "jane", "impersonate-group": "system:masters"}
        (await server.ask("POST", MAPS, configmap("a"), headers=headers)).ok()
        row = next(row for row in server.log.store.rows(after=0) if row.key.name == "a")
        who = server.log.store.who[row.revision]
        assert (who.user, who.impersonator) == ("jane", "admin")
        assert who.groups == ("system:masters", "system:authenticated")


async def test_the_impersonated_user_is_authorized(autojump_clock: MockClock) -> None:
    async with open_server() as server:
        refusal = (await server.ask("GET", MAPS, headers={"impersonate-user": "jane"})).refused(403)
        assert refusal["message"].startswith('configmaps is forbidden: User "jane" cannot list resource "configmaps"')
        refusal = (await server.ask("GET", MAPS, token=JOE, headers={"impersonate-user": "jane"})).refused(403)
        assert refusal["message"] == (
            'configmaps is forbidden: User "joe" cannot impersonate-on:user-info:list resource "configmaps" '
            'in API group "" in the namespace "default"'
        )


@pytest.mark.parametrize(
    ("headers", "shown"),
    [
        ({"impersonate-group": "dev"}, 'UID:"", Groups:[]string{"dev"}, Extra:map[string][]string(nil)'),
        ({"impersonate-uid": "7"}, 'UID:"7", Groups:[]string(nil), Extra:map[string][]string(nil)'),
        ({"impersonate-extra-k": "v"}, 'UID:"", Groups:[]string(nil), Extra:map[string][]string{"k":[]string{"v"}}'),
    ],
)
async def test_headers_without_a_user_are_a_bad_request(
    autojump_clock: MockClock, headers: dict[str, str], shown: str
) -> None:
    async with open_server() as server:
        refusal = (await ask(server, headers)).refused(400)
        expected = f'requested &user.DefaultInfo{{Name:"", {shown}}} without impersonating a user name'
        assert refusal["message"] == expected


@pytest.mark.parametrize(
    ("headers", "shown"),
    [
        ({"impersonate-group": "dev"}, "{Group  dev    }"),
        ({"impersonate-uid": "7"}, "{UID  7  authentication.k8s.io/v1  }"),
        ({"impersonate-extra-k": "v"}, "{UserExtra  v  authentication.k8s.io/v1  k}"),
    ],
)
async def test_without_the_gate_headers_without_a_user_are_told_otherwise(
    autojump_clock: MockClock, headers: dict[str, str], shown: str
) -> None:
    async with open_server(features=FeatureGates(given={"ConstrainedImpersonation": False})) as server:
        refusal = (await ask(server, headers)).refused(400)
        assert refusal["message"] == f"requested [{shown}] without impersonating a user"


def test_without_the_gate_only_the_legacy_rights_count() -> None:
    wanted, last_modes = User(name="jane", uid="7", groups=("dev",)), LastModes(constrained=False)
    chain = AuthorizationChain([Rights(("impersonate", "", "users", "jane"))])
    with pytest.raises(StatusError, match='cannot impersonate resource "groups"'):
        impersonate(chain, BOT, wanted, LIST_PODS, last_modes)
    constrained = AuthorizationChain([Rights(on("user-info"), right("user-info", "users", "jane"))])
    with pytest.raises(StatusError, match='cannot impersonate resource "users" in API group "" at the cluster scope'):
        impersonate(constrained, BOT, User(name="jane"), LIST_PODS, last_modes)


async def ask(server: InProcess, headers: dict[str, str]) -> Any:
    return await server.ask("GET", MAPS, headers=headers)


@pytest.mark.parametrize(
    "name",
    [
        "system:serviceaccount:NS:bot",
        "system:serviceaccount:ns:a b",
        "system:serviceaccount:ns:",
        "system:serviceaccount:ns:a:b",
    ],
)
def test_an_invalid_service_account_name_is_a_plain_user(name: str) -> None:
    rights = Rights(("impersonate", "", "users", name))
    user = impersonate(AuthorizationChain([rights]), User(name="joe"), User(name=name), LIST_PODS, LastModes())
    assert user.groups == ("system:authenticated",)


def test_masters_may_impersonate_every_user() -> None:
    root = User(name="root", groups=("system:masters",))
    chain = AuthorizationChain([Privileged()])
    assert impersonate(chain, root, User(name="jane", groups=("x",)), LIST_PODS, LastModes()).groups == (
        "x",
        "system:authenticated",
    )
