"""Branch, and BranchChange: the difference between a branch and its base."""

from __future__ import annotations

from typing import Any, Final

from kubechronicle.api.builtin.common.cell_text import Since
from kubechronicle.api.builtin.common.kind import BuiltinKind
from kubechronicle.api.builtin.common.printer import AGE, NAME, Column, Printer, age_of, name_of
from kubechronicle.api.history import branches
from kubechronicle.api.history.branches import base_of
from kubechronicle.api.strategy.strategy import Check, Strategy
from kubechronicle.api.values.objects import ReadOnlyObject
from kubechronicle.api.values.printable import printable


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


KINDS: Final = (
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
