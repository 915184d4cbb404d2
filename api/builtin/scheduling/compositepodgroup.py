"""CompositePodGroup: groups of pods that are scheduled together (KEP-6012).

Source: Kubernetes' ``registry/scheduling/compositepodgroup``, ``apis/scheduling`` and
``pkg/printers/internalversion``. The rules of its spec are those of its tags.
"""

from __future__ import annotations

from typing import Any, Final

from kubechronicle.api.builtin.common.cell_text import Since
from kubechronicle.api.builtin.common.checks import conditions
from kubechronicle.api.builtin.common.kind import BuiltinKind, only_status
from kubechronicle.api.builtin.common.printer import AGE, NAME, Printer, age_of, field_column, name_of
from kubechronicle.api.builtin.scheduling.podgroup import WORKLOAD, default_preemption, policy_of, workload_of
from kubechronicle.api.errors.field_errors import Cause
from kubechronicle.api.strategy.gated_fields import GatedField
from kubechronicle.api.strategy.strategy import Check, Strategy
from kubechronicle.api.values.objects import Object, ReadOnlyObject


def _status(new: Object, _: Object) -> list[Cause]:
    return conditions((new.get("status") or {}).get("conditions") or (), "status.conditions")


def _cells(obj: ReadOnlyObject, since: Since) -> list[Any]:
    return [name_of(obj), policy_of(obj), workload_of(obj), age_of(obj, since)]


KIND: Final = BuiltinKind(
    resource="compositepodgroups.scheduling.k8s.io",
    strategy=Strategy(
        unconditional_update=False,
        update_checks=(Check.METADATA_CHANGE,),
        with_gates={"PodGroupPreemptionPolicy": {"defaults": default_preemption}},
        subresources=only_status(_status),
    ),
    gated_fields={"": (GatedField(gate="PodGroupPreemptionPolicy", fields=("spec.preemptionPolicy",)),)},
    printer=Printer(
        (
            NAME,
            field_column("Policy", "scheduling.v1alpha3.CompositePodGroupSpec.schedulingPolicy"),
            WORKLOAD,
            AGE,
        ),
        _cells,
    ),
)
