"""Validation of PersistentVolumes and of the kinds of storage.k8s.io."""

from __future__ import annotations

import posixpath
from collections.abc import Mapping
from typing import Any, Final

from kubechronicle.api import names, quantity
from kubechronicle.api.builtin.checks import (
    dns_subdomain,
    immutable,
    label_selector,
    missing,
    one_of,
    one_of_if_set,
    qualified_name,
    wrong,
)
from kubechronicle.api.builtin.go_shapes import shape
from kubechronicle.api.builtin.validation_claims import VOLUME_MODES, access_modes
from kubechronicle.api.builtin.validation_resources import basic_amount, positive
from kubechronicle.api.builtin.validation_scheduling import node_selector
from kubechronicle.api.builtin.validation_volumes import PERSISTENT_SOURCES, csi_driver_name, one_source
from kubechronicle.api.field_errors import (
    Cause,
    duplicate,
    forbidden,
    invalid_value,
    not_supported,
    required,
    too_long,
)

Object = dict[str, Any]

RECLAIM_POLICIES: Final = ("Delete", "Recycle", "Retain")
PV_SOURCE: Final = "spec.persistentvolumesource is immutable after creation"


def volume_spec(spec: Object, field: str) -> list[Cause]:
    """What a volume is and how it can be used."""
    causes = missing(spec, field, "accessModes") + access_modes(spec, f"{field}.accessModes")
    capacity, path = spec.get("capacity") or {}, f"{field}.capacity"
    if not capacity:
        causes.append(required(path))
    if "storage" not in capacity or len(capacity) > 1:
        causes.append(not_supported(path, capacity or None, ("storage",)))
    for name, given in capacity.items():
        causes += basic_amount(given, f"{path}[{name}]") + positive(given, f"{path}[{name}]")
    policy, path = spec.get("persistentVolumeReclaimPolicy", ""), f"{field}.persistentVolumeReclaimPolicy"
    if policy:
        causes += one_of(policy, RECLAIM_POLICIES, path)
    affinity = spec.get("nodeAffinity")
    if affinity is not None:
        if affinity.get("required") is None:
            causes.append(required(f"{field}.nodeAffinity.required", "must specify required node constraints"))
        else:
            causes += node_selector(affinity["required"], f"{field}.nodeAffinity.required")
    causes += one_source(spec, PERSISTENT_SOURCES, field)
    if spec.get("local") is not None and affinity is None:
        causes.append(required(f"{field}.nodeAffinity", "Local volume requires node affinity"))
    host = (spec.get("hostPath") or {}).get("path", "")
    if host and policy == "Recycle" and posixpath.normpath(host) == "/":
        causes.append(forbidden(path, "may not be 'recycle' for a hostPath mount of '/'"))
    if spec.get("storageClassName"):
        causes += dns_subdomain(spec["storageClassName"], f"{field}.storageClassName")
    causes += one_of_if_set(spec.get("volumeMode"), VOLUME_MODES, f"{field}.volumeMode")
    attributes = spec.get("volumeAttributesClassName")
    if attributes is not None:
        path = f"{field}.volumeAttributesClassName"
        causes += dns_subdomain(attributes, path) if attributes else [required(path, "an empty string is disallowed")]
        if spec.get("csi") is None:
            causes.append(required(f"{field}.csi", "has to be specified when using volumeAttributesClassName"))
    return causes


def persistent_volume(obj: Object) -> list[Cause]:
    """The rules of a volume."""
    return volume_spec(obj["spec"], "spec")


def persistent_volume_update(new: Object, old: Object) -> list[Cause]:
    """Where the data is never changes."""
    causes = persistent_volume(new)
    spec, held = new["spec"], old["spec"]
    sources = [{name: each[name] for name in PERSISTENT_SOURCES if name in each} for each in (spec, held)]
    if all("csi" in each for each in sources) and "controllerExpandSecretRef" not in sources[1]["csi"]:
        sources[0]["csi"] = {**sources[0]["csi"]}
        sources[0]["csi"].pop("controllerExpandSecretRef", None)
    if sources[0] != sources[1]:
        causes.append(forbidden("spec.persistentvolumesource", PV_SOURCE))
    causes += immutable("volumeMode", spec.get("volumeMode"), held.get("volumeMode"))
    if held.get("nodeAffinity") is not None and spec.get("nodeAffinity") != held["nodeAffinity"]:
        detail = "field is immutable, except for updating from beta label to GA"
        causes.append(invalid_value("nodeAffinity", spec.get("nodeAffinity"), detail))
    if held.get("volumeAttributesClassName") is not None and spec.get("volumeAttributesClassName") is None:
        causes.append(forbidden("spec.volumeAttributesClassName", "update from non-nil value to nil is forbidden"))
    return causes


