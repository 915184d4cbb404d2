"""CSIDriver: the abilities of a volume driver.

Source: Kubernetes' ``registry/storage/csidriver``, ``apis/storage`` and ``pkg/printers/internalversion``.

CSINode: the volume drivers of a node.

Source: Kubernetes' ``registry/storage/csinode``, ``apis/storage`` and ``pkg/printers/internalversion``.

CSIStorageCapacity: the free storage of a class in a part of the cluster.

Source: Kubernetes' ``registry/storage/csistoragecapacity``, ``apis/storage`` and ``pkg/printers/internalversion``.
"""

from __future__ import annotations

from collections.abc import Collection
from functools import partial
from typing import Any, Final

from kubechronicle.api.builtin.common.cell_text import Since
from kubechronicle.api.builtin.common.checks import (
    condition_reason,
    dns_subdomain,
    immutable,
    label_selector,
    one_of,
    one_of_if_set,
    repeated,
    wrong,
)
from kubechronicle.api.builtin.common.go_shapes import record, selector
from kubechronicle.api.builtin.common.kind import BuiltinKind, only_status
from kubechronicle.api.builtin.common.printer import AGE, NAME, Printer, age_of, at, counted, field_column, name_of
from kubechronicle.api.builtin.common.scheduling import old_label_warnings
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
from kubechronicle.api.values import names, quantity
from kubechronicle.api.values.objects import Object, ReadOnlyObject


def prepare_csi_driver_update(new: Object, old: Object) -> None:
    """Count changes of the spec in the generation."""
    if new["spec"] != old["spec"]:
        new["metadata"]["generation"] = old["metadata"].get("generation", 0) + 1


def default_scheduling(new: Object, now: str) -> None:
    """Let pods be scheduled where the driver is missing."""
    new["spec"].setdefault("preventPodSchedulingIfMissing", False)


FS_GROUP_POLICIES: Final = ("File", "None", "ReadWriteOnceWithFSType")
LIFECYCLES: Final = ("Persistent", "Ephemeral")


def validate_csi_driver(obj: Object) -> list[Cause]:
    """Check the flags, token requests and volume modes of a CSIDriver."""
    spec = obj["spec"]
    flags = (("attachRequired", "attachedRequired"), ("podInfoOnMount",) * 2, ("storageCapacity",) * 2)
    causes = [required(f"spec.{shown}") for name, shown in flags if spec.get(name) is None]
    causes += one_of_if_set(spec.get("fsGroupPolicy"), FS_GROUP_POLICIES, "spec.fsGroupPolicy")
    seen: set[str] = set()
    for index, token in enumerate(spec.get("tokenRequests") or ()):
        path, audience = f"spec.tokenRequests[{index}]", token.get("audience", "")
        if audience in seen:
            causes.append(duplicate(f"{path}.audience", audience))
            continue
        seen.add(audience)
        seconds = token.get("expirationSeconds")
        if seconds is not None and seconds < 600:
            detail = "may not specify a duration less than 10 minutes"
            causes.append(invalid_value(f"{path}.expirationSeconds", seconds, detail))
        elif seconds is not None and seconds > 1 << 32:
            detail = "may not specify a duration larger than 2^32 seconds"
            causes.append(invalid_value(f"{path}.expirationSeconds", seconds, detail))
    for mode in spec.get("volumeLifecycleModes") or ():
        if mode not in LIFECYCLES:
            causes.append(not_supported("spec.volumeLifecycleModes", mode, LIFECYCLES))
    secret = spec.get("serviceAccountTokenInSecrets")
    if secret is not None and not spec.get("tokenRequests"):
        detail = "serviceAccountTokenInSecrets is set but no tokenRequests are specified"
        causes.append(invalid_value("spec.serviceAccountTokenInSecrets", secret, detail))
    period = spec.get("nodeAllocatableUpdatePeriodSeconds")
    if period is not None and period < 10:
        path = "spec.nodeAllocatableUpdatePeriodSeconds"
        causes.append(invalid_value(path, period, "must be greater than or equal to 10 seconds"))
    return causes


def validate_csi_driver_update(new: Object, old: Object) -> list[Cause]:
    """Reject a changed attachment flag or volume lifecycle mode."""
    spec, held = new["spec"], old["spec"]
    causes = immutable("spec.attachedRequired", spec.get("attachRequired"), held.get("attachRequired"))
    modes = "volumeLifecycleModes"
    return causes + immutable(f"spec.{modes}", spec.get(modes), held.get(modes))


_TOKENS_IN_SECRETS: Final = (
    "spec.serviceAccountTokenInSecrets is unset; if supported by this CSI driver, set to true to prevent possible "
    "logging of tokens in volume attributes"
)


def csi_driver_warnings(new: Object, old: Object | None) -> list[str]:
    """Return a warning if a driver newly requests tokens and doesn't say where it gets them."""
    spec, held = new["spec"], (old or {}).get("spec") or {}
    requests = spec.get("tokenRequests")
    if not requests or requests == held.get("tokenRequests") or spec.get("serviceAccountTokenInSecrets") is not None:
        return []
    return [_TOKENS_IN_SECRETS]


