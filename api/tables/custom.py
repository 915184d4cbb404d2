"""Printers of custom resources: by the additional printer columns of their version, or by name and age.

Source: apiextensions-apiserver ``pkg/registry/customresource/tableconvertor``.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any, Final

from kubechronicle.api.builtin.common.cell_text import Since
from kubechronicle.api.builtin.common.printer import AGE, NAME, Column, Printer, field_description, name_of
from kubechronicle.api.errors.field_errors import go_json
from kubechronicle.api.selectors.selectable_fields import text as plain_text
from kubechronicle.api.values.objects import ReadOnlyObject

# -- json path ---------------------------------------------------------------------------------------------------------
#
# Simple JSON paths, as additional printer columns of custom resources use them.
#
# Supported: ``.name``, ``.a\.b``, ``['name']``, ``[0]``, ``[-1]``, ``[1:3]``, ``[*]``, ``.*``, ``..name``, unions such
# as ``['a','b']``, and filters such as ``[?(@.type=="Ready")]``. A path may be in braces. Missing data is no error:
# the path finds nothing. Paths that look at all values below another one, and several times, may look at any number.
# So all paths of a row together look at MOST_VISITS values (Visits). Source: client-go ``util/jsonpath``.

MOST_VISITS: Final = 200_000
"""Values that the paths of one row may look at; names alone do not count. They take 0.1 s."""


class JsonPathError(ValueError):
    """An unsupported path."""


class TooManyVisits(Exception):
    """The paths of a row have looked at MOST_VISITS values."""


class Visits:
    """The number of values that the paths of one row may still look at."""

    __slots__ = ("_left",)

    def __init__(self) -> None:
        self._left = MOST_VISITS

    def count(self, number: int) -> None:
        """Count values. TooManyVisits."""
        self._left -= number
        if self._left < 0:
            raise TooManyVisits


Finder = Callable[[Any, Visits], Iterator[Any]]


def looks_further(text: str) -> int:
    """Return the number of steps of a path that look at more than one value, or more for a text that has none."""
    return text.count("..") + text.count("*") + text.count("?") + text.count(":") + text.count(",")


_STEP: Final = re.compile(
    r"""\.\.(?P<deep>(?:[^.\[\\\s]|\\.)+)
    |\.(?P<every>\*)
    |\.(?P<name>(?:[^.\[\]\\\s]|\\.)+)
    |\[\s*'(?P<quoted>(?:[^'\\]|\\.)*)'\s*\]
    |\[\s*"(?P<double>(?:[^"\\]|\\.)*)"\s*\]
    |\[\s*(?P<all>\*)\s*\]
    |\[\s*\?\((?P<filter>.*?)\)\s*\]
    |\[\s*(?P<slice>-?\d*:-?\d*(?::-?\d*)?)\s*\]
    |\[\s*(?P<index>-?\d+)\s*\]
    |\[(?P<union>(?:'[^']*'|"[^"]*"|[^'",\]])*+(?:,(?:'[^']*'|"[^"]*"|[^'",\]])*+)++)\]""",
    re.VERBOSE,
)
_MEMBER: Final = re.compile(r"""(?:'[^']*'|"[^"]*"|[^'",])+""")
_FILTER: Final = re.compile(r"\s*@(?P<left>.*?)\s*(?:(?P<operator>==|!=|<=|>=|<|>)\s*(?P<right>.+?)\s*)?\Z", re.DOTALL)
_OPERATORS: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_ESCAPE: Final = re.compile(r"\\(.)")


def compile_path(text: str) -> Finder:
    """Return a function that yields the values at the path in a document. JsonPathError for an unsupported path."""
    path = text.strip()
    if path.startswith("{") and path.endswith("}"):
        path = path[1:-1].strip()
    path = path.removeprefix("$")
    if path and path[0] not in ".[":
        path = f".{path}"
    return _chain(list(_steps(path)))


def _steps(path: str) -> Iterator[Finder]:
    position = 0
    while position < len(path):
        match = _STEP.match(path, position)
        if match is None:
            if path[position:] == ".":
                return
            raise JsonPathError(f"cannot understand {path[position:]!r}")
        position = match.end()
        yield _step(match)


def _step(match: re.Match[str]) -> Finder:
    kind, text = match.lastgroup or "", match.group(match.lastgroup or 0)
    if kind in ("name", "quoted", "double"):
        return _named(_ESCAPE.sub(r"\1", text))
    if kind == "deep":
        return _deep(_ESCAPE.sub(r"\1", text))
    if kind in ("every", "all"):
        return _children
    if kind == "filter":
        return _filtered(text)
    if kind == "union":
        members = [list(_steps(f"[{member.strip()}]")) for member in _MEMBER.findall(text)]
        return _union([_chain(member) for member in members])
    if kind == "slice":
        parts = [int(part) if part else None for part in text.split(":")]
        return _sliced(slice(*parts))
    return _indexed(int(text))


def _chain(steps: Iterable[Finder]) -> Finder:
    todo = tuple(steps)

    def find(document: Any, visits: Visits) -> Iterator[Any]:
        found: Sequence[Any] = (document,)
        for step in todo:
            if len(found) > 1:
                visits.count(len(found))
            found = [result for value in found for result in step(value, visits)]
        return iter(found)

    return find


def _named(name: str) -> Finder:
    def find(value: Any, visits: Visits) -> Iterator[Any]:
        if isinstance(value, dict) and name in value:
            yield value[name]

    return find


def _deep(name: str) -> Finder:
    def find(value: Any, visits: Visits) -> Iterator[Any]:
        if isinstance(value, dict) and name in value:
            yield value[name]
        for child in _children(value, visits):
            yield from find(child, visits)

    return find


def _children(value: Any, visits: Visits) -> Iterator[Any]:
    if isinstance(value, dict | list):
        visits.count(len(value))
        yield from value if isinstance(value, list) else (value[key] for key in sorted(value))


def _union(members: Sequence[Finder]) -> Finder:
    def find(value: Any, visits: Visits) -> Iterator[Any]:
        visits.count(len(members))
        return (found for member in members for found in member(value, visits))

    return find


def _sliced(part: slice) -> Finder:
    return lambda value, _: iter(value[part] if isinstance(value, list) else ())


def _indexed(index: int) -> Finder:
    def find(value: Any, visits: Visits) -> Iterator[Any]:
        if isinstance(value, list) and -len(value) <= index < len(value):
            yield value[index]

    return find


def _filtered(condition: str) -> Finder:
    match = _FILTER.match(condition)
    if match is None:
        raise JsonPathError(f"cannot understand the filter {condition!r}")
    left = _chain(list(_steps(match.group("left"))))
    if match.group("operator") is None:
        return lambda value, visits: (
            item for item in _children(value, visits) if next(left(item, visits), None) is not None
        )
    compare, right = _OPERATORS[match.group("operator")], _operand(match.group("right"))

    def find(value: Any, visits: Visits) -> Iterator[Any]:
        for item in _children(value, visits):
            found = next(left(item, visits), None)
            wanted = next(right(item, visits), None)
            if found is not None and _comparable(found, wanted) and compare(found, wanted):
                yield item

    return find


def _comparable(left: Any, right: Any) -> bool:
    return _sort(left) == _sort(right) != ""


def _sort(value: Any) -> str:
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int | float):
        return "number"
    return "string" if isinstance(value, str) else ""


def _operand(text: str) -> Finder:
    if text.startswith("@"):
        return _chain(list(_steps(text[1:])))
    literal: Any
    if len(text) > 1 and text[0] == text[-1] and text[0] in "'\"":
        literal = _ESCAPE.sub(r"\1", text[1:-1])
    elif text in ("true", "false"):
        literal = text == "true"
    else:
        try:
            literal = float(text) if "." in text or "e" in text.lower() else int(text)
        except ValueError:
            raise JsonPathError(f"cannot understand the operand {text!r}") from None
    return lambda *_: iter((literal,))


# -- custom ------------------------------------------------------------------------------------------------------------

Cell = Callable[[Any, Since], Any]

BYTES_OF_CELL: Final = 150
"""Bytes of an object whose encoding takes as long as a cell: 1.5 µs."""
BYTES_OF_VISITS: Final = 1024 * 1024
"""The same for a path that may look at values several times: up to MOST_VISITS."""

_CREATED: Final = ".metadata.creationTimestamp"


_ABSENT: Final = object()
_NULL_TEXT: Final = "<no value>"
"""A null in a column of strings; in the others it leaves the cell empty, as missing data does."""


def _string(value: Any, since: Since) -> Any:
    if value is None:
        return _NULL_TEXT
    return go_json(value) if isinstance(value, dict | list) else plain_text(value)


def _integer(value: Any, since: Since) -> Any:
    return int(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _number(value: Any, since: Since) -> Any:
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def _boolean(value: Any, since: Since) -> Any:
    return value if isinstance(value, bool) else None


def _date(value: Any, since: Since) -> Any:
    return since(value) if isinstance(value, str) else None


_CELLS: Final[Mapping[str, Cell]] = {
    "string": _string,
    "integer": _integer,
    "number": _number,
    "boolean": _boolean,
    "date": _date,
}


def _column(column: Mapping[str, Any]) -> Column:
    path = column.get("jsonPath", "")
    description = column.get("description") or f"Custom resource definition column (in JSONPath format): {path}"
    return Column(
        column.get("name", ""),
        column.get("type", ""),
        text=description,
        priority=column.get("priority") or 0,
        format=column.get("format") or "",
    )


def _finder(path: str) -> Finder:
    try:
        return compile_path(path)
    except JsonPathError:
        # A path that validation accepted, but this module does not understand, shows nothing instead of failing lists.
        return lambda *_: iter(())


def custom_printer(columns: Sequence[Mapping[str, Any]]) -> Printer:
    """Return the printer of a custom resource with these ``additionalPrinterColumns``."""
    if not columns:
        columns = [
            {
                "name": AGE.name,
                "type": "date",
                "jsonPath": _CREATED,
                "description": field_description(AGE.field),
            }
        ]

    @cache
    def finders() -> list[tuple[Finder, Cell | None]]:  # with the first row, which may be made in a thread
        return [(_finder(column.get("jsonPath", "")), _CELLS.get(column.get("type", ""))) for column in columns]

    def cells(obj: ReadOnlyObject, since: Since) -> list[Any]:
        row: list[Any] = [name_of(obj)]
        visits = Visits()
        try:
            for find, cell in finders():
                value = next(find(obj, visits), _ABSENT)
                row.append(None if value is _ABSENT or cell is None else cell(value, since))
        except TooManyVisits:
            row += [None] * (1 + len(columns) - len(row))
        return row

    looks = [looks_further(column.get("jsonPath", "")) for column in columns]
    return Printer(
        (NAME, *map(_column, columns)),
        cells,
        row_bytes=BYTES_OF_CELL * len(columns) + (BYTES_OF_VISITS if max(looks) > 1 else 0),
        times=1 + sum(map(bool, looks)),
    )
