"""Printers of custom resources: by the additional printer columns of their version, or by name and age.

Source: apiextensions-apiserver ``pkg/registry/customresource/tableconvertor``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any, Final

from kubechronicle.api.builtin.common.cell_text import Since
from kubechronicle.api.builtin.common.printer import AGE, NAME, Column, Printer, field_description, name_of
from kubechronicle.api.errors.field_errors import go_json
from kubechronicle.api.selectors.selectable_fields import text as plain_text
from kubechronicle.api.tables.json_path import (
    Finder,
    JsonPathError,
    TooManyVisits,
    Visits,
    compile_path,
    looks_further,
)
from kubechronicle.api.values.objects import ReadOnlyObject

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
