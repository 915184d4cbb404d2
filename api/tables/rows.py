"""Cacheable rows: encoded JSON with gaps for ages, which are filled in for each answer.

A row depends only on the object, its printer and the time; and on the time only through the function ``since`` that the
printer calls. So rows are made with a ``since`` that marks the timestamp itself:

    [b'{"cells":["web-1","1/1","Running","3 (', b"2026-01-02T03:04:05Z", b' ago)","', b"2026-…", b'"],"object":…}']

JSON and timestamps alternate, from JSON to JSON.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Any, Final, TypeAlias

from kubechronicle.api.builtin.common.cell_text import ages_at
from kubechronicle.api.builtin.common.printer import Printer
from kubechronicle.api.codecs import json, unstructured
from kubechronicle.api.registry.registry import ResourceType
from kubechronicle.api.tables.table import INCLUDE_METADATA, META_V1, table_row
from kubechronicle.api.values.objects import ReadOnlyObject

Row: TypeAlias = tuple[bytes, ...]

MARK: Final = "\ud800"
"""Mark on both sides of a timestamp in a cell. No object contains half of a surrogate pair: it has no UTF-8."""


def _marked(text: str | None) -> str:
    return f"{MARK}{text}{MARK}" if text else "<unknown>"


def encoded_row(
    rt: ResourceType,
    obj: ReadOnlyObject,
    *,
    include_object: str = INCLUDE_METADATA,
    version: str = META_V1,
    served: ReadOnlyObject | None = None,
    printer: Printer | None = None,
) -> Row:
    """Return the row of an object (see ``table_row``), with gaps for ages."""
    made = table_row(
        rt, obj, since=_marked, include_object=include_object, version=version, served=served, printer=printer
    )
    encode = json.encode if rt.custom is None else unstructured.encode_typed
    cells: list[Any] = made.pop("cells")
    row: list[bytes] = []
    text, begin = b'{"cells":[', 0
    for index, cell in enumerate(cells):
        if cell.__class__ is str and MARK in cell:
            if begin < index:
                text += encode(cells[begin:index])[1:-1] + b","
            text = _with_gaps(row, text + b'"', cell) + (b'",' if index + 1 < len(cells) else b'"')
            begin = index + 1
    if begin < len(cells):
        text += encode(cells[begin:])[1:-1]
    row.append(b"%b],%b" % (text, encode(made)[1:]))
    return tuple(row)


def _with_gaps(row: list[bytes], text: bytes, cell: str) -> bytes:
    """Append the parts of a cell to the row, behind ``text``. Return the JSON behind its last gap."""
    for index, part in enumerate(cell.split(MARK)):
        if index % 2:
            row += (text, part.encode())
            text = b""
        elif part:
            text += json.encode(part)[1:-1]
    return text


def row_size(row: Row) -> int:
    """Return the approximate size of a cached row in bytes."""
    return sum(map(len, row)) + 50 * len(row)


def filler(now: datetime) -> Callable[[Iterable[Row]], list[bytes]]:
    """Return a function that fills in the ages of rows for the time ``now``."""
    since = ages_at(now)
    known: dict[bytes, bytes] = {}

    def age(moment: bytes) -> bytes:
        found = known[moment] = since(moment.decode()).encode()
        return found

    def several(row: Row) -> bytes:
        parts = list(row)
        parts[1::2] = [known.get(moment) or age(moment) for moment in row[1::2]]
        return b"".join(parts)

    def filled(rows: Iterable[Row]) -> list[bytes]:
        return [
            # Nearly every kind has one age.
            b"%b%b%b" % (row[0], known.get(row[1]) or age(row[1]), row[2]) if len(row) == 3 else several(row)
            for row in rows
        ]

    return filled
