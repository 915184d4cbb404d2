"""Match conditions: their variables, their combination, cost limits, and invalid expressions."""

from __future__ import annotations

from time import process_time
from typing import Any

import pytest
import yaml
from prometheus_client import CollectorRegistry

from kubechronicle.api.meta.request_info import RequestInfo
from kubechronicle.http.authentication.user import User
from kubechronicle.http.authorization.configuration import AuthorizationConfigurationError, load
from kubechronicle.http.authorization.decision import Decision
from kubechronicle.http.authorization.match_conditions import (
    BUDGET,
    TOGETHER,
    AuthorizerConditions,
    compiled,
    request_of,
)
from kubechronicle.http.authorization.metrics import MatchConditionMetrics
from kubechronicle.http.authorization.webhook import MatchFailed, WebhookAuthorizer, spec_of
from kubechronicle.http.outgoing.client import Outgoing
from kubechronicle.http.outgoing.remote_server import RemoteServer

BOB = User(name="bob", uid="7", groups=("staff", "system:authenticated"), extra={"acme.com/team": ("a", "b")})
PODS = spec_of(
    BOB,
    RequestInfo(
        path="/",
        verb="list",
        is_resource=True,
        version="v1",
        namespace="one",
        resource="pods",
        field_selector="spec.nodeName=n1,status.phase!=Failed",
        label_selector="app in (x,y),!old",
    ),
)
VERSION = spec_of(User(name="ann"), RequestInfo(path="/version", verb="get"))


def conditions(*expressions: str, metrics: MatchConditionMetrics | None = None) -> AuthorizerConditions:
    return AuthorizerConditions(expressions, "outside", metrics if metrics is not None else MatchConditionMetrics())


@pytest.mark.parametrize(
    ("expression", "of_pods", "of_version"),
    [
        ("request.user == 'bob'", True, False),
        ("request.uid == ''", False, True),
        ("'staff' in request.groups", True, False),
        ("request.groups.size() == 0 && request.extra.size() == 0", False, True),
        ("request.extra[?'acme.com/team'].orValue([]).exists(team, team == 'b')", True, False),
        ("has(request.resourceAttributes)", True, False),
        ("has(request.nonResourceAttributes)", False, True),
        ("!has(request.resourceAttributes) || request.resourceAttributes.namespace in ['one', 'two']", True, True),
        ("has(request.nonResourceAttributes) && request.nonResourceAttributes.path.startsWith('/v')", False, True),
        ("has(request.resourceAttributes) && request.resourceAttributes.subresource == ''", True, False),
        ("request.?resourceAttributes.?fieldSelector.?requirements.orValue([]).size() == 2", True, False),
        ("request.?resourceAttributes.?fieldSelector.?rawSelector.hasValue()", False, False),
        (
            "request.?resourceAttributes.?fieldSelector.?requirements.orValue([]).exists("
            "r, r.key == 'spec.nodeName' && r.operator == 'In' && r.values == ['n1'])",
            True,
            False,
        ),
        (
            "request.?resourceAttributes.?labelSelector.?requirements.orValue([]).exists("
            "r, r.key == 'old' && r.operator == 'DoesNotExist' && r.values.size() == 0)",
            True,
            False,
        ),
        ("request.user.matches('^b.b$')", True, False),
        ("!(request.user in ['system:apiserver']) && !request.user.startsWith('system:node:')", True, True),
    ],
)
def test_values_of_expressions(expression: str, of_pods: bool, of_version: bool) -> None:
    assert conditions(expression).matches(PODS) is of_pods
    assert conditions(expression).matches(VERSION) is of_version


@pytest.mark.parametrize(
    ("expression", "why"),
    [
        ("request.usr == 'bob'", "compilation failed: ERROR: <input>:1:8: undefined field 'usr'"),
        ("user == 'bob'", "compilation failed: ERROR: <input>:1:1: undeclared reference to 'user' (in container '')"),
        ("request.user", "must evaluate to bool but got string"),
        ("request.groups", "must evaluate to bool but got list(string)"),
        ("request.user == 1", "compilation failed: ERROR: <input>:1:14: found no matching overload for '_==_' applied"),
        ("request.user ==", "compilation failed: ERROR: <input>:1:16: Syntax error: "),
    ],
)
def test_invalid_conditions(expression: str, why: str) -> None:
    with pytest.raises(ValueError, match=r"must evaluate|failed") as refused:
        compiled(expression)
    assert str(refused.value).startswith(why)


