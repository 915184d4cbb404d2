"""ResourceSlice: the devices of a driver on a node. Its validation stands in slice_validation.py.

Source: Kubernetes' ``registry/resource/resourceslice``, ``apis/resource`` and ``pkg/printers/internalversion``.
"""

from __future__ import annotations

from functools import partial
from typing import Any, Final

from kubechronicle.api.builtin.common.cell_text import Since
from kubechronicle.api.builtin.common.kind import BuiltinKind
from kubechronicle.api.builtin.common.printer import AGE, NAME, Printer, age_of, at, field_column, name_of
from kubechronicle.api.builtin.resource import slice_validation, v1beta1
from kubechronicle.api.errors.field_errors import go_quote
from kubechronicle.api.schema.equality import same_json
from kubechronicle.api.strategy.gated_fields import GatedField
from kubechronicle.api.strategy.strategy import Check, Strategy
from kubechronicle.api.values.objects import Object, ReadOnlyObject


def prepare_slice_update(new: Object, old: Object) -> None:
    """Count changes of the spec in the generation, those of disabled fields included, which are dropped next."""
    if not same_json(new["spec"], old["spec"]):
        new["metadata"]["generation"] = old["metadata"].get("generation", 0) + 1


def default_taints(new: Object, now: str) -> None:
    """Set the time at which each taint was added, if it is missing."""
    for device in new["spec"].get("devices") or ():
        for taint in device.get("taints") or ():
            taint.setdefault("timeAdded", now)


def slice_warnings(new: Object, old: Object | None) -> list[str]:
    """Warn about a driver whose name has uppercase letters."""
    driver = new["spec"].get("driver", "")
    if driver == driver.lower():
        return []
    return [f"spec.driver: driver names should be lowercase; {go_quote(driver)} contains uppercase characters"]


def _cells(obj: ReadOnlyObject, since: Since) -> list[Any]:
    spec = obj.get("spec") or {}
    pool = at(spec, "pool", "name", default="")
    return [name_of(obj), spec.get("nodeName") or "", spec.get("driver") or "", pool, age_of(obj, since)]


_FIELDS: Final = (
    GatedField(gate="DRADeviceCompatibilityGroups", fields=("spec.devices[].consumesCounters[].compatibilityGroups",)),
    GatedField(gate="DRAOptionalNodeOperations", fields=("spec.skipNodeOperations",)),
    GatedField(gate="DRAPartitionableDevicesType", fields=("spec.partitionTypeAttribute",)),
    GatedField(gate="DRADeviceTaints", fields=("spec.devices[].taints",)),
    GatedField(
        gate="DRAPartitionableDevices",
        fields=(
            "spec.(sharedCounters|perDeviceNodeSelection)",
            "spec.devices[].(consumesCounters|nodeName|nodeSelector|allNodes)",
        ),
    ),
    GatedField(
        gate="DRADeviceBindingConditions",
        gates=("DRAResourceClaimDeviceStatus",),
        fields=("spec.devices[].(bindingConditions|bindingFailureConditions|bindsToNode)",),
    ),
    GatedField(
        gate="DRAConsumableCapacity",
        fields=("spec.devices[].allowMultipleAllocations", "spec.devices[].capacity{}.requestPolicy"),
    ),
    GatedField(
        gate="DRANodeAllocatableResources",
        fields=("spec.devices[].(nodeAllocatableResourceMappings|nodeAllocatableResources)",),
    ),
    GatedField(gate="DRAListTypeAttributes", fields=("spec.devices[].attributes{}.(ints|bools|strings|versions)",)),
)

KIND: Final = BuiltinKind(
    resource="resourceslices.resource.k8s.io",
    strategy=Strategy(
        empties=("spec.devices", "spec.sharedCounters"),
        update_checks=(Check.METADATA_CHANGE, Check.CHANGE),
        returns_deleted=True,
        status=False,
        generation=True,
        prepare_update=prepare_slice_update,
        defaults=default_taints,
        drops_last=True,
        validate=slice_validation.resource_slice,
        validate_update=slice_validation.resource_slice_update,
        with_gates={
            "DRAFractionalCapacityRange": {
                "validate": partial(slice_validation.resource_slice, fractional=True),
                "validate_update": partial(slice_validation.resource_slice_update, fractional=True),
            }
        },
        warnings=slice_warnings,
    ),
    gated_fields={
        "": _FIELDS,
    },
    printer=Printer(
        (
            NAME,
            field_column("Node", "resource.v1.ResourceSliceSpec.nodeName"),
            field_column("Driver", "resource.v1.ResourceSliceSpec.driver"),
            field_column("Pool", "resource.v1.ResourcePool.name"),
            AGE,
        ),
        _cells,
    ),
    converters=v1beta1.pair("ResourceSlice", v1beta1.slice_to_v1beta1, v1beta1.slice_to_v1),
)
