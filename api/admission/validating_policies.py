"""ValidatingAdmissionPolicies: their decision on one request.

Source: k8s.io/apiserver ``pkg/admission/plugin/policy/validating/validator.go``, ``…/webhook/matchconditions``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from kubechronicle.api.admission.policy_programs import (
    CONDITIONS_BUDGET,
    EXHAUSTED,
    Compiler,
    EvaluationStage,
    Expression,
    ExpressionFailed,
    OutOfBudget,
)
from kubechronicle.api.cel import admission as expressions
from kubechronicle.api.cel.evaluation.program import PER_CALL_LIMIT
from kubechronicle.api.cel.values import type_name
from kubechronicle.api.values.objects import ReadOnlyObject

MAX_MESSAGE: Final = 5 * 1024
"""Bytes of an evaluated message; a longer one counts as absent."""
INVALID: Final = "Invalid"

Values = Mapping[str, Any]
"""CEL's variables by their names."""


class Failure(NamedTuple):
    """A failed validation. ``position``: its own in the policy. ``error``: it could not be decided."""

    position: int
    message: str
    reason: str = ""
    error: bool = False


class Annotation(NamedTuple):
    """An audit annotation: its key, and its value, or the error that refuses the request."""

    key: str
    value: str = ""
    error: str = ""


class PolicyVerdict(NamedTuple):
    """The decision of a policy with one parameter object."""

    failures: Sequence[Failure] = ()
    annotations: Sequence[Annotation] = ()


ADMITTED: Final = PolicyVerdict()


class MatchConditions:
    """The match conditions of a policy."""

    def __init__(self, spec: Mapping[str, Any], compiler: Compiler) -> None:
        self._conditions = [
            compiler.compile(each.get("expression", ""), expressions.CONDITION)
            for each in spec.get("matchConditions") or ()
        ]
        self._variables = compiler.variables

    def __bool__(self) -> bool:
        return bool(self._conditions)

    def match(self, values: Values) -> bool:
        """Tell whether all conditions hold. One that is false outweighs those that fail. Raises ExpressionFailed.

        ``values``: with the authorizer; the namespace is not offered here.
        """
        stage = EvaluationStage({**values, "namespaceObject": None}, self._variables, CONDITIONS_BUDGET)
        problems: list[str] = []
        results: list[Any] = []
        try:
            for condition in self._conditions:
                try:
                    results.append(stage.evaluate(condition))
                except ExpressionFailed as error:
                    problems.append(str(error))
        except OutOfBudget as error:
            raise ExpressionFailed(str(error)) from None
        if any(result is False for result in results):
            return False
        if problems:
            raise ExpressionFailed(aggregate(problems))
        return True


def aggregate(problems: Sequence[str]) -> str:
    """Return several errors as one text, without repetitions (apimachinery ``pkg/util/errors``)."""
    distinct = list(dict.fromkeys(problems))
    return distinct[0] if len(distinct) == 1 else f"[{', '.join(distinct)}]"


class _Validation(NamedTuple):
    expression: Expression
    message: str
    reason: str
    message_expression: Expression | None


