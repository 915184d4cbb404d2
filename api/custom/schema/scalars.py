"""Keywords of strings and numbers: lengths, patterns, formats, ranges, multiples."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from kubechronicle.api.cel.operations import patterns
from kubechronicle.api.custom.schema.failures import Failures
from kubechronicle.api.custom.schema.ratcheting import Correlated
from kubechronicle.api.custom.schema.structure import Schema, Where
from kubechronicle.api.custom.schema.tables import Check
from kubechronicle.api.errors.field_errors import go_number

MAX_SAFE: Final = float(2**53 - 1)
EPSILON: Final = 1e-9
INT_BOUNDS: Final = {"int32": 2**31, "": 2**63, "int64": 2**63}
FLOAT_BOUND: Final = float(2**128 - 2**103)
"""The smallest number that a 32-bit float cannot hold, rounding included."""

Number = int | float


def string_check(schema: Schema) -> Check | None:
    """Return the check of a string's length and pattern, of which the first failure counts."""
    fewest, most, pattern = schema.get("minLength"), schema.get("maxLength"), schema.get("pattern") or ""
    if fewest is None and most is None and not pattern:
        return None

    mismatch = f"should match '{pattern}'"
    too_short = f"should be at least {fewest} chars long"

    def check(value: str, where: Where, failures: Failures, old: Correlated | None) -> int:
        if most is not None and len(value) > most:
            failures.add("long", where, most)
        elif fewest is not None and len(value) < fewest:
            failures.invalid(where, value, too_short)
        elif pattern:
            try:
                # The cache of patterns is bounded, closures are not: none keeps a compiled pattern.
                if patterns.compiled(pattern).matches(value):
                    return 0
                failures.invalid(where, value, mismatch)
            except patterns.PatternError as problem:
                failures.invalid(where, value, f"should match '{pattern}, but pattern is invalid: {problem}'")
        return 0

    return check


def format_check(name: str, holds: Callable[[str], object]) -> Check:
    """Return the check of a string's format."""

    def check(value: str, where: Where, failures: Failures, old: Correlated | None) -> int:
        if not holds(value):
            failures.wrong_type(where, name, value)
        return 0

    return check


def is_integral(value: float) -> bool:
    """Return whether a float counts as an integer (swag.IsFloat64AJSONInteger): nearly whole, and at most 53 bits.

    >>> is_integral(2.0), is_integral(2.0000000001), is_integral(2.1), is_integral(1e300)
    (True, True, False, False)
    """
    if not -MAX_SAFE <= value <= MAX_SAFE:
        return False
    whole = int(value)
    if whole == value:
        return True
    if whole <= 0:  # a negative one wraps around in Go, far from itself
        return False
    return (value - whole) / (value + whole) < EPSILON


def wrapped(value: float) -> int:
    """Return a float converted to 64 bits, as Go does on amd64: out of range it is the lowest number."""
    whole = int(value) if abs(value) < 1e300 else 2**63
    return whole if -(2**63) <= whole < 2**63 else -(2**63)


def in_range(value: Number, type_name: str, format_name: str) -> bool:
    """Return whether a number fits a type with a format. Only a whole number is an integer."""
    if type_name == "integer":
        bound = INT_BOUNDS[format_name]
        return value == int(value) and -bound <= value < bound
    return format_name != "float" or -FLOAT_BOUND < value < FLOAT_BOUND


def number_check(schema: Schema, cls: type, type_name: str, format_name: str) -> Check | None:
    """Return the check of a number of a class: its type's range, multiples and limits."""
    integer = cls is int
    limits = [
        check
        for name, make in (("multipleOf", _multiple), ("minimum", _minimum), ("maximum", _maximum))
        if schema.get(name) is not None
        for check in make(schema, integer, type_name, format_name)
    ]
    fits_always = (
        format_name not in ("int32", "float") if integer else type_name != "integer" and format_name != "float"
    )
    if fits_always and not limits:
        return None
    kind = f"type {type_name} with format {format_name}" if format_name else f"type {type_name} (default format)"

    lowest, highest = sure_range(schema, type_name, format_name) if integer else (1, 0)

    def check(value: Number, where: Where, failures: Failures, old: Correlated | None) -> int:
        if lowest <= value <= highest:
            return 0
        if not fits_always and not in_range(value, type_name, format_name):
            failures.add("range", where, f"Checked value must be of {kind}")
        for limit in limits:
            limit(value, where, failures)
        return 0

    return check


