"""Table columns of revisions: one row per change."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from kubechronicle.api.builtin.common.cell_text import Since
from kubechronicle.api.builtin.common.printer import AGE, NAME, Column, Printer, age_of, name_of, wide
from kubechronicle.api.history.branches import base_of
from kubechronicle.api.history.cells import action_of, changed_cell, object_cell, user_cell
from kubechronicle.api.history.reads import read_cell
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

_READ_COLUMNS: Final = (
    Column("Time", format="name", text="The time of the request."),
    Column("Verb", text="The verb of the request."),
    Column("User", text="The user that sent the request."),
    Column("Object", text="The object that was read; without a name, all of its kind."),
    Column("Form", text="Whole objects, their metadata or a table; or a write that changed nothing."),
    Column("Source", text="The address that the request came from."),
    wide("Agent", "The client that sent the request."),
    wide("Revision", "The newest revision that the server had applied."),
    wide("Audit-ID", "The id of the request."),
)


def _read_cells(obj: ReadOnlyObject, since: Since) -> list[Any]:
    who, request = obj["who"], obj["request"]
    cells = (
        obj["time"][:23] + "Z",
        obj["verb"],
        who.get("username", ""),
        read_cell(obj),
        obj["form"],
        who.get("sourceAddress", ""),
        who.get("userAgent", ""),
        obj["revision"],
        request.get("auditID", ""),
    )
    return list(map(printable, cells))


_RECORDING_COLUMNS: Final = (
    Column("Name", format="name", text="The id of the recording."),
    Column("Server", text="The server that recorded reads."),
    Column("Since", text="Its beginning."),
    Column("Until", text="The last time at which it was known to go on."),
    Column("Lost", "integer", text="The reads that were lost."),
    Column("Clean", "boolean", text="The server ended it in order."),
)


def _recording_cells(obj: ReadOnlyObject, since: Since) -> list[Any]:
    return [name_of(obj), printable(obj["server"]), obj["since"][:19] + "Z", obj["until"][:19] + "Z", obj["lost"],
            obj["clean"]]  # fmt: skip


_TAG_COLUMNS: Final = (
    NAME,
    Column("Revision", text="The revision that the tag names."),
    Column("Time", text="The moment in time."),
    Column("User", text="The user that created the tag."),
    Column("Reason", text="The reason for the tag."),
    AGE,
)


def _tag_cells(obj: ReadOnlyObject, since: Since) -> list[Any]:
    spec = obj.get("spec") or {}
    texts = [spec.get("revision", ""), spec.get("time", "")[:19] + "Z", spec.get("user", ""), spec.get("reason", "")]
    return [name_of(obj), *map(printable, texts), age_of(obj, since)]


_READ_PRINTER: Final = Printer(_READ_COLUMNS, _read_cells)


def _branch_cells(obj: ReadOnlyObject, since: Since) -> list[Any]:
    return [name_of(obj), base_of(obj), age_of(obj, since)]


_CHANGE_COLUMNS: Final = (
    Column("Revision", format="name", text="The revision of the last change in the branch."),
    Column("Operation", text="The difference between the two states."),
    Column("Object", text="The object."),
    Column("User", text="The user of the last change in the branch."),
)


def _change_cells(obj: ReadOnlyObject, since: Since) -> list[Any]:
    of = obj["object"]
    name = "/".join(filter(None, (of["resource"], of.get("namespace"), of["name"])))
    return list(map(printable, (name_of(obj), obj["operation"], name, obj["username"])))


PRINTERS: Final[Mapping[str, Printer]] = {
    "branches.history.kubechronicle.dev": Printer(
        (NAME, Column("Base", "integer", text="The revision at which the branch begins."), AGE), _branch_cells
    ),
    "branchchanges.history.kubechronicle.dev": Printer(_CHANGE_COLUMNS, _change_cells),
    "revisions.history.kubechronicle.dev": _PRINTER,
    "clusterrevisions.history.kubechronicle.dev": _PRINTER,
    "reads.history.kubechronicle.dev": _READ_PRINTER,
    "clusterreads.history.kubechronicle.dev": _READ_PRINTER,
    "tags.history.kubechronicle.dev": Printer(_TAG_COLUMNS, _tag_cells),
    "readrecordings.history.kubechronicle.dev": Printer(_RECORDING_COLUMNS, _recording_cells),
}
