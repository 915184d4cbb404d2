"""Compilation of one rule of x-kubernetes-validations: its programs and worst-case costs, or why it is refused.

Source: apiextensions-apiserver ``pkg/apiserver/schema/cel/compilation.go``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from kubechronicle.api.cel import CompileError, Environment, Program, base_environment
from kubechronicle.api.cel.costs.cost_estimate import Sizes, estimate
from kubechronicle.api.cel.errors import ExpressionReport, InstantiationError
from kubechronicle.api.cel.library import estimates
from kubechronicle.api.cel.types import BOOL, STRING, CelType, optional_of

SELF: Final = "self"
OLD_SELF: Final = "oldSelf"
TYPE_NAME: Final = "selfType"
"""The name of self's type in messages. kube-apiserver adds a random number, so that nobody depends on it."""

Refusal = str | ExpressionReport
"""The reason against an expression, empty if there is none. ``str()`` builds the text."""


class CustomRule(NamedTuple):
    """A compiled rule.

    ``program`` is None if the rule is refused, or only spaces. ``cost``, ``message_cost``: of one evaluation at worst.
    ``path``: the path below the rule's value that its errors name.
    """

    text: str
    message: str = ""
    reason: str = ""
    path: str = ""
    optional_old: bool = False
    program: Program | None = None
    refusal: Refusal = ""
    uses_old: bool = False
    cost: int = 0
    message_program: Program | None = None
    message_refusal: Refusal = ""
    message_cost: int = 0


class RuleScope:
    """The environments of the rules of one value: ``oldSelf`` has the type of ``self``, or is an optional of it."""

    def __init__(self, of: CelType, sizes: Sizes | None) -> None:
        """``sizes`` None: costs are not estimated, since the rule was accepted before."""
        self._type = of
        self._sizes = sizes
        self._environments: dict[bool, Environment] = {}

    def compile(self, rule: Mapping[str, Any], path: str = "") -> CustomRule:
        """Return the compiled rule. ``path``: see Rule."""
        text, optional = rule.get("rule") or "", bool(rule.get("optionalOldSelf"))
        plain = CustomRule(
            text=text,
            message=(rule.get("message") or "").strip(),
            reason=rule.get("reason") or "",
            path=path,
            optional_old=optional,
        )
        if not text.strip():
            return plain
        environment = self._environment(optional)
        try:
            program, cost = self._program(environment, text, BOOL)
        except _RefusedRule as error:
            return plain._replace(refusal=error.refusal("compilation failed: ", "program instantiation failed: "))
        except _RuleWrongType:
            return plain._replace(refusal="cel expression must evaluate to a bool")
        uses_old = any(name == OLD_SELF or name.startswith(OLD_SELF + ".") for name in program.reads)
        compiled = plain._replace(program=program, cost=cost, uses_old=uses_old)
        return self._with_message(compiled, environment, rule.get("messageExpression") or "")

    def _with_message(self, rule: CustomRule, environment: Environment, text: str) -> CustomRule:
        if not text:
            return rule
        try:
            program, cost = self._program(environment, text, STRING)
        except _RefusedRule as error:
            heads = ("messageExpression compilation failed: ", "messageExpression instantiation failed: ")
            return rule._replace(message_refusal=error.refusal(*heads))
        except _RuleWrongType:
            return rule._replace(message_refusal="messageExpression must evaluate to a string")
        return rule._replace(message_program=program, message_cost=cost)

    def _environment(self, optional: bool) -> Environment:
        made = self._environments.get(optional)
        if made is None:
            old = optional_of(self._type) if optional else self._type
            made = self._environments[optional] = base_environment().extend({SELF: self._type, OLD_SELF: old})
        return made

    def _program(self, environment: Environment, text: str, result: CelType) -> tuple[Program, int]:
        """Return (program, worst cost). Raises _Refused, and _WrongType for another result."""
        try:
            tree = environment.check(text)
            if tree.type != result:
                raise _RuleWrongType
            program = environment.program(text, tree)
        except CompileError as error:
            raise _RefusedRule(error) from None
        cost = 0 if self._sizes is None else estimate(tree, self._sizes, estimates.estimate).most
        return program, cost


class _RuleWrongType(Exception):
    """An expression has another type than it must have."""


class _RefusedRule(Exception):
    """An expression does not compile."""

    def __init__(self, error: CompileError) -> None:
        super().__init__(error)
        self.error = error

    def refusal(self, head: str, instantiation: str) -> Refusal:
        if isinstance(self.error, InstantiationError):
            return instantiation + str(self.error)
        return self.error.report._replace(head=head)
