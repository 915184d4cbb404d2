"""Read and ClusterRead, one row per recorded read; and ReadRecording, a time in which a server recorded them."""

from __future__ import annotations

from typing import Any, Final

from kubechronicle.api.builtin.common.cell_text import Since
from kubechronicle.api.builtin.common.kind import BuiltinKind
from kubechronicle.api.builtin.common.printer import Column, Printer, name_of, wide
from kubechronicle.api.history.reads import read_cell
from kubechronicle.api.values.objects import ReadOnlyObject
from kubechronicle.api.values.printable import printable

_COLUMNS: Final = (
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


_PRINTER: Final = Printer(_COLUMNS, _read_cells)


KINDS: Final = (
    BuiltinKind(resource="reads.history.kubechronicle.dev", printer=_PRINTER),
    BuiltinKind(resource="clusterreads.history.kubechronicle.dev", printer=_PRINTER),
    BuiltinKind(
        resource="readrecordings.history.kubechronicle.dev", printer=Printer(_RECORDING_COLUMNS, _recording_cells)
    ),
)
