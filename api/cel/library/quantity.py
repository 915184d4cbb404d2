"""CEL's ``quantity()`` (library kubernetes.quantity, since v1.28)."""

from __future__ import annotations

from typing import Final

from kubechronicle.api.cel.declarations import Library
from kubechronicle.api.cel.errors import EvaluationError
from kubechronicle.api.cel.library import costs
from kubechronicle.api.cel.library.quantity_arithmetic import QUANTITY, Amount, from_int, parse
from kubechronicle.api.cel.overloads import Function, Overload
from kubechronicle.api.cel.types import BOOL, DOUBLE, INT, STRING
from kubechronicle.api.values.quantity import QuantityError


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
