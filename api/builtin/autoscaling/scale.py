"""The table of Scale, the body of the scale subresource of many kinds.

Source: Kubernetes' ``pkg/printers/internalversion``, and ``tableconvertor`` of apiextensions-apiserver.
"""

from __future__ import annotations

from typing import Any, Final

from kubechronicle.api.builtin.common.cell_text import Since
from kubechronicle.api.builtin.common.printer import AGE, NAME, Column, Printer, age_of, at, field_column, name_of
from kubechronicle.api.values.objects import ReadOnlyObject


def _cells(obj: ReadOnlyObject, since: Since) -> list[Any]:
    desired, available = at(obj, "spec", "replicas", default=0), at(obj, "status", "replicas", default=0)
    return [name_of(obj), desired, available, age_of(obj, since)]


def _custom_cells(obj: ReadOnlyObject, since: Since) -> list[Any]:
    name, desired, *others = _cells(obj, since)
    return [name, desired if "replicas" in obj.get("spec", {}) else None, *others]


SCALE: Final = Printer(
    (
        Column("Name", field="ObjectMeta.name"),
        field_column("Desired", "autoscaling.v1.ScaleSpec.replicas", "integer"),
        field_column("Available", "autoscaling.v1.ScaleStatus.replicas", "integer"),
        AGE,
    ),
    _cells,
)
"""Columns of the scale subresource, the same for every built-in kind that scales."""

CUSTOM_SCALE: Final = Printer(
    (
        NAME,
        Column("Desired", "integer", text="Number of desired replicas"),
        Column("Available", "integer", text="Number of actual replicas"),
        Column(AGE.name, "date", field=AGE.field),
    ),
    _custom_cells,
)
"""Columns of the scale subresource of custom resources (apiextensions-apiserver ``pkg/apiserver``)."""
