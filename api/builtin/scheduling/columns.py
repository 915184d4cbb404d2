"""Table columns of PriorityClasses. | Source: Kubernetes' ``pkg/printers/internalversion``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from kubechronicle.api.builtin.common.cell_text import Since
from kubechronicle.api.builtin.common.printer import AGE, NAME, Printer, age_of, field, name_of
from kubechronicle.api.values.objects import ReadOnlyObject


def _priority_class(obj: ReadOnlyObject, since: Since) -> list[Any]:
    return [
        name_of(obj),
        obj.get("value") or 0,
        bool(obj.get("globalDefault")),
        age_of(obj, since),
        obj.get("preemptionPolicy") or "",
    ]


PRINTERS: Final[Mapping[str, Printer]] = {
    "priorityclasses.scheduling.k8s.io": Printer(
        (
            NAME,
            field("Value", "scheduling.v1.PriorityClass.value", "integer"),
            field("Global-Default", "scheduling.v1.PriorityClass.globalDefault", "boolean"),
            AGE,
            field("PreemptionPolicy", "scheduling.v1.PriorityClass.preemptionPolicy"),
        ),
        _priority_class,
    ),
}
