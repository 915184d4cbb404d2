"""Relations of types: assignability with type parameters, and the more general of two types.

The bindings of parameters are a dict that grows while types are compared. Source: cel-go ``checker/types.go``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kubechronicle.api.cel.types import DYN, NULL, CelType


class Bindings(dict[CelType, CelType]):
    """Type parameter -> its type, which may be or contain another parameter.

    `bind` records the previous binding, so that a failed comparison can be undone.
    """

    __slots__ = ("_before",)

    def __init__(self) -> None:
        super().__init__()
        self._before: list[tuple[CelType, CelType | None]] = []

    def bind(self, parameter: CelType, to: CelType) -> None:
        self._before.append((parameter, self.get(parameter)))
        self[parameter] = to

    def settle(self, agreed: bool) -> bool:
        """End a comparison: keep its bindings if ``agreed``, else undo them. Return ``agreed``."""
        before = self._before
        if before:
            if not agreed:
                for parameter, was in reversed(before):
                    if was is None:
                        del self[parameter]
                    else:
                        self[parameter] = was
            before.clear()
        return agreed


_NULLABLE = frozenset({"opaque", "struct", "any", "duration", "timestamp"})
_CONTAINERS = frozenset({"opaque", "list", "map"})


def is_dynamic(of: CelType) -> bool:
    return of.kind == "dyn" or of.kind == "any"


def is_dynamic_or_error(of: CelType) -> bool:
    return of.kind in ("dyn", "any", "error")


def assignable(bindings: Bindings, target: CelType, value: CelType) -> bool:
    """Return whether the types agree. ``bindings`` change only if they do."""
    if target is value and target.kind != "param":
        return True
    return bindings.settle(_assignable(bindings, target, value))


def all_assignable(bindings: Bindings, targets: Sequence[CelType], values: Sequence[CelType]) -> bool:
    """Return whether each pair agrees, in order. Lists of different length do not."""
    if len(targets) != len(values):
        return False
    agreed = all(_assignable(bindings, target, value) for target, value in zip(targets, values, strict=True))
    return bindings.settle(agreed)


def _assignable(bindings: Bindings, first: CelType, second: CelType) -> bool:
    if first is second and not first.open:
        return True
    if second.kind == "param":
        valid, known = _substitutes(bindings, first, second)
        if valid or known:
            return valid
    if first.kind == "param":
        return _substitutes(bindings, second, first)[0]
    if is_dynamic_or_error(first) or is_dynamic_or_error(second):
        return True
    if first.kind == "null" or second.kind == "null":
        other = second if first.kind == "null" else first
        return other.kind in _NULLABLE or other.kind == "null"
    if first.kind != second.kind:
        return False
    if first.kind == "type":
        return True
    if first.kind in _CONTAINERS:
        return (
            first.name == second.name
            and len(first.parameters) == len(second.parameters)
            and all(_assignable(bindings, *pair) for pair in zip(first.parameters, second.parameters, strict=True))
        )
    return first == second


def _substitutes(bindings: Bindings, other: CelType, parameter: CelType) -> tuple[bool, bool]:
    """Return (``parameter`` may stand for ``other``, ``parameter`` was bound before)."""
    if other == parameter:
        return True, True
    bound = bindings.get(parameter)
    if bound is not None:
        if other == bound:
            return True, True
        if _assignable(bindings, other, bound):
            general = most_general(other, bound)
            if _absent(bindings, parameter, general):
                bindings.bind(parameter, general)
            return True, True
        return False, True
    if _absent(bindings, parameter, other):
        bindings.bind(parameter, other)
        return True, False
    return False, False


def _absent(bindings: Bindings, parameter: CelType, within: CelType) -> bool:
    """Return whether a type does not contain the parameter, which may then be bound to it."""
    if not within.open:
        return True
    if within == parameter:
        return False
    if within.kind == "param":
        bound = bindings.get(within)
        return bound is None or _absent(bindings, parameter, bound)
    return all(_absent(bindings, parameter, inner) for inner in within.parameters)


def most_general(first: CelType, second: CelType) -> CelType:
    """Return the less specific of two types that agree."""
    return first if _less_specific(first, second) else second


def _less_specific(first: CelType, second: CelType) -> bool:
    if first is second:
        return True
    if is_dynamic(first) or first.kind == "param":
        return True
    if is_dynamic(second) or second.kind == "param" or first.kind != second.kind:
        return False
    if first.kind == "type":
        return True
    if first.kind in _CONTAINERS:
        return (
            first.name == second.name
            and len(first.parameters) == len(second.parameters)
            and all(map(_less_specific, first.parameters, second.parameters))
        )
    return first == second


def substitute(bindings: Mapping[CelType, CelType], of: CelType, to_dyn: bool = False) -> CelType:
    """Return a type with its bound parameters replaced. ``to_dyn``: replace unbound ones with dyn."""
    if not of.open:
        return of
    bound = bindings.get(of) if of.kind == "param" else None
    if bound is not None:
        return substitute(bindings, bound, to_dyn)
    if of.kind == "param":
        return DYN if to_dyn else of
    inner = tuple(substitute(bindings, parameter, to_dyn) for parameter in of.parameters)
    return of if inner == of.parameters else of.with_parameters(inner)


def closed(bindings: Mapping[CelType, CelType], of: CelType, known: dict[int, CelType]) -> CelType:
    """Return a type with its bound parameters replaced, and unbound ones by dyn.

    ``known``: the results so far by the id of the type, which must not change or end meanwhile.
    """
    if not of.open:
        return of
    found = known.get(id(of))
    if found is None:
        if of.kind == "param":
            bound = bindings.get(of)
            found = DYN if bound is None else closed(bindings, bound, known)
        else:
            found = of.with_parameters(tuple(closed(bindings, inner, known) for inner in of.parameters))
        known[id(of)] = found
    return found


def parameters_of(types: Sequence[CelType]) -> set[CelType]:
    """Return all type parameters in these types."""
    found: set[CelType] = set()
    for of in types:
        if of.kind == "param":
            found.add(of)
        elif of.open:
            found |= parameters_of(of.parameters)
    return found


def equivalent(first: CelType, second: CelType) -> bool:
    """Return whether two types are the same, apart from the names of type parameters."""
    if first is second:
        return True
    if first.kind != second.kind or len(first.parameters) != len(second.parameters):
        return False
    if first.kind != "param" and first.name != second.name:
        return False
    return all(map(equivalent, first.parameters, second.parameters))


def nullable(of: CelType) -> bool:
    return of == NULL or of.kind in _NULLABLE
