"""Worst-case costs of calls of Kubernetes' and cel-go's extension functions, from the sizes of their arguments.

A change here changes which expressions are accepted.
Source: k8s.io/apiserver/pkg/cel/library/cost.go (EstimateCallCost), cel-go ``ext/sets.go`` and ``ext/lists.go``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from kubechronicle.api.cel.cost_estimate import PATTERN, TRAVERSAL, Estimate, EstimatedPart, pattern
from kubechronicle.api.cel.cost_spans import MOST, ONE, UNKNOWN, CostSpan, exactly
from kubechronicle.api.cel.library.costs import AUTHORIZATION_CHECK, LIST_BASE, STRUCT_BASE
from kubechronicle.api.cel.syntax import ast
from kubechronicle.api.cel.types import Overload

Estimator = Callable[[Overload, EstimatedPart | None, Sequence[EstimatedPart]], Estimate | None]

_ADDRESS: Final = CostSpan(4, 16)
"""Size of an address, in bytes."""
_FORMAT_PATTERN: Final = 128
_FORMAT_SIZE: Final = 64


def estimate(
    function: str, overload: Overload, receiver: EstimatedPart | None, parts: Sequence[EstimatedPart]
) -> Estimate | None:
    """Return the estimate of a call without its arguments; None if the default applies."""
    own = _BY_OVERLOAD.get(overload.id) or _BY_FUNCTION.get(function)
    return None if own is None else own(overload, receiver, parts)


def _nominal(overload: Overload, receiver: EstimatedPart | None, parts: Sequence[EstimatedPart]) -> Estimate | None:
    return Estimate(ONE)


def _check(overload: Overload, receiver: EstimatedPart | None, parts: Sequence[EstimatedPart]) -> Estimate | None:
    return Estimate(exactly(AUTHORIZATION_CHECK))


def _selector(overload: Overload, receiver: EstimatedPart | None, parts: Sequence[EstimatedPart]) -> Estimate | None:
    size = parts[0].bounds()
    requirements = size.scaled(0.5).scaled(float(LIST_BASE + STRUCT_BASE))
    return Estimate(exactly(LIST_BASE).plus(size.scaled(TRAVERSAL)).plus(requirements))


def _element(listed: EstimatedPart) -> tuple[str, CostSpan] | None:
    """Return (kind, size) of a list's elements; None if the type has no elements, as for a text."""
    if not listed.type.parameters:
        return None
    most = listed.sizes((*listed.path, "@items")) if listed.path else None
    return listed.type.parameters[0].kind, UNKNOWN if most is None else CostSpan(0, most)


def _walking(overload: Overload, receiver: EstimatedPart | None, parts: Sequence[EstimatedPart]) -> Estimate | None:
    if receiver is None:
        return None
    element = _element(receiver)
    if element is None:
        return Estimate(receiver.bounds().scaled(TRAVERSAL))
    kind, size = element
    each = ONE.plus(size.scaled(TRAVERSAL)) if kind in ("string", "bytes") else ONE
    return Estimate(receiver.bounds().times(each))


def _traversing(overload: Overload, receiver: EstimatedPart | None, parts: Sequence[EstimatedPart]) -> Estimate | None:
    return Estimate(parts[0].bounds().scaled(TRAVERSAL)) if parts else None


def _translating(overload: Overload, receiver: EstimatedPart | None, parts: Sequence[EstimatedPart]) -> Estimate | None:
    size = parts[0].bounds()
    return Estimate(size.scaled(TRAVERSAL), size)


def _own_text(overload: Overload, receiver: EstimatedPart | None, parts: Sequence[EstimatedPart]) -> Estimate | None:
    return None if receiver is None else _translating(overload, None, [receiver])


def _canonical(overload: Overload, receiver: EstimatedPart | None, parts: Sequence[EstimatedPart]) -> Estimate | None:
    return Estimate(parts[0].bounds().scaled(2 * TRAVERSAL))


