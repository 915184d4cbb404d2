"""Revision and ClusterRevision, one row per change; and Transaction, which makes several at once.

Tag: a name for a moment of history, which never comes to name another one.

Branch, and BranchChange: the difference between a branch and its base.

Read and ClusterRead, one row per recorded read; and ReadRecording, a time in which a server recorded them.

AccessRecord: a refused request, a session with a container, or an issued token (http/audit/accesses.py).
"""

from __future__ import annotations

from typing import Any, Final

from kubechronicle.api.builtin.common.cell_text import Since
from kubechronicle.api.builtin.common.checks import immutable
from kubechronicle.api.builtin.common.kind import BuiltinKind
from kubechronicle.api.builtin.common.printer import AGE, NAME, Column, Printer, age_of, name_of, wide
from kubechronicle.api.errors.field_errors import Cause, invalid_value
from kubechronicle.api.history import branches
from kubechronicle.api.history.accesses import about
from kubechronicle.api.history.branches import base_of
from kubechronicle.api.history.cells import action_of, changed_cell, object_cell, user_cell
from kubechronicle.api.history.reads import read_cell
from kubechronicle.api.history.reasons import parse_reason
from kubechronicle.api.strategy.strategy import Check, Requester, Strategy
from kubechronicle.api.values.objects import Object, ReadOnlyObject
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


REVISIONS: Final = (
    BuiltinKind(resource="revisions.history.kubechronicle.dev", printer=_PRINTER),
    BuiltinKind(resource="clusterrevisions.history.kubechronicle.dev", printer=_PRINTER),
    BuiltinKind(resource="transactions.history.kubechronicle.dev"),
)


def record_creator(new: Object, requester: Requester) -> None:
    """Set the user to the authenticated one."""
    spec = new.setdefault("spec", {})
    spec.pop("user", None)
    if requester.user:
        spec["user"] = requester.user


def keep_omitted(new: Object, old: Object) -> None:
    """Keep the fields that the request omits: its sender may know only those that it set."""
    new["spec"] = {**old["spec"], **(new.get("spec") or {})}


def validate_tag(obj: Object) -> list[Cause]:
    """Check the reason. The server itself has set the rest (actors/history/tags.py)."""
    reason = obj["spec"].get("reason", "")
    try:
        parse_reason(reason)
    except ValueError as error:
        return [invalid_value("spec.reason", reason, error)]
    return []


def validate_tag_update(new: Object, old: Object) -> list[Cause]:
    """Reject another moment: a name that meant one state of the cluster must not come to mean another one."""
    return immutable("spec", new["spec"], old["spec"])


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


TAG: Final = BuiltinKind(
    resource="tags.history.kubechronicle.dev",
    strategy=Strategy(
        update_checks=(Check.METADATA_CHANGE, Check.CHANGE),
        status=False,
        requested=record_creator,
        prepare_update=keep_omitted,
        validate=validate_tag,
        validate_update=validate_tag_update,
    ),
    printer=Printer(_TAG_COLUMNS, _tag_cells),
)


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


BRANCHES: Final = (
    BuiltinKind(
        resource="branches.history.kubechronicle.dev",
        strategy=Strategy(
            status=False,
            update_checks=(Check.METADATA_CHANGE, Check.CHANGE),
            validate=branches.validate,
            validate_update=branches.validate_update,
        ),
        printer=Printer(
            (NAME, Column("Base", "integer", text="The revision at which the branch begins."), AGE), _branch_cells
        ),
    ),
    BuiltinKind(resource="branchchanges.history.kubechronicle.dev", printer=Printer(_CHANGE_COLUMNS, _change_cells)),
)


_READS_COLUMNS: Final = (
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


_READS_PRINTER: Final = Printer(_READS_COLUMNS, _read_cells)


READS: Final = (
    BuiltinKind(resource="reads.history.kubechronicle.dev", printer=_READS_PRINTER),
    BuiltinKind(resource="clusterreads.history.kubechronicle.dev", printer=_READS_PRINTER),
    BuiltinKind(
        resource="readrecordings.history.kubechronicle.dev", printer=Printer(_RECORDING_COLUMNS, _recording_cells)
    ),
)


_ACCESSRECORD_COLUMNS: Final = (
    NAME,
    Column("Type", text="Denied, Session, Token or Recording."),
    Column("User", text="The user."),
    Column("Access", text="The request, and its object."),
    Column("Time", text="The time of the request, or of the first of several."),
    AGE,
)


def _accessrecord_cells(obj: ReadOnlyObject, since: Since) -> list[Any]:
    spec = obj.get("spec") or {}
    texts = [spec.get("type", ""), spec.get("user", ""), about(spec), spec.get("first") or spec.get("began", "")]
    return [name_of(obj), *map(printable, texts), age_of(obj, since)]


ACCESSRECORD: Final = BuiltinKind(
    resource="accessrecords.history.kubechronicle.dev",
    strategy=Strategy(status=False, update_checks=(Check.METADATA_CHANGE, Check.CHANGE)),
    printer=Printer(_ACCESSRECORD_COLUMNS, _accessrecord_cells),
)

KINDS: Final = (
    *REVISIONS,
    TAG,
    *BRANCHES,
    *READS,
    ACCESSRECORD,
)
