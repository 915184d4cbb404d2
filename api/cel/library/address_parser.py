"""IP addresses and ranges: a parser as strict as Go's ``net/netip``, with its errors.

Lives here: the grammar and the canonical spelling. Not here: the functions that CEL offers (addresses.py), and
addresses in Kubernetes' own fields (api/builtin).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address
from typing import ClassVar, Final

from kubechronicle.api.cel.types import CelType, opaque
from kubechronicle.api.errors.field_errors import go_quote

IP: Final = opaque("net.IP")
CIDR: Final = opaque("net.CIDR")

_HEX: Final = re.compile("[0-9a-fA-F]*")
_MAPPED: Final = 0xFFFF
BITS_MAX: Final = {4: 32, 6: 128}


class AddressError(ValueError):
    """Not an address or a range. The text is Go's."""


@dataclass(frozen=True, slots=True)
class IpAddress:
    """An address. ``number`` has 32 bits (family 4) or 128 bits (family 6), unsigned."""

    cel_type: ClassVar[CelType] = IP

    family: int
    number: int
    zone: str = ""

    @property
    def bits(self) -> int:
        """The length in bits."""
        return BITS_MAX[self.family]

    @property
    def mapped(self) -> bool:
        """True for an IPv4 address written as IPv6 (::ffff:1.2.3.4)."""
        return self.family == 6 and self.number >> 32 == _MAPPED

    def __str__(self) -> str:
        if self.family == 4:
            return str(IPv4Address(self.number))
        if self.mapped:
            return f"::ffff:{IPv4Address(self.number & 0xFFFFFFFF)}"
        return str(IPv6Address(self.number))


@dataclass(frozen=True, slots=True)
class Range:
    """A range of addresses: those that agree with ``address`` in the leading ``length`` bits."""

    cel_type: ClassVar[CelType] = CIDR

    address: IpAddress
    length: int

    def __str__(self) -> str:
        return f"{self.address}/{self.length}"

    def prefix(self, number: int) -> int:
        """Return the leading bits of ``number``."""
        return number >> (self.address.bits - self.length)

    def masked(self) -> Range:
        """Return the range with all other bits zero."""
        number = self.prefix(self.address.number) << (self.address.bits - self.length)
        return Range(IpAddress(self.address.family, number), self.length)

    def contains(self, address: IpAddress) -> bool:
        """Return whether the address is in this range. One of the other family never is."""
        same = address.family == self.address.family
        return same and self.prefix(address.number) == self.prefix(self.address.number)

    def contains_range(self, other: Range) -> bool:
        """Return whether the other range lies within this one."""
        return self.length <= other.length and self.contains(other.address)


def parse(text: str) -> IpAddress:
    """Return the address. AddressError if the text is none."""
    for character in text:
        if character == ".":
            return IpAddress(4, int.from_bytes(_fields(text, text)))
        if character == ":":
            return _parse_six(text)
        if character == "%":
            raise _error(text, "missing IPv6 address")
    raise _error(text, "unable to parse IP")


def parse_range(text: str) -> Range:
    """Return the range of a text ``address/bits``. AddressError if it is none."""
    head, slash, bits = text.rpartition("/")
    if not slash:
        raise _range_error(text, "no '/'")
    try:
        address = parse(head)
    except AddressError as problem:
        raise _range_error(text, str(problem)) from None
    if address.zone:
        raise _range_error(text, "IPv6 zones cannot be present in a prefix")
    well_formed = bits.isascii() and bits.isdigit() and len(bits) <= 18 and (len(bits) == 1 or bits[0] != "0")
    if not well_formed:
        raise _range_error(text, f"bad bits after slash: {go_quote(bits)}")
    if int(bits) > address.bits:
        raise _range_error(text, "prefix length out of range")
    return Range(address, int(bits))


def _error(text: str, message: str, at: str = "") -> AddressError:
    where = f" (at {go_quote(at)})" if at else ""
    return AddressError(f"ParseAddr({go_quote(text)}): {message}{where}")


def _range_error(text: str, message: str) -> AddressError:
    return AddressError(f"netip.ParsePrefix({go_quote(text)}): {message}")


def _fields(whole: str, text: str) -> bytes:
    # Returns the four fields of the dotted form ``text``, which may be the end of ``whole``.
    fields: list[int] = []
    digits = ""
    for index, character in enumerate(text):
        if "0" <= character <= "9":
            if digits == "0":
                raise _error(whole, "IPv4 field has octet with leading zero")
            digits += character
            if int(digits) > 255:
                raise _error(whole, "IPv4 field has value >255")
        elif character == ".":
            if not digits or index == len(text) - 1:
                raise _error(whole, "IPv4 field must have at least one digit", text[index:])
            if len(fields) == 3:
                raise _error(whole, "IPv4 address too long")
            fields.append(int(digits))
            digits = ""
        else:
            raise _error(whole, "unexpected character", text[index:])
    if len(fields) < 3:
        raise _error(whole, "IPv4 address too short")
    return bytes([*fields, int(digits)])


def _parse_six(text: str) -> IpAddress:
    rest, percent, zone = text.partition("%")
    if percent and not zone:
        raise _error(text, "zone must be a non-empty string")
    groups: list[int] = []
    ellipsis = -1
    if rest.startswith("::"):
        ellipsis, rest = 0, rest[2:]
        if not rest:
            return IpAddress(6, 0, zone)
    while len(groups) < 8:
        digits = _group(text, rest)
        if rest[len(digits) : len(digits) + 1] == ".":
            if ellipsis < 0 and len(groups) != 6:
                raise _error(text, "embedded IPv4 address must replace the final 2 fields of the address", rest)
            if len(groups) > 6:
                message = "too many hex fields to fit an embedded IPv4 at the end of the address"
                raise _error(text, message, rest)
            four = _fields(text, rest)
            groups += [int.from_bytes(four[:2]), int.from_bytes(four[2:])]
            rest = ""
            break
        groups.append(int(digits, 16))
        rest = rest[len(digits) :]
        if not rest:
            break
        if rest[0] != ":":
            raise _error(text, "unexpected character, want colon", rest)
        if len(rest) == 1:
            raise _error(text, "colon must be followed by more characters", rest)
        rest = rest[1:]
        if rest[0] == ":":
            if ellipsis >= 0:
                raise _error(text, "multiple :: in address", rest)
            ellipsis, rest = len(groups), rest[1:]
            if not rest:
                break
    return IpAddress(6, _joined(text, rest, groups, ellipsis), zone)


def _group(text: str, rest: str) -> str:
    found = _HEX.match(rest)
    digits = found.group() if found is not None else ""
    if len(digits) > 4:
        raise _error(text, "each group must have 4 or less digits", rest)
    if not digits:
        raise _error(text, "each colon-separated field must have at least one digit", rest)
    return digits


def _joined(text: str, rest: str, groups: list[int], ellipsis: int) -> int:
    if rest:
        raise _error(text, "trailing garbage after address", rest)
    if len(groups) < 8:
        if ellipsis < 0:
            raise _error(text, "address string too short")
        groups[ellipsis:ellipsis] = [0] * (8 - len(groups))
    elif ellipsis >= 0:
        raise _error(text, "the :: must expand to at least one field of zeros")
    number = 0
    for group in groups:
        number = number << 16 | group
    return number
