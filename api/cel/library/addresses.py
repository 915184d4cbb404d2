"""CEL functions of IP addresses and their ranges."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

from kubechronicle.api.cel.declarations import Library
from kubechronicle.api.cel.errors import EvaluationError, no_such_overload
from kubechronicle.api.cel.library import costs
from kubechronicle.api.cel.library.address_parser import CIDR, IP, AddressError, IpAddress, Range, parse, parse_range
from kubechronicle.api.cel.types import BOOL, INT, STRING, Function, Overload
from kubechronicle.api.errors.field_errors import go_quote

# -- ip ----------------------------------------------------------------------------------------------------------------
#
# CEL's ``ip()`` and the functions of addresses (library kubernetes.net.ip, since v1.30).


def to_ip(text: str) -> IpAddress:
    """Return the address of a text. EvaluationError if it has none, one with a zone, or IPv4 written as IPv6."""
    try:
        address = parse(text)
    except AddressError as problem:
        message = f"IP Address {go_quote(text)} parse error during conversion from string: {problem}"
        raise EvaluationError(message) from None
    if address.zone:
        raise EvaluationError(f"IP address {go_quote(text)} with zone value is not allowed")
    if address.mapped:
        raise EvaluationError(f"IPv4-mapped IPv6 address {go_quote(text)} is not allowed")
    return address


def is_ip(text: str) -> bool:
    """Return whether ``ip(text)`` is an address."""
    try:
        to_ip(text)
    except EvaluationError:
        return False
    return True


def is_canonical(text: str) -> bool:
    """Return whether an address is spelled in its canonical form."""
    return str(to_ip(text)) == text


def _family(address: IpAddress) -> int:
    return address.family


def is_unspecified(address: IpAddress) -> bool:
    """Return True for 0.0.0.0 and ``::``."""
    return address.number == 0


def is_loopback(address: IpAddress) -> bool:
    """Return True for 127.0.0.0/8 and ::1."""
    return address.number >> 24 == 127 if address.family == 4 else address.number == 1


def is_link_local_multicast(address: IpAddress) -> bool:
    """Return True for 224.0.0.0/24 and ff02::/16, with any flags."""
    if address.family == 4:
        return address.number >> 8 == 0xE00000
    return (address.number >> 112) & 0xFF0F == 0xFF02


def is_link_local_unicast(address: IpAddress) -> bool:
    """Return True for 169.254.0.0/16 and fe80::/10."""
    return address.number >> 16 == 0xA9FE if address.family == 4 else address.number >> 118 == 0x3FA


def is_global_unicast(address: IpAddress) -> bool:
    """Return True unless unspecified, loopback, broadcast, link-local or multicast."""
    multicast = address.number >> 28 == 0xE if address.family == 4 else address.number >> 120 == 0xFF
    broadcast = address.family == 4 and address.number == 0xFFFFFFFF
    special = is_unspecified(address) or is_loopback(address) or is_link_local_unicast(address)
    return not (multicast or broadcast or special)


_PREDICATES: Final = (
    ("isUnspecified", "ip_is_unspecified", is_unspecified),
    ("isLoopback", "ip_is_loopback", is_loopback),
    ("isLinkLocalMulticast", "ip_is_link_local_multicast", is_link_local_multicast),
    ("isLinkLocalUnicast", "ip_is_link_local_unicast", is_link_local_unicast),
    ("isGlobalUnicast", "ip_is_global_unicast", is_global_unicast),
)

IP_LIBRARY: Final = Library(
    "kubernetes.net.ip",
    0,
    (
        Function("ip", (Overload("string_to_ip", (STRING,), IP, to_ip, cost=costs.traversal()),)),
        Function("isIP", (Overload("is_ip", (STRING,), BOOL, is_ip, cost=costs.traversal()),)),
        Function(
            "ip.isCanonical",
            (Overload("ip_is_canonical", (STRING,), BOOL, is_canonical, cost=costs.traversal(2)),),
        ),
        Function("family", (Overload("ip_family", (IP,), INT, _family, member=True),)),
        Function("string", (Overload("ip_to_string", (IP,), STRING, str),)),
        *(Function(name, (Overload(id_, (IP,), BOOL, call, member=True),)) for name, id_, call in _PREDICATES),
    ),
    types=(IP,),
)


# -- cidr --------------------------------------------------------------------------------------------------------------
#
# CEL's ``cidr()`` and the functions of address ranges (library kubernetes.net.cidr, since v1.30).


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


CIDR_LIBRARY: Final = Library(
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
