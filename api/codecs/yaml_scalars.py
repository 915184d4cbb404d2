"""Values of plain YAML scalars, by the rules of go-yaml v2, which Kubernetes uses.

Booleans and numbers are those of YAML 1.1, but dates and base 60 numbers stay strings. An integer may be decimal, 0x,
0o, 0b or, with a leading 0, octal, and may have underscores. As in go-yaml's resolve.go, a table of words comes first,
then the hint of the first character.
"""

from __future__ import annotations

import re
from base64 import b64decode
from typing import Any

from kubechronicle.api.codecs.errors import DecodeError

__all__ = ["go_float", "resolve", "resolve_tagged"]

_WORDS: dict[str, Any] = {
    **dict.fromkeys(("y", "Y", "yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON"), True),
    **dict.fromkeys(("n", "N", "no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF"), False),
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
    **dict.fromkeys((".nan", ".NaN", ".NAN"), float("nan")),
    **dict.fromkeys((".inf", ".Inf", ".INF", "+.inf", "+.Inf", "+.INF"), float("inf")),
    **dict.fromkeys(("-.inf", "-.Inf", "-.INF"), float("-inf")),
}
_LEADING_DOT = re.compile(r"\.[0-9]+([eE][-+]?[0-9]+)?", re.ASCII)
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?", re.ASCII)
_INTEGER = re.compile(r"([-+]?)(0[xX][0-9a-fA-F]+|0[bB][01]+|0[oO]?[0-7]+|0|[1-9][0-9]*)", re.ASCII)
_STARTS_NUMBER = frozenset("+-0123456789")
# A longer run of digits is no 64-bit integer in any base.
_LONGEST_INTEGER = 80

_PREFIX = "tag:yaml.org,2002:"
_RESOLVED_TAGS = frozenset(_PREFIX + name for name in ("bool", "int", "float", "null", "timestamp"))


def resolve(text: str) -> Any:
    """Return the value of a plain scalar without a tag: str, bool, int, float or None."""
    if text in _WORDS:
        return _WORDS[text]
    first = text[0]
    if first == ".":
        return _finite(text) if _LEADING_DOT.fullmatch(text) else text
    if first not in _STARTS_NUMBER:
        return text
    plain = text.replace("_", "") if "_" in text else text
    integer = _integer(plain)
    if integer is not None:
        return integer
    value = _finite(plain) if _FLOAT.fullmatch(plain) else plain
    return value if value.__class__ is float else text


def resolve_tagged(tag: str, text: str) -> Any:
    """Return the value of a scalar with an explicit tag, the text for an unknown tag. DecodeError if it misfits."""
    if tag == _PREFIX + "binary":
        try:
            return b64decode("".join(text.split()), validate=True).decode("utf-8", "replace")
        except ValueError:
            raise DecodeError("yaml: !!binary value contains invalid base64 data") from None
    if tag not in _RESOLVED_TAGS:
        return text
    value = resolve(text)
    wanted = tag.removeprefix(_PREFIX)
    kind = {bool: "bool", int: "int", float: "float", str: "str"}.get(value.__class__, "null")
    if wanted == kind or (wanted == "timestamp" and kind == "str"):
        return value
    if wanted == "float" and kind == "int":
        return float(value)
    raise DecodeError(f"yaml: cannot decode !!{kind} `{text}` as a !!{wanted}")


def go_float(value: float) -> int | float:
    """Return a float as in the JSON that Kubernetes makes of YAML: whole numbers become integers.

    DecodeError for NaN and infinities, which JSON cannot hold.
    """
    if value - value != 0:
        name = "NaN" if value != value else "+Inf" if value > 0 else "-Inf"
        raise DecodeError(f"json: unsupported value: {name}")
    return int(value) if value.is_integer() and abs(value) < 1 << 63 else value


def _integer(text: str) -> int | None:
    if len(text) > _LONGEST_INTEGER:
        return None
    match = _INTEGER.fullmatch(text)
    if match is None:
        return None
    digits = match[2]
    if len(digits) > 1 and digits[0] == "0" and digits[1] in "01234567":
        value = int(digits, 8)
    else:
        value = int(digits, 0)
    if match[1] == "-":
        value = -value
    # strconv.ParseInt, then ParseUint, which takes no sign
    limit = 1 << 63 if match[1] else 1 << 64
    return value if -(1 << 63) <= value < limit else None


def _finite(text: str) -> float | str:
    value = float(text)
    return text if value - value != 0 else value
