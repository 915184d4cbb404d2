"""EvictionRequest: the wish of a requester that a pod leaves its node (KEP-4563).

Source: Kubernetes' ``registry/lifecycle/evictionrequest``, ``apis/lifecycle`` and ``pkg/printers/internalversion``. The
rules of the spec are tags of its fields.
"""

from __future__ import annotations

from typing import Any, Final

from kubechronicle.api.builtin.common.cell_text import Since, condition
from kubechronicle.api.builtin.common.checks import conditions
from kubechronicle.api.builtin.common.kind import BuiltinKind, only_status
from kubechronicle.api.builtin.common.printer import AGE, NAME, Printer, age_of, at, field_column, name_of
from kubechronicle.api.errors.field_errors import Cause
from kubechronicle.api.strategy.strategy import Check, Strategy
from kubechronicle.api.values.names import any_name
from kubechronicle.api.values.objects import Object, ReadOnlyObject

EVICTED: Final = "TargetEvicted"
FAILED: Final = "Failed"
"""The conditions that end an eviction."""
UNSET: Final = "<unset>"
_SPEC: Final = "lifecycle.v1alpha1.EvictionRequestSpec"


def _status(new: Object, _: Object) -> list[Cause]:
    return conditions((new.get("status") or {}).get("conditions") or [], "status.conditions")


def target_cells(obj: ReadOnlyObject) -> list[str]:
    """Return the cells of the target: its name and its type."""
    pod = at(obj, "spec", "target", "pod")
    return [UNSET, UNSET] if pod is None else [pod.get("name", ""), "Pod"]


def state_cell(obj: ReadOnlyObject) -> str:
    """Return the cell of the status: "Pending", "Progressing", or the condition that ends it with its reason."""
    status = obj.get("status") or {}
    for kind in (EVICTED, FAILED):
        found = condition(status.get("conditions"), kind)
        if found is not None and found.get("status") == "True":
            return f"{kind} ({found.get('reason', '')})"
    return "Progressing" if (status.get("observedGeneration") or 0) > 0 else "Pending"


def _cells(obj: ReadOnlyObject, since: Since) -> list[Any]:
    given = [at(obj, "spec", name, default="") for name in ("requester", "intent")]
    return [name_of(obj), *target_cells(obj), state_cell(obj), *given, age_of(obj, since)]


KIND: Final = BuiltinKind(
    resource="evictionrequests.lifecycle.k8s.io",
    strategy=Strategy(
        check_name=any_name,  # a tag has the rule
        generation=True,
        unconditional_update=False,
        update_checks=(Check.METADATA_CHANGE,),
        subresources=only_status(_status),
    ),
    printer=Printer(
        (
            NAME,
            field_column("Target", f"{_SPEC}.target"),
            field_column("Target Type", f"{_SPEC}.target"),
            field_column("Status", "lifecycle.v1alpha1.EvictionRequestStatus.conditions"),
            field_column("Requester", f"{_SPEC}.requester"),
            field_column("Intent", f"{_SPEC}.intent"),
            AGE,
        ),
        _cells,
    ),
)
