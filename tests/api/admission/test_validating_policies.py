"""Decisions of ValidatingAdmissionPolicies: validations, messages, variables, conditions, annotations and budgets."""

from __future__ import annotations

from typing import Any

import pytest

from kubechronicle.api.admission import policy_programs
from kubechronicle.api.admission.policy_programs import (
    EXHAUSTED,
    Compiler,
    EvaluationStage,
    ExpressionFailed,
    OutOfBudget,
)
from kubechronicle.api.admission.validating_policies import Annotation, Failure, PolicyVerdict, Validator
from kubechronicle.api.cel.admission import VARIABLE
from kubechronicle.api.cel.library.authorization import AuthorizerDecision, AuthorizerValue

OBJECT = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"x": "1"}}
LONG = [0] * 2000


def decided(spec: dict[str, Any], **values: Any) -> PolicyVerdict:
    authorizer = {"authorizer": AuthorizerValue(lambda question: AuthorizerDecision(allowed=question.verb == "get"))}
    return Validator({"spec": spec}).decide({"object": OBJECT, "oldObject": None, **values}, authorizer)


def messages(spec: dict[str, Any], **values: Any) -> list[str]:
    return [failure.message for failure in decided(spec, **values).failures]


def test_a_failed_validation_has_its_reason_and_its_message_or_expression() -> None:
    validations = [
        {"expression": "true"},
        {"expression": "false", "message": " no ", "reason": "Forbidden"},
        {"expression": " false "},
    ]
    assert decided({"validations": validations}).failures == [
        Failure(1, "no", "Forbidden"),
        Failure(2, "failed expression: false", "Invalid"),
    ]


@pytest.mark.parametrize(
    ("expression", "shown"),
    [
        ("'is ' + object.metadata.name", "is a"),
        ("' '", "static"),
        ("'a\\nb'", "static"),
        ("object.none", "static"),
        (f"'{'x' * 5121}'", "static"),
    ],
)
def test_an_evaluated_message_that_cannot_be_shown_gives_way_to_the_static_one(expression: str, shown: str) -> None:
    validation = {"expression": "false", "message": "static", "messageExpression": expression}
    assert messages({"validations": [validation]}) == [shown]


def test_an_error_counts_as_the_failure_policy_says() -> None:
    validations = [{"expression": "object.none == 1"}, {"expression": "false"}]
    error = "expression 'object.none == 1' resulted in error: no such key: none"
    assert messages({"validations": validations}) == [error, "failed expression: false"]
    assert messages({"validations": validations, "failurePolicy": "Ignore"}) == ["failed expression: false"]


def test_variables_are_evaluated_when_read_and_name_each_other() -> None:
    spec = {
        "variables": [
            {"name": "broken", "expression": "object.none"},
            {"name": "n", "expression": "int(object.data.x)"},
            {"name": "m", "expression": "variables.n + 1"},
        ],
        "validations": [{"expression": "variables.m == 2"}, {"expression": "variables.m == 0 && variables.broken"}],
    }
    assert messages(spec) == ["failed expression: variables.m == 0 && variables.broken"]
    spec["validations"] = [{"expression": "variables.broken == 1"}]
    why = 'composited variable "broken" fails to evaluate: no such key: none'
    assert messages(spec) == [f"expression 'variables.broken == 1' resulted in error: {why}"]


def test_a_variable_is_evaluated_once_in_a_stage() -> None:
    asked: list[str] = []

    def decide(question: Any) -> AuthorizerDecision:
        asked.append(question.verb)
        return AuthorizerDecision(allowed=True)

    expression = "authorizer.path('/healthz').check('get').allowed()"
    spec = {
        "variables": [{"name": "may", "expression": expression}],
        "validations": [{"expression": "variables.may && variables.may"}, {"expression": "variables.may"}],
    }
    verdict = Validator({"spec": spec}).decide({"object": OBJECT}, {"authorizer": AuthorizerValue(decide)})
    assert (verdict.failures, asked) == ([], ["get"])


def test_a_false_condition_outweighs_one_that_fails() -> None:
    failing, false = {"name": "f", "expression": "object.none == 1"}, {"name": "n", "expression": "false"}
    spec: dict[str, Any] = {"validations": [{"expression": "false"}], "matchConditions": [failing, false]}
    assert decided(spec) == PolicyVerdict()
    spec["matchConditions"] = [failing, {"name": "y", "expression": "true"}]
    assert messages(spec) == ["expression 'object.none == 1' resulted in error: no such key: none"]
    assert decided({**spec, "failurePolicy": "Ignore"}) == PolicyVerdict()


def test_conditions_do_not_see_the_namespace() -> None:
    condition = {"name": "n", "expression": "namespaceObject == null"}
    spec = {"validations": [{"expression": "namespaceObject != null"}], "matchConditions": [condition]}
    assert messages(spec, namespaceObject={"metadata": {"name": "ns"}}) == []


def test_annotations_are_texts_or_left_out() -> None:
    given = {"name": "object.metadata.name + ' '", "empty": "' '", "null": "null", "broken": "object.none"}
    annotations = [{"key": key, "valueExpression": text} for key, text in given.items()]
    error = "expression 'object.none' resulted in error: no such key: none"
    spec: dict[str, Any] = {"auditAnnotations": annotations[:3]}
    assert decided(spec).annotations == [Annotation("name", "a")]
    # Annotations have the type of their value at run time, so that dyn is refused at the time of writing.
    spec = {"auditAnnotations": [{"key": "broken", "valueExpression": "string(object.none)"}]}
    assert decided(spec).annotations == [
        Annotation("broken", error=error.replace("object.none'", "string(object.none)'"))
    ]
    assert decided({**spec, "failurePolicy": "Ignore"}).annotations == []


def test_only_validations_and_conditions_may_ask_for_rights() -> None:
    asking = "authorizer.group('').resource('pods').check('get').allowed()"
    annotation = {"key": "k", "valueExpression": f"string({asking})"}
    verdict = decided({"validations": [{"expression": asking}], "auditAnnotations": [annotation]})
    assert verdict.failures == []
    assert verdict.annotations[0].error.endswith("no such attribute(s): authorizer")


def test_a_policy_that_costs_too_much_fails_as_a_whole() -> None:
    costly = {"expression": "object.list.all(x, object.list.all(y, x == y))"}
    spec = {"validations": [{"expression": "false"}, *[costly] * 12]}
    value = {"object": {"list": LONG}}
    assert messages(spec, **value) == [EXHAUSTED]
    assert messages({**spec, "failurePolicy": "Ignore"}, **value) == []


def test_the_cost_of_a_variable_counts_where_it_is_read() -> None:
    compiler = Compiler({"variables": [{"name": "v", "expression": "object.list.all(x, x == 0)"}]})
    reading = compiler.compile("variables.v == true", VARIABLE)
    values = {"object": {"list": LONG}}
    stage = EvaluationStage(values, compiler.variables)
    assert stage.evaluate(reading) is True
    first = policy_programs.BUDGET - stage.left
    assert stage.evaluate(reading) is True
    assert policy_programs.BUDGET - stage.left - first < 20 < len(LONG) < first
    with pytest.raises(OutOfBudget):
        EvaluationStage(values, compiler.variables, 1000).evaluate(reading)


def test_an_expression_that_does_not_compile_fails_when_it_is_evaluated() -> None:
    broken = Compiler({}).compile("object ==", VARIABLE)
    with pytest.raises(
        ExpressionFailed, match="compilation error: compilation failed: ERROR: <input>:1:10: Syntax error"
    ):
        EvaluationStage({"object": {}}, {}).evaluate(broken)
