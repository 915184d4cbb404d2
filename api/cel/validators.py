"""Validators: reject well-typed trees with malformed constants, or with lists and maps of mixed types.

The same validators as in k8s.io/apiserver's base environment. Source: cel-go ``cel/validator.go``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

from kubechronicle.api.cel.errors import CompileError, EvaluationError, Issue
from kubechronicle.api.cel.library.formatting import check_call
from kubechronicle.api.cel.operations import conversions
from kubechronicle.api.cel.operations.patterns import PatternError, compiled
from kubechronicle.api.cel.syntax import ast
from kubechronicle.api.cel.syntax.lexer import ExpressionSource
from kubechronicle.api.cel.type_relations import equivalent
from kubechronicle.api.cel.types import CelType, unwrap_optional

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