def _cells(obj: ReadOnlyObject, since: Since) -> list[Any]:
    spec = obj.get("spec") or {}
    requests = spec.get("tokenRequests")
    audiences = "<unset>" if requests is None else ",".join(request.get("audience", "") for request in requests)
    return [
        name_of(obj),
        spec.get("attachRequired") is not False,
        bool(spec.get("podInfoOnMount")),
        bool(spec.get("storageCapacity")),
        audiences,
        bool(spec.get("requiresRepublish")),
        ",".join(spec.get("volumeLifecycleModes") or ()) or "<none>",
        age_of(obj, since),
    ]


_DRIVER: Final = "storage.v1.CSIDriverSpec"


CSIDRIVER: Final = BuiltinKind(
    resource="csidrivers.storage.k8s.io",
    strategy=Strategy(
        update_checks=(Check.METADATA_CHANGE, Check.OBJECT, Check.CHANGE),
        returns_deleted=True,
        status=False,
        unconditional_update=False,
        prepare_update=prepare_csi_driver_update,
        without_gates={"CSIServiceAccountTokenSecrets": {"warnings": None}},
        with_gates={"VolumeLimitScaling": {"defaults": default_scheduling}},
        validate=validate_csi_driver,
        validate_update=validate_csi_driver_update,
        warnings=csi_driver_warnings,
    ),
    gated_fields={
        "": (
            GatedField(gate="SELinuxMountReadWriteOncePod", fields=("spec.seLinuxMount",)),
            GatedField(gate="MutableCSINodeAllocatableCount", fields=("spec.nodeAllocatableUpdatePeriodSeconds",)),
            GatedField(gate="CSIServiceAccountTokenSecrets", fields=("spec.serviceAccountTokenInSecrets",)),
            GatedField(gate="VolumeLimitScaling", fields=("spec.preventPodSchedulingIfMissing",)),
        ),
    },
    default_values={
        "storage.v1.CSIDriverSpec": {
            "attachRequired": True,
            "podInfoOnMount": False,
            "storageCapacity": False,
            "fsGroupPolicy": "ReadWriteOnceWithFSType",
            "volumeLifecycleModes": ["Persistent"],
            "requiresRepublish": False,
            "seLinuxMount": False,
        }
    },
    printer=Printer(
        (
            NAME,
            field_column("AttachRequired", f"{_DRIVER}.attachRequired", "boolean"),
            field_column("PodInfoOnMount", f"{_DRIVER}.podInfoOnMount", "boolean"),
            field_column("StorageCapacity", f"{_DRIVER}.storageCapacity", "boolean"),
            field_column("TokenRequests", f"{_DRIVER}.tokenRequests"),
            field_column("RequiresRepublish", f"{_DRIVER}.requiresRepublish", "boolean"),
            field_column("Modes", f"{_DRIVER}.volumeLifecycleModes"),
            AGE,
        ),
        _cells,
    ),
)


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


def _csinode_cells(obj: ReadOnlyObject, since: Since) -> list[Any]:
    return [name_of(obj), len(at(obj, "spec", "drivers", default=())), age_of(obj, since)]


_NODE_HEALTH: Final = (GatedField(gate="CSIVolumeHealth", since=37, fields=("status.storageHealth",)),)

CSINODE: Final = BuiltinKind(
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
        _csinode_cells,
    ),
)


def validate_storage_capacity(obj: Object) -> list[Cause]:
    """Check the topology, class and capacity of a CSIStorageCapacity."""
    causes = label_selector(obj.get("nodeTopology"), "nodeTopology")
    causes += dns_subdomain(obj.get("storageClassName", ""), "storageClassName")
    given = obj.get("capacity")
    if given is not None and quantity.value_of(given) < 0:
        causes.append(invalid_value("capacity", given, "must be greater than or equal to 0"))
    return causes


def validate_storage_capacity_update(new: Object, old: Object) -> list[Cause]:
    """Reject a changed topology or class."""
    topologies = [selector(each.get("nodeTopology")) for each in (new, old)]
    causes = immutable("nodeTopology", *topologies)
    return causes + immutable("storageClassName", new.get("storageClassName"), old.get("storageClassName"))


def storage_capacity_warnings(new: Object, old: Object | None) -> list[str]:
    """Return warnings about old labels in the node topology."""
    topology, warnings = new.get("nodeTopology") or {}, list[str]()
    for index, expression in enumerate(topology.get("matchExpressions") or ()):
        warnings += old_label_warnings(expression.get("key", ""), f"nodeTopology.matchExpressions[{index}].key")
    for label in topology.get("matchLabels") or ():
        warnings += old_label_warnings(label, f"nodeTopology.matchLabels.{label}")
    return warnings


CSISTORAGECAPACITY: Final = BuiltinKind(
    resource="csistoragecapacities.storage.k8s.io",
    strategy=Strategy(
        update_checks=(Check.METADATA, Check.OBJECT, Check.METADATA_CHANGE, Check.CHANGE),
        status=False,
        unconditional_update=False,
        validate=validate_storage_capacity,
        validate_update=validate_storage_capacity_update,
        warnings=storage_capacity_warnings,
    ),
)

KINDS: Final = (
    CSIDRIVER,
    CSINODE,
    CSISTORAGECAPACITY,
)
