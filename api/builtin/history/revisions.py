"""Revision and ClusterRevision, one row per change; and Transaction, which makes several at once."""

from __future__ import annotations

from typing import Any, Final

from kubechronicle.api.builtin.common.cell_text import Since
from kubechronicle.api.builtin.common.kind import BuiltinKind
from kubechronicle.api.builtin.common.printer import Column, Printer, name_of, wide
from kubechronicle.api.history.cells import action_of, changed_cell, object_cell, user_cell
from kubechronicle.api.values.objects import ReadOnlyObject
from kubechronicle.api.values.printable import printable

_COLUMNS: Final = (
    Column("Revision", format="name", text="The revision of the change: its number in the log of all changes."),
    Column("Time", text="The time of the commit."),
    Column("Verb", text="The verb of the request."),
    Column("User", text="The user that sent the request."),
    Column("Object", text="The changed object."),
    Column("Changed", text="The changed fields, with their old and new values."),
    wide("Reason", "The reason of the change."),
    wide("Manager", "The field manager of the request."),
    wide("Agent", "The client that sent the request."),
    wide("Source", "The address that the request came from."),
    wide("Audit-ID", "The id of the request."),
)


def _cells(obj: ReadOnlyObject, since: Since) -> list[Any]:
    if "who" not in obj:  # a bookmark
        return [name_of(obj), *("" for _ in _COLUMNS[1:])]
    who, request = obj["who"], obj["request"]
    cells = (
        name_of(obj),
        obj["time"][:19] + "Z",
        action_of(obj),
        user_cell(obj),
        object_cell(obj),
        changed_cell(obj),
        obj.get("reason", ""),
        who.get("fieldManager", ""),
        who.get("userAgent", ""),
        who.get("sourceAddress", ""),
        request.get("auditID", ""),
    )
    return list(map(printable, cells))


_PRINTER: Final = Printer(_COLUMNS, _cells)


KINDS: Final = (
    BuiltinKind(resource="revisions.history.kubechronicle.dev", printer=_PRINTER),
    BuiltinKind(resource="clusterrevisions.history.kubechronicle.dev", printer=_PRINTER),
    BuiltinKind(resource="transactions.history.kubechronicle.dev"),
)
