"""ResourcePoolStatusRequest: a question about the devices of pools that are in use (KEP-5677).

Source: ``registry/resource/resourcepoolstatusrequest``. The rules of its spec are tags of its fields.
"""

from __future__ import annotations

from typing import Any, Final

from kubechronicle.api.builtin.common.cell_text import Since
from kubechronicle.api.builtin.common.checks import conditions
from kubechronicle.api.builtin.common.go_shapes import record
from kubechronicle.api.builtin.common.kind import BuiltinKind, only_status
from kubechronicle.api.builtin.common.printer import NAME, Column, Printer, at, name_of
from kubechronicle.api.errors.field_errors import Cause, invalid_value
from kubechronicle.api.meta.metadata import IMMUTABLE
from kubechronicle.api.schema.equality import same_json
from kubechronicle.api.strategy.gated_fields import GatedField
from kubechronicle.api.strategy.strategy import Strategy
from kubechronicle.api.values.objects import Object, ReadOnlyObject

_ENDS: Final = ("Complete", "Failed")
_COUNTS: Final = ("totalDevices", "availableDevices", "allocatedDevices", "unavailableDevices")


def _status(new: Object, old: Object) -> list[Cause]:
    """Check the status, which is set once."""
    status, held = new.get("status"), old.get("status")
    if held is None:
        return conditions((status or {}).get("conditions") or [], "status.conditions")
    if status is not None and same_json(status, held):
        return []
    return [invalid_value("status", record(status, "ResourcePoolStatusRequestStatus"), IMMUTABLE)]


def _cells(obj: ReadOnlyObject, since: Since) -> list[Any]:
    pools, count = at(obj, "status", "pools", default=()), at(obj, "status", "poolCount", default=0)
    given = at(obj, "status", "conditions", default=())
    end = next((each for each in given if each.get("type") in _ENDS and each.get("status") == "True"), None)
    kind, sums = "Pending" if end is None else end.get("type"), ["-"] * (len(_COUNTS) + 1)
    if obj.get("status") is not None and kind != "Failed":
        wrong = sum(each.get("validationError") is not None for each in pools)
        sums = [str(sum(each.get(name) or 0 for each in pools)) for name in _COUNTS] + [str(wrong)]
    shown = f"Complete ({len(pools)}/{count} pools)" if kind == "Complete" and count > len(pools) else kind
    done = since(end.get("lastTransitionTime")) if end is not None and kind == "Complete" else "<none>"
    return [name_of(obj), at(obj, "spec", "driver", default=""), *sums, count, shown, done]


KIND: Final = BuiltinKind(
    resource="resourcepoolstatusrequests.resource.k8s.io",
    strategy=Strategy(unconditional_update=False, returns_deleted=True, subresources=only_status(_status)),
    printer=Printer(
        (
            NAME,
            Column("Driver", text="The driver to query pools for."),
            Column("Total", text="Total number of devices across all pools."),
            Column("Available", text="Number of available devices across all pools."),
            Column("Allocated", text="Number of allocated devices across all pools."),
            Column("Unavailable", text="Number of unavailable devices across all pools."),
            Column("Errors", text="Number of pools with validation errors."),
            Column("Pools", "integer", text="Total number of matching pools."),
            Column("Status", text="Processing status."),
            Column("Completed", text="Time since the observation completed."),
        ),
        _cells,
    ),
    gated_fields={
        "": (GatedField(gate="DRAPartitionableDevicesType", since=37, fields=("spec.defaultPartitionTypeAttribute",)),),
    },
)
