"""Resource quantities ("500m", "1Gi", "1e3"): parsing, canonical form and comparison, after apimachinery's
``api/resource``.

Lives here: the grammar and the canonical spelling. Not here: the fields that hold quantities (schema/) and their
allowed values (validation).

The canonical form keeps the suffix family that was given (binary, decimal or exponent), has no fraction, and the
largest suffix that needs none: "0.5" is "500m", "1024Mi" is "1Gi", "1500m" stays, "1000m" is "1".
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable
from decimal import ROUND_UP, Context, Decimal
from typing import Final, NamedTuple

from kubechronicle.api.values.caches import cached

SYNTAX_ERROR: Final = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
SUFFIX_ERROR: Final = "unable to parse quantity's suffix"

_SPLIT: Final = re.compile(r"([+-]?)(0*)([0-9]*)(?:\.([0-9]*))?([eEinumkKMGTP]*[-+]?[0-9]*)\Z", re.ASCII)
"""sign, leading zeros, other digits, digits of the fraction, suffix"""

_DECIMAL: Final = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY: Final = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_DECIMAL_NAMES: Final = {power: name for name, power in _DECIMAL.items()}
_BINARY_NAMES: Final = {power: name for name, power in _BINARY.items()} | {0: ""}

MAX_VALUE: Final = 2**63 - 1
"""Binary quantities with a fraction, or of many digits, are capped at this, as Kubernetes caps them."""

NUMERIC_ERROR: Final = "unable to parse numeric part of quantity"
_MAX_DIGITS: Final = 1000
_FAST_DIGITS: Final = 18
"""Kubernetes holds numbers of fewer digits as integers, and keeps the spelling of some."""

_FAST_BINARY_DIGITS: Final = {10: 11, 20: 8, 30: 5, 40: 2, 50: -1, 60: -4}
"""The same for binary quantities, by the exponent of their suffix."""

_EXACT: Final = Context(prec=200)
_MILLI: Final = Decimal(1).scaleb(-3)
_NANO: Final = Decimal(1).scaleb(-9)


class QuantityError(ValueError):
    """Not a quantity. Its text is apimachinery's."""


_MOST_EXPONENT: Final = 400
"""A larger exponent makes no difference to any rule, but long numbers."""


class Quantity(NamedTuple):
    """``family``: binary, decimal or exponent. ``spelling``: the canonical one."""

    value: Decimal
    family: str
    spelling: str


@cached(4096)
def quantity(text: str) -> Quantity:
    """Return a quantity. QuantityError if it is none.

    Digits below a nano are rounded away from zero. Kubernetes keeps the spelling of many numbers that it need not
    shorten, such as ``+1``, ``01`` and ``5.``.
    """
    number = _read(text)
    exponent = max(-_MOST_EXPONENT, min(_MOST_EXPONENT, number.exponent))
    value = _EXACT.scaleb(Decimal(number.whole), exponent)
    spelling = text if number.kept else _spelled(number.whole, number.exponent, number.family)
    return Quantity(value, number.family, spelling)


def parse(text: str) -> tuple[Decimal, str]:
    """Return (value, family). QuantityError if it is none."""
    return quantity(text)[:2]


def canonical(text: str) -> str:
    """Return the canonical spelling. QuantityError if it is none."""
    return quantity(text).spelling


class _Number(NamedTuple):
    """The number ``whole`` · 10 ** ``exponent``.

    ``small``: Kubernetes holds it as an integer.
    ``kept``: its spelling is not changed.
    """

    whole: int
    exponent: int
    family: str
    small: bool = False
    kept: bool = False


def _read(text: str) -> _Number:
    found = _SPLIT.match(text)
    if not text or found is None:
        raise QuantityError(SYNTAX_ERROR)
    sign, digits, fraction, suffix = found[1], found[3] or "0", found[4] or "", found[5]
    if len(digits) + len(fraction) > _MAX_DIGITS:
        raise QuantityError(NUMERIC_ERROR)
    family, power = _suffix(suffix)
    whole = int(digits + fraction)
    signed = -whole if sign == "-" else whole
    if family != "binary":
        exponent = power - len(fraction)
        if len(digits) + len(fraction) <= _FAST_DIGITS and exponent >= -9:
            kept = exponent % 3 == 0 and not (digits + fraction).endswith("000") and not digits.startswith("0")
            return _Number(signed, exponent, family, small=True, kept=kept)
        _demand_digits(found)
        return _rounded(signed, exponent, family)
    if not fraction and len(digits) <= _FAST_BINARY_DIGITS[power]:
        return _Number(signed << power, 0, family, small=True, kept=bool(whole & 7))
    _demand_digits(found)
    number = _rounded(signed << power, -len(fraction), family)
    size = Decimal(abs(number.whole)).scaleb(number.exponent, _EXACT)
    if size > MAX_VALUE:
        return _Number(MAX_VALUE if sign != "-" else -MAX_VALUE, 0, family)
    # A binary number below one has no binary spelling without a fraction.
    return number._replace(family="decimal") if 0 < size < 1 else number


