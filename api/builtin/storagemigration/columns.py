"""Table columns of StorageVersionMigrations. | Source: Kubernetes' ``pkg/printers/internalversion``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from kubechronicle.api.builtin.common.cell_text import Since
from kubechronicle.api.builtin.common.printer import Column, Printer, at, name_of
from kubechronicle.api.values.objects import ReadOnlyObject

_SHOWN: Final = ("Running", "Failed", "Succeeded")


def _migration(obj: ReadOnlyObject, _: Since) -> list[Any]:
    resource, group = (at(obj, "spec", "resource", name, default="") for name in ("resource", "group"))
    true = [one.get("type") for one in at(obj, "status", "conditions", default=()) if one.get("status") == "True"]
    state = next((kind for kind in reversed(true) if kind in _SHOWN), "Unknown")
    return [name_of(obj), f"{resource}.{group}" if group else resource, state]


PRINTERS: Final[Mapping[str, Printer]] = {
    "storageversionmigrations.storagemigration.k8s.io": Printer(
        (
            Column("Name", field="ObjectMeta.name"),
            Column("Resource", text="GroupResource to migrate"),
            Column("Status", text="Status of the migration"),
        ),
        _migration,
    ),
}
