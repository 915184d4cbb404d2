"""CEL's ``find`` and ``findAll`` (library kubernetes.regex)."""

from __future__ import annotations

from typing import Final

from kubechronicle.api.cel.declarations import Library
from kubechronicle.api.cel.errors import EvaluationError
from kubechronicle.api.cel.library import costs
from kubechronicle.api.cel.operations.patterns import PatternError, compiled
from kubechronicle.api.cel.overloads import Function, Overload
from kubechronicle.api.cel.types import INT, STRING, list_of


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


_STRINGS: Final = list_of(STRING)

LIBRARY: Final = Library(
    "kubernetes.regex",
    0,
    (
        Function("find", (Overload("string_find_string", (STRING, STRING), STRING, find, True, costs.searching),)),
        Function(
            "findAll",
            (
                Overload("string_find_all_string", (STRING, STRING), _STRINGS, find_all, True, costs.searching),
                Overload(
                    "string_find_all_string_int", (STRING, STRING, INT), _STRINGS, find_all, True, costs.searching
                ),
            ),
        ),
    ),
)
