"""cel-go's string functions, version 2 (since v1.29). Indexes count characters from 0.

Not here: the implementation of ``format`` (formatting.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from kubechronicle.api.cel.declarations import Library
from kubechronicle.api.cel.errors import EvaluationError
from kubechronicle.api.cel.library import costs
from kubechronicle.api.cel.library.formatting import FORMAT
from kubechronicle.api.cel.operations.conversions import to_text
from kubechronicle.api.cel.operations.patterns import PatternError, compiled
from kubechronicle.api.cel.types import INT, STRING, Function, Overload, list_of
from kubechronicle.api.values.allowance import ALLOWANCE

_SPACE: Final = (
    "\t\n\v\f\r \x85\xa0\u1680" + "".join(map(chr, range(0x2000, 0x200B))) + "\u2028\u2029\u202f\u205f\u3000"
)
_UPPER: Final = {code: code - 32 for code in range(ord("a"), ord("z") + 1)}
_LOWER: Final = {code: code + 32 for code in range(ord("A"), ord("Z") + 1)}
_QUOTED: Final = str.maketrans(
    {
        "\a": "\\a",
        "\b": "\\b",
        "\f": "\\f",
        "\n": "\\n",
        "\r": "\\r",
        "\t": "\\t",
        "\v": "\\v",
        "\\": "\\\\",
        '"': '\\"',
    }
)


def char_at(text: str, place: int) -> str:
    """Return the character at ``place``, empty right behind the last. EvaluationError if out of range."""
    _check_place(place, len(text))
    return text[place : place + 1]


def _check_place(place: int, length: int) -> None:
    if not 0 <= place <= length:
        raise EvaluationError(f"index out of range: {place}")


def index_of(text: str, wanted: str, start: int = 0) -> int:
    """Return the index of the first ``wanted`` from ``start`` on, -1 if there is none."""
    if not wanted:
        return start
    if start < 0:
        raise EvaluationError(f"index out of range: {start}")
    return text.find(wanted, start)


def last_index_of(text: str, wanted: str) -> int:
    """Return the index of the last ``wanted``, -1 if there is none."""
    return text.rfind(wanted)


def last_index_from(text: str, wanted: str, start: int) -> int:
    """Return the index of the last ``wanted`` that begins at or before ``start``, -1 if there is none."""
    if not wanted:
        return start
    if start < 0:
        raise EvaluationError(f"index out of range: {start}")
    return -1 if start >= len(text) else text.rfind(wanted, 0, start + len(wanted))


def lower_ascii(text: str) -> str:
    """Return the text with A to Z in lower case."""
    return text.translate(_LOWER)


def upper_ascii(text: str) -> str:
    """Return the text with a to z in upper case."""
    return text.translate(_UPPER)


def replace(text: str, old: str, new: str, limit: int = -1) -> str:
    """Return the text with ``old`` replaced at most ``limit`` times, or everywhere if that is negative.

    EvaluationError if the result is too long for the budget of any expression."""
    most = text.count(old) if limit < 0 else min(limit, text.count(old))
    size = len(text) + most * (len(new) - len(old))
    if size > _LONGEST:
        raise EvaluationError("the replaced string is too long")
    ALLOWANCE.get().make(size)
    return text.replace(old, new, -1 if limit < 0 else limit)


_LONGEST: Final = 32 << 20


def split(text: str, separator: str, limit: int = -1) -> list[str]:
    """Return at most ``limit`` parts between separators; the characters if the separator is empty."""
    if limit == 0:
        return []
    ALLOWANCE.get().make(60 * (text.count(separator) + 1))
    if separator:
        return text.split(separator, -1 if limit < 0 else limit - 1)
    if limit < 0 or len(text) <= limit:
        return list(text)
    return [*text[: limit - 1], text[limit - 1 :]]


def substring(text: str, start: int) -> str:
    """Return the text from ``start`` on. EvaluationError if out of range."""
    _check_place(start, len(text))
    return text[start:]


def substring_to(text: str, start: int, end: int) -> str:
    """Return the text from ``start`` to before ``end``. EvaluationError if out of range."""
    if start > end:
        raise EvaluationError(f"invalid substring range. start: {start}, end: {end}")
    _check_place(start, len(text))
    _check_place(end, len(text))
    return text[start:end]


def trim(text: str) -> str:
    """Return the text without the white space around it."""
    return text.strip(_SPACE)


def join(texts: Sequence[Any], separator: str = "") -> str:
    """Return the texts joined by the separator. EvaluationError if one is no string."""
    for each in texts:
        if not isinstance(each, str):
            raise EvaluationError(f"join: invalid input: {to_text(each)}")
    ALLOWANCE.get().make(sum(map(len, texts)) + len(texts) * len(separator))
    return separator.join(texts)


def quote(text: str) -> str:
    """Return the text in double quotes, with special characters escaped."""
    return f'"{text.translate(_QUOTED)}"'


_S: Final = STRING
_STRINGS: Final = list_of(STRING)
_ONCE: Final = costs.traversal()
_TWICE: Final = costs.traversal(2)

LIBRARY: Final = Library(
    "cel.lib.ext.strings",
    2,
    (
        Function("charAt", (Overload("string_char_at_int", (_S, INT), _S, char_at, member=True),)),
        Function(
            "indexOf",
            (
                Overload("string_index_of_string", (_S, _S), INT, index_of, True, costs.walking),
                Overload("string_index_of_string_int", (_S, _S, INT), INT, index_of, True, costs.walking),
            ),
        ),
        Function(
            "lastIndexOf",
            (
                Overload("string_last_index_of_string", (_S, _S), INT, last_index_of, True, costs.walking),
                Overload("string_last_index_of_string_int", (_S, _S, INT), INT, last_index_from, True, costs.walking),
            ),
        ),
        Function("lowerAscii", (Overload("string_lower_ascii", (_S,), _S, lower_ascii, True, _ONCE),)),
        Function("upperAscii", (Overload("string_upper_ascii", (_S,), _S, upper_ascii, True, _ONCE),)),
        Function("trim", (Overload("string_trim", (_S,), _S, trim, True, _ONCE),)),
        Function(
            "replace",
            (
                Overload("string_replace_string_string", (_S, _S, _S), _S, replace, True, _TWICE),
                Overload("string_replace_string_string_int", (_S, _S, _S, INT), _S, replace, True, _TWICE),
            ),
        ),
        Function(
            "split",
            (
                Overload("string_split_string", (_S, _S), _STRINGS, split, True, _TWICE),
                Overload("string_split_string_int", (_S, _S, INT), _STRINGS, split, True, _TWICE),
            ),
        ),
        Function(
            "substring",
            (
                Overload("string_substring_int", (_S, INT), _S, substring, True, _ONCE),
                Overload("string_substring_int_int", (_S, INT, INT), _S, substring_to, True, _ONCE),
            ),
        ),
        Function(
            "join",
            (
                Overload("list_join", (_STRINGS,), _S, join, True, costs.joining),
                Overload("list_join_string", (_STRINGS, _S), _S, join, True, costs.joining),
            ),
        ),
        Function("strings.quote", (Overload("strings_quote", (_S,), _S, quote, cost=_ONCE),)),
        FORMAT,
    ),
)


# -- regex -------------------------------------------------------------------------------------------------------------
#
# CEL's ``find`` and ``findAll`` (library kubernetes.regex).


def _illegal(problem: PatternError) -> EvaluationError:
    return EvaluationError(f"Illegal regex: {problem}")


def find(text: str, pattern: str) -> str:
    """Return the first match, empty if there is none. EvaluationError if the pattern is invalid."""
    try:
        return compiled(pattern).find(text)
    except PatternError as problem:
        raise _illegal(problem) from None


def find_all(text: str, pattern: str, limit: int = -1) -> list[str]:
    """Return at most ``limit`` matches, all if it is negative. EvaluationError if the pattern is invalid."""
    try:
        return compiled(pattern).find_all(text, limit)
    except PatternError as problem:
        raise _illegal(problem) from None


_LIST_OF_STRINGS: Final = list_of(STRING)

REGEX: Final = Library(
    "kubernetes.regex",
    0,
    (
        Function("find", (Overload("string_find_string", (STRING, STRING), STRING, find, True, costs.searching),)),
        Function(
            "findAll",
            (
                Overload("string_find_all_string", (STRING, STRING), _LIST_OF_STRINGS, find_all, True, costs.searching),
                Overload(
                    "string_find_all_string_int",
                    (STRING, STRING, INT),
                    _LIST_OF_STRINGS,
                    find_all,
                    True,
                    costs.searching,
                ),
            ),
        ),
    ),
)