def sure_range(schema: Schema, type_name: str, format_name: str) -> tuple[Number, Number]:
    """Return a range within which no integer fails: most values need one comparison."""
    if schema.get("multipleOf") is not None:
        return 1, 0
    lowest, highest = schema.get("minimum"), schema.get("maximum")
    if not all(limit is None or in_range(float(limit), type_name, format_name) for limit in (lowest, highest)):
        return 1, 0
    bound = 2**31 if format_name == "int32" else 2**53
    lowest = -bound if lowest is None else max(-bound, lowest + bool(schema.get("exclusiveMinimum")))
    highest = bound - 1 if highest is None else min(bound - 1, highest - bool(schema.get("exclusiveMaximum")))
    return lowest, highest


Limit = Callable[[Number, Where, Failures], None]


def _unfit(label: str, limit: Number, type_name: str, format_name: str) -> list[Limit]:
    """Return the check that always fails, if the limit itself does not fit the type."""
    if in_range(limit, type_name, format_name):
        return []
    kind = f"type {type_name} with format {format_name}" if format_name else f"type {type_name} (default format)"
    return [lambda _, where, failures: failures.add("range", where, f"{label} value must be of {kind}")]


def _multiple(schema: Schema, integer: bool, type_name: str, format_name: str) -> list[Limit]:
    factor = float(schema["multipleOf"])
    unfit = _unfit("MultipleOf", factor, type_name, format_name)
    whole = wrapped(factor) if integer and not unfit else None
    positive = (factor if whole is None else whole) > 0
    printed = go_number(factor) if whole is None else str(whole)

    def check(value: Number, where: Where, failures: Failures) -> None:
        if not positive:
            failures.add("factor", where, printed, factor if whole is None else whole)
            return
        if whole is not None:
            holds = int(value) % whole == 0
        else:
            value = float(value)
            holds = is_integral(1 / factor * value if factor < 1 else value / factor)
        if not holds:
            failures.invalid(where, value, f"should be a multiple of {printed}")

    return [*unfit, check]


def _minimum(schema: Schema, integer: bool, type_name: str, format_name: str) -> list[Limit]:
    limit = float(schema["minimum"])
    exclusive = bool(schema.get("exclusiveMinimum"))
    unfit = _unfit("Minimum boundary", limit, type_name, format_name)
    bound: Number = wrapped(limit) if integer and not unfit else limit
    problem = f"should be greater than {'' if exclusive else 'or equal to '}{go_number(bound)}"
    as_float = integer and bool(unfit)

    def check(value: Number, where: Where, failures: Failures) -> None:
        value = float(value) if as_float else value
        if value < bound or (exclusive and value == bound):
            failures.invalid(where, value, problem)

    return [*unfit, check]


def _maximum(schema: Schema, integer: bool, type_name: str, format_name: str) -> list[Limit]:
    limit = float(schema["maximum"])
    exclusive = bool(schema.get("exclusiveMaximum"))
    unfit = _unfit("Maximum boundary", limit, type_name, format_name)
    bound: Number = wrapped(limit) if integer and not unfit else limit
    problem = f"should be less than {'' if exclusive else 'or equal to '}{go_number(bound)}"
    as_float = integer and bool(unfit)

    def check(value: Number, where: Where, failures: Failures) -> None:
        value = float(value) if as_float else value
        if value > bound or (exclusive and value == bound):
            failures.invalid(where, value, problem)

    return [*unfit, check]
