"""CEL's ``cidr()`` and the functions of address ranges (library kubernetes.net.cidr, since v1.30)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

from kubechronicle.api.cel.declarations import Library
from kubechronicle.api.cel.errors import EvaluationError, no_such_overload
from kubechronicle.api.cel.library import costs
from kubechronicle.api.cel.library.address_parser import CIDR, IP, AddressError, IpAddress, Range, parse_range
from kubechronicle.api.cel.library.ip import to_ip
from kubechronicle.api.cel.overloads import Function, Overload
from kubechronicle.api.cel.types import BOOL, INT, STRING
from kubechronicle.api.errors.field_errors import go_quote

_CONVERSION: Final = "network address parse error during conversion from string"


def to_cidr(text: str) -> Range:
    """Return the range of a text. EvaluationError if it has none, or one of IPv4 written as IPv6."""
    try:
        found = parse_range(text)
    except AddressError as problem:
        raise EvaluationError(f"{_CONVERSION}: {_CONVERSION}: {problem}") from None
    if found.address.mapped:
        raise EvaluationError(f"{_CONVERSION}: IPv4-mapped IPv6 address {go_quote(text)} is not allowed")
    return found


def is_cidr(text: str) -> bool:
    """Return whether ``cidr(text)`` is a range."""
    try:
        to_cidr(text)
    except EvaluationError:
        return False
    return True


def _contains_ip_text(self: Range, text: str) -> bool:
    try:
        address = to_ip(text)
    except EvaluationError:
        raise no_such_overload() from None  # as in Kubernetes, without the parser's message
    return self.contains(address)


def _contains_cidr_text(self: Range, text: str) -> bool:
    return self.contains_range(to_cidr(text))


def _ip(self: Range) -> IpAddress:
    return self.address


def _length(self: Range) -> int:
    return self.length


def _ip_cost(args: Sequence[Any], result: Any) -> int:
    mine = costs.size(args[0])
    cost = math.ceil((mine + mine) * costs.TRAVERSAL)
    if isinstance(args[1], str):
        cost += math.ceil(len(args[1]) * costs.TRAVERSAL)
    return cost


def _cidr_cost(args: Sequence[Any], result: Any) -> int:
    return _ip_cost(args, result) + math.ceil(costs.size(args[0]) * costs.TRAVERSAL) + 1


LIBRARY: Final = Library(
    "kubernetes.net.cidr",
    0,
    (
        Function("cidr", (Overload("string_to_cidr", (STRING,), CIDR, to_cidr, cost=costs.traversal()),)),
        Function("isCIDR", (Overload("is_cidr", (STRING,), BOOL, is_cidr, cost=costs.traversal()),)),
        Function(
            "containsIP",
            (
                Overload("cidr_contains_ip_string", (CIDR, STRING), BOOL, _contains_ip_text, True, _ip_cost),
                Overload("cidr_contains_ip_ip", (CIDR, IP), BOOL, Range.contains, True, _ip_cost),
            ),
        ),
        Function(
            "containsCIDR",
            (
                Overload("cidr_contains_cidr_string", (CIDR, STRING), BOOL, _contains_cidr_text, True, _cidr_cost),
                Overload("cidr_contains_cidr", (CIDR, CIDR), BOOL, Range.contains_range, True, _cidr_cost),
            ),
        ),
        Function("ip", (Overload("cidr_ip", (CIDR,), IP, _ip, member=True),)),
        Function("prefixLength", (Overload("cidr_prefix_length", (CIDR,), INT, _length, member=True),)),
        Function("masked", (Overload("cidr_masked", (CIDR,), CIDR, Range.masked, member=True),)),
        Function("string", (Overload("cidr_to_string", (CIDR,), STRING, str),)),
    ),
    types=(CIDR,),
)
