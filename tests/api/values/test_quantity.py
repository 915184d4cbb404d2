"""Quantities: spelling, bounds, errors, and the arithmetic of 64 bits."""

from __future__ import annotations

from decimal import Decimal

import pytest

from kubechronicle.api.values import quantity


# The spellings were answered by kube-apiserver v1.36.
@pytest.mark.parametrize(
    ("given", "spelling"),
    [
        ("+1", "+1"),
        ("01", "01"),
        ("010m", "010m"),
        ("5.", "5."),
        ("1E3", "1E3"),
        ("1e+3", "1e+3"),
        ("1000m", "1"),
        ("1500m", "1500m"),
        ("1000", "1k"),
        ("1024", "1024"),
        ("0.5", "500m"),
        (".5", "500m"),
        ("1.5Mi", "1536Ki"),
        ("1024Ki", "1Mi"),
        ("1025Ki", "1025Ki"),
        ("1000Ki", "1000Ki"),
        ("0.1Ki", "102400m"),
        ("00", "0"),
        ("-0", "0"),
        ("-", "0"),
        (".", "0"),
        ("k", "0"),
        ("100e1", "1e3"),
        ("1e1000", "10e999"),
        ("1e-10", "1e-9"),
        ("1n", "1n"),
        ("0.0000000001", "1n"),
        ("99999999999999999999999", "99999999999999999999999"),
        ("9223372036854775808", "9223372036854775808"),
        ("10E", "10E"),
        ("1000E", "1"),  # Go has no suffix for this and writes none
        ("16Ei", "9223372036854775807"),
        ("123456789.123456789123456789", "123456789123456790n"),
    ],
)
def test_spelling(given: str, spelling: str) -> None:
    assert quantity.canonical(given) == spelling


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ("", quantity.SYNTAX_ERROR),
        ("1_000", quantity.SYNTAX_ERROR),
        ("0x10", quantity.SYNTAX_ERROR),
        ("1 ", quantity.SYNTAX_ERROR),
        ("1-5", quantity.SUFFIX_ERROR),
        ("1ki", quantity.SUFFIX_ERROR),
        ("1K", quantity.SUFFIX_ERROR),
        ("1e", quantity.SUFFIX_ERROR),
        (".Ei", quantity.NUMERIC_ERROR),
        (f"1e{'9' * 5000}", quantity.SUFFIX_ERROR),
        ("e-10", quantity.NUMERIC_ERROR),
        ("9" * 5000, quantity.NUMERIC_ERROR),
    ],
)
def test_what_is_no_quantity(given: str, problem: str) -> None:
    with pytest.raises(quantity.QuantityError) as caught:
        quantity.canonical(given)
    assert str(caught.value) == problem


@pytest.mark.parametrize(
    ("given", "exponent", "number"),
    [
        ("1", -3, 1000),
        ("1m", 0, 1),
        ("-1m", 0, -1),
        ("1500m", 0, 2),
        ("1e30", 0, 0),
        ("1e1000", -3, 0),
        ("7Ei", -3, 7 * 2**60 * 1000 % 2**64 - 2**64),
        ("99999999999999999999999", 0, (99999999999999999999999 + 2**63) % 2**64 - 2**63),
    ],
)
def test_units_in_64_bits(given: str, exponent: int, number: int) -> None:
    assert quantity.in_units(given, exponent) == number


def test_values_above_64_bits_are_not_capped() -> None:
    assert quantity.value_of("1e30") == Decimal(10) ** 30
    assert quantity.total(["1500m", "1e30"]) == "1000000000000000000000000000001500m"
