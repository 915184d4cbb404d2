"""Validation of CEL expressions in objects: they compile and have the right result type.

Lives here: the causes, in the words of kube-apiserver. Not here: the fields with expressions (admissionregistration/,
resource/devices.py), and the language (api/cel). The language is imported with the first expression: most servers start
without any.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from kubechronicle.api.errors.field_errors import Cause, forbidden, internal, invalid_value, required
from kubechronicle.api.values.objects import Object

if TYPE_CHECKING:
    from kubechronicle.api.cel.admission import Composition
    from kubechronicle.api.cel.errors import ExpressionReport

MAX_VALUE_EXPRESSION: Final = 5 * 1024


def _compile_causes(field: str, expression: str, problem: Callable[[], str | ExpressionReport]) -> list[Cause]:
    """Return the cause for a compile problem or for a failed instantiation of the program."""
    from kubechronicle.api.cel.errors import InstantiationError

    try:
        message = problem()
    except InstantiationError as error:
        return [internal(field, f"program instantiation failed: {error}")]
    return [invalid_value(field, expression, message)] if message else []


def match_condition(expression: str, field: str, *, params: bool) -> list[Cause]:
    """Check a match condition of a webhook or policy; with ``params`` it may use the policy's parameters."""
    from kubechronicle.api.cel import admission

    expression = expression.strip()
    if not expression:
        return [required(field)]
    scope = admission.environment(admission.OfferedNames(params=params))
    return _compile_causes(field, expression, lambda: admission.check(expression, scope, admission.CONDITION)[0])


def device_selector(expression: str, field: str) -> list[Cause]:
    """Check that a device selector compiles and stays below the cost limit."""
    from kubechronicle.api.cel import devices

    causes = _compile_causes(field, expression, lambda: devices.problem(expression))
    if not causes and devices.worst_cost(expression) > devices.MAX_COST:
        return [forbidden(field, "too complex, exceeds cost limit")]
    return causes


def derived_attribute(expression: str, field: str, *, lists: bool) -> tuple[list[Cause], int]:
    """Check the expression of an attribute that a claim derives, a list if ``lists``. Return its cost, too."""
    from kubechronicle.api.cel import devices

    purpose = devices.DERIVED_LISTS if lists else devices.DERIVED
    causes = _compile_causes(field, expression, lambda: devices.problem(expression, purpose))
    cost = 0 if causes else devices.worst_cost(expression, purpose)
    return ([forbidden(field, "too complex, exceeds cost limit")] if cost > devices.MAX_COST else causes), cost


class PolicyExpressions:
    """Checks the expressions of one admission policy, in the order of its fields."""

    def __init__(self, spec: Object) -> None:
        from kubechronicle.api.cel import admission

        self._rules = admission
        self._params = spec.get("paramKind") is not None
        self._composition: Composition = admission.Composition(admission.is_composed(spec))

    def variable(self, name: str, expression: str, field: str) -> list[Cause]:
        """Check a variable, and declare it for the expressions after it."""
        if not expression.strip():
            return [required(field, "expression is not specified")]
        offer = self._rules.OfferedNames(params=self._params)
        return _compile_causes(field, expression, lambda: self._composition.declare(name, expression, offer))

    def validation(self, expression: str, field: str) -> list[Cause]:
        """Check the condition that an object must meet."""
        if not expression.strip():
            return [required(field, "expression is not specified")]
        offer = self._rules.OfferedNames(params=self._params)
        return _compile_causes(
            field, expression, lambda: self._composition.problem(expression, self._rules.CONDITION, offer)
        )

    def message(self, expression: str, field: str) -> list[Cause]:
        """Check the expression for the message of a rejection."""
        if not expression:
            return []
        if not expression.strip():
            return [invalid_value(field, expression, "must be non-empty if specified")]
        offer = self._rules.OfferedNames(params=self._params, authorizer=False)
        return _compile_causes(
            field, expression, lambda: self._composition.problem(expression, self._rules.MESSAGE, offer)
        )

    def annotation(self, expression: str, field: str) -> list[Cause]:
        """Check the expression for an audit annotation's value."""
        trimmed = expression.strip()
        if not trimmed:
            return [required(field, "valueExpression is not specified")]
        if len(trimmed.encode()) > MAX_VALUE_EXPRESSION:
            return [required(field, f"must not exceed {MAX_VALUE_EXPRESSION} bytes in length")]
        offer = self._rules.OfferedNames(params=self._params)
        return _compile_causes(
            field, expression, lambda: self._composition.problem(trimmed, self._rules.ANNOTATION, offer)
        )

    def patch(self, expression: str, field: str, *, json: bool) -> list[Cause]:
        """Check the expression of a mutation: a JSON patch or an apply configuration."""
        expression = expression.strip()
        if not expression:
            return [required(field)]
        wanted = self._rules.JSON_PATCHES if json else self._rules.APPLY_CONFIGURATION
        offer = self._rules.OfferedNames(params=self._params, patches=True)
        return _compile_causes(field, expression, lambda: self._composition.problem(expression, wanted, offer))
