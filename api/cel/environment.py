"""Environments: the variables, functions, macros and types that an expression may use.

Source of the base environment: k8s.io/apiserver ``pkg/cel/environment/base.go`` of v1.36.

Validators: reject well-typed trees with malformed constants, or with lists and maps of mixed types.

The same validators as in k8s.io/apiserver's base environment. Source: cel-go ``cel/validator.go``.
"""

from __future__ import annotations

import functools
from collections import ChainMap
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

from kubechronicle.api.cel.checker import CheckerScope, check
from kubechronicle.api.cel.declarations import Library
from kubechronicle.api.cel.errors import CompileError, EvaluationError, InstantiationError, Issue
from kubechronicle.api.cel.evaluation.code import ConstantError
from kubechronicle.api.cel.evaluation.planner import ExpressionPlanner
from kubechronicle.api.cel.evaluation.program import Program
from kubechronicle.api.cel.library.base_libraries import BASE_LIBRARIES
from kubechronicle.api.cel.library.formatting import check_call
from kubechronicle.api.cel.operations import conversions
from kubechronicle.api.cel.operations.patterns import PatternError, compiled
from kubechronicle.api.cel.syntax import ast, parser
from kubechronicle.api.cel.syntax.ast import Node
from kubechronicle.api.cel.syntax.lexer import ExpressionSource, too_deep
from kubechronicle.api.cel.syntax.macros import Macro
from kubechronicle.api.cel.type_relations import equivalent
from kubechronicle.api.cel.types import CelType, Overload, unwrap_optional
from kubechronicle.api.values.allowance import ALLOWANCE

_MIXING: Final = frozenset({"format"})
"""Functions that take lists of mixed types."""

_CHECKS: Final[dict[str, Callable[[Any], Any]]] = {
    "duration": conversions.string_to_duration,
    "timestamp": conversions.string_to_timestamp,
    "matches": compiled,
}


def validate(tree: ast.Node, source: ExpressionSource) -> None:
    """Raise CompileError with all issues, if there are any."""
    issues: list[Issue] = []
    for node, mixing in descendants(tree):
        if isinstance(node, ast.CallExpression):
            issues += _constants(node, source)
            issues += _format(node, source)
        elif isinstance(node, ast.ListNode) and not mixing:
            issues += _mixed_list(node, source)
        elif isinstance(node, ast.MapNode) and not mixing:
            issues += _mixed_map(node, source)
    if issues:
        raise CompileError(issues, source.text)


def children(node: ast.Node) -> list[ast.Node]:
    """Return the child nodes of a node, in order."""
    if isinstance(node, ast.Select):
        return [node.operand]
    if isinstance(node, ast.CallExpression):
        return [node.target, *node.args] if node.target is not None else node.args
    if isinstance(node, ast.ListNode):
        return node.elements
    if isinstance(node, ast.MapNode):
        return [part for entry in node.entries for part in (entry.key, entry.value)]
    if isinstance(node, ast.StructNode):
        return [entry.value for entry in node.entries]
    if isinstance(node, ast.Comprehension):
        return [node.iter_range, node.init, node.condition, node.step, node.result]
    return [node.node] if isinstance(node, ast.Keep) else []


def descendants(tree: ast.Node) -> Iterator[tuple[ast.Node, bool]]:
    """Yield (node, it is within a call that may mix types)."""
    waiting = [(tree, False)]
    while waiting:
        node, mixing = waiting.pop()
        yield node, mixing
        inner = mixing or (isinstance(node, ast.CallExpression) and node.function in _MIXING)
        waiting += [(child, inner) for child in children(node)]


def _constants(node: ast.CallExpression, source: ExpressionSource) -> Iterator[Issue]:
    check = _CHECKS.get(node.function)
    if check is None or not node.args or not isinstance(node.args[0], ast.Literal):
        return
    argument = node.args[0]
    if not isinstance(argument.value, str):
        return
    try:
        check(argument.value)
    except (EvaluationError, PatternError):
        yield source.issue(argument.offset, f"invalid {node.function} argument")


def _format(node: ast.CallExpression, source: ExpressionSource) -> Iterator[Issue]:
    problem = check_call(node) if node.function == "format" else None
    if problem is not None:
        yield source.issue(problem[0].offset, problem[1])


def _mismatch(source: ExpressionSource, node: ast.Node, expected: CelType, found: CelType) -> Issue:
    return source.issue(node.offset, f"expected type '{expected}' but found '{found}'")


def _mixed_list(node: ast.ListNode, source: ExpressionSource) -> Iterator[Issue]:
    first: CelType | None = None
    for index, element in enumerate(node.elements):
        of = unwrap_optional(element.type)[0] if index in node.optional else element.type
        if first is None:
            first = of
        elif not equivalent(first, of):
            yield _mismatch(source, element, first, of)
            return