class Validator:
    """The compiled expressions of a ValidatingAdmissionPolicy.

    ``reads``: the names of the values that they read. ``paths``: the paths.
    """

    def __init__(self, policy: ReadOnlyObject) -> None:
        spec = policy["spec"]
        compiler = Compiler(spec)
        self._ignores = spec.get("failurePolicy") == "Ignore"
        self._variables = compiler.variables
        self._conditions = MatchConditions(spec, compiler)
        self._validations = [_validation(each, compiler) for each in spec.get("validations") or ()]
        self._annotations = [
            (each.get("key", ""), compiler.compile(each.get("valueExpression", ""), expressions.ANNOTATION))
            for each in spec.get("auditAnnotations") or ()
        ]
        self.reads, self.paths = compiler.reads, frozenset(compiler.paths)
        messages = sum(each.message_expression is not None for each in self._validations)
        self._messages_at_most = (messages + (len(self._variables) if messages else 0)) * PER_CALL_LIMIT

    def decide(self, values: Values, authorizer: Values) -> PolicyVerdict:
        """Return the decision. ``authorizer``: the variables that ask for rights, which some expressions lack.

        Both may leave out what is not in ``reads``.
        """
        whole = {**values, **authorizer} if authorizer else values
        if self._conditions:
            try:
                if not self._conditions.match(whole):
                    return ADMITTED
            except ExpressionFailed as error:
                return self._error(str(error))
        stage = EvaluationStage(whole, self._variables)
        try:
            results = [_result(stage, each.expression) for each in self._validations]
        except OutOfBudget as error:
            return self._error(str(error))
        failures = self._failures(results, values, stage.left)
        if not self._annotations:
            return PolicyVerdict(failures)
        try:
            return PolicyVerdict(failures, self._values_of_annotations(EvaluationStage(values, self._variables)))
        except OutOfBudget as error:
            return self._error(str(error))

    def _error(self, message: str) -> PolicyVerdict:
        return ADMITTED if self._ignores else PolicyVerdict([Failure(0, message, error=True)])

    def _failures(self, results: Sequence[Any], values: Values, budget: int) -> list[Failure]:
        if all(result is True for result in results) and self._messages_at_most <= budget:
            return []
        messages = _Messages(EvaluationStage(values, self._variables, budget))
        if self._messages_at_most > budget:  # as in kube-apiserver, messages of validations that hold cost, too
            for each in self._validations:
                messages.evaluate(each.message_expression)
        failures: list[Failure] = []
        for index, (result, each) in enumerate(zip(results, self._validations, strict=True)):
            if isinstance(result, ExpressionFailed):
                if not self._ignores:
                    failures.append(Failure(index, str(result), error=True))
            elif messages.exhausted:
                if not self._ignores:
                    failures.append(Failure(index, f"failed messageExpression: {EXHAUSTED}", error=True))
            elif result is not True:
                shown = messages.evaluate(each.message_expression) or each.message
                shown = shown or f"failed expression: {each.expression.text.strip()}"
                failures.append(Failure(index, shown, each.reason))
        return failures

    def _values_of_annotations(self, stage: EvaluationStage) -> list[Annotation]:
        """Return the annotations to add, and errors if the policy refuses requests for them."""
        found: list[Annotation] = []
        for key, expression in self._annotations:
            result = _result(stage, expression)
            if isinstance(result, str):
                if value := result.strip():
                    found.append(Annotation(key, value))
            elif isinstance(result, ExpressionFailed):
                if not self._ignores:
                    found.append(Annotation(key, error=str(result)))
            elif result is not None:
                error = (
                    f"valueExpression '{expression.text}' resulted in unsupported return type: {type_name(result)}. "
                    "Return type must be either string or null."
                )
                found.append(Annotation(key, error=error))
        return found


def _validation(each: Mapping[str, Any], compiler: Compiler) -> _Validation:
    text = each.get("messageExpression") or ""
    return _Validation(
        compiler.compile(each.get("expression", ""), expressions.CONDITION),
        (each.get("message") or "").strip(),
        each.get("reason") or INVALID,
        compiler.compile(text, expressions.MESSAGE, authorizer=False) if text else None,
    )


def _result(stage: EvaluationStage, expression: Expression) -> Any:
    """Return the value of an expression, or the ExpressionFailed. Raises OutOfBudget."""
    try:
        return stage.evaluate(expression)
    except ExpressionFailed as error:
        return error


class _Messages:
    """The evaluated messages of one decision, each evaluated once."""

    def __init__(self, stage: EvaluationStage) -> None:
        self._stage = stage
        self._made: dict[int, str] = {}
        self.exhausted = False

    def evaluate(self, expression: Expression | None) -> str:
        """Return a message, "" if there is none that can be shown."""
        if expression is None or self.exhausted:
            return ""
        made = self._made.get(id(expression))
        if made is None:
            try:
                made = _shown(_result(self._stage, expression))
            except OutOfBudget:
                self.exhausted = True
                return ""
            self._made[id(expression)] = made
        return made


def _shown(value: Any) -> str:
    text = value.strip() if isinstance(value, str) else ""
    return "" if len(text.encode()) > MAX_MESSAGE or "\n" in text else text
