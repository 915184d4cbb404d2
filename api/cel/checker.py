"""The type checker: sets the type of each part of a tree, and resolves names and overloads.

All issues are collected. A part with an issue has the type error, which fits any type, so that one mistake is reported
once. Source: cel-go ``checker/checker.go``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from kubechronicle.api.cel import types
from kubechronicle.api.cel.errors import CompileError, Issue
from kubechronicle.api.cel.syntax.ast import (
    CallExpression,
    Comprehension,
    Ident,
    Keep,
    KeptExpression,
    ListNode,
    Literal,
    MapEntry,
    MapNode,
    Node,
    Select,
    StructNode,
)
from kubechronicle.api.cel.syntax.lexer import ExpressionSource
from kubechronicle.api.cel.type_relations import (
    Bindings,
    all_assignable,
    assignable,
    closed,
    is_dynamic,
    is_dynamic_or_error,
    most_general,
    parameters_of,
    substitute,
)
from kubechronicle.api.cel.types import (
    BOOL,
    DYN,
    ERROR,
    INT,
    CelType,
    Overload,
    list_of,
    map_of,
    optional_of,
    param,
    type_of_type,
    unwrap_optional,
)
from kubechronicle.api.cel.values import TypeValue


class CheckerScope(NamedTuple):
    """The names an expression may use. ``functions``: name -> overloads. ``types``: types by name."""

    variables: Mapping[str, CelType]
    constants: Mapping[str, tuple[CelType, Any]]
    functions: Mapping[str, tuple[Overload, ...]]
    types: Mapping[str, CelType]


_LITERAL_TYPES: Final = {
    bool: types.BOOL,
    int: types.INT,
    float: types.DOUBLE,
    str: types.STRING,
    bytes: types.BYTES,
    type(None): types.NULL,
}


def check(tree: Node, scope: CheckerScope, source: ExpressionSource) -> None:
    """Set the type of each node, and resolve its names. CompileError with all issues."""
    checker = _Checker(scope, source)
    checker.check(tree)
    checker.finish()


class _Checker:
    def __init__(self, scope: CheckerScope, source: ExpressionSource) -> None:
        self._scope = scope
        self._source = source
        self._issues: list[Issue] = []
        self._bindings = Bindings()
        self._seen: list[Node] = []
        self._locals: list[dict[str, CelType]] = []
        self._fresh = 0
        self._checks: dict[type[Node], Callable[[Any], CelType]] = {
            Literal: self._literal,
            Ident: self._ident,
            Select: self._select,
            CallExpression: self._call,
            ListNode: self._list,
            MapNode: self._map,
            StructNode: self._struct,
            Comprehension: self._comprehension,
            Keep: lambda node: self.check(node.node),
            KeptExpression: lambda node: node.keep.type,
        }

    def check(self, node: Node) -> CelType:
        node.type = found = self._checks[type(node)](node)
        self._seen.append(node)
        return found

    def finish(self) -> None:
        if self._issues:
            raise CompileError(self._issues, self._source.text)
        known: dict[int, CelType] = {}  # nodes share the types of their parts; new types are closed, and not looked up
        for node in self._seen:
            node.type = closed(self._bindings, node.type, known)

    def _issue(self, offset: int, message: str) -> CelType:
        self._issues.append(self._source.issue(offset, message))
        return ERROR

    def _undeclared(self, offset: int, name: str) -> CelType:
        return self._issue(offset, f"undeclared reference to '{name}' (in container '')")

    def _mismatch(self, offset: int, expected: CelType, found: CelType) -> CelType:
        return self._issue(offset, f"expected type '{expected}' but found '{found}'")

    def _variable(self) -> CelType:
        self._fresh += 1
        return param(f"_var{self._fresh - 1}")

    # -- names --------------------------------------------------------------------------------------------------------

    def _literal(self, node: Literal) -> CelType:
        return _LITERAL_TYPES.get(type(node.value), types.UINT)

    def _ident(self, node: Ident) -> CelType:
        if not node.name.startswith("."):
            for names in reversed(self._locals):
                if node.name in names:
                    return names[node.name]
        found = self._global(node.name.removeprefix("."), node)
        return self._undeclared(node.offset, node.name) if found is None else found

    def _global(self, name: str, node: Ident) -> CelType | None:
        """Resolve the node to the global variable, constant or type of this name. None if there is none."""
        scope = self._scope
        found = scope.variables.get(name)
        if found is not None:
            node.name = "." + name
            return found
        if name in scope.constants:
            declared, node.value = scope.constants[name]
            node.constant = True
            return declared
        of = scope.types.get(name)
        if of is None:
            return None
        node.constant = True
        node.value = TypeValue(of.name)
        return type_of_type(of)

    def _select(self, node: Select) -> CelType:
        if not node.test_only:
            found = self._qualified(node)
            if found is not None:
                return found
        found = self._field(node, node.operand, node.field, optional=False)
        return BOOL if node.test_only else substitute(self._bindings, found)

    def _qualified(self, node: Select) -> CelType | None:
        """Resolve a dotted name that is declared as a whole, such as ``google.protobuf.Timestamp``."""
        name = _dotted(node)
        if name is None or any(name.partition(".")[0] in names for names in self._locals):
            return None
        name = name.removeprefix(".")
        scope = self._scope
        if name not in scope.variables and name not in scope.constants and name not in scope.types:
            return None
        ident = Ident(node.offset, name)
        found = self._global(name, ident)
        node.operand, node.field = ident, ""
        ident.type = found or ERROR
        return found

    def _field(self, node: Node, operand: Node, field: str, optional: bool) -> CelType:
        of, was_optional = unwrap_optional(substitute(self._bindings, self.check(operand)))
        found = ERROR
        if of.kind == "map":
            found = of.parameters[1]
        elif of.kind == "struct":
            declared = of.field(field)
            if declared is None:
                self._issue(node.offset, f"undefined field '{field}'")
            else:
                found = declared.type
        elif of.kind == "param":
            assignable(self._bindings, DYN, of)
            found = DYN
        else:
            if not is_dynamic_or_error(of):
                self._issue(node.offset, f"type '{of}' does not support field selection")
            found = DYN
        return optional_of(found) if was_optional or optional else found

    # -- calls --------------------------------------------------------------------------------------------------------

    def _call(self, node: CallExpression) -> CelType:
        if node.function == "_?._":
            return self._optional_select(node)
        arguments = [self.check(argument) for argument in node.args]
        functions = self._scope.functions
        if node.target is None:
            name = node.function.removeprefix(".")
            overloads = functions.get(name)
            if overloads is None:
                return self._undeclared(node.offset, node.function)
            node.function = name
            return self._resolve(node, overloads, arguments)
        prefix = _dotted(node.target)
        if prefix is not None:
            name = f"{prefix.removeprefix('.')}.{node.function}"
            if name in functions:
                node.function = name
                node.target = None
                return self._resolve(node, functions[name], arguments)
        target = self.check(node.target)
        overloads = functions.get(node.function)
        if overloads is None:
            return self._undeclared(node.offset, node.function)
        return self._resolve(node, overloads, [target, *arguments])

    def _optional_select(self, node: CallExpression) -> CelType:
        field = node.args[1]
        assert isinstance(field, Literal)
        field.type = types.STRING
        return substitute(self._bindings, self._field(node, node.args[0], field.value, optional=True))

    def _resolve(self, node: CallExpression, overloads: Sequence[Overload], arguments: list[CelType]) -> CelType:
        if node.function in ("_&&_", "_||_"):
            return self._logic(node, overloads, arguments)
        member = node.target is not None
        result: CelType | None = None
        fitting: list[Overload] = []
        for overload in overloads:
            if overload.member is not member or len(overload.args) != len(arguments):
                continue
            declared, returned = self._instance(overload)
            if not all_assignable(self._bindings, arguments, declared):
                continue
            fitting.append(overload)
            returned = substitute(self._bindings, returned)
            if result is None:
                result = returned
            elif not is_dynamic(result) and returned != result:
                result = DYN
        if result is None:
            shown = [str(substitute(self._bindings, argument, to_dyn=True)) for argument in arguments]
            signature = f"{shown[0]}.({', '.join(shown[1:])})" if member else f"({', '.join(shown)})"
            return self._issue(
                node.offset, f"found no matching overload for '{node.function}' applied to '{signature}'"
            )
        node.overloads = tuple(fitting)
        return result

    def _instance(self, overload: Overload) -> tuple[Sequence[CelType], CelType]:
        """Return (arguments, result) of an overload, with fresh type parameters."""
        parameters = parameters_of((*overload.args, overload.result))
        if not parameters:
            return overload.args, overload.result
        own = {parameter: self._variable() for parameter in parameters}
        return [substitute(own, argument) for argument in overload.args], substitute(own, overload.result)

    def _logic(self, node: CallExpression, overloads: Sequence[Overload], arguments: list[CelType]) -> CelType:
        fits = True
        for argument, found in zip(node.args, arguments, strict=True):
            if not assignable(self._bindings, found, BOOL):
                self._mismatch(argument.offset, BOOL, found)
                fits = False
        node.overloads = tuple(overloads)
        return BOOL if fits else ERROR

    # -- constructed values -------------------------------------------------------------------------------------------

    def _list(self, node: ListNode) -> CelType:
        joined: CelType | None = None
        for index, element in enumerate(node.elements):
            found = self.check(element)
            if index in node.optional:
                found = self._optional_value(element, found)
            joined = self._join(joined, found)
        return list_of(self._variable() if joined is None else joined)

    def _map(self, node: MapNode) -> CelType:
        keys: CelType | None = None
        values: CelType | None = None
        for entry in node.entries:
            keys = self._join(keys, self.check(entry.key))
            values = self._join(values, self._entry(entry))
        if keys is None or values is None:
            return map_of(self._variable(), self._variable())
        return map_of(keys, values)

    def _struct(self, node: StructNode) -> CelType:
        name = node.name.removeprefix(".")
        of = self._scope.types.get(name)
        if of is None:
            return self._undeclared(node.offset, node.name)
        if of.kind != "struct":
            self._issue(node.offset, f"'{of.name}' is not a message type")
            of = ERROR
        for entry in node.entries:
            found = self._entry(entry)
            if of is ERROR:
                continue
            declared = of.field(entry.key)
            if declared is None:
                self._issue(entry.offset, f"undefined field '{entry.key}'")
            elif not assignable(self._bindings, declared.type, found):
                self._issue(
                    entry.offset,
                    f"expected type of field '{entry.key}' is '{declared.type}' but provided type is '{found}'",
                )
        return of

    def _entry(self, entry: MapEntry) -> CelType:
        found = self.check(entry.value)
        return self._optional_value(entry.value, found) if entry.optional else found

    def _optional_value(self, node: Node, found: CelType) -> CelType:
        value, optional = unwrap_optional(found)
        if not optional and not is_dynamic(value):
            self._mismatch(node.offset, optional_of(value), value)
        return value

    def _join(self, previous: CelType | None, found: CelType) -> CelType:
        if previous is None:
            return found
        return most_general(previous, found) if assignable(self._bindings, previous, found) else DYN

    # -- loops --------------------------------------------------------------------------------------------------------

    def _comprehension(self, node: Comprehension) -> CelType:
        over = substitute(self._bindings, self.check(node.iter_range))
        accu = self.check(node.init)
        self._locals.append({node.accu: accu})
        names = self._loop_variables(node, over)
        self._locals.append(names)
        self._require(node.condition, BOOL)
        self._require(node.step, accu)
        self._locals.pop()
        result = self.check(node.result)
        self._locals.pop()
        return substitute(self._bindings, result)

    def _loop_variables(self, node: Comprehension, over: CelType) -> dict[str, CelType]:
        first = second = DYN
        if over.kind == "list":
            first, second = (INT if node.var2 else over.parameters[0]), over.parameters[0]
        elif over.kind == "map":
            first, second = over.parameters
        elif over.kind in ("dyn", "error", "param", "any"):
            assignable(self._bindings, DYN, over)
        else:
            self._issue(
                node.iter_range.offset,
                f"expression of type '{over}' cannot be range of a comprehension (must be list, map, or dynamic)",
            )
            first = second = ERROR
        return {node.var: first, node.var2: second} if node.var2 else {node.var: first}

    def _require(self, node: Node, expected: CelType) -> None:
        found = self.check(node)
        if not assignable(self._bindings, expected, found):
            self._mismatch(node.offset, expected, found)


def _dotted(node: Node) -> str | None:
    """Return ``a.b.c`` for a chain of plain selections from a name, else None."""
    parts: list[str] = []
    while isinstance(node, Select):
        if node.test_only:
            return None
        parts.append(node.field)
        node = node.operand
    if not isinstance(node, Ident):
        return None
    return ".".join([node.name, *reversed(parts)])
