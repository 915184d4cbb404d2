"""The static cost estimate: the worst-case cost of an expression. Kubernetes rejects some that may cost too much.

`Sizes` limits the data by path: ``("device", "driver")``. In paths, ``@items``, ``@keys``, ``@values`` and ``@indices``
stand for any element, key, value and index. Source: cel-go ``checker/cost.go``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from kubechronicle.api.cel.cost_spans import EMPTY, MOST, NOTHING, ONE, UNKNOWN, CostSpan, exactly
from kubechronicle.api.cel.syntax import ast
from kubechronicle.api.cel.syntax.macros import ACCUMULATOR, OLD_ACCUMULATOR
from kubechronicle.api.cel.types import CelType, Overload

Path = tuple[str, ...]
Sizes = Callable[[Path], int | None]
"""The most characters, bytes or elements at a path; None if unknown."""

TRAVERSAL: Final = 0.1
PATTERN: Final = 0.25
_LIST_CREATE: Final = exactly(10)
_MAP_CREATE: Final = exactly(30)
_STRUCT_CREATE: Final = exactly(40)
_ACCUMULATORS: Final = (ACCUMULATOR, OLD_ACCUMULATOR)
_SELECTED: Final = ("map", "struct", "param")
_SCALARS: Final = frozenset(("bool", "double", "duration", "int", "timestamp", "uint"))


class EstimatedPart(NamedTuple):
    """An argument of a call, for the estimators of functions. ``size``: None if unknown."""

    node: ast.Node
    path: Path
    size: CostSpan | None
    sizes: Sizes

    @property
    def type(self) -> CelType:
        """The static type."""
        return self.node.type

    def bounds(self) -> CostSpan:
        """Return the size, UNKNOWN instead of None."""
        return UNKNOWN if self.size is None else self.size


class Estimate(NamedTuple):
    """The cost of a call without its arguments, and the size of its result if known."""

    cost: CostSpan
    result: CostSpan | None = None


CallEstimate = Callable[[str, Overload, EstimatedPart | None, Sequence[EstimatedPart]], Estimate | None]
"""(function, overload, receiver, arguments) -> its estimate; None: the default cost of a call."""


class _Entries(NamedTuple):
    """Sizes of the keys and values of a list or map. The keys of a list, its indexes, have size 1."""

    kind: str
    keys: CostSpan
    values: CostSpan

    def union(self, other: _Entries | None) -> _Entries | None:
        if other is None:
            return None
        return _Entries(self.kind, self.keys.union(other.keys), self.values.union(other.values))


class _Variable(NamedTuple):
    path: Path
    size: CostSpan | None
    entries: _Entries | None = None


def estimate(tree: ast.Node, sizes: Sizes, calls: CallEstimate) -> CostSpan:
    """Return the least and the most that a checked expression costs."""
    return _Coster(sizes, calls).cost(tree)


class _Coster:
    def __init__(self, sizes: Sizes, calls: CallEstimate) -> None:
        self._bounds = sizes
        self._calls = calls
        self._paths: dict[ast.Node, Path] = {}
        self._known: dict[ast.Node, CostSpan] = {}
        self._entries: dict[ast.Node, _Entries] = {}
        self._variables: dict[str, list[_Variable]] = {}
        self._kept: dict[ast.Node, CostSpan] = {}
        self._costs: dict[type[ast.Node], Callable[..., CostSpan]] = {
            ast.Ident: self._ident,
            ast.Select: self._select,
            ast.CallExpression: self._call,
            ast.ListNode: self._list,
            ast.MapNode: self._map,
            ast.StructNode: self._struct,
            ast.Comprehension: self._comprehension,
            ast.Keep: self._keep,
            ast.KeptExpression: self._again,
        }

    def cost(self, node: ast.Node) -> CostSpan:
        found = self._costs.get(type(node))
        return NOTHING if found is None else found(node)

    def _keep(self, node: ast.Keep) -> CostSpan:
        """Return the cost of a part, which counts again wherever it is repeated. It is estimated once: repetitions
        within repetitions would double the work with each level."""
        cost = self._kept[node] = self.cost(node.node)
        self._same(node, node.node)
        return cost

    def _again(self, node: ast.KeptExpression) -> CostSpan:
        cost = self._kept[node.keep] if node.keep in self._kept else self.cost(node.keep)
        self._same(node, node.keep.node)
        return cost

    def _same(self, node: ast.Node, inner: ast.Node) -> None:
        self._copy(node, inner)
        self._paths[node] = self._path(inner)

    # -- names --------------------------------------------------------------------------------------------------------

    def _ident(self, node: ast.Ident) -> CostSpan:
        variable = self._variable(node)
        self._paths[node] = (node.name.removeprefix("."),) if variable is None else variable.path
        return ONE

    def _variable(self, node: ast.Node) -> _Variable | None:
        stack = self._variables.get(node.name) if isinstance(node, ast.Ident) else None
        return stack[-1] if stack else None

    def _select(self, node: ast.Select) -> CostSpan:
        cost = self.cost(node.operand)
        if not node.field:
            self._paths[node] = self._path(node.operand)
            return cost
        if node.test_only:
            return cost
        self._paths[node] = (*self._path(node.operand), node.field)
        return cost.plus(ONE) if node.operand.type.kind in _SELECTED else cost

    def _path(self, node: ast.Node) -> Path:
        variable = self._variable(node)
        return self._paths.get(node, ()) if variable is None else variable.path

    # -- sizes --------------------------------------------------------------------------------------------------------

    def _size(self, node: ast.Node) -> CostSpan | None:
        known = self._known.get(node)
        if known is not None:
            return known
        written = _written_size(node)
        if written is not None:
            return written
        path = self._path(node)
        most = self._bounds(path) if path else None
        if most is not None:
            self._known[node] = found = CostSpan(0, most)
            return found
        if _is_scalar(node.type):
            return ONE
        variable = self._variable(node)
        return None if variable is None else variable.size

    def _size_or_unknown(self, node: ast.Node) -> CostSpan:
        size = self._size(node)
        return UNKNOWN if size is None else size

    def _entry_sizes(self, node: ast.Node) -> _Entries | None:
        found = self._entries.get(node)
        if found is None:
            variable = self._variable(node)
            return None if variable is None else variable.entries
        return found

    def _copy(self, to: ast.Node, of: ast.Node) -> None:
        size, entries = self._size(of), self._entry_sizes(of)
        if size is not None:
            self._known[to] = size
        if entries is not None:
            self._entries[to] = entries

    def _part(self, node: ast.Node) -> EstimatedPart:
        path = self._path(node)
        return EstimatedPart(
            node, () if path[:1] and path[0] in _ACCUMULATORS else path, self._size(node), self._bounds
        )

    # -- calls --------------------------------------------------------------------------------------------------------

    def _call(self, node: ast.CallExpression) -> CostSpan:
        if node.function == "dyn":
            cost = self.cost(node.args[0]).plus(ONE)
            self._copy(node, node.args[0])
            return cost
        arguments = [self.cost(argument) for argument in node.args]
        parts = [self._part(argument) for argument in node.args]
        if not node.overloads:
            return NOTHING
        cost, receiver = NOTHING, None
        if node.target is not None:
            cost = self.cost(node.target)
            receiver = self._part(node.target)
        total, result = EMPTY, None
        for overload in node.overloads:
            found = self._overload(node, overload, receiver, parts, arguments)
            total = total.union(found.cost)
            if found.result is not None:
                result = found.result if result is None else result.union(found.result)
            if overload.id in ("index_list", "index_map"):
                entries = self._entry_sizes(node.args[0])
                result = None if entries is None else entries.values
                below = "@items" if overload.id == "index_list" else "@values"
                self._paths[node] = (*self._path(node.args[0]), below)
            if result is None:
                result = self._size(node)
        if result is not None:
            self._known[node] = result
        return cost.plus(total)

    def _overload(
        self,
        node: ast.CallExpression,
        overload: Overload,
        receiver: EstimatedPart | None,
        parts: list[EstimatedPart],
        arguments: list[CostSpan],
    ) -> Estimate:
        costs = NOTHING
        for argument in arguments:
            costs = costs.plus(argument)
        found = self._calls(node.function, overload, receiver, parts)
        if found is None:
            found = _standard(overload.id, receiver, parts)
        if found is not None:
            return Estimate(found.cost.plus(costs), found.result)
        if overload.id in ("logical_or", "logical_and"):
            return Estimate(CostSpan(arguments[0].least, costs.most))
        if overload.id == "conditional":
            self._unite(node, node.args[1], node.args[2])
            size = parts[1].bounds().union(parts[2].bounds())
            return Estimate(arguments[0].plus(arguments[1].union(arguments[2])), size)
        if overload.id in ("add_string", "add_bytes", "add_list"):
            self._unite(node, node.args[0], node.args[1])
            size = parts[0].bounds().plus(parts[1].bounds())
            own = ONE if overload.id == "add_list" else size.scaled(TRAVERSAL)
            return Estimate(own.plus(costs), size)
        return Estimate(ONE.plus(costs))

    def _unite(self, node: ast.Node, left: ast.Node, right: ast.Node) -> None:
        entries = self._entry_sizes(left)
        both = None if entries is None else entries.union(self._entry_sizes(right))
        if both is not None:
            self._entries[node] = both

    # -- constructed values -------------------------------------------------------------------------------------------

    def _list(self, node: ast.ListNode) -> CostSpan:
        cost, values = _LIST_CREATE, EMPTY if node.elements else CostSpan(0, 0)
        for element in node.elements:
            cost = cost.plus(self.cost(element))
            values = values.union(self._size_or_unknown(element))
        self._entries[node] = _Entries("list", ONE, values)
        return cost

    def _map(self, node: ast.MapNode) -> CostSpan:
        cost, keys, values = _MAP_CREATE, *((EMPTY, EMPTY) if node.entries else (NOTHING, NOTHING))
        for entry in node.entries:
            cost = cost.plus(self.cost(entry.key)).plus(self.cost(entry.value))
            keys = keys.union(self._size_or_unknown(entry.key))
            values = values.union(self._size_or_unknown(entry.value))
        self._entries[node] = _Entries("map", keys, values)
        return cost

    def _struct(self, node: ast.StructNode) -> CostSpan:
        cost = _STRUCT_CREATE
        for entry in node.entries:
            cost = cost.plus(self.cost(entry.value))
        return cost

    # -- loops --------------------------------------------------------------------------------------------------------

    def _comprehension(self, node: ast.Comprehension) -> CostSpan:
        cost = self.cost(node.iter_range).plus(self.cost(node.init))
        self._push(node.accu, _Variable(self._path(node.init), self._size(node.init), self._entry_sizes(node.init)))
        if _is_binding(node):
            cost = cost.plus(self.cost(node.result))
            self._variables[node.accu].pop()
            self._copy(node, node.result)
            return cost
        names = self._push_loop(node)
        each = self.cost(node.condition).plus(self.cost(node.step))
        for name in names:
            self._variables[name].pop()
        cost = cost.plus(self.cost(node.result))
        self._variables[node.accu].pop()
        count = self._size_or_unknown(node.iter_range)
        if isinstance(node.init, ast.Literal):
            size = self._size(node.init)
            if size is not None:
                self._known[node] = size
        elif isinstance(node.init, (ast.ListNode, ast.MapNode)):
            self._known[node] = count
            entries = self._entry_sizes(node.step)
            if entries is not None:
                self._entries[node] = entries
        return cost.plus(count.times(each))

    def _push(self, name: str, variable: _Variable) -> None:
        self._variables.setdefault(name, []).append(variable)

    def _push_loop(self, node: ast.Comprehension) -> list[str]:
        entries, path = self._entry_sizes(node.iter_range), self._path(node.iter_range)
        kind = node.iter_range.type.kind if entries is None else entries.kind
        keys, values = (None, None) if entries is None else (entries.keys, entries.values)
        by_place = kind == "list"
        items = _Variable((*path, "@items" if by_place else "@values"), values)
        if node.var2 is None:
            self._push(node.var, items if by_place else _Variable((*path, "@keys"), keys))
            return [node.var]
        self._push(node.var, _Variable((*path, "@indices" if by_place else "@keys"), keys))
        self._push(node.var2, items)
        return [node.var, node.var2]


def _is_binding(node: ast.Comprehension) -> bool:
    """Return whether this only names a value, without a loop."""
    nothing = isinstance(node.iter_range, ast.ListNode) and not node.iter_range.elements
    never = isinstance(node.condition, ast.Literal) and node.condition.value is False
    return nothing and never and node.accu != OLD_ACCUMULATOR


def _written_size(node: ast.Node) -> CostSpan | None:
    if isinstance(node, ast.Literal):
        return exactly(len(node.value) if isinstance(node.value, (str, bytes, list, tuple, dict)) else 1)
    if isinstance(node, ast.ListNode):
        return exactly(len(node.elements))
    return exactly(len(node.entries)) if isinstance(node, ast.MapNode) else None


def _is_scalar(of: CelType) -> bool:
    return _is_scalar(of.parameters[0]) if of.is_optional else of.kind in _SCALARS


_COMPARED: Final = frozenset(
    (
        *("less_string", "greater_string", "less_equals_string", "greater_equals_string"),
        *("less_bytes", "greater_bytes", "less_equals_bytes", "greater_equals_bytes", "equals", "not_equals"),
    )
)


def _standard(overload: str, receiver: EstimatedPart | None, parts: Sequence[EstimatedPart]) -> Estimate | None:
    """Return the estimate of a standard call if it depends on sizes, else None."""
    if overload == "string_format" and receiver is not None:
        return Estimate(receiver.bounds().scaled(TRAVERSAL))
    if overload in ("string_to_bytes", "bytes_to_string", "strings_quote") and len(parts) == 1:
        size = parts[0].bounds()
        result = {
            "string_to_bytes": CostSpan(size.least, min(size.most * 4, MOST)),
            "bytes_to_string": CostSpan(size.least // 4, size.most),
            "strings_quote": CostSpan(size.least + 2, min(size.most * 2 + 2, MOST)),
        }[overload]
        return Estimate(size.scaled(TRAVERSAL), result)
    if overload in ("starts_with_string", "ends_with_string") and len(parts) == 1:
        return Estimate(parts[0].bounds().scaled(TRAVERSAL))
    if overload == "in_list":
        return Estimate(parts[1].bounds())
    if overload == "matches_string" and receiver is not None:
        return Estimate(pattern(receiver, parts[0].bounds()))
    if overload == "contains_string" and receiver is not None:
        return Estimate(receiver.bounds().scaled(TRAVERSAL).times(parts[0].bounds().scaled(TRAVERSAL)))
    if overload in _COMPARED:
        smaller = min(parts[0].bounds().most, parts[1].bounds().most)
        return Estimate(CostSpan(min(1, smaller), smaller).scaled(TRAVERSAL))
    return None


def pattern(text: EstimatedPart, size: CostSpan) -> CostSpan:
    """Return the cost of applying a pattern of that size to a text."""
    return text.bounds().plus(ONE).scaled(TRAVERSAL).times(size.scaled(PATTERN))
