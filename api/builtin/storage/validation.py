"""Validation of the kinds of storage.k8s.io."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from typing import Any, Final

from kubechronicle.api.builtin.common.checks import (
    MAX_INT32,
    dns_subdomain,
    immutable,
    label_selector,
    missing,
    one_of_if_set,
    qualified_name,
    repeated,
    sorted_labels,
    unique,
    wrong,
)
from kubechronicle.api.builtin.common.go_shapes import record, selector, shape
from kubechronicle.api.builtin.common.volume_sources import csi_driver_name, one_source
from kubechronicle.api.builtin.core.persistentvolume import MAY_STAND_BESIDE, PERSISTENT_SOURCES
from kubechronicle.api.builtin.core.persistentvolumeclaim import access_modes
from kubechronicle.api.errors.field_errors import (
    Cause,
    duplicate,
    forbidden,
    invalid_value,
    not_supported,
    required,
    too_long,
)
from kubechronicle.api.meta.metadata import IMMUTABLE
from kubechronicle.api.values import names, quantity
from kubechronicle.api.values.objects import Object

# -- classes ----------------------------------------------------------------------------------------------------------

MAX_PARAMETERS: Final = 512
MAX_PARAMETERS_SIZE: Final = 256 * 1024
MAX_REPEATED: Final = 100
"""Causes for one topology that occurs before: Kubernetes has one for each earlier occurrence, without a limit."""


def _parameters(parameters: Mapping[str, str], field: str, *, needed: bool = False) -> list[Cause]:
    if len(parameters) > MAX_PARAMETERS:
        return [too_long(field, MAX_PARAMETERS)]
    causes = [invalid_value(field, key, "field can not be empty.") for key in parameters if not key]
    size = sum(len(key.encode()) + len(value.encode()) for key, value in parameters.items())
    if size > MAX_PARAMETERS_SIZE:
        causes.append(too_long(field, MAX_PARAMETERS_SIZE))
    if needed and not parameters:
        causes.append(required(field, "must contain at least one key/value pair"))
    return causes


def _provisioner(name: str, field: str) -> list[Cause]:
    return qualified_name(name.lower(), field) if name else [required(field)]


def storage_class(obj: Object) -> list[Cause]:
    """Check the provisioner, parameters, modes and topologies of a StorageClass."""
    causes = _provisioner(obj.get("provisioner", ""), "provisioner")
    causes += _parameters(obj.get("parameters") or {}, "parameters")
    policy, mode = obj.get("reclaimPolicy"), obj.get("volumeBindingMode")
    causes += one_of_if_set(policy or None, ("Delete", "Retain"), "reclaimPolicy")
    if mode is None:
        causes.append(required("volumeBindingMode"))
    causes += one_of_if_set(mode, ("Immediate", "WaitForFirstConsumer"), "volumeBindingMode")
    return causes + _topologies(obj.get("allowedTopologies") or ())


def _topologies(terms: Any) -> list[Cause]:
    causes: list[Cause] = []
    earlier: Counter[frozenset[tuple[str, frozenset[str]]]] = Counter()
    for index, term in enumerate(terms):
        seen: dict[str, frozenset[str]] = {}
        for position, requirement in enumerate(term.get("matchLabelExpressions") or ()):
            path = f"allowedTopologies[{index}].matchLabelExpressions[{position}]"
            key, values = requirement.get("key", ""), requirement.get("values") or []
            if not values:
                causes.append(required(f"{path}.values"))
            causes += unique(values, f"{path}.values")
            causes += wrong(f"{path}.key", key, names.qualified_name(key))
            if key in seen:
                causes.append(duplicate(f"{path}.key", key))
            seen[key] = frozenset(values)
        shown = frozenset(seen.items())
        # Kubernetes compares a term with every earlier one, and first with as many empty terms as there are terms.
        times = min(earlier[shown] + (0 if seen else len(terms)), MAX_REPEATED)
        causes += [duplicate(f"allowedTopologies[{index}].matchLabelExpressions", "")] * times
        earlier[shown] += 1
    return causes


def storage_class_update(new: Object, old: Object) -> list[Cause]:
    """Reject changes: the meaning of a class is fixed."""
    causes = immutable("parameters", sorted_labels(new.get("parameters")), sorted_labels(old.get("parameters")))
    for name in ("provisioner", "reclaimPolicy", "volumeBindingMode"):
        causes += immutable(name, new.get(name), old.get(name))
    return causes


def attributes_class(obj: Object) -> list[Cause]:
    """Check the driver and the parameters of a VolumeAttributesClass."""
    causes = _provisioner(obj.get("driverName", ""), "driverName")
    return causes + _parameters(obj.get("parameters") or {}, "parameters", needed=True)


def attributes_class_update(new: Object, old: Object) -> list[Cause]:
    """Reject changes: the meaning of a class is fixed."""
    return [
        forbidden(name, f"updates to {name} are forbidden.")
        for name in ("driverName", "parameters")
        if new.get(name) != old.get(name)
    ]


# -- CSI --------------------------------------------------------------------------------------------------------------

FS_GROUP_POLICIES: Final = ("File", "None", "ReadWriteOnceWithFSType")
LIFECYCLES: Final = ("Persistent", "Ephemeral")


def csi_driver(obj: Object) -> list[Cause]:
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


def csi_driver_update(new: Object, old: Object) -> list[Cause]:
    """Reject a changed attachment flag or volume lifecycle mode."""
    spec, held = new["spec"], old["spec"]
    causes = immutable("spec.attachedRequired", spec.get("attachRequired"), held.get("attachRequired"))
    modes = "volumeLifecycleModes"
    return causes + immutable(f"spec.{modes}", spec.get(modes), held.get(modes))


def csi_node(obj: Object) -> list[Cause]:
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


def csi_node_update(new: Object, old: Object, mutable: Collection[str] = ("allocatable",)) -> list[Cause]:
    """Reject changes of a driver that stays on the node, except of its ``mutable`` fields."""
    causes: list[Cause] = []
    present: dict[str, list[Object]] = {}
    for driver in new["spec"].get("drivers") or ():
        present.setdefault(driver.get("name", ""), []).append(driver)
    for driver in old["spec"].get("drivers") or ():
        for now in present.get(driver.get("name", ""), ()):
            frozen = [{key: value for key, value in each.items() if key not in mutable} for each in (now, driver)]
            if frozen[0] != frozen[1]:
                shown = {**(shape(frozen[0], "CSINodeDriver") or {}), "TopologyKeys": now.get("topologyKeys")}
                causes.append(invalid_value("spec.drivers", shown, "field is immutable"))
    return causes


def storage_capacity(obj: Object) -> list[Cause]:
    """Check the topology, class and capacity of a CSIStorageCapacity."""
    causes = label_selector(obj.get("nodeTopology"), "nodeTopology")
    causes += dns_subdomain(obj.get("storageClassName", ""), "storageClassName")
    given = obj.get("capacity")
    if given is not None and quantity.value_of(given) < 0:
        causes.append(invalid_value("capacity", given, "must be greater than or equal to 0"))
    return causes


def storage_capacity_update(new: Object, old: Object) -> list[Cause]:
    """Reject a changed topology or class."""
    topologies = [selector(each.get("nodeTopology")) for each in (new, old)]
    causes = immutable("nodeTopology", *topologies)
    return causes + immutable("storageClassName", new.get("storageClassName"), old.get("storageClassName"))


# -- attachments ------------------------------------------------------------------------------------------------------

MAX_METADATA: Final = 256 * 1024
MAX_ERROR: Final = 1024
_ONE_SOURCE: Final = "must specify exactly one of inlineVolumeSpec and persistentVolumeName"


def attachment(obj: Object) -> list[Cause]:
    """Check the driver, node and single volume of a VolumeAttachment."""
    spec = obj["spec"]
    attacher, source, path = spec.get("attacher", ""), spec.get("source") or {}, "spec.source"
    causes = csi_driver_name(attacher, "spec.attacher")
    inline, name = source.get("inlineVolumeSpec"), source.get("persistentVolumeName")
    if inline is None and name is None:
        causes.append(required(path, _ONE_SOURCE))
    elif inline is not None and name is not None:
        causes.append(forbidden(path, _ONE_SOURCE))
    elif name == "":
        detail = "must specify non empty persistentVolumeName"
        causes.append(required(f"{path}.persistentVolumeName", detail))
    elif inline is not None:
        causes += inline_volume_spec(inline, f"{path}.inlineVolumeSpec")
    causes += dns_subdomain(spec.get("nodeName", ""), "spec.nodeName") + _attachment_status(obj)
    return causes if name is None else causes + dns_subdomain(name, f"{path}.persistentVolumeName")


def inline_volume_spec(spec: Object, field: str) -> list[Cause]:
    """Check the spec of an inline volume: a CSI source and access modes, without fields that need a
    PersistentVolume."""
    inline, detail = "in the context of inline volumes", "may not be specified in the context of inline volumes"
    causes = [forbidden(f"{field}.claimRef", detail)] if spec.get("claimRef") is not None else []
    if spec.get("capacity"):
        causes.append(forbidden(f"{field}.capacity", detail))
    if spec.get("csi") is None:
        causes.append(required(f"{field}.csi", f"has to be specified {inline}"))
    causes += missing(spec, field, "accessModes") + access_modes(spec, f"{field}.accessModes")
    if spec.get("persistentVolumeReclaimPolicy", "") not in ("", "Retain"):
        causes.append(forbidden(f"{field}.persistentVolumeReclaimPolicy", f"may only be Retain {inline}"))
    if spec.get("nodeAffinity") is not None:
        causes.append(forbidden(f"{field}.nodeAffinity", detail))
    causes += one_source(spec, PERSISTENT_SOURCES, field, MAY_STAND_BESIDE)
    if spec.get("storageClassName"):
        causes.append(forbidden(f"{field}.storageClassName", detail))
    if spec.get("volumeMode") not in (None, "Filesystem"):
        causes.append(forbidden(f"{field}.volumeMode", f"may not specify volumeMode other than Filesystem {inline}"))
    return causes


def _attachment_status(obj: Object) -> list[Cause]:
    status, causes = obj.get("status") or {}, list[Cause]()
    noted = status.get("attachmentMetadata") or {}
    if sum(len(key.encode()) + len(value.encode()) for key, value in noted.items()) > MAX_METADATA:
        causes.append(too_long("status.attachmentMetadata", MAX_METADATA))
    for name in ("attachError", "detachError"):
        error, path = status.get(name) or {}, f"status.{name}"
        if len(error.get("message", "").encode()) > MAX_ERROR:
            causes.append(too_long(f"{path}.message", MAX_METADATA))
        if error.get("errorCode") is not None and error["errorCode"] < 0:
            detail = f"must be between 0 and {MAX_INT32}, inclusive"
            causes.append(invalid_value(f"{path}.errorCode", error["errorCode"], detail))
    return causes


def attachment_update(new: Object, old: Object) -> list[Cause]:
    """Reject a changed spec."""
    if new["spec"] == old["spec"]:
        return []
    return [invalid_value("spec", record(new["spec"], "VolumeAttachmentSpec"), IMMUTABLE)]
