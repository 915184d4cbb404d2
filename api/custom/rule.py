"""Compilation of one rule of x-kubernetes-validations: its programs and worst-case costs, or why it is refused.

Source: apiextensions-apiserver ``pkg/apiserver/schema/cel/compilation.go``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from kubechronicle.api.cel import CompileError, Environment, Program, base_environment
from kubechronicle.api.cel.cost_estimate import Sizes, estimate
from kubechronicle.api.cel.errors import ExpressionReport, InstantiationError
from kubechronicle.api.cel.library import estimates
from kubechronicle.api.cel.types import BOOL, STRING, CelType, optional_of
from kubechronicle.api.errors.field_errors import Path

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


# -- durations ---------------------------------------------------------------------------------------------------------
#
# Durations of the compilation and evaluation of rules, which the server measures with its own clock.
#
# As in kube-apiserver, each part of a schema with rules counts on its own, and the rules of policies and match
# conditions do not count (apiextensions-apiserver ``pkg/apiserver/schema/cel``).


Count = Callable[[float], None]


class RuleMeasures(NamedTuple):
    """``clock``: returns seconds. ``compiled``, ``evaluated``: count the seconds of one part of a schema; threads may
    call them at the same time."""

    clock: Callable[[], float]
    compiled: Count
    evaluated: Count


# -- field paths -------------------------------------------------------------------------------------------------------
#
# The fieldPath of a rule: a path of properties and map entries below the rule's value.
#
#     .spec.replicas        ['spec']['a.b']        .labels['app']
#
# Source: ``ValidFieldPath`` in apiextensions-apiserver ``pkg/apiserver/schema/cel/validation.go``.


_ESCAPE: Final = re.compile(r"\\(.)")
_ESCAPED: Final[Mapping[str, str]] = {
    "a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v", "'": "'", "\\": "\\",
}  # fmt: skip


class FieldPathError(ValueError):
    """A text that is no path, or names no field of the schema."""


def field_path(text: str, schema: Mapping[str, Any], *, brackets: bool = True) -> tuple[str, Mapping[str, Any]]:
    """Return (the path as errors name it, the schema of the field). FieldPathError.

    ``brackets``: ``['name']`` is allowed.
    """
    path = Path()
    tokens = _tokens(text)
    for token in tokens:
        if token == "[":
            if not brackets:
                raise FieldPathError("array notation is not allowed")
            name = _unquoted(_next(tokens))
            path, schema = _below(path, schema, name)
            closing = _next(tokens)
            if closing != "]":
                raise FieldPathError(f"expected ] but got {closing}")
        elif token == ".":
            path, schema = _below(path, schema, _next(tokens))
        else:
            raise FieldPathError(f"expected [ or . but got: {token}")
    return ("" if path == Path() else str(path)), schema


def _below(path: Path, schema: Mapping[str, Any], name: str) -> tuple[Path, Mapping[str, Any]]:
    properties, values = schema.get("properties"), schema.get("additionalProperties")
    if properties:
        if name not in properties:
            raise FieldPathError("does not refer to a valid field")
        return path.child(name), properties[name]
    if values is None:
        raise FieldPathError("does not refer to a valid field")
    return path.key(name), values if isinstance(values, Mapping) else {}


def _tokens(text: str) -> Iterator[str]:
    """Return the delimiters, quoted texts and names. A quote without its end is the rest of the text."""
    at = 0
    while at < len(text):
        if text[at] in ".[]":
            end = at + 1
        elif text[at] == "'":
            end = at + 1
            while end < len(text) and (text[end] != "'" or text[end - 1] == "\\"):
                end += 1
            end = min(end + 1, len(text))
        else:
            end = at
            while end < len(text) and text[end] not in ".[]":
                end += 1
        yield text[at:end]
        at = end


def _next(tokens: Iterator[str]) -> str:
    token = next(tokens, None)
    if token is None:
        raise FieldPathError("unexpected end of JSON path")
    return token


def _unquoted(token: str) -> str:
    if len(token) < 2 or token[0] != "'" or token[-1] != "'":
        raise FieldPathError(f"expected single quoted string but got {token}")

    def character(match: re.Match[str]) -> str:
        if match[1] not in _ESCAPED:
            raise FieldPathError(f"invalid string literal: invalid escape char {match[0]}")
        return _ESCAPED[match[1]]

    return _ESCAPE.sub(character, token[1:-1])
