"""Table columns of ResourceClaims and ResourceClaimTemplates.

Source: Kubernetes' ``pkg/printers/internalversion``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from kubechronicle.api.builtin.common.cell_text import Since
from kubechronicle.api.builtin.common.printer import AGE, NAME, Column, Printer, age_of, aged, at, name_of
from kubechronicle.api.values.objects import ReadOnlyObject


def _claim_state(obj: ReadOnlyObject) -> str:
    deleted = bool(obj["metadata"].get("deletionTimestamp"))
    states = ["deleted"] if deleted else []
    if at(obj, "status", "allocation") is None:
        states += [] if deleted else ["pending"]
    else:
        states += ["allocated", *(["reserved"] if at(obj, "status", "reservedFor") else [])]
    return ",".join(states)


def _resource_claim(obj: ReadOnlyObject, since: Since) -> list[Any]:
    return [name_of(obj), _claim_state(obj), age_of(obj, since)]


PRINTERS: Final[Mapping[str, Printer]] = {
    "resourceclaimtemplates.resource.k8s.io": Printer((NAME, AGE), aged),
    "resourceclaims.resource.k8s.io": Printer(
        (
            NAME,
            Column("State", text="A summary of the current state (allocated, pending, reserved, etc.)."),
            AGE,
        ),
        _resource_claim,
    ),
}
