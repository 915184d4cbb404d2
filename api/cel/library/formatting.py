"""``"%d of %s".format([1, "x"])``: formatting as in cel-go's strings library up to version 3.

Numbers with ``%f`` and ``%e`` are formatted as in American English: 1,234.500000, 1.5 × 10³, ∞.

Lives here: formatting at run time, and the compile-time check of clauses against the types of a literal list.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from typing import Any, Final

from kubechronicle.api.cel.errors import EvaluationError
from kubechronicle.api.cel.library.costs import traversal
from kubechronicle.api.cel.operations.conversions import to_text
from kubechronicle.api.cel.syntax.ast import CallExpression, ListNode, Literal, MapEntry, MapNode, Node
from kubechronicle.api.cel.types import DYN, STRING, Function, Overload, list_of
from kubechronicle.api.cel.values import Duration, Timestamp, type_name
from kubechronicle.api.errors.field_errors import go_quote
from kubechronicle.api.values.allowance import ALLOWANCE

DEFAULT_PRECISION: Final = 6
PRECISION_MAX: Final = 1_000_000
LONGEST: Final = 16 << 20
"""The longest formatted text, in characters."""

_DIGITS: Final = re.compile("[0-9]*")
_SUPERSCRIPT: Final = str.maketrans("0123456789-", "⁰¹²³⁴⁵⁶⁷⁸⁹⁻", "+")

_CLAUSE_ERRORS: Final = {
    "s": "string clause can only be used on strings, bools, bytes, ints, doubles, maps, lists, types, durations, and "
    "timestamps, was given ",
    "d": "decimal clause can only be used on integers, was given ",
    "f": "fixed-point clause can only be used on doubles, was given ",
    "e": "scientific clause can only be used on doubles, was given ",
    "b": "only integers and bools can be formatted as binary, was given ",
    "x": "only integers, byte buffers, and strings can be formatted as hex, was given ",
    "X": "only integers, byte buffers, and strings can be formatted as hex, was given ",
    "o": "octal clause can only be used on integers, was given ",
}
_KINDS: Final = {
    "s": {
        "list",
        "map",
        "int",
        "uint",
        "double",
        "bool",
        "string",
        "bytes",
        "type",
        "null",
        "null_type",
        "timestamp",
        "duration",
        "google.protobuf.Timestamp",
        "google.protobuf.Duration",
    },
    "d": {"int", "uint"},
    "f": {"double", "string"},
    "e": {"double", "string"},
    "b": {"int", "uint", "bool"},
    "x": {"int", "uint", "string", "bytes"},
    "X": {"int", "uint", "string", "bytes"},
    "o": {"int", "uint"},
}
"""Clause -> the kinds of static types, and the names of types at run time, that it takes. It takes dyn, too."""

Writer = Callable[[int, str, int], str]
"""(index of the argument, clause, precision) -> its text."""


class FormatError(Exception):
    """An invalid format or argument. ``node``: the argument's node, None for the format."""

    def __init__(self, message: str, node: Node | None = None) -> None:
        super().__init__(message)
        self.node = node


def interpolate(text: str, count: int, write: Writer, *, end_first: bool = False) -> str:
    """Return the text with every clause replaced with the text ``write`` returns. There are ``count`` arguments.

    FormatError for the first problem. ``end_first``: report a missing clause at the end before a missing argument."""
    parts: list[str] = []
    place = argument = length = 0
    while (start := text.find("%", place)) >= 0:
        parts.append(text[place:start])
        if text[start + 1 : start + 2] == "%":
            parts.append("%")
            place = start + 2
            continue
        if argument >= count and not (end_first and start + 1 == len(text)):
            raise FormatError(f"index {argument} out of range")
        clause, precision, place = _clause(text, start + 1)
        try:
            parts.append(write(argument, clause, precision))
        except FormatError as problem:
            raise FormatError(f"error during formatting: {problem}", problem.node) from None
        length += len(parts[-1])
        if length > LONGEST:
            raise FormatError("the formatted string is too long")
        argument += 1
    parts.append(text[place:])
    return "".join(parts)


def _clause(text: str, place: int) -> tuple[str, int, int]:
    """Return (clause, precision, place behind it) of the clause behind a percent sign."""
    unparsed = "could not parse formatting clause: "
    in_precision = unparsed + "error while parsing precision: "
    if place >= len(text):
        raise FormatError("unexpected end of string")
    precision = DEFAULT_PRECISION
    if text[place] == ".":
        found = _DIGITS.match(text, place + 1)
        digits = "" if found is None else found.group()
        place += 1 + len(digits)
        if place >= len(text):
            raise FormatError(in_precision + "could not find end of precision specifier")
        if not digits:
            message = 'error while converting precision to integer: strconv.Atoi: parsing "": invalid syntax'
            raise FormatError(in_precision + message)
        if len(digits) > 9 or int(digits) > PRECISION_MAX:
            reason = f"strconv.Atoi: parsing {go_quote(digits)}: value out of range"
            raise FormatError(f"{in_precision}error while converting precision to integer: {reason}")
        precision = int(digits)
    clause = text[place]
    if clause not in _CLAUSE_ERRORS:
        shown = chr(clause.encode(errors="replace")[0])
        raise FormatError(f'{unparsed}unrecognized formatting clause "{shown}"')
    return clause, precision, place + 1


