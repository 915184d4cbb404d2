"""CSINode: the volume drivers of a node.

Source: Kubernetes' ``registry/storage/csinode``, ``apis/storage`` and ``pkg/printers/internalversion``.
"""

from __future__ import annotations

from collections.abc import Collection
from functools import partial
from typing import Any, Final

from kubechronicle.api.builtin.common.cell_text import Since
from kubechronicle.api.builtin.common.checks import condition_reason, one_of, repeated, wrong
from kubechronicle.api.builtin.common.go_shapes import record
from kubechronicle.api.builtin.common.kind import BuiltinKind, only_status
from kubechronicle.api.builtin.common.printer import AGE, NAME, Printer, age_of, at, counted, name_of
from kubechronicle.api.builtin.common.volume_sources import csi_driver_name
from kubechronicle.api.errors.field_errors import (
    Cause,
    duplicate,
    invalid_value,
    not_supported,
    required,
    too_long,
    too_many,
)
from kubechronicle.api.kinds.reading import enum
from kubechronicle.api.strategy.gated_fields import GatedField
from kubechronicle.api.strategy.strategy import Check, Strategy
from kubechronicle.api.values import names
from kubechronicle.api.values.objects import Object, ReadOnlyObject


def validate_csi_node(obj: Object) -> list[Cause]:
    """Check the drivers of a CSINode: each occurs once, with its id of the node."""
    causes: list[Cause] = []
    seen: set[str] = set()
    for index, driver in enumerate(obj["spec"].get("drivers") or ()):
        path, name, node = f"spec.drivers[{index}]", driver.get("name", ""), driver.get("nodeID", "")
        causes += csi_driver_name(name, f"{path}.name")
        if not node:
            causes.append(required(f"{path}.nodeID", node))
        elif len(node.encode()) > 256:
            causes.append(invalid_value(f"{path}.nodeID", node, "must be 256 characters or less"))
        count = (driver.get("allocatable") or {}).get("count")
        if count is not None and count < 0:
            detail = "must be greater than or equal to 0"
            causes.append(invalid_value(f"{path}.allocatable.count", count, detail))
        if name in seen:
            causes.append(duplicate(f"{path}.name", name))
        seen.add(name)
        keys = driver.get("topologyKeys") or []
        for key, again in zip(keys, repeated(keys), strict=True):
            # Kubernetes names the driver here, not the key.
            if not key:
                causes.append(required(path))
            if again:
                causes.append(duplicate(path, key))
            causes += wrong(path, key, names.qualified_name(key))
    return causes


def validate_csi_node_update(new: Object, old: Object, mutable: Collection[str] = ("allocatable",)) -> list[Cause]:
    """Reject changes of a driver that stays on the node, except of its ``mutable`` fields."""
    causes: list[Cause] = []
    present: dict[str, list[Object]] = {}
    for driver in new["spec"].get("drivers") or ():
        present.setdefault(driver.get("name", ""), []).append(driver)
    for driver in old["spec"].get("drivers") or ():
        for now in present.get(driver.get("name", ""), ()):
            frozen = [{key: value for key, value in each.items() if key not in mutable} for each in (now, driver)]
            if frozen[0] != frozen[1]:
                shown = {**(record(frozen[0], "CSINodeDriver") or {}), "TopologyKeys": now.get("topologyKeys")}
                causes.append(invalid_value("spec.drivers", shown, "field is immutable"))
    return causes


# -- health of storage (KEP-5030) -------------------------------------------------------------------------------------

HEALTH: Final = ("StorageDegraded", "StorageUnreachable")
MAX_HEALTH_CONDITIONS: Final = 16
MAX_HEALTH_REASON: Final = 256
MAX_HEALTH_MESSAGE: Final = 1024


def validate_csi_node_status(new: Object, _: Object) -> list[Cause]:
    """Check the health of the storage that each driver tells."""
    causes, seen = list[Cause](), set[str]()
    for index, health in enumerate((new.get("status") or {}).get("storageHealth") or ()):
        path, name = f"status.storageHealth[{index}]", health.get("name", "")
        if name in seen:
            causes.append(duplicate(path, name))
        seen.add(name)
        causes += csi_driver_name(name, f"{path}.name")
        conditions, path = health.get("healthConditions") or [], f"{path}.healthConditions"
        if len(conditions) > MAX_HEALTH_CONDITIONS:
            causes.append(too_many(path, len(conditions), MAX_HEALTH_CONDITIONS))
            continue
        for place, condition in enumerate(conditions):
            causes += _health_condition(condition, f"{path}[{place}]")
    return causes


def _health_condition(condition: Object, path: str) -> list[Cause]:
    causes = one_of(condition.get("status", ""), HEALTH, f"{path}.status")
    causes += condition_reason(condition.get("reason", ""), f"{path}.reason", MAX_HEALTH_REASON)
    if len(condition.get("message", "").encode()) > MAX_HEALTH_MESSAGE:
        causes.append(too_long(f"{path}.message", MAX_HEALTH_MESSAGE))
    for name, choices in (
        ("accessMode", enum("core.v1.PersistentVolumeAccessMode")),
        ("volumeMode", enum("core.v1.PersistentVolumeMode")),
    ):
        if condition.get(name) is not None and condition[name] not in choices:
            causes.append(not_supported(f"{path}.{name}", condition[name], choices))
    return causes


def _cells(obj: ReadOnlyObject, since: Since) -> list[Any]:
    return [name_of(obj), len(at(obj, "spec", "drivers", default=())), age_of(obj, since)]


_NODE_HEALTH: Final = (GatedField(gate="CSIVolumeHealth", since=37, fields=("status.storageHealth",)),)

KIND: Final = BuiltinKind(
    resource="csinodes.storage.k8s.io",
    strategy=Strategy(
        update_checks=(Check.METADATA, Check.OBJECT, Check.CHANGE),
        returns_deleted=True,
        unconditional_update=False,
        validate=validate_csi_node,
        validate_update=validate_csi_node_update,
        subresources=only_status(validate_csi_node_status),
        without_gates={
            "MutableCSINodeAllocatableCount": {"validate_update": partial(validate_csi_node_update, mutable=())}
        },
    ),
    gated_fields={
        "": _NODE_HEALTH,
        "status": _NODE_HEALTH,
    },
    printer=Printer(
        (
            NAME,
            counted("Drivers", "Drivers indicates the number of CSI drivers registered on the node"),
            AGE,
        ),
        _cells,
    ),
)