# -- classes ----------------------------------------------------------------------------------------------------------

MAX_PARAMETERS: Final = 512
MAX_PARAMETERS_SIZE: Final = 256 * 1024


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


def storage_class(obj: Object) -> list[Cause]:
    """Who provides volumes of a class, and how."""
    provisioner = obj.get("provisioner", "")
    if provisioner:
        causes = qualified_name(provisioner.lower(), "provisioner")
    else:
        causes = [required("provisioner")]
    causes += _parameters(obj.get("parameters") or {}, "parameters")
    causes += one_of_if_set(obj.get("reclaimPolicy"), ("Delete", "Retain"), "reclaimPolicy")
    modes = ("Immediate", "WaitForFirstConsumer")
    causes += one_of(obj.get("volumeBindingMode", ""), modes, "volumeBindingMode")
    return causes + _topologies(obj.get("allowedTopologies") or ())


def _topologies(terms: Any) -> list[Cause]:
    causes: list[Cause] = []
    earlier: list[dict[str, frozenset[str]]] = []
    for index, term in enumerate(terms):
        seen: dict[str, frozenset[str]] = {}
        for position, requirement in enumerate(term.get("matchLabelExpressions") or ()):
            path = f"allowedTopologies[{index}].matchLabelExpressions[{position}]"
            key, values = requirement.get("key", ""), requirement.get("values") or []
            if not values:
                causes.append(required(f"{path}.values"))
            for place, value in enumerate(values):
                if value in values[:place]:
                    causes.append(duplicate(f"{path}.values[{place}]", value))
            causes += wrong(f"{path}.key", key, names.qualified_name(key))
            if key in seen:
                causes.append(duplicate(f"{path}.key", key))
            seen[key] = frozenset(values)
        if seen in earlier:
            causes.append(duplicate(f"allowedTopologies[{index}].matchLabelExpressions", ""))
        earlier.append(seen)
    return causes


def storage_class_update(new: Object, old: Object) -> list[Cause]:
    """A class means the same for as long as it exists."""
    causes: list[Cause] = []
    for name in ("parameters", "provisioner", "reclaimPolicy", "volumeBindingMode"):
        causes += immutable(name, new.get(name), old.get(name))
    return causes


def attributes_class(obj: Object) -> list[Cause]:
    """A class of volume attributes has a driver and parameters."""
    causes = csi_driver_name(obj.get("driverName", ""), "driverName")
    return causes + _parameters(obj.get("parameters") or {}, "parameters", needed=True)


def attributes_class_update(new: Object, old: Object) -> list[Cause]:
    """A class means the same for as long as it exists."""
    return [
        forbidden(name, f"updates to {name} are forbidden.")
        for name in ("parameters", "driverName")
        if new.get(name) != old.get(name)
    ]


# -- CSI --------------------------------------------------------------------------------------------------------------

FS_GROUP_POLICIES: Final = ("File", "None", "ReadWriteOnceWithFSType")
LIFECYCLES: Final = ("Ephemeral", "Persistent")


def csi_driver(obj: Object) -> list[Cause]:
    """What Kubernetes needs to know of a driver."""
    name = obj["metadata"].get("name", "")
    causes = csi_driver_name(name, "metadata.name") if len(name) > 63 else []
    spec = obj["spec"]
    flags = (("attachRequired", "attachedRequired"), ("podInfoOnMount", "podInfoOnMount"))
    causes += [required(f"spec.{shown}") for name, shown in flags if spec.get(name) is None]
    if spec.get("storageCapacity") is None:
        causes.append(required("spec.storageCapacity"))
    causes += one_of_if_set(spec.get("fsGroupPolicy"), FS_GROUP_POLICIES, "spec.fsGroupPolicy")
    seen: set[str] = set()
    for index, token in enumerate(spec.get("tokenRequests") or ()):
        path, audience = f"spec.tokenRequests[{index}]", token.get("audience", "")
        if audience in seen:
            causes.append(duplicate(f"{path}.audience", audience))
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
    period = spec.get("nodeAllocatableUpdatePeriodSeconds")
    if period is not None and period < 10:
        path = "spec.nodeAllocatableUpdatePeriodSeconds"
        causes.append(invalid_value(path, period, "must be greater than or equal to 10 seconds"))
    return causes


