"""ComponentStatus: the health of a component, which is answered but never stored.

Source: Kubernetes' ``pkg/printers/internalversion``.
"""

from __future__ import annotations

from typing import Any, Final

from kubechronicle.api.builtin.common.cell_text import Since, condition
from kubechronicle.api.builtin.common.kind import BuiltinKind
from kubechronicle.api.builtin.common.printer import NAME, Column, Printer, name_of
from kubechronicle.api.values.objects import ReadOnlyObject


def _cells(obj: ReadOnlyObject, since: Since) -> list[Any]:
    healthy = condition(obj.get("conditions"), "Healthy")
    if healthy is None:
        return [name_of(obj), "Unknown", "", ""]
    word = "Healthy" if healthy.get("status") == "True" else "Unhealthy"
    return [name_of(obj), word, healthy.get("message") or "", healthy.get("error") or ""]


KIND: Final = BuiltinKind(
    resource="componentstatuses",
    printer=Printer(
        (
            NAME,
            Column("Status", text="Status of the component conditions"),
            Column("Message", text="Message of the component conditions"),
            Column("Error", text="Error of the component conditions"),
        ),
        _cells,
    ),
)