def _mixed_map(node: ast.MapNode, source: ExpressionSource) -> Iterator[Issue]:
    keys: CelType | None = None
    values: CelType | None = None
    for entry in node.entries:
        value = unwrap_optional(entry.value.type)[0] if entry.optional else entry.value.type
        if keys is None or values is None:
            keys, values = entry.key.type, value
            continue
        if not equivalent(keys, entry.key.type):
            yield _mismatch(source, entry.key, keys, entry.key.type)
        if not equivalent(values, value):
            yield _mismatch(source, entry.value, values, value)


def paths_read(tree: ast.Node) -> frozenset[str]:
    """Return the dotted paths of variables: ``a.b`` for ``a.b``, ``a.?b``, ``has(a.b)``; ``a`` for ``a``."""
    paths = set()
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        path = _path(node)
        if path is not None:
            paths.add(path)
        else:
            waiting += children(node)
    return frozenset(paths)


def _path(node: ast.Node) -> str | None:
    fields: list[str] = []
    while True:
        if isinstance(node, ast.Select):
            if node.field:
                fields.append(node.field)
            node = node.operand
        elif isinstance(node, ast.CallExpression) and node.function == "_?._":
            field = node.args[1]
            assert isinstance(field, ast.Literal)
            fields.append(field.value)
            node = node.args[0]
        else:
            break
    if not isinstance(node, ast.Ident) or node.constant or not node.name.startswith("."):
        return None
    return ".".join([node.name[1:], *reversed(fields)])


COMPILATION: Final = 6e-6
"""Seconds of parsing, checking, planning and estimating a character of an expression."""

Types = Mapping[str, CelType] | Iterable[CelType]
"""Types by name. A mapping may compute its types on look-up."""


class Environment:
    """The names an expression may use. Immutable; `extend` returns a larger one. Made per use, not per expression."""

    def __init__(
        self,
        variables: Mapping[str, CelType] | None = None,
        libraries: Iterable[Library] = (),
        types: Types = (),
    ) -> None:
        self.variables = dict(variables or {})
        self.libraries = tuple(libraries)
        self._macros: dict[tuple[str, int, bool], Macro] = {}
        functions: dict[str, tuple[Overload, ...]] = {}
        constants: dict[str, tuple[CelType, Any]] = {}
        known: dict[str, CelType] = {}
        for library in self.libraries:
            for macro in library.macros:
                self._macros[macro.name, macro.arguments, macro.receiver] = macro
            for function in library.functions:
                functions[function.name] = functions.get(function.name, ()) + function.overloads
            constants.update(library.constants)
            known.update({of.name: of for of in library.types})
        self._own_types = types if isinstance(types, Mapping) else {of.name: of for of in types}
        self.types: Mapping[str, CelType] = ChainMap(self._own_types, known)  # type: ignore[arg-type]
        self._scope = CheckerScope(self.variables, constants, functions, self.types)

    def extend(
        self,
        variables: Mapping[str, CelType] | None = None,
        libraries: Iterable[Library] = (),
        types: Types = (),
    ) -> Environment:
        """Return a larger environment. ``types``: further types that an expression may construct or name."""
        own = types if isinstance(types, Mapping) else {of.name: of for of in types}
        return Environment(
            {**self.variables, **(variables or {})},
            (*self.libraries, *libraries),
            ChainMap(own, self._own_types) if own or types else self._own_types,  # type: ignore[arg-type]
        )

    def compile(self, expression: str, result: CelType | None = None) -> Program:
        """Return the program of an expression. Its type must be ``result`` if that is set; dyn fits any.

        CompileError: ``.issues`` lists the problems with their places, ``str()`` is cel-go's text.
        InstantiationError: the expression is valid, but a constant in it cannot be converted.
        """
        source = ExpressionSource(expression)
        tree = self.check(expression)
        if result is not None and tree.type != result and tree.type.kind not in ("dyn", "any"):
            raise CompileError([source.issue(0, f"must evaluate to {result}")], expression)
        return self.program(expression, tree)

    def program(self, expression: str, tree: Node) -> Program:
        """Return the program of an expression that was checked. Raises CompileError as `compile` does."""
        planner = ExpressionPlanner(self.types)
        try:
            code = planner.plan(tree)
        except ConstantError as error:
            raise InstantiationError(str(error)) from error
        except RecursionError as error:
            raise CompileError([too_deep()], expression) from error
        return Program(expression, code.run, code.cost, planner.slots, tree.type, paths_read(tree))

    def check(self, expression: str) -> Node:
        """Return the checked tree of an expression. Raises CompileError as `compile` does."""
        ALLOWANCE.get().charge(min(len(expression), parser.MAX_SIZE) * COMPILATION)
        source = ExpressionSource(expression)
        tree = parser.parse(source, self._macros)
        try:
            check(tree, self._scope, source)
            validate(tree, source)
        except RecursionError as error:
            raise CompileError([too_deep()], expression) from error
        return tree


@functools.cache
def base_environment() -> Environment:
    """Return the environment of every expression: the standard library and the additions of Kubernetes v1.36."""
    return Environment(libraries=BASE_LIBRARIES)