def _demand_digits(found: re.Match[str]) -> None:
    """Reject a number without digits. A small one is zero."""
    if not (found[2] or found[3] or found[4]):
        raise QuantityError(NUMERIC_ERROR)


def _suffix(suffix: str) -> tuple[str, int]:
    """Return (family, power of ten, or of two for binary ones)."""
    if suffix in _DECIMAL:
        return "decimal", _DECIMAL[suffix]
    if suffix in _BINARY:
        return "binary", _BINARY[suffix]
    found = _EXPONENT.match(suffix)
    if found is None:
        raise QuantityError(SUFFIX_ERROR)
    power = int(found[1])
    if not -(2**63) <= power < 2**63:
        raise QuantityError(SUFFIX_ERROR)
    return "exponent", (power + 2**31) % 2**32 - 2**31


_EXPONENT: Final = re.compile(r"[eE]([-+]?[0-9]{1,40})\Z", re.ASCII)


def _rounded(whole: int, exponent: int, family: str) -> _Number:
    """Return a number without digits below a nano, rounded away from zero."""
    if exponent >= -9 or not whole:
        return _Number(whole, exponent, family)
    shift = -9 - exponent
    # Any number of this many digits is below a nano.
    unit = 10 ** min(shift, _MAX_DIGITS + 100)
    size = -(-abs(whole) // unit)
    return _Number(size if whole > 0 else -size, -9, family)


def spelled(value: Decimal, family: str) -> str:
    """Return the canonical spelling of a number in a family, as ``parse`` gives them."""
    sign, digits, exponent = value.as_tuple()
    whole = int("".join(map(str, digits)))
    return _spelled(-whole if sign else whole, int(exponent), family)


def _spelled(whole: int, exponent: int, family: str) -> str:
    if not whole:
        return "0"
    while whole % 10 == 0:
        whole //= 10
        exponent += 1
    if family == "binary":
        number = whole * 10**exponent if 0 <= exponent < _MOST_EXPONENT else 0
        if number and not -1024 < number < 1024:
            power = 0
            while number % 1024 == 0:
                number //= 1024
                power += 10
            return f"{number}{_BINARY_NAMES.get(power, '')}"
    whole *= 10 ** (exponent % 3)
    exponent -= exponent % 3
    if family == "exponent":
        return f"{whole}e{exponent}" if exponent else str(whole)
    # Go knows no suffix above E, and writes none.
    return f"{whole}{_DECIMAL_NAMES.get(exponent, '')}"


def value_of(text: str | int | float) -> Decimal:
    """Return the number a quantity stands for. QuantityError if it is none."""
    return parse(text if isinstance(text, str) else str(text))[0]


def total(texts: Iterable[str]) -> str:
    """Return the canonical spelling of a sum, in the family of its first part that is not zero."""
    parts = [found for found in map(parse, texts) if found[0]]
    value = functools.reduce(_EXACT.add, (number for number, _ in parts), Decimal(0))
    return spelled(value, parts[0][1]) if value else "0"


def in_thousandths(text: str) -> str:
    """Return a quantity rounded to a thousandth, away from zero; one that needs no rounding keeps its spelling."""
    value, family = parse(text)
    rounded = value.quantize(_MILLI, rounding=ROUND_UP, context=_EXACT)
    return text if rounded == value else spelled(rounded, family)


def in_units(text: str, exponent: int = 0) -> int:
    """Return a quantity in units of 10 ** ``exponent``, rounded up, as Kubernetes computes it in 64 bits.

    Of a number beyond 64 bits, it computes zero or the lowest bits.
    """
    number = _read(text)
    shift: int = number.exponent - exponent
    if shift < 0:
        unit: int = 10 ** min(-shift, _MAX_DIGITS + 100)
        if not number.small:
            return _wrapped(-(-number.whole // unit))
        return -(-number.whole // unit) if number.whole > 0 else number.whole // unit
    if not number.small:
        return _wrapped(_wrapped(number.whole) * 10 ** min(shift, 64))
    result = number.whole * 10 ** min(shift, 64)
    return result if -(2**63) <= result < 2**63 else 0


def _wrapped(number: int) -> int:
    return (number + 2**63) % 2**64 - 2**63
