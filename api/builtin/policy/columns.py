"""Table columns of PodDisruptionBudgets. | Source: Kubernetes' ``pkg/printers/internalversion``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from kubechronicle.api.builtin.common.cell_text import Since
from kubechronicle.api.builtin.common.printer import AGE, NAME, Column, Printer, age_of, at, name_of
from kubechronicle.api.values.objects import ReadOnlyObject


def _disruption_budget(obj: ReadOnlyObject, since: Since) -> list[Any]:
    least, most = at(obj, "spec", "minAvailable"), at(obj, "spec", "maxUnavailable")
    return [
        name_of(obj),
        "N/A" if least is None else str(least),
        "N/A" if most is None else str(most),
        at(obj, "status", "disruptionsAllowed", default=0),
        age_of(obj, since),
    ]


PRINTERS: Final[Mapping[str, Printer]] = {
    "poddisruptionbudgets.policy": Printer(
        (
            NAME,
            Column("Min Available", text="The minimum number of pods that must be available."),
            Column("Max Unavailable", text="The maximum number of pods that may be unavailable."),
            Column(
                "Allowed Disruptions",
                "integer",
                text="Calculated number of pods that may be disrupted at this time.",
            ),
            AGE,
        ),
        _disruption_budget,
    ),
}
