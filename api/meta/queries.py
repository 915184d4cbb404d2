"""Values of a query string, read as Kubernetes does: the first one of a repeated parameter counts.

A query is the result of ``urllib.parse.parse_qs(text, keep_blank_values=True)``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kubechronicle.api.errors import status
from kubechronicle.api.errors.field_errors import go_quote

Query = Mapping[str, Sequence[str]]


def first(query: Query, name: str) -> str:
    """Return the text of a parameter, "" if it is absent."""
    values = query.get(name)
    return values[0] if values else ""


def integer(query: Query, name: str) -> int | None:
    """Return an integer of 64 bits of the query; None if it is absent. StatusError 400 in the words of Go's strconv."""
    values = query.get(name)
    if not values:
        return None
    text = values[0]
    digits = text[1:] if text[:1] in ("+", "-") else text
    if not (digits.isascii() and digits.isdigit()):
        raise status.bad_request(f"strconv.ParseInt: parsing {go_quote(text)}: invalid syntax")
    number = _bounded(digits)
    if number is not None and text[0] == "-":
        number = -number
    if number is None or not -(2**63) <= number < 2**63:
        raise status.bad_request(f"strconv.ParseInt: parsing {go_quote(text)}: value out of range")
    return number


def _bounded(digits: str) -> int | None:
    """Return the number of decimal digits, None for one that is too large for 64 bits in any case."""
    significant = digits.lstrip("0")
    return int(significant or "0") if len(significant) <= 20 else None


def boolean(query: Query, name: str) -> bool | None:
    """Return a boolean of the query as Kubernetes reads it: true if present and neither false nor 0."""
    values = query.get(name)
    if not values:
        return None
    return values[0].lower() not in ("false", "0")


def parse_resource_version(text: str) -> int:
    """Return the requested revision, 0 for none. ValueError with Kubernetes' text if it is not a number.

    A list answers the text as 400 after ``invalid resource version: ``, a get and a watch as 500.
    """
    if text in ("", "0"):
        return 0
    problem = "invalid syntax"
    if text.isascii() and text.isdigit():
        number = _bounded(text)
        if number is not None and number < 2**64:
            return number
        problem = "value out of range"
    quoted = go_quote(text)
    raise ValueError(f"resourceVersion: Invalid value: {quoted}: strconv.ParseUint: parsing {quoted}: {problem}")


def go_seconds(seconds: int) -> float:
    """Return a number of seconds as Go's Duration holds it: beyond 292 years it overflows, into the past perhaps."""
    return ((seconds * 10**9 + 2**63) % 2**64 - 2**63) / 10**9
