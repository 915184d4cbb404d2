"""Expressions in objects: whether they compile, and give what they are for.

Lives here: the causes, in the words of the API server. Not here: where a kind has expressions (admissionregistration/,
resource/devices.py), and the language (api/cel). That is loaded when the first expression is looked at: most servers
start without any.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from kubechronicle.api.errors.field_errors import Cause, forbidden, internal, invalid_value, required

if TYPE_CHECKING:
    from kubechronicle.api.cel.admission import Composition

Object = dict[str, Any]

MAX_VALUE_EXPRESSION: Final = 5 * 1024


def _compile_causes(field: str, expression: str, problem: Callable[[], str]) -> list[Cause]:
    """What is said of an expression: a problem with it, or with making a program of it."""
    from kubechronicle.api.cel.errors import InstantiationError

    try:
        message = problem()
    except InstantiationError as error:
        return [internal(field, f"program instantiation failed: {error}")]
    return [invalid_value(field, expression, message)] if message else []


def match_condition(expression: str, field: str, *, params: bool) -> list[Cause]:
    """A condition under which a webhook or a policy is asked; ``params``: there are parameters to name."""
    from kubechronicle.api.cel import admission

    expression = expression.strip()
    if not expression:
        return [required(field)]
    scope = admission.environment(admission.Offer(params=params))
    return _compile_causes(field, expression, lambda: admission.check(expression, scope, admission.CONDITION)[0])


def device_selector(expression: str, field: str) -> list[Cause]:
    """Which devices are wanted."""
    from kubechronicle.api.cel import devices

    causes = _compile_causes(field, expression, lambda: devices.problem(expression))
    if not causes and devices.worst_cost(expression) > devices.MAX_COST:
        return [forbidden(field, "too complex, exceeds cost limit")]
    return causes


class PolicyExpressions:
    """The expressions of one admission policy, looked at in the order they stand in it."""

    def __init__(self, spec: Object) -> None:
        from kubechronicle.api.cel import admission

        self._rules = admission
        self._params = spec.get("paramKind") is not None
        self._composition: Composition = admission.Composition(bool(spec.get("variables")))

    def variable(self, name: str, expression: str, field: str) -> list[Cause]:
        """A variable that the expressions after it may name."""
        if not expression.strip():
            return [required(field, "expression is not specified")]
        offer = self._rules.Offer(params=self._params)
        return _compile_causes(field, expression, lambda: self._composition.declare(name, expression, offer))

    def validation(self, expression: str, field: str) -> list[Cause]:
        """What has to hold of an object."""
        if not expression.strip():
            return [required(field, "expression is not specified")]
        offer = self._rules.Offer(params=self._params)
        return _compile_causes(
            field, expression, lambda: self._composition.problem(expression, self._rules.CONDITION, offer)
        )

    def message(self, expression: str, field: str) -> list[Cause]:
        """What is said of an object that is refused."""
        if not expression:
            return []
        if not expression.strip():
            return [invalid_value(field, expression, "must be non-empty if specified")]
        offer = self._rules.Offer(params=self._params, authorizer=False)
        return _compile_causes(
            field, expression, lambda: self._composition.problem(expression, self._rules.MESSAGE, offer)
        )

    def annotation(self, expression: str, field: str) -> list[Cause]:
        """What is noted in the audit."""
        trimmed = expression.strip()
        if not trimmed:
            return [required(field, "valueExpression is not specified")]
        if len(trimmed.encode()) > MAX_VALUE_EXPRESSION:
            return [required(field, f"must not exceed {MAX_VALUE_EXPRESSION} bytes in length")]
        offer = self._rules.Offer(params=self._params)
        return _compile_causes(
            field, expression, lambda: self._composition.problem(trimmed, self._rules.ANNOTATION, offer)
        )

    def patch(self, expression: str, field: str, *, json: bool) -> list[Cause]:
        """How an object is changed: by a JSON patch, or by a configuration that is applied."""
        expression = expression.strip()
        if not expression:
            return [required(field)]
        wanted = self._rules.JSON_PATCHES if json else self._rules.APPLY_CONFIGURATION
        offer = self._rules.Offer(params=self._params, patches=True)
        return _compile_causes(field, expression, lambda: self._composition.problem(expression, wanted, offer))