def _replace(overload: Overload, receiver: EstimatedPart | None, parts: Sequence[EstimatedPart]) -> Estimate | None:
    if receiver is None:
        return None
    size, old, new = receiver.bounds(), parts[0].bounds(), parts[1].bounds()
    if old.least == 0:  # an empty text occurs between all characters, and around them
        count_most, kept_most = min(size.most + 1, MOST), size.most
    elif new.most <= old.least:
        count_most, kept_most = 0, size.most
    else:
        count_most, kept_most = -(-size.most // old.least), 0
    if old.most == 0:
        count_least, kept_least = min(size.least + 1, MOST), size.least
    elif old.most <= new.least:
        count_least, kept_least = 0, size.least
    else:
        count_least, kept_least = -(-size.least // old.most), 0
    result = CostSpan(count_least, count_most).times(new).plus(CostSpan(kept_least, kept_most))
    return Estimate(size.scaled(2 * TRAVERSAL), result)


def _split(overload: Overload, receiver: EstimatedPart | None, parts: Sequence[EstimatedPart]) -> Estimate | None:
    if receiver is None:
        return None
    most = receiver.bounds().most
    limit = _literal_int(parts[1].node) if len(parts) > 1 else None
    if limit is not None:
        most = limit % 2**64
    return Estimate(receiver.bounds().scaled(2 * TRAVERSAL), CostSpan(0, most))


def _join(overload: Overload, receiver: EstimatedPart | None, parts: Sequence[EstimatedPart]) -> Estimate | None:
    if receiver is None:
        return None
    count, element = receiver.bounds(), _element(receiver)
    size = exactly(0) if element is None else count.times(element[1])
    if parts:
        between = CostSpan(max(count.least - 1, 0), max(count.most - 1, 0))
        size = size.plus(parts[0].bounds().times(between))
    return Estimate(size.scaled(TRAVERSAL), size)


def _search(overload: Overload, receiver: EstimatedPart | None, parts: Sequence[EstimatedPart]) -> Estimate | None:
    if receiver is None:
        return None
    return Estimate(pattern(receiver, parts[0].bounds()), CostSpan(0, receiver.bounds().most))


def _ip(overload: Overload, receiver: EstimatedPart | None, parts: Sequence[EstimatedPart]) -> Estimate | None:
    return Estimate(ONE) if overload.id == "cidr_ip" else _traversing(overload, receiver, parts)


def _contains_ip(overload: Overload, receiver: EstimatedPart | None, parts: Sequence[EstimatedPart]) -> Estimate | None:
    cost = _ADDRESS.plus(_ADDRESS).scaled(TRAVERSAL)
    if overload.id.endswith("_string"):
        cost = cost.plus(parts[0].bounds().scaled(TRAVERSAL))
    return Estimate(cost)


def _contains_cidr(
    overload: Overload, receiver: EstimatedPart | None, parts: Sequence[EstimatedPart]
) -> Estimate | None:
    cost = _ADDRESS.plus(_ADDRESS).scaled(TRAVERSAL).plus(_ADDRESS.scaled(TRAVERSAL)).plus(ONE)
    if overload.id.endswith("_string"):
        cost = cost.plus(parts[0].bounds().scaled(TRAVERSAL))
    return Estimate(cost)


def _validate(overload: Overload, receiver: EstimatedPart | None, parts: Sequence[EstimatedPart]) -> Estimate | None:
    return Estimate(parts[0].bounds().scaled(TRAVERSAL).scaled(_FORMAT_PATTERN * PATTERN))


_EQUAL_AT_ONCE: Final = frozenset(
    (
        "net.IP",
        "net.CIDR",
        "kubernetes.Quantity",
        "kubernetes.Semver",
        *(
            f"kubernetes.authorization.{name}"
            for name in ("Authorizer", "PathCheck", "GroupCheck", "ResourceCheck", "Decision")
        ),
    )
)


def _equal(overload: Overload, receiver: EstimatedPart | None, parts: Sequence[EstimatedPart]) -> Estimate | None:
    of = parts[0].type
    if of != parts[1].type:
        return None
    if of.name in _EQUAL_AT_ONCE:
        return Estimate(ONE)
    if of.name == "kubernetes.NamedFormat":
        return Estimate(CostSpan(1, _FORMAT_SIZE).scaled(TRAVERSAL))
    if of.name == "kubernetes.URL":
        size = parts[1].size
        return Estimate(CostSpan(1, 1 if size is None else size.most).scaled(TRAVERSAL))
    return None


def _comparing_sets(factor: float) -> Estimator:
    def cost(overload: Overload, receiver: EstimatedPart | None, parts: Sequence[EstimatedPart]) -> Estimate | None:
        return Estimate(parts[0].bounds().times(parts[1].bounds()).scaled(factor).plus(ONE))

    return cost


# -- new lists --------------------------------------------------------------------------------------------------------


def _making(factor: float, size: CostSpan) -> Estimate:
    return Estimate(size.scaled(factor).plus(ONE).plus(exactly(LIST_BASE)), size)


def _literal_int(node: ast.Node) -> int | None:
    return node.value if isinstance(node, ast.Literal) and type(node.value) is int else None


def _int_or(node: ast.Node, otherwise: int) -> int:
    value = _literal_int(node)
    return otherwise if value is None else max(value, 0)


def _slice(overload: Overload, receiver: EstimatedPart | None, parts: Sequence[EstimatedPart]) -> Estimate | None:
    if receiver is None:
        return None
    start, end = _int_or(parts[0].node, 0), _int_or(parts[1].node, receiver.bounds().most)
    return _making(1, exactly((end - start) % 2**64))


def _range(overload: Overload, receiver: EstimatedPart | None, parts: Sequence[EstimatedPart]) -> Estimate | None:
    return _making(1, exactly(_int_or(parts[0].node, MOST)))


def _reverse(overload: Overload, receiver: EstimatedPart | None, parts: Sequence[EstimatedPart]) -> Estimate | None:
    return None if receiver is None else _making(1, receiver.bounds())


def _flatten(overload: Overload, receiver: EstimatedPart | None, parts: Sequence[EstimatedPart]) -> Estimate | None:
    depth = _int_or(parts[0].node, MOST) if parts else 1
    return None if receiver is None else _making(float(depth), receiver.bounds())


def _pairs(listed: EstimatedPart, texts: bool) -> Estimate:
    return _making(2.0 + TRAVERSAL if texts else 2.0, listed.bounds().times(listed.bounds()))


def _distinct(overload: Overload, receiver: EstimatedPart | None, parts: Sequence[EstimatedPart]) -> Estimate | None:
    return None if receiver is None else _pairs(receiver, texts=False)


def _sort(overload: Overload, receiver: EstimatedPart | None, parts: Sequence[EstimatedPart]) -> Estimate | None:
    keys = parts[0] if parts else receiver
    texts = overload.args[-1].parameters[0].kind in ("string", "bytes")
    return None if keys is None else _pairs(keys, texts)


_NOMINAL: Final = (
    *("serviceAccount", "path", "group", "resource", "subresource", "namespace", "name", "allowed", "reason", "error"),
    *("errored", "masked", "prefixLength", "family", "isUnspecified", "isLoopback", "isLinkLocalMulticast"),
    *("isLinkLocalUnicast", "isGlobalUnicast", "format.named", "sign", "asInteger", "isInteger", "asApproximateFloat"),
    *("isGreaterThan", "isLessThan", "compareTo", "add", "sub", "major", "minor", "patch", "getScheme", "getHostname"),
    *("getHost", "getPort", "getEscapedPath", "getQuery"),
)
_BY_FUNCTION: Final[dict[str, Estimator]] = {
    **dict.fromkeys(_NOMINAL, _nominal),
    "check": _check,
    **dict.fromkeys(("fieldSelector", "labelSelector"), _selector),
    **dict.fromkeys(("isSorted", "sum", "max", "min", "indexOf", "lastIndexOf"), _walking),
    **dict.fromkeys(("url", "jsonpatch.escapeKey"), _translating),
    **dict.fromkeys(("lowerAscii", "upperAscii", "substring", "trim"), _own_text),
    **dict.fromkeys(("cidr", "isIP", "isCIDR", "quantity", "isQuantity", "semver", "isSemver"), _traversing),
    **dict.fromkeys(("find", "findAll"), _search),
    "replace": _replace,
    "split": _split,
    "join": _join,
    "ip": _ip,
    "ip.isCanonical": _canonical,
    "containsIP": _contains_ip,
    "containsCIDR": _contains_cidr,
    "validate": _validate,
    "_==_": _equal,
}
_SORTED: Final = ("int", "uint", "double", "bool", "google.protobuf.Duration", "google.protobuf.Timestamp", "string")
_BY_OVERLOAD: Final[dict[str, Estimator]] = {
    "list_sets_contains_list": _comparing_sets(1),
    "list_sets_intersects_list": _comparing_sets(1),
    "list_sets_equivalent_list": _comparing_sets(2),
    "list_slice": _slice,
    "list_flatten": _flatten,
    "list_flatten_int": _flatten,
    "lists_range": _range,
    "list_reverse": _reverse,
    "list_distinct": _distinct,
    **{f"list_{name}_{call}": _sort for name in (*_SORTED, "bytes") for call in ("sort", "sortByAssociatedKeys")},
}
