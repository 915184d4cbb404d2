"""AccessRecord: a refused request, a session with a container, or an issued token (http/audit/accesses.py)."""

from __future__ import annotations

from typing import Any, Final

from kubechronicle.api.builtin.common.cell_text import Since
from kubechronicle.api.builtin.common.kind import BuiltinKind
from kubechronicle.api.builtin.common.printer import AGE, NAME, Column, Printer, age_of, name_of
from kubechronicle.api.history.accesses import about
from kubechronicle.api.strategy.strategy import Check, Strategy
from kubechronicle.api.values.objects import ReadOnlyObject
from kubechronicle.api.values.printable import printable

_COLUMNS: Final = (
    NAME,
    Column("Type", text="Denied, Session, Token or Recording."),
    Column("User", text="The user."),
    Column("Access", text="The request, and its object."),
    Column("Time", text="The time of the request, or of the first of several."),
    AGE,
)


def _cells(obj: ReadOnlyObject, since: Since) -> list[Any]:
    spec = obj.get("spec") or {}
    texts = [spec.get("type", ""), spec.get("user", ""), about(spec), spec.get("first") or spec.get("began", "")]
    return [name_of(obj), *map(printable, texts), age_of(obj, since)]


KIND: Final = BuiltinKind(
    resource="accessrecords.history.kubechronicle.dev",
    strategy=Strategy(status=False, update_checks=(Check.METADATA_CHANGE, Check.CHANGE)),
    printer=Printer(_COLUMNS, _cells),
)
