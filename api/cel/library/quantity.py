"""CEL's ``quantity()`` (library kubernetes.quantity, since v1.28)."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import ClassVar, Final

from kubechronicle.api.cel.declarations import Library
from kubechronicle.api.cel.errors import EvaluationError
from kubechronicle.api.cel.library import costs
from kubechronicle.api.cel.types import BOOL, DOUBLE, INT, STRING, CelType, Function, Overload, object_type
from kubechronicle.api.values.quantity import SUFFIX_ERROR, SYNTAX_ERROR, QuantityError

# -- quantity arithmetic -----------------------------------------------------------------------------------------------
#
# Quantities as CEL computes with them, after apimachinery's ``api/resource``.
#
# A quantity is a whole number times a power of ten. Kubernetes holds it in 64 bits while it fits ("small" here), and in
# a decimal of any size otherwise. CEL takes only small quantities for integers, so an `Amount` records which form it
# has.
#
# Lives here: parsing, sums and comparisons. Not here: canonical spelling and quantities in fields
# (api/values/quantity.py), and the functions that CEL offers (quantity.py).


QUANTITY: Final = object_type("kubernetes.Quantity", {})

NUMBER_ERROR: Final = "unable to parse numeric part of quantity"

INT_MAX: Final = 2**63 - 1
INT_MIN: Final = -(2**63)
_SCALE_MIN: Final = -9
_MOST_DIGITS: Final = 18
_POWER_MAX: Final = 100_000
"""The most powers of ten between two summands. A sum of more distant ones is rejected: it would exhaust memory."""

_PARTS: Final = re.compile(r"([+-]?)([0-9]*)(?:\.([0-9]*))?([eEinumkKMGTP]*)([-+]?[0-9]*)\Z")
_DECIMAL: Final = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY: Final = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}


@dataclass(frozen=True, slots=True, eq=False)
class Amount:
    """``number`` times ten to the power of ``scale``. ``small``: Kubernetes holds it in 64 bits.

    Amounts are equal if their values are, in any spelling."""

    cel_type: ClassVar[CelType] = QUANTITY

    number: int
    scale: int
    small: bool

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Amount) and self.compare(other) == 0

    def __hash__(self) -> int:
        return hash((self.sign, self._magnitude() if self.number else 0))

    @property
    def sign(self) -> int:
        """-1, 0 or 1."""
        return (self.number > 0) - (self.number < 0)

    def as_int(self) -> int | None:
        """Return the value as a 64-bit integer; None if Kubernetes' AsInt64 fails."""
        if not self.small or self.scale < 0:
            return None
        if self.scale == 0 or not self.number:
            return self.number
        if self.scale > _MOST_DIGITS:
            return None
        value = self.number * 10**self.scale
        return value if INT_MIN <= value <= INT_MAX else None

    def as_float(self) -> float:
        """Return the value as a double; infinity if it is too large."""
        try:
            base = float(self.number)
        except OverflowError:
            base = float("inf") if self.number > 0 else float("-inf")
        return base * _power_of_ten(self.scale) if self.scale else base

    def compare(self, other: Amount) -> int:
        """Return -1, 0 or 1."""
        if self.sign != other.sign or not self.sign:
            return (self.sign > other.sign) - (self.sign < other.sign)
        mine, theirs = self._magnitude(), other._magnitude()
        if mine != theirs:
            return self.sign if mine > theirs else -self.sign
        left, right, _ = _aligned(self, other)
        return (left > right) - (left < right)

    def _magnitude(self) -> int:
        return len(str(abs(self.number))) + self.scale

    def add(self, other: Amount) -> Amount:
        """Return the sum. OverflowError if the two differ by too many powers of ten."""
        if self.small and other.small:
            if not other.number:
                return self
            if not self.number:
                return other
        if abs(self.scale - other.scale) > _POWER_MAX:
            raise OverflowError("quantities are too far apart")
        left, right, scale = _aligned(self, other)
        total = left + right
        fits = all(INT_MIN <= each <= INT_MAX for each in (left, right, total))
        return Amount(total, scale, self.small and other.small and fits)

    def negated(self) -> Amount:
        """Return the value with the opposite sign."""
        return Amount(-self.number, self.scale, self.small)


def from_int(number: int) -> Amount:
    """Return the amount of a 64-bit integer."""
    return Amount(number, 0, small=True)


def _aligned(left: Amount, right: Amount) -> tuple[int, int, int]:
    scale = min(left.scale, right.scale)
    return left.number * 10 ** (left.scale - scale), right.number * 10 ** (right.scale - scale), scale


def _power_of_ten(power: int) -> float:
    if power < -323:
        return 0.0
    return float(f"1e{power}") if power <= 308 else float("inf")