def test_an_error_is_one_line(tmp_path: Any) -> None:
    file = tmp_path / "kubeconfig"
    file.write_text("{}")
    many = [{"expression": f"request.user != 'user-{number}'"} for number in range(65)]
    twice = [{"expression": "request.user == 'a'"}] * 2

    def refusal(*expressions: dict[str, str], **changes: str) -> str:
        webhook = {
            "timeout": "3s",
            "subjectAccessReviewVersion": "v1",
            "failurePolicy": "Deny",
            "matchConditionSubjectAccessReviewVersion": "v1",
            "matchConditions": list(expressions),
            "connectionInfo": {"type": "KubeConfigFile", "kubeConfigFile": str(file)},
            **changes,
        }
        document = {
            "apiVersion": "apiserver.config.k8s.io/v1",
            "kind": "AuthorizationConfiguration",
            "authorizers": [{"type": "Webhook", "name": "w", "webhook": webhook}],
        }
        with pytest.raises(AuthorizationConfigurationError) as refused:
            load(yaml.safe_dump(document).encode())
        return str(refused.value)

    where = "authorizers[0].matchConditions"
    assert refusal(*many) == f"{where}: Too many: 65: must have at most 64 items"
    assert refusal(*twice) == f"{where}[1].expression: Duplicate value: \"request.user == 'a'\""
    assert refusal({"expression": " "}) == f"{where}[0].expression: Required value"
    assert refusal({"expression": "request.foo"}, failurePolicy="") == (
        "[authorizers[0].failurePolicy: Required value, "
        f'{where}[0].expression: Invalid value: "request.foo": compilation failed: ERROR: <input>:1:8: '
        "undefined field 'foo']"
    )
    assert refusal({"expression": "true"}, matchConditionSubjectAccessReviewVersion="") == (
        "authorizers[0].matchConditionSubjectAccessReviewVersion: Required value: "
        "required if match conditions are specified"
    )


FAILS = "request.resourceAttributes.namespace == 'one'"  # for a request that names no resource


def test_a_false_condition_outweighs_a_failing_one() -> None:
    metrics = MatchConditionMetrics()
    assert conditions("true", "request.user == 'ann'", metrics=metrics).matches(VERSION)
    assert not conditions(FAILS, "request.user == 'bob'", metrics=metrics).matches(VERSION)
    assert not conditions("request.user == 'bob'", FAILS, metrics=metrics).matches(VERSION)
    with pytest.raises(MatchFailed) as failed:
        conditions("request.user == 'ann'", FAILS, metrics=metrics).matches(VERSION)
    assert (
        str(failed.value)
        == f"cel evaluation error: expression '{FAILS}' resulted in error: no such key: resourceAttributes"
    )
    registry = CollectorRegistry()
    registry.register(metrics)

    def figure(name: str) -> float | None:
        full = f"apiserver_authorization_match_condition_{name}"
        return registry.get_sample_value(full, {"type": "Webhook", "name": "outside"})

    assert figure("evaluation_seconds_count") == 4
    assert figure("exclusions_total") == 2
    assert figure("evaluation_errors_total") == 1


def test_an_expression_may_not_cost_too_much() -> None:
    ten = "[1,2,3,4,5,6,7,8,9,10]"
    nested = "".join(f"{ten}.all(x{level}, " for level in range(7)) + "request.user != ''" + ")" * 7
    with pytest.raises(MatchFailed, match="actual cost limit exceeded"):
        conditions(nested).matches(PODS)


def test_conditions_may_not_cost_too_much_together() -> None:
    ten = "[1,2,3,4,5,6,7,8,9,10]"
    costly = "".join(f"{ten}.all(x{level}, " for level in range(4)) + "request.user != ''" + ")" * 4
    assert conditions(costly).matches(PODS)
    spent = compiled(costly).evaluate_with_cost({"request": request_of(PODS)})[1]
    assert spent <= BUDGET
    many = TOGETHER // spent + 1
    assert conditions(*[f"{costly} && {number} > -1" for number in range(many - 1)]).matches(PODS)
    with pytest.raises(MatchFailed, match="actual cost limit exceeded"):
        conditions(*[f"{costly} && {number} > -1" for number in range(many)]).matches(PODS)
    assert not conditions(*[f"{costly} && {number} > -1" for number in range(many - 1)], "false").matches(PODS)


@pytest.mark.parametrize(("on_error", "failed"), [(Decision.DENY, Decision.DENY), (Decision.NO_OPINION,) * 2])
def test_the_failure_policy_decides_where_a_condition_fails(on_error: Decision, failed: Decision) -> None:
    client = Outgoing().client(RemoteServer(url="https://outside.example.com"))
    path = RequestInfo(path="/version", verb="get")
    authorizer = WebhookAuthorizer("w", client, on_error=on_error, matches=conditions(FAILS).matches)
    verdict = authorizer.decide(BOB, path)
    assert verdict.decision is failed
    assert "no such key" in verdict.error
    authorizer = WebhookAuthorizer("w", client, on_error=on_error, matches=conditions(FAILS, "false").matches)
    assert (authorizer.decide(BOB, path).decision, authorizer.decide(BOB, path).error) == (Decision.NO_OPINION, "")


def test_a_simple_condition_costs_microseconds() -> None:
    compiled_conditions = conditions("!request.user.startsWith('system:node:')", "'staff' in request.groups")
    best = 1.0
    for _ in range(5):
        started = process_time()
        for _ in range(200):
            assert compiled_conditions.matches(PODS)
        best = min(best, (process_time() - started) / 200)
    assert best < 500e-6  # compilation takes ten times as long
