"""Errors of expressions: one does not compile, fails when evaluated, or costs too much.

The texts are those of cel-go (``common/errors.go``, ``common/types/err.go``).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

SOURCE_NAME: Final = "<input>"

MAX_ISSUES: Final = 100
"""Issues reported for one expression; further ones are only counted."""
MAX_SHOWN: Final = 16_384
"""The longest source line shown below an issue, in bytes."""

_WIDE_FROM: Final = 0x80
"""cel-go draws a full-width dot and caret under characters that take more than one byte."""


class Issue(NamedTuple):
    """One problem of an expression. ``line`` counts from 1, ``column`` from 0, in characters."""

    line: int
    column: int
    message: str

    def display(self, lines: Sequence[str]) -> str:
        """Return cel-go's three lines: place and message, the line of source, and a caret under the place."""
        if list(lines) == [""]:
            return f"ERROR: {SOURCE_NAME}:1:0: {self.message}"  # cel-go finds no place in an empty expression
        text = f"ERROR: {SOURCE_NAME}:{self.line}:{self.column + 1}: {self.message}"
        if not 0 < self.line <= len(lines) or len(lines[self.line - 1].encode(errors="replace")) > MAX_SHOWN:
            return text
        source = lines[self.line - 1].replace("\t", " ")
        dots = "".join("\uff0e" if ord(mark) >= _WIDE_FROM else "." for mark in source[: self.column])
        wide = self.column < len(source) and ord(source[self.column]) >= _WIDE_FROM
        return f"{text}\n | {source}\n | {dots}{chr(0xFF3E) if wide else '^'}"


class ExpressionReport(NamedTuple):
    """Issues of an expression. ``str()`` is cel-go's text, which repeats the source line for each issue: it may take a
    hundred times as much memory as the source, so it is built only to be shown.

    ``left_out``: the number of further issues.
    """

    issues: tuple[Issue, ...]
    left_out: int
    source: str
    head: str = ""

    def __str__(self) -> str:
        lines = self.source.split("\n")
        shown = [issue.display(lines) for issue in self.issues]
        if self.left_out:
            shown.append(f"{self.left_out} more errors were truncated")
        return self.head + "\n".join(shown)


class CompileError(Exception):
    """An expression that cannot be compiled. ``issues``: the first MAX_ISSUES found, in order of place."""

    def __init__(self, issues: Iterable[Issue], source: str) -> None:
        every = list(issues)
        first = sorted(every[:MAX_ISSUES], key=lambda issue: (issue.line, issue.column))
        self.report = ExpressionReport(tuple(first), len(every) - len(first), source)
        super().__init__(self.report)

    @property
    def issues(self) -> tuple[Issue, ...]:
        return self.report.issues


class InstantiationError(CompileError):
    """A checked expression without a program, because the conversion of a constant fails. It names no place.

    Kubernetes reports "program instantiation failed" for it, and "compilation failed" for other errors.
    """

    def __init__(self, message: str) -> None:
        super().__init__((), "")
        self.args = (message,)


class EvaluationError(Exception):
    """An expression that fails on its values. The text is cel-go's, such as ``no such key: x``."""


class CostExceeded(EvaluationError):
    """The budget is used up. Unlike other errors, ``&&``, ``||`` and the macros do not absorb it."""

    def __init__(self, message: str = "operation cancelled: actual cost limit exceeded") -> None:
        super().__init__(message)


def no_such_overload(function: str | None = None, *types: str) -> EvaluationError:
    """Return the error for a function called with values of types that no overload takes."""
    if function is None:
        return EvaluationError("no such overload")
    return EvaluationError(f"no such overload: {function}({', '.join(types)})")


def no_such_key(key: object) -> EvaluationError:
    """Return the error for a key that is not in a map."""
    return EvaluationError(f"no such key: {key}")
