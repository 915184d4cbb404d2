"""Strict checks of addresses and CIDRs (KEP-4858): no leading zeros, no IPv4-mapped IPv6, no bits beyond a prefix.

Stored values that break these rules stay valid; so do all without the gate StrictIPCIDRValidation. The lenient checks
are in checks.py.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Container, Iterable
from typing import Final

from kubechronicle.api.builtin.common.checks import CIDR_MESSAGE, IP_MESSAGE, Address, Network, parse_ip
from kubechronicle.api.errors.field_errors import Cause, go_quote, invalid_value

INTERFACE_MESSAGE: Final = "must be a valid address in CIDR form, (e.g. 10.9.8.7/24 or 2001:db8::1/64)"


def _mapped(address: Address) -> bool:
    return isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None


def _plain(address: Address) -> str:
    """Return the address as Kubernetes writes it: an IPv4-mapped address as IPv4."""
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(address)


def _has_leading_zeros(text: str) -> bool:
    return ":" not in text and any(len(part) > 1 and part[0] == "0" for part in text.split("."))


def _split(text: str) -> tuple[Address, int, str] | None:
    """Return (address, prefix length, prefix length as written), or None if it is no CIDR."""
    head, slash, bits = text.partition("/")
    address = parse_ip(head)
    if address is None or not slash or not bits.isascii() or not bits.isdigit() or len(bits) > 6:
        return None
    length = int(bits)
    return (address, length, bits) if length <= address.max_prefixlen else None


def parse_range(text: str) -> Network | None:
    """Return the network of a CIDR, read leniently, or None if it is invalid."""
    parts = _split(text)
    return None if parts is None else ipaddress.ip_network((parts[0], parts[1]), strict=False)


class _Readable(Container[str]):
    """All addresses and CIDRs that can be read leniently."""

    def __contains__(self, value: object) -> bool:
        return isinstance(value, str) and (parse_ip(value) is not None or parse_range(value) is not None)


def staying_valid(held: Iterable[str], *, strict: bool) -> Container[str]:
    """Return the values that an update may keep: those of the old object, or, if the rules are not strict, all."""
    return frozenset(held) if strict else _READABLE


_READABLE: Final = _Readable()


def legacy_ip(value: str, field: str, held: Container[str] = ()) -> list[Cause]:
    """Check an address in a field that once was read leniently. Values of the old object (``held``) stay valid."""
    problem = "" if value in held else _problem_of_address(value)
    return [invalid_value(field, value, problem)] if problem else []


def _problem_of_address(value: str) -> str:
    address = parse_ip(value)
    if address is None:
        return IP_MESSAGE
    if _has_leading_zeros(value):
        return "must not have leading 0s"
    return "must not be an IPv4-mapped IPv6 address" if _mapped(address) else ""


def strict_ip(value: str, field: str) -> list[Cause]:
    """Check that an address is in its canonical form."""
    return [invalid_value(field, value, problem) for problem in canonical_ip(value)]


def canonical_ip(value: str) -> list[str]:
    """Return the reason why a text is no address in its canonical form, if there is one."""
    problem, address = _problem_of_address(value), parse_ip(value)
    if not problem and address is not None and str(address) != value:
        problem = f"must be in canonical form ({go_quote(_plain(address))})"
    return [problem] if problem else []


def legacy_cidr(value: str, field: str, held: Container[str] = ()) -> list[Cause]:
    """Check a CIDR in a field that once was read leniently. Values of the old object (``held``) stay valid."""
    if value in held:
        return []
    parts = _split(value)
    if parts is None:
        return [invalid_value(field, value, CIDR_MESSAGE)]
    address, length, bits = parts
    if _has_leading_zeros(value.partition("/")[0]) or (len(bits) > 1 and bits[0] == "0"):
        return [invalid_value(field, value, "must not have leading 0s in IP or prefix length")]
    if _mapped(address):
        return [invalid_value(field, value, "must not have an IPv4-mapped IPv6 address")]
    if ipaddress.ip_network((address, length), strict=False).network_address != address:
        return [invalid_value(field, value, "must not have bits set beyond the prefix length")]
    return []


def strict_cidr(value: str, field: str) -> list[Cause]:
    """Check that a CIDR is in its canonical form."""
    causes, network = legacy_cidr(value, field), parse_range(value)
    if not causes and network is not None and str(network) != value:
        causes.append(invalid_value(field, value, f"must be in canonical form ({go_quote(str(network))})"))
    return causes


def ip_warnings(value: str, field: str) -> list[str]:
    """Return a warning if an accepted address is not in its canonical form."""
    address = parse_ip(value)
    if address is None:
        return []
    if _has_leading_zeros(value) or _mapped(address):
        message = f"non-standard IP address {go_quote(value)} is invalid: use {go_quote(_plain(address))}"
        return [f"{field}: {message}"]
    if address.version == 6 and str(address) != value:
        message = f"IPv6 address {go_quote(value)} should be in RFC 5952 canonical format ({go_quote(str(address))})"
        return [f"{field}: {message}"]
    return []


def cidr_warnings(value: str, field: str) -> list[str]:
    """Return warnings if an accepted CIDR is ambiguous or not in its canonical form."""
    parts, network = _split(value), parse_range(value)
    if parts is None or network is None:
        return []
    address, _, bits = parts
    problems: list[str] = []
    if network.network_address != address:
        alone = f"{_plain(address)}/{address.max_prefixlen}"
        problems.append(
            f"CIDR value {go_quote(value)} is ambiguous in this context (should be {go_quote(str(network))} or "
            f"{go_quote(alone)}?)"
        )
    if _has_leading_zeros(value.partition("/")[0]) or (len(bits) > 1 and bits[0] == "0") or _mapped(address):
        problems.append(f"non-standard CIDR value {go_quote(value)} is invalid: use {go_quote(str(network))}")
    if not problems and network.version == 6 and str(network) != value:
        problems.append(
            f"IPv6 CIDR value {go_quote(value)} should be in RFC 5952 canonical format ({go_quote(str(network))})"
        )
    return [f"{field}: {text}" for text in problems]


def interface_address(value: str, field: str) -> list[Cause]:
    """Check an address with the prefix length of its network."""
    parts = _split(value)
    if parts is None:
        return [invalid_value(field, value, INTERFACE_MESSAGE)]
    address, length, _ = parts
    if _mapped(address) and length > 32:
        length -= 96
    canonical = f"{_plain(address)}/{length}"
    if value == canonical:
        return []
    return [invalid_value(field, value, f"must be in canonical form ({go_quote(canonical)})")]
