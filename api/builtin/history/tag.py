"""Tag: a name for a moment of history, which never comes to name another one."""

from __future__ import annotations

from typing import Any, Final

from kubechronicle.api.builtin.common.cell_text import Since
from kubechronicle.api.builtin.common.checks import immutable
from kubechronicle.api.builtin.common.kind import BuiltinKind
from kubechronicle.api.builtin.common.printer import AGE, NAME, Column, Printer, age_of, name_of
from kubechronicle.api.errors.field_errors import Cause, invalid_value
from kubechronicle.api.history.reasons import parse_reason
from kubechronicle.api.strategy.strategy import Check, Strategy
from kubechronicle.api.strategy.write_context import Requester
from kubechronicle.api.values.objects import Object, ReadOnlyObject
from kubechronicle.api.values.printable import printable


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


_COLUMNS: Final = (
    NAME,
    Column("Revision", text="The revision that the tag names."),
    Column("Time", text="The moment in time."),
    Column("User", text="The user that created the tag."),
    Column("Reason", text="The reason for the tag."),
    AGE,
)


def _cells(obj: ReadOnlyObject, since: Since) -> list[Any]:
    spec = obj.get("spec") or {}
    texts = [spec.get("revision", ""), spec.get("time", "")[:19] + "Z", spec.get("user", ""), spec.get("reason", "")]
    return [name_of(obj), *map(printable, texts), age_of(obj, since)]


KIND: Final = BuiltinKind(
    resource="tags.history.kubechronicle.dev",
    strategy=Strategy(
        update_checks=(Check.METADATA_CHANGE, Check.CHANGE),
        status=False,
        requested=record_creator,
        prepare_update=keep_omitted,
        validate=validate_tag,
        validate_update=validate_tag_update,
    ),
    printer=Printer(_COLUMNS, _cells),
)