def csi_driver_update(new: Object, old: Object) -> list[Cause]:
    """How a driver attaches, and for which life-cycles, stays."""
    spec, held = new["spec"], old["spec"]
    causes = immutable("spec.attachedRequired", spec.get("attachRequired"), held.get("attachRequired"))
    modes = "volumeLifecycleModes"
    return causes + immutable(f"spec.{modes}", spec.get(modes), held.get(modes))


def csi_node(obj: Object) -> list[Cause]:
    """The drivers on a node: each once, with the node's name for it."""
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
        keys = driver.get("topologyKeys") or []
        for position, key in enumerate(keys):
            if not key:
                causes.append(required(f"{path}.topologyKeys[{position}]"))
            elif key in keys[:position]:
                causes.append(duplicate(f"{path}.topologyKeys[{position}]", key))
            causes += wrong(f"{path}.topologyKeys[{position}]", key, names.qualified_name(key))
        if name in seen:
            causes.append(duplicate(f"{path}.name", name))
        seen.add(name)
    return causes


def csi_node_update(new: Object, old: Object) -> list[Cause]:
    """What a driver has said of a node stays while the driver is on it."""
    causes: list[Cause] = []
    present = {driver.get("name"): driver for driver in new["spec"].get("drivers") or ()}
    for driver in old["spec"].get("drivers") or ():
        now = present.get(driver.get("name"))
        if now is None:
            continue
        frozen = [{key: value for key, value in each.items() if key != "allocatable"} for each in (now, driver)]
        if frozen[0] != frozen[1] or (driver.get("allocatable") and now.get("allocatable") != driver["allocatable"]):
            shown = {**(shape(now, "CSINodeDriver") or {}), "TopologyKeys": now.get("topologyKeys") or []}
            causes.append(invalid_value("spec.drivers", shown, "field is immutable"))
    return causes


def storage_capacity(obj: Object) -> list[Cause]:
    """How much room a class has where."""
    causes = dns_subdomain(obj.get("storageClassName", ""), "storageClassName")
    for name in ("capacity", "maximumVolumeSize"):
        given = obj.get(name)
        if given is not None and quantity.value_of(given) < 0:
            causes.append(invalid_value(name, given, "must be greater than or equal to 0"))
    return causes + label_selector(obj.get("nodeTopology"), "nodeTopology")


def storage_capacity_update(new: Object, old: Object) -> list[Cause]:
    """Where, and of what, stays."""
    causes = immutable("nodeTopology", new.get("nodeTopology"), old.get("nodeTopology"))
    return causes + immutable("storageClassName", new.get("storageClassName"), old.get("storageClassName"))


# -- attachments ------------------------------------------------------------------------------------------------------


def attachment(obj: Object) -> list[Cause]:
    """One volume, attached by a driver to a node."""
    spec = obj["spec"]
    attacher = spec.get("attacher", "")
    causes = csi_driver_name(attacher, "spec.attacher")
    source = spec.get("source") or {}
    inline, name = source.get("inlineVolumeSpec"), source.get("persistentVolumeName")
    if inline is None and name is None:
        causes.append(required("spec.source", "must specify exactly one of inlineVolumeSpec and persistentVolumeName"))
    elif inline is not None and name is not None:
        detail = "must specify exactly one of inlineVolumeSpec and persistentVolumeName"
        causes.append(forbidden("spec.source", detail))
    elif name is not None:
        if name:
            causes += dns_subdomain(name, "spec.source.persistentVolumeName")
        else:
            causes.append(required("spec.source.persistentVolumeName", "must specify non empty persistentVolumeName"))
    causes += dns_subdomain(spec.get("nodeName", ""), "spec.nodeName")
    return causes


def attachment_update(new: Object, old: Object) -> list[Cause]:
    """An attachment is for one volume and one node."""
    return immutable("spec", new["spec"], old["spec"])
