"""Resource quantities ("500m", "1Gi", "1e3"): parsing, canonical form and comparison, after apimachinery's
``api/resource``.

Lives here: the grammar and the canonical spelling. Not here: the fields that hold quantities (schema/) and their
allowed values (validation).

The canonical form keeps the suffix family that was given (binary, decimal or exponent), has no fraction, and the
largest suffix that needs none: "0.5" is "500m", "1024Mi" is "1Gi", "1500m" stays, "1000m" is "1".
"""

from __future__ import annotations

import re
from decimal import ROUND_UP, Context, Decimal
from typing import Final

from kubechronicle.api.values.text_cache import cached

SYNTAX_ERROR: Final = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
SUFFIX_ERROR: Final = "unable to parse quantity's suffix"

_SPLIT: Final = re.compile(r"([+-]?)([0-9]*)(?:\.([0-9]*))?(?:([eE][-+]?[0-9]+)|([a-zA-Z]*))\Z")

_DECIMAL: Final = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY: Final = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_DECIMAL_NAMES: Final = {power: name for name, power in _DECIMAL.items()}
_BINARY_NAMES: Final = {power: name for name, power in _BINARY.items()} | {0: ""}

MAX_VALUE: Final = 2**63 - 1
"""Quantities are capped at this, as Kubernetes caps them."""

_EXACT: Final = Context(prec=200)
_MILLI: Final = Decimal(1).scaleb(-3)
_NANO: Final = Decimal(1).scaleb(-9)


class QuantityError(ValueError):
    """Not a quantity. Its text is apimachinery's."""


@cached(4096)
def parse(text: str) -> tuple[Decimal, str]:
    """Return (value, family): family is ``binary``, ``decimal`` or ``exponent``. QuantityError if it is none.

    Digits below a nano are rounded away from zero, and values are capped at 2**63-1.
    """
    found = _SPLIT.match(text)
    if not text or found is None:
        raise QuantityError(SYNTAX_ERROR)
    sign, whole, fraction, exponent, suffix = found.groups()
    if not whole and not fraction:
        raise QuantityError(SYNTAX_ERROR)
    number = Decimal(f"{sign}{whole or '0'}.{fraction or '0'}")
    family = "decimal"
    if exponent:
        family = "exponent"
        value = _EXACT.scaleb(number, int(max(Decimal(-400), min(Decimal(400), Decimal(exponent[1:])))))
    elif suffix in _DECIMAL:
        value = _EXACT.scaleb(number, _DECIMAL[suffix])
    elif suffix in _BINARY:
        family = "binary"
        value = _EXACT.multiply(number, Decimal(1 << _BINARY[suffix]))
    else:
        raise QuantityError(SUFFIX_ERROR if re.fullmatch(r"[eEinumkKMGTP]*", suffix) else SYNTAX_ERROR)
    value = _round_and_cap(value)
    if family == "binary" and abs(value) < 1024 and value != value.to_integral_value():
        family = "decimal"  # 0.5Ki and below have no binary spelling without a fraction
    return value, family


def _round_and_cap(value: Decimal) -> Decimal:
    if abs(value) > MAX_VALUE:
        return Decimal(MAX_VALUE if value > 0 else -MAX_VALUE)
    return value.quantize(_NANO, rounding=ROUND_UP, context=_EXACT)


@cached(4096)
def canonical(text: str) -> str:
    """Return the canonical spelling of a quantity. QuantityError if it is none."""
    return spelled(*parse(text))


def spelled(value: Decimal, family: str) -> str:
    """Return the canonical spelling of a number in a family, as ``parse`` gives them."""
    if value == 0:
        return "0"
    if family == "binary" and value == value.to_integral_value():
        return _binary(int(value))
    return _decimal(value, exponent=family == "exponent")


def _binary(value: int) -> str:
    if -1024 < value < 1024:
        return _decimal(Decimal(value), exponent=False)
    power = 0
    while power < 60 and value % 1024 == 0:
        value //= 1024
        power += 10
    return f"{value}{_BINARY_NAMES[power]}"


def _decimal(value: Decimal, *, exponent: bool) -> str:
    power = -9
    scaled = int(_EXACT.scaleb(value, 9))
    while power < 18 and scaled % 1000 == 0:
        scaled //= 1000
        power += 3
    if exponent:
        return f"{scaled}e{power}" if power else str(scaled)
    return f"{scaled}{_DECIMAL_NAMES[power]}"


def value_of(text: str | int | float) -> Decimal:
    """Return the number a quantity stands for. QuantityError if it is none."""
    return parse(text if isinstance(text, str) else str(text))[0]


def in_thousandths(text: str) -> str:
    """Return a quantity rounded to a thousandth, away from zero; one that needs no rounding keeps its spelling."""
    value, family = parse(text)
    rounded = value.quantize(_MILLI, rounding=ROUND_UP, context=_EXACT)
    return text if rounded == value else spelled(rounded, family)
