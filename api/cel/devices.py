"""Expressions that select devices (KEP-4381): ``device.attributes["gpu.example.com"].memory == 1``.

An attribute without a domain belongs to the driver's domain. A domain without attributes reads as an empty map.
Source: k8s.io/dynamic-resource-allocation/cel.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any, Final

from kubechronicle.api.cel import CompileError, Environment, Program, base_environment
from kubechronicle.api.cel.admission import FAILED, program_problem, type_text
from kubechronicle.api.cel.cost_estimate import Path, estimate
from kubechronicle.api.cel.declarations import Library
from kubechronicle.api.cel.errors import ExpressionReport
from kubechronicle.api.cel.library import estimates, quantity, semver
from kubechronicle.api.cel.library.quantity import QUANTITY
from kubechronicle.api.cel.syntax.ast import Comprehension, Ident, ListNode, Literal, Node
from kubechronicle.api.cel.syntax.macros import UNUSED, Macro, MacroError
from kubechronicle.api.cel.types import ANY, BOOL, DYN, INT, STRING, CelType, list_of, map_of, object_type
from kubechronicle.api.values.caches import remembered

MAX_COST: Final = 1_000_000
"""The cost limit of a selector for one device (resource.k8s.io: CELSelectorExpressionMaxCost)."""

DERIVED: Final = "derived attribute"
DERIVED_LISTS: Final = "derived attribute that may be a list"
_SELECTS: Final = "selector"
"""The purposes of an expression."""

DEVICE: Final = object_type(
    "kubernetes.DRADevice",
    {
        "driver": STRING,
        "allowMultipleAllocations": BOOL,
        "attributes": map_of(STRING, map_of(STRING, ANY)),
        "capacity": map_of(STRING, map_of(STRING, QUANTITY)),
    },
)


def _bind(at: int, target: Node | None, arguments: Sequence[Node]) -> Node | None:
    """Expand ``cel.bind(name, value, expression)``: in the expression, the name stands for the value."""
    if not isinstance(target, Ident) or target.name != "cel":
        return None
    name, value, expression = arguments
    if not isinstance(name, Ident):
        raise MacroError(name.offset, "cel.bind() variable names must be simple identifiers")
    unused = Literal(at, False)
    return Comprehension(at, ListNode(at, []), UNUSED, name.name, value, unused, Ident(at, name.name), expression)


BINDINGS: Final = Library("cel.lib.ext.cel.bindings", 0, (), macros=(Macro("bind", 3, True, _bind),))


@functools.cache
def environment() -> Environment:
    """Return the environment of selectors."""
    return base_environment().extend(variables={"device": DEVICE}, libraries=(BINDINGS,))


class _Unusable(Exception):
    """A selector that must not be stored. ``args[0]``: the reason, to be shown as text."""


def problem(expression: str, purpose: str = _SELECTS) -> str | ExpressionReport:
    """Return the reason against storing an expression, empty if none. InstantiationError as in `compile`."""
    try:
        worst_cost(expression, purpose)
    except _Unusable as error:
        reason: str | ExpressionReport = error.args[0]
        return reason
    return ""


_SCALARS: Final = (BOOL, INT, STRING, ANY, DYN, semver.SEMVER)


@remembered(1024)
def worst_cost(expression: str, purpose: str = _SELECTS) -> int:
    """Return the worst-case cost of an expression without a problem. One above MAX_COST must not be stored.

    ``purpose``: DERIVED or DERIVED_LISTS for the value of an attribute that a claim derives.
    """
    scope = environment()
    try:
        tree = scope.check(expression)
    except CompileError as error:
        raise _Unusable(error.report._replace(head=FAILED)) from None
    problem = program_problem(expression, tree, scope)
    if isinstance(problem, ExpressionReport):
        raise _Unusable(problem)
    if wanted := _unwanted(tree.type, purpose):
        raise _Unusable(f"must evaluate to {wanted}, not {type_text(tree.type)}")
    if problem is not None:
        raise problem
    return estimate(tree, _size, estimates.estimate).most


def _unwanted(kind: CelType, purpose: str) -> str:
    """Return what an expression must evaluate to, if it is not of such a type."""
    if purpose == _SELECTS:
        return "" if kind in (BOOL, ANY) else "bool or the unknown type"
    wanted = "a primitive scalar (string, integer, boolean, semver)"
    if purpose == DERIVED_LISTS:
        wanted += " or a list of these scalars"
        if kind in map(list_of, _SCALARS):
            return ""
    return "" if kind in _SCALARS else wanted


_MOST_NAMES: Final = 32
_DOMAIN: Final = 63
_NAME: Final = 32
_ATTRIBUTE: Final = 64
_ALL: Final = frozenset(("@values", "@items"))


def _size(path: Path) -> int | None:
    """Return the limit of ResourceSlices at a path: characters of a text, entries of a map."""
    if path[:1] != ("device",):
        return None
    if len(path) < 3:
        return {(): 0, ("driver",): _DOMAIN, ("allowMultipleAllocations",): 1}.get(path[1:], _MOST_NAMES)
    if path[1] not in ("attributes", "capacity"):
        return None
    domain, *name = path[2:]
    if not name:
        return _DOMAIN if domain == "@keys" else _MOST_NAMES if domain in _ALL else None
    if domain not in _ALL or len(name) > 1:
        return None
    if name[0] == "@keys":
        return _NAME
    if path[1] == "attributes":
        return _ATTRIBUTE
    return 0 if name[0] in _ALL else None


class _Domains(dict[str, Any]):
    """Values by domain. Any other domain reads as an empty map."""

    def __missing__(self, domain: str) -> dict[str, Any]:
        return {}

    def __contains__(self, domain: object) -> bool:
        return isinstance(domain, str)


def device_value(driver: str, device: Mapping[str, Any]) -> dict[str, Any]:
    """Return the value of the variable ``device`` for a device of a ResourceSlice.

    QuantityError or VersionError if an attribute is malformed."""
    attributes, capacity = _Domains(), _Domains()
    for name, attribute in (device.get("attributes") or {}).items():
        domain, own = _split(name, driver)
        attributes.setdefault(domain, {})[own] = _attribute(attribute)
    for name, entry in (device.get("capacity") or {}).items():
        domain, own = _split(name, driver)
        capacity.setdefault(domain, {})[own] = quantity.parse(entry.get("value", "0"))
    return {
        "driver": driver,
        "allowMultipleAllocations": bool(device.get("allowMultipleAllocations")),
        "attributes": attributes,
        "capacity": capacity,
    }


def _split(name: str, driver: str) -> tuple[str, str]:
    domain, slash, own = name.partition("/")
    return (domain, own) if slash else (driver, name)


def _attribute(attribute: Mapping[str, Any]) -> Any:
    version = attribute.get("version")
    if version is not None:
        return semver.parse(version)
    return next((attribute[kind] for kind in ("int", "bool", "string") if kind in attribute), None)


def matches(program: Program, driver: str, device: Mapping[str, Any]) -> bool:
    """Return whether a device is selected. EvaluationError if the selector fails."""
    return program.evaluate({"device": device_value(driver, device)}, budget=MAX_COST) is True
