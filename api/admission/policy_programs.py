"""The compiled expressions of one admission policy, and their evaluation within cost budgets.

Sources: k8s.io/apiserver ``pkg/admission/plugin/cel`` (composition.go, activation.go, condition.go).

A policy is compiled at the first request that it matches, once for each of its revisions. A variable is evaluated when
an expression first reads it, once in each stage: match conditions, validations, messages, annotations, and each
mutation. Its cost counts in the stage that reads it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from kubechronicle.api.cel import CompileError, Environment, Program
from kubechronicle.api.cel import admission as expressions
from kubechronicle.api.cel.admission import OfferedNames
from kubechronicle.api.cel.errors import EvaluationError, InstantiationError
from kubechronicle.api.cel.types import ANY, DYN, CelType, object_type

BUDGET: Final = 10_000_000
"""The cost limit of one stage of a policy (k8s.io/apiserver RuntimeCELCostBudget)."""
CONDITIONS_BUDGET: Final = 2_500_000
"""The cost limit of all match conditions of a policy (RuntimeCELCostBudgetMatchConditions)."""
EXHAUSTED: Final = "validation failed due to running out of cost budget, no further validation rules will be run"


class OutOfBudget(Exception):
    """A stage costs more than its budget. The text is kube-apiserver's."""

    def __init__(self) -> None:
        super().__init__(EXHAUSTED)


class ExpressionFailed(Exception):
    """An expression does not compile, or fails on its values. The text is kube-apiserver's."""


class Expression(NamedTuple):
    """An expression: its text, and its program, or the reason why it has none."""

    text: str
    program: Program | None
    problem: str = ""
    type: CelType = DYN


class Compiler:
    """Compiles the expressions of one policy, variables first. A problem is kept for the evaluation.

    ``paths``: the paths that the expressions read, such as ``oldObject.spec``.
    """

    def __init__(self, spec: Mapping[str, Any]) -> None:
        self.params = spec.get("paramKind") is not None
        self.variables: dict[str, Expression] = {}
        self.paths: set[str] = set()
        self._types: dict[str, CelType] = {}
        self._scopes: dict[OfferedNames, Environment] = {}
        self._composed = expressions.is_composed(spec)
        for each in spec.get("variables") or ():
            name = each.get("name", "")
            compiled = self.compile(each.get("expression", ""), expressions.VARIABLE)
            self.variables[name] = compiled
            self._types[name] = expressions.as_variable(compiled.type)

    @property
    def reads(self) -> frozenset[str]:
        """The names of CEL's variables that the expressions read, such as ``oldObject``. Others need no value."""
        return frozenset(path.partition(".")[0] for path in self.paths)

    def compile(
        self, text: str, wanted: tuple[CelType, ...], *, authorizer: bool = True, patches: bool = False
    ) -> Expression:
        """Return the compiled expression. ``wanted``: the types allowed; ANY among them takes every type."""
        scope = self._scope(OfferedNames(params=self.params, authorizer=authorizer, patches=patches))
        try:
            tree = scope.check(text)
        except CompileError as error:
            return Expression(text, None, str(error.report._replace(head=expressions.FAILED)))
        if ANY not in wanted and tree.type not in wanted:
            return Expression(text, None, expressions.unwanted(tree.type, wanted), tree.type)
        try:
            program = scope.program(text, tree)
            self.paths |= program.reads
            return Expression(text, program, type=tree.type)
        except InstantiationError as error:
            return Expression(text, None, f"program instantiation failed: {error}")
        except CompileError as error:
            return Expression(text, None, str(error.report._replace(head=expressions.FAILED)))

    def _scope(self, offer: OfferedNames) -> Environment:
        if not self._composed:
            return expressions.environment(offer)
        scope = self._scopes.get(offer)
        if scope is None:
            declared = {"variables": object_type(expressions.VARIABLES, self._types)}
            scope = self._scopes[offer] = expressions.environment(offer).extend(variables=declared)
        return scope


class EvaluationStage:
    """The evaluation of expressions on the same values, within one budget."""

    def __init__(self, values: Mapping[str, Any], variables: Mapping[str, Expression], budget: int = BUDGET) -> None:
        """``values``: by the names of CEL's variables; one that is left out is an error where it is read."""
        self.left = budget
        self._pending = 0
        self._values = _Values(values)
        self._values["variables"] = _Variables(self, variables) if variables else {}

    def evaluate(self, expression: Expression) -> Any:
        """Return the value. ExpressionFailed: the expression has none. OutOfBudget: the stage is over."""
        program = expression.program
        if program is None:
            raise ExpressionFailed(f"compilation error: {expression.problem}")
        value, cost = program.outcome(self._values)
        self.left -= cost + self._pending
        self._pending = 0
        if self.left < 0:
            raise OutOfBudget
        if isinstance(value, EvaluationError):
            raise ExpressionFailed(f"expression '{expression.text}' resulted in error: {value}")
        return value

    def read(self, name: str, expression: Expression) -> Any:
        """Return the value of a variable. EvaluationError: it has none."""
        program = expression.program
        if program is None:
            raise EvaluationError(f'composited variable "{name}" fails to compile: {expression.problem}')
        value, cost = program.outcome(self._values)
        self._pending += cost
        if isinstance(value, EvaluationError):
            raise EvaluationError(f'composited variable "{name}" fails to evaluate: {value}')
        return value


class _Values(dict[str, Any]):
    """CEL's variables. Reading an absent one is an error of the expression."""

    def __missing__(self, name: str) -> Any:
        raise EvaluationError(f"no such attribute(s): {name}")


class _Variables(dict[str, Any]):
    """The variables of a policy, evaluated when they are first read. A failure is kept, too."""

    def __init__(self, stage: EvaluationStage, expressions: Mapping[str, Expression]) -> None:
        super().__init__()
        self._stage = stage
        self._expressions = expressions
        self._failures: dict[str, EvaluationError] = {}

    def __contains__(self, name: object) -> bool:
        return name in self._expressions

    def __missing__(self, name: str) -> Any:
        failure = self._failures.get(name)
        if failure is not None:
            raise failure
        expression = self._expressions[name]
        try:
            value = self[name] = self._stage.read(name, expression)
        except EvaluationError as error:
            self._failures[name] = error
            raise
        return value
