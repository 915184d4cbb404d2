"""The fields that policies read, and verdicts that are remembered."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec import Raw

from kubechronicle.api.admission import replayed_reads
from kubechronicle.api.admission.logged_changes import LoggedChange, LoggedRequest, Name, Reference
from kubechronicle.api.admission.logged_writes import LoggedWrites, Write
from kubechronicle.api.admission.policy_sources import Policy, PolicyBinding
from kubechronicle.api.admission.replays import PolicyReplay, ReplayOutcome, ReplayReading
from kubechronicle.api.admission.validating_policies import Validator
from kubechronicle.api.registry.registry import known_registry
from kubechronicle.api.values.objects import Object

REGISTRY = known_registry()
RULES = [{"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods", "pods/status"], "operations": ["*"]}]


def policy(*expressions: str, binding: dict[str, Any] | None = None, **spec: Any) -> Policy[Validator]:
    validations = [{"expression": each} for each in expressions]
    whole = {"matchConstraints": {"resourceRules": RULES}, "validations": validations, **spec}
    made = Policy({"metadata": {"name": "p"}, "spec": whole}, Validator)
    bound = {"policyName": "p", "validationActions": ["Deny"], **(binding or {})}
    made.bindings = [PolicyBinding({"metadata": {"name": "b"}, "spec": bound})]
    return made


def replay(*expressions: str, **parts: Any) -> PolicyReplay:
    return PolicyReplay([policy(*expressions, **parts)], (), REGISTRY)


class State:
    """A state with one namespace. ``version``: its resourceVersion, "" if it is missing."""

    def __init__(self, version: str = "1", team: str = "red") -> None:
        self.version, self.team = version, team

    def peek(self, resource: str, namespace: str, name: str) -> Object | None:
        metadata = {"name": name, "resourceVersion": self.version, "labels": {"team": self.team}}
        return {"metadata": metadata} if self.version else None

    def entries(self, resource: str, namespace: str) -> list[Object]:
        return []

    def decide(self, user: Any) -> Any:
        return lambda question: None


def write(replicas: int, name: str = "a", user: str = "jane", previous: str = "7") -> Write:
    obj = {"apiVersion": "v1", "kind": "Pod", "metadata": {"labels": {"app": "x"}}, "spec": {"replicas": replicas}}
    change = LoggedChange(
        Name("9"),
        "Update",
        "",
        Reference("pods", name, "shop"),
        {"username": user},
        LoggedRequest("update", f"/api/v1/namespaces/shop/pods/{name}"),
        previous,
        after=Raw(json.dumps(obj).encode()),
    )
    return LoggedWrites(REGISTRY, old_read=False).write_of(change, "pods")


def messages(judge: PolicyReplay, one: Write, state: State) -> list[str]:
    return [each.message for each in judge.validate(one, ReplayReading(one, state))]


@pytest.mark.parametrize(
    ("expression", "fields"),
    [
        ("object.spec.replicas < 3 && has(object.metadata.labels)", ("metadata.labels", "spec.replicas")),
        ("object.metadata.labels['a.b/c'] == oldObject.metadata.?labels['x'].orValue('')", ("metadata.labels",)),
        ("object.spec.containers.all(c, c.image != '')", ("spec.containers",)),
        ("object != null", None),
        ("[object].all(o, o.spec.x == 1)", None),
        ("request.name == 'x'", ()),
    ],
)
def test_the_fields_that_expressions_read(expression: str, fields: tuple[str, ...] | None) -> None:
    assert policy(expression).evaluator.paths, "it compiles"
    assert replay(expression).reads.fields == fields


def test_variables_messages_and_selectors_read_fields_too() -> None:
    selected = {"matchResources": {"objectSelector": {"matchLabels": {"a": "b"}}}}
    spec = {"variables": [{"name": "v", "expression": "object.spec.v"}]}
    reads = replay("variables.v == 1", binding=selected, **spec).reads
    assert (reads.fields, reads.old, reads.user) == (("metadata.labels", "spec.v"), True, False)
    assert replay("request.userInfo.groups == ['a']").reads.user
    assert not replay("request.userInfo.username == 'a'").reads.user
    assert replay("authorizer.path('/x').check('get').allowed()").reads.user


class Counted:
    """Counts decisions."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        whole = Validator.decide

        def decide(validator: Validator, *arguments: Any) -> Any:
            self.count += 1
            return whole(validator, *arguments)

        monkeypatch.setattr(Validator, "decide", decide)


def test_writes_that_agree_in_what_is_read_are_decided_once(monkeypatch: pytest.MonkeyPatch) -> None:
    counted, judge = Counted(monkeypatch), replay("object.spec.replicas < 3")
    assert [messages(judge, write(5, name), State()) for name in "abc"] == [
        ["failed expression: object.spec.replicas < 3"]
    ] * 3
    assert messages(judge, write(1), State()) == []
    assert counted.count == 2
    outcomes = judge.validate(write(5), ReplayReading(write(5), State()))
    outcomes.append(ReplayOutcome("refused", "", "", ""))
    assert len(messages(judge, write(5), State())) == 1, "a caller may change the list"


@pytest.mark.parametrize(
    "expression",
    [
        "object.spec.replicas < 3 || request.name == 'a'",
        "object.spec.replicas < 3 || request.userInfo.username == 'jane'",
        "object.spec.replicas < 3 || request.userInfo.?uid.orValue('') == 'x'",
        "object.spec.replicas < 3 || namespaceObject.metadata.labels.team == 'red'",
        "object.spec.replicas < 3 || object.metadata.resourceVersion == '7'",
    ],
)
def test_what_else_is_read_counts(expression: str) -> None:
    judge = replay(expression)
    for number in range(2):
        for name, user, previous, team in (("a", "jane", "7", "red"), ("b", "john", "8", "blue")):
            state = State("1" if team == "red" else "2", team)
            one = write(5, name, user, previous)
            fresh = messages(replay(expression), write(5, name, user, previous), state)
            assert messages(judge, one, state) == fresh, number


def test_a_missing_namespace_is_no_known_verdict() -> None:
    judge = replay("object.spec.replicas < 3")
    assert messages(judge, write(1), State()) == []
    [problem] = messages(judge, write(1), State(version=""))
    assert 'namespaces "shop" not found' in problem


def test_selectors_of_namespaces_see_the_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    selector = {"matchResources": {"namespaceSelector": {"matchLabels": {"team": "red"}}}}
    judge = replay("object.spec.replicas < 3", binding=selector)
    assert len(messages(judge, write(5), State("1", "red"))) == 1
    assert messages(judge, write(5), State("2", "blue")) == []


def test_few_verdicts_are_kept_and_none_if_none_is_found_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replayed_reads, "KEPT", 4)
    counted, judge = Counted(monkeypatch), replay("object.spec.replicas < 3")
    for _ in range(3):
        for number in (1, 2, 3, 4, 4, 4, 4):
            messages(judge, write(number), State())
    assert counted.count == 4
    for number in range(20):
        messages(judge, write(number), State())
    before = counted.count
    messages(judge, write(19), State())
    messages(judge, write(19), State())
    assert counted.count == before + 2