def format_text(text: str, values: Sequence[Any]) -> str:
    """Return the formatted text. EvaluationError if the format or a value is wrong."""
    try:
        return interpolate(text, len(values), lambda place, clause, precision: _write(values[place], clause, precision))
    except FormatError as problem:
        raise EvaluationError(str(problem)) from None


def _write(value: Any, clause: str, precision: int) -> str:
    name = type_name(value)
    if clause == "s":
        return _plain(value)
    if name not in _KINDS[clause]:
        raise FormatError(_CLAUSE_ERRORS[clause] + name)
    if clause in ("f", "e"):
        return _real(value, clause, precision)
    if isinstance(value, (str, bytes)):
        raw = value.encode(errors="replace") if isinstance(value, str) else value
        return raw.hex().upper() if clause == "X" else raw.hex()
    return format(int(value), clause)


_REALS: Final = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


def _real(value: Any, clause: str, precision: int) -> str:
    if isinstance(value, str):
        if value not in _REALS:
            raise FormatError(f"{_CLAUSE_ERRORS[clause]}string")
        value = _REALS[value]
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "∞" if value > 0 else "-∞"
    value = value or 0.0  # negative zero has no sign
    if clause == "f":
        return f"{value:,.{precision}f}"
    mantissa, _, exponent = f"{value:.{precision}e}".partition("e")
    return f"{mantissa}\u202f×\u202f10{exponent.translate(_SUPERSCRIPT)}"


def _plain(value: Any) -> str:
    if isinstance(value, (list, tuple)):
        text = f"[{', '.join(_quoted(each, _nested(each)) for each in value)}]"
        _count(text, len(value))
        return text
    if isinstance(value, dict):
        return _plain_map(value)
    name = type_name(value)
    if name not in _KINDS["s"]:
        raise FormatError(_CLAUSE_ERRORS["s"] + name)
    return "null" if value is None else to_text(value)


def _plain_map(value: dict[Any, Any]) -> str:
    pairs = []
    for key, each in value.items():
        if not isinstance(key, (str, int)):
            raise FormatError(f"no formatting function for map key of type {type_name(key)}")
        pairs.append((_quoted(key, to_text(key)), _quoted(each, _nested(each))))
    pairs.sort(key=lambda pair: pair[0].encode(errors="replace"))
    text = f"{{{', '.join(f'{key}:{text}' for key, text in pairs)}}}"
    _count(text, len(value))
    return text


def _count(text: str, items: int) -> None:
    """Count the work of a part: a list may hold another one many times."""
    allowance = ALLOWANCE.get()
    allowance.walk(items)
    allowance.make(len(text))


def _nested(value: Any) -> str:
    """Return the text of a value in a list or map, in CEL's own notation."""
    if isinstance(value, (list, tuple, dict)):
        return _plain(value)
    if isinstance(value, Timestamp):
        return f"timestamp({go_quote(to_text(value))})"
    if isinstance(value, Duration):
        return f"duration({go_quote(to_text(value))})"
    if isinstance(value, float):
        return f"{value:.{DEFAULT_PRECISION}f}" if math.isfinite(value) else to_text(value)
    if type_name(value) not in _KINDS["s"]:
        raise FormatError(f"no formatting function for {type_name(value)}")
    return "null" if value is None else to_text(value)


def _quoted(value: Any, text: str) -> str:
    if isinstance(value, bytes):
        return f"b{go_quote(text)}"
    unfit = isinstance(value, float) and not math.isfinite(value)
    return go_quote(text) if isinstance(value, str) or unfit else text


FORMAT: Final = Function(
    "format",
    (Overload("string_format", (STRING, list_of(DYN)), STRING, format_text, member=True, cost=traversal()),),
)


def check_call(call: CallExpression) -> tuple[Node, str] | None:
    """Return (node, message) of the problem in a ``format`` call with literal format and arguments, None if none."""
    target, arguments = call.target, call.args
    if not isinstance(target, Literal) or not isinstance(target.value, str) or len(arguments) != 1:
        return None
    listed = arguments[0]
    if not isinstance(listed, ListNode):
        return None
    used = 0

    def check(place: int, clause: str, precision: int) -> str:
        nonlocal used
        used += 1
        _check_node(listed.elements[place], clause)
        return ""

    try:
        interpolate(target.value, len(listed.elements), check, end_first=True)
    except FormatError as problem:
        return problem.node or call, str(problem)
    if len(listed.elements) > used:
        count = len(listed.elements)
        return call, f"too many arguments supplied to string.format (expected {used}, got {count})"
    return None


def _check_node(node: Node, clause: str) -> None:
    kind = node.type.kind
    if kind != "dyn" and kind not in _KINDS[clause]:
        raise FormatError(_CLAUSE_ERRORS[clause] + node.type.name, node)
    if clause == "s":
        for each in _parts(node):
            _check_node(each, clause)


def _parts(node: Node) -> list[Node]:
    if isinstance(node, ListNode):
        return node.elements
    entries: list[MapEntry] = node.entries if isinstance(node, MapNode) else []
    return [part for entry in entries for part in (entry.key, entry.value)]
