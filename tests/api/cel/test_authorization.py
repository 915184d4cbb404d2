"""Authorization checks in expressions: the questions, and the answers."""

from __future__ import annotations

import pytest

from kubechronicle.api.cel import CompileError, EvaluationError, base_environment
from kubechronicle.api.cel.library.authorization import (
    AUTHORIZER,
    RESOURCE_CHECK,
    AuthorizerDecision,
    AuthorizerQuestion,
    AuthorizerValue,
    ResourceCheck,
)

ENVIRONMENT = base_environment().extend(
    variables={"authorizer": AUTHORIZER, "authorizer.requestResource": RESOURCE_CHECK}
)


ALLOWED = AuthorizerDecision(True)


def ask(expression: str, decision: AuthorizerDecision = ALLOWED) -> tuple[object, list[AuthorizerQuestion]]:
    questions: list[AuthorizerQuestion] = []

    def decide(question: AuthorizerQuestion) -> AuthorizerDecision:
        questions.append(question)
        return decision

    own = AuthorizerQuestion(group="apps", resource="deployments", namespace="n", name="d")
    variables = {"authorizer": AuthorizerValue(decide), "authorizer.requestResource": ResourceCheck(decide, own)}
    return ENVIRONMENT.compile(expression).evaluate(variables), questions


@pytest.mark.parametrize(
    ("expression", "question"),
    [
        ("authorizer.path('/healthz').check('get').allowed()", AuthorizerQuestion(verb="get", path="/healthz")),
        (
            "authorizer.group('').resource('pods').namespace('default').check('create').allowed()",
            AuthorizerQuestion(verb="create", resource="pods", namespace="default"),
        ),
        (
            "authorizer.group('apps').resource('deployments').subresource('scale').namespace('n').name('x')"
            ".check('get').allowed()",
            AuthorizerQuestion(
                verb="get", group="apps", resource="deployments", subresource="scale", namespace="n", name="x"
            ),
        ),
        (
            "authorizer.serviceAccount('default', 'my-account').group('').resource('pods').check('list').allowed()",
            AuthorizerQuestion(verb="list", service_account=("default", "my-account"), resource="pods"),
        ),
        (
            "authorizer.group('').resource('pods').fieldSelector('spec.nodeName=n').labelSelector('a=b')"
            ".check('list').allowed()",
            AuthorizerQuestion(verb="list", resource="pods", field_selector="spec.nodeName=n", label_selector="a=b"),
        ),
        (
            "authorizer.requestResource.check('delete').allowed()",
            AuthorizerQuestion(verb="delete", group="apps", resource="deployments", namespace="n", name="d"),
        ),
        (
            "authorizer.requestResource.name('').namespace('').check('*').allowed()",
            AuthorizerQuestion(verb="*", group="apps", resource="deployments"),
        ),
    ],
)
def test_question_of_a_check(expression: str, question: AuthorizerQuestion) -> None:
    assert ask(expression) == (True, [question])


def test_fields_of_the_answer() -> None:
    expression = "authorizer.path('/x').check('get')"
    refused = AuthorizerDecision(False, "because", "it broke")
    assert ask(f"{expression}.allowed()", refused)[0] is False
    assert ask(f"{expression}.reason()", refused)[0] == "because"
    assert ask(f"{expression}.errored()", refused)[0] is True
    assert ask(f"{expression}.error()", refused)[0] == "it broke"
    assert ask(f"{expression}.errored() || {expression}.error() != ''")[0] is False


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("authorizer.path('')", "path must not be empty"),
        ("authorizer.path('  ')", "path must not be empty"),
        ("authorizer.group('apps').resource('')", "resource must not be empty"),
        ("authorizer.serviceAccount('not@a#valid!namespace', 'validname')", "Invalid service account namespace"),
        ("authorizer.serviceAccount('valid.example.com', 'invalid@*name')", "Invalid service account name"),
    ],
)
def test_invalid_questions(expression: str, message: str) -> None:
    with pytest.raises(EvaluationError) as caught:
        ask(expression)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    "expression",
    ["authorizer.group('apps').check('get')", "authorizer.resource('pods')", "authorizer.path('/x').allowed()"],
)
def test_questions_that_do_not_compile(expression: str) -> None:
    with pytest.raises(CompileError, match="found no matching overload"):
        ENVIRONMENT.compile(expression)


def test_cost_of_questions() -> None:
    def cost(expression: str) -> int:
        program = ENVIRONMENT.compile(expression)
        return program.evaluate_with_cost({"authorizer": AuthorizerValue(lambda question: AuthorizerDecision(True))})[1]

    assert cost("authorizer.path('/healthz')") == 2
    assert cost("authorizer.path('/healthz').check('get').allowed()") == 350_003
    selector = "spec.nodeName=example-node-name.fully.qualified.domain.name.example.com"
    assert cost(f"authorizer.group('').resource('pods').fieldSelector('{selector}')") == 1821