def parse(text: str) -> Amount:
    """Return the amount of a text. QuantityError if it has none."""
    found = _PARTS.match(text)
    if not text or found is None:
        raise QuantityError(SYNTAX_ERROR)
    sign, whole, fraction, letters, power = found.groups()
    fraction = fraction or ""
    whole = whole.lstrip("0")
    base, exponent = _suffix(letters, power)
    digits = len(whole or "0") + len(fraction)
    number = int(whole + fraction or "0") * (-1 if sign == "-" else 1)
    if base == 10:
        scale = exponent - len(fraction)
        if digits <= _MOST_DIGITS and scale >= _SCALE_MIN:
            return Amount(number, scale, small=True)
        _check_digits(found[2] or fraction)
        return _rounded(number, scale)
    value = number << exponent
    room = 15 - digits - int(exponent * 3 / 10) - 1
    if not fraction and room >= 0:
        return Amount(value, 0, small=True)
    _check_digits(found[2] or fraction)
    return _capped(_rounded(value, -len(fraction)))


def _check_digits(digits: str) -> None:
    # "Mi" is 0 while it is small; only a decimal must have digits.
    if not digits:
        raise QuantityError(NUMBER_ERROR)


def _suffix(letters: str, power: str) -> tuple[int, int]:
    if power:
        if letters not in ("e", "E") or len(power) > 10 or not power[-1].isdigit():
            raise QuantityError(SUFFIX_ERROR)
        return 10, int(power)
    if letters in _DECIMAL:
        return 10, _DECIMAL[letters]
    if letters in _BINARY:
        return 2, _BINARY[letters]
    raise QuantityError(SUFFIX_ERROR)


def _rounded(number: int, scale: int) -> Amount:
    # Digits below a nano are rounded away from zero.
    if scale >= _SCALE_MIN or not number:
        return Amount(number, scale, small=False)
    size, dropped = abs(number), _SCALE_MIN - scale
    if dropped > len(str(size)):
        size = 1
    else:
        size = -(-size // 10**dropped)
    return Amount(size if number > 0 else -size, _SCALE_MIN, small=False)


def _capped(amount: Amount) -> Amount:
    for bound in (INT_MAX, -INT_MAX):
        if amount.compare(Amount(bound, 0, small=False)) == (1 if bound > 0 else -1):
            return Amount(bound, 0, small=False)
    return amount


def to_quantity(text: str) -> Amount:
    """Return the quantity of a text. EvaluationError if it has none."""
    try:
        return parse(text)
    except QuantityError as problem:
        raise EvaluationError(str(problem)) from None


def is_quantity(text: str) -> bool:
    """Return whether ``quantity(text)`` succeeds."""
    try:
        parse(text)
    except QuantityError:
        return False
    return True


def _is_integer(amount: Amount) -> bool:
    return amount.as_int() is not None


def _as_integer(amount: Amount) -> int:
    value = amount.as_int()
    if value is None:
        raise EvaluationError("cannot convert value to integer")
    return value


def _sign(amount: Amount) -> int:
    return amount.sign


def _add(left: Amount, right: Amount) -> Amount:
    try:
        return left.add(right)
    except OverflowError as problem:
        raise EvaluationError(str(problem)) from None


def _add_int(left: Amount, right: int) -> Amount:
    return _add(left, from_int(right))


def _sub(left: Amount, right: Amount) -> Amount:
    return _add(left, right.negated())


def _sub_int(left: Amount, right: int) -> Amount:
    return _sub(left, from_int(right))


def _is_greater(left: Amount, right: Amount) -> bool:
    return left.compare(right) > 0


def _is_less(left: Amount, right: Amount) -> bool:
    return left.compare(right) < 0


_PAIR: Final = (QUANTITY, QUANTITY)
_WITH_INT: Final = (QUANTITY, INT)

LIBRARY: Final = Library(
    "kubernetes.quantity",
    0,
    (
        Function(
            "quantity", (Overload("string_to_quantity", (STRING,), QUANTITY, to_quantity, cost=costs.traversal()),)
        ),
        Function("isQuantity", (Overload("is_quantity_string", (STRING,), BOOL, is_quantity, cost=costs.traversal()),)),
        # Kubernetes declares sign() as a plain function, in spite of its documentation.
        Function("sign", (Overload("quantity_sign", (QUANTITY,), INT, _sign),)),
        Function("isGreaterThan", (Overload("quantity_is_greater_than", _PAIR, BOOL, _is_greater, member=True),)),
        Function("isLessThan", (Overload("quantity_is_less_than", _PAIR, BOOL, _is_less, member=True),)),
        Function("compareTo", (Overload("quantity_compare_to", _PAIR, INT, Amount.compare, member=True),)),
        Function(
            "asApproximateFloat", (Overload("quantity_get_float", (QUANTITY,), DOUBLE, Amount.as_float, member=True),)
        ),
        Function("asInteger", (Overload("quantity_get_int", (QUANTITY,), INT, _as_integer, member=True),)),
        Function("isInteger", (Overload("quantity_is_integer", (QUANTITY,), BOOL, _is_integer, member=True),)),
        Function(
            "add",
            (
                Overload("quantity_add", _PAIR, QUANTITY, _add, member=True),
                Overload("quantity_add_int", _WITH_INT, QUANTITY, _add_int, member=True),
            ),
        ),
        Function(
            "sub",
            (
                Overload("quantity_sub", _PAIR, QUANTITY, _sub, member=True),
                Overload("quantity_sub_int", _WITH_INT, QUANTITY, _sub_int, member=True),
            ),
        ),
    ),
)
