"""Validation of ResourceSlices: devices, their placement, attributes, capacity and shared counters."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

from kubechronicle.api.builtin.common.checks import dns_label, dns_subdomain, immutable, qualified_name, wrong
from kubechronicle.api.builtin.common.go_shapes import record
from kubechronicle.api.builtin.common.resource_amounts import node_overhead, node_resource_name
from kubechronicle.api.builtin.common.scheduling import node_selector
from kubechronicle.api.builtin.common.volume_sources import csi_driver_name
from kubechronicle.api.builtin.resource.capacity import shared, unshared
from kubechronicle.api.builtin.resource.claim_status_validation import binding
from kubechronicle.api.builtin.resource.devices import (
    check_each,
    check_each_unique,
    check_tagged,
    pool_name,
    skipped_operations,
)
from kubechronicle.api.builtin.resource.devices import qualified_name as attribute_name
from kubechronicle.api.errors.field_errors import (
    Cause,
    invalid_value,
    not_found,
    required,
    too_long,
    too_many,
)
from kubechronicle.api.values import names, quantity
from kubechronicle.api.values.objects import Object

MAX_DEVICES: Final = 128
MAX_DEVICES_WITH_MORE: Final = 64
"""Limit of devices in a slice with taints or counters."""

MAX_COUNTER_SETS: Final = 8
MAX_COUNTERS: Final = 32
MAX_CONSUMPTIONS: Final = 2
MAX_ATTRIBUTES: Final = 32
MAX_ATTRIBUTE_VALUES: Final = 48
MAX_TAINTS: Final = 16
MAX_VALUE: Final = 64
MAX_KEY: Final = 63 + 1 + 32
ONE_OF: Final = "exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` is required"
ONE_PER_DEVICE: Final = (
    "exactly one of `nodeName`, `nodeSelector`, or `allNodes` is required when `perDeviceNodeSelection` is set to true "
    "in the ResourceSlice spec"
)
NOT_PER_DEVICE: Final = (
    "`nodeName`, `nodeSelector` and `allNodes` can only be set if `perDeviceNodeSelection` is set to true in the "
    "ResourceSlice spec"
)
_NUMBER: Final = r"(0|[1-9]\d*)"
_PRE_RELEASE: Final = r"(0|[1-9]\d*|\d*[a-zA-Z-][0-9a-zA-Z-]*)"
_BUILD: Final = "[0-9a-zA-Z-]+"
_SEMANTIC: Final = re.compile(
    rf"{_NUMBER}\.{_NUMBER}\.{_NUMBER}(-{_PRE_RELEASE}(\.{_PRE_RELEASE})*)?(\+{_BUILD}(\.{_BUILD})*)?\Z", re.ASCII
)
_LISTS: Final = ("bools", "ints", "strings", "versions")


def resource_slice(obj: Object, *, fractional: bool = False) -> list[Cause]:
    """Check a new slice. ``fractional``: amounts of policies may have fractions (KEP-5075)."""
    return _spec(obj["spec"], {}, fractional=fractional)


def resource_slice_update(new: Object, old: Object, *, fractional: bool = False) -> list[Cause]:
    """Check a changed slice: its driver, pool and node are immutable."""
    return _spec(new["spec"], old["spec"], fractional=fractional)


def _spec(spec: Object, held: Object, *, fractional: bool) -> list[Cause]:
    pool = spec.get("pool") or {}
    causes = csi_driver_name(spec.get("driver", ""), "spec.driver") + _pool(pool, "spec.pool")
    if held:
        causes += immutable("spec.pool.name", pool.get("name", ""), (held.get("pool") or {}).get("name", ""))
        causes += immutable("spec.driver", spec.get("driver", ""), held.get("driver", ""))
        causes += immutable("spec.nodeName", spec.get("nodeName"), held.get("nodeName"))
    causes += _placement(spec)
    if spec.get("sharedCounters") is not None and spec.get("devices") is not None:
        causes.append(invalid_value("spec", "", "only one of `sharedCounters` or `devices` is allowed"))
    devices = spec.get("devices") or ()
    more = any(_is_advanced(device) for device in devices)
    before = {device.get("name", ""): device for device in reversed(held.get("devices") or ())}

    def check(device: Object, field: str) -> list[Cause]:
        per_device = bool(spec.get("perDeviceNodeSelection"))
        known = before.get(device.get("name", ""))
        return _device(device, known, field, per_device=per_device, fractional=fractional)

    most = MAX_DEVICES_WITH_MORE if more else MAX_DEVICES
    causes += check_each_unique(devices, most, "spec.devices", check, lambda device: device.get("name", ""))
    causes += check_tagged(spec.get("sharedCounters"), MAX_COUNTER_SETS, "spec.sharedCounters", _counter_set)
    if spec.get("partitionTypeAttribute") is not None:
        causes += _partition_type(spec["partitionTypeAttribute"], spec, "spec.partitionTypeAttribute")
    return causes + skipped_operations(spec, "spec")


def _is_advanced(device: Object) -> bool:
    """Return whether a device has a part that lowers the limit of devices."""
    attributes = (device.get("attributes") or {}).values()
    lists = any(attribute.get(name) is not None for attribute in attributes for name in _LISTS)
    return bool(device.get("taints") or device.get("consumesCounters") or lists)


def _pool(pool: Object, field: str) -> list[Cause]:
    causes = pool_name(pool.get("name", ""), f"{field}.name")
    count, generation = pool.get("resourceSliceCount", 0), pool.get("generation", 0)
    if count <= 0:
        causes.append(invalid_value(f"{field}.resourceSliceCount", count, "must be greater than zero"))
    if generation < 0:
        detail = "must be greater than or equal to zero"
        causes.append(invalid_value(f"{field}.generation", generation, detail))
    return causes


# -- placement --------------------------------------------------------------------------------------------------------


def _places(holder: Object, field: str, flags: tuple[str, ...], empty: str) -> tuple[list[Cause], list[str]]:
    """Return (causes, the fields that are set) of the node selection of a slice or device."""
    causes: list[Cause] = []
    given: list[str] = []
    node, selector = holder.get("nodeName"), holder.get("nodeSelector")
    if node:
        given.append("`nodeName`")
        causes += dns_subdomain(node, f"{field}.nodeName")
    elif node is not None:
        causes.append(invalid_value(f"{field}.nodeName", node, empty))
    if selector is not None:
        given.append("`nodeSelector`")
        causes += node_selector(selector, f"{field}.nodeSelector")
        if "perDeviceNodeSelection" in flags and len(selector.get("nodeSelectorTerms") or ()) != 1:
            terms = selector.get("nodeSelectorTerms")
            shown = None if terms is None else [record(term, "NodeSelectorTerm") for term in terms]
            path = f"{field}.nodeSelector.nodeSelectorTerms"
            causes.append(invalid_value(path, shown, "must have exactly one node selector term"))
    for flag in flags:
        if holder.get(flag):
            given.append(f"`{flag}`")
        elif holder.get(flag) is not None:
            causes.append(invalid_value(f"{field}.{flag}", False, "must be either unset or set to true"))
    return causes, given


def _placement(spec: Object) -> list[Cause]:
    flags = ("allNodes", "perDeviceNodeSelection")
    causes, given = _places(spec, "spec", flags, "must be either unset or set to a non-empty string")
    if not given:
        causes.append(required("spec", ONE_OF))
    elif len(given) > 1:
        detail = f"{ONE_OF}, but multiple fields are set"
        causes.append(invalid_value("spec", f"{{{', '.join(given)}}}", detail))
    return causes


def _device_placement(device: Object, field: str, *, per_device: bool) -> list[Cause]:
    if not per_device:
        given = any(device.get(name) is not None for name in ("nodeName", "nodeSelector", "allNodes"))
        return [invalid_value(field, None, NOT_PER_DEVICE)] if given else []
    causes, places = _places(device, field, ("allNodes",), "must not be empty")
    if not places:
        causes.append(required(field, ONE_PER_DEVICE))
    elif len(places) > 1:
        causes.append(invalid_value(field, f"{{{', '.join(places)}}}", ONE_PER_DEVICE))
    return causes


# -- devices ----------------------------------------------------------------------------------------------------------


def _device(device: Object, before: Object | None, field: str, *, per_device: bool, fractional: bool) -> list[Cause]:
    causes = dns_label(device.get("name", ""), f"{field}.name")
    attributes, capacity = device.get("attributes") or {}, device.get("capacity") or {}
    total = len(attributes) + len(capacity)
    if total > MAX_ATTRIBUTES:
        detail = f"the total number of attributes and capacities must not exceed {MAX_ATTRIBUTES}"
        causes.append(invalid_value(field, total, detail))
    values = sum(_entries(attribute) for attribute in attributes.values())
    if values > MAX_ATTRIBUTE_VALUES:
        detail = f"the total number of attribute values must not exceed {MAX_ATTRIBUTE_VALUES}"
        causes.append(invalid_value(field, values, detail))
    causes += _map(attributes, MAX_KEY, f"{field}.attributes", attribute_name, _attribute)
    if before is None or (before.get("capacity") or {}) != capacity:
        rule = partial(shared, fractional=fractional) if device.get("allowMultipleAllocations") else unshared
        causes += _map(capacity, MAX_KEY, f"{field}.capacity", attribute_name, rule)
    if before is None or before.get("taints") != device.get("taints"):
        causes += check_each(device.get("taints"), MAX_TAINTS, f"{field}.taints", taint)
    consumed = device.get("consumesCounters")
    causes += check_tagged(consumed, MAX_CONSUMPTIONS, f"{field}.consumesCounters", _counter_set)
    causes += _device_placement(device, field, per_device=per_device) + binding(device, field)
    for name, taken in sorted((device.get("nodeAllocatableResources") or {}).items()):
        causes += _node_resource(name, taken, capacity, f"{field}.nodeAllocatableResources[{name}]")
    return causes


# -- resources of nodes -----------------------------------------------------------------------------------------------


def _node_resource(name: str, taken: Object, capacity: Object, field: str) -> list[Cause]:
    """Check the allocatable resource of its node that a device takes: a multiple of something, and an overhead."""
    causes = node_resource_name(name, field)
    mapping, overhead = taken.get("mapping"), taken.get("overhead")
    if mapping is None and overhead is None:
        causes.append(required(field, "at least one of mapping or overhead must be set"))
    if mapping is not None:
        causes += _multiples(mapping, capacity, f"{field}.mapping")
    if overhead is not None:
        causes += node_overhead(overhead, f"{field}.overhead")
    return causes


def _multiples(mapping: Object, capacity: Object, field: str) -> list[Cause]:
    key, causes = mapping.get("capacityKey"), list[Cause]()
    of_key, of_device = mapping.get("capacityMultiplier"), mapping.get("deviceMultiplier")
    if key == "":
        causes.append(invalid_value(f"{field}.capacityKey", "", "capacityKey must not be an empty string"))
    elif key is not None and key not in capacity:
        causes.append(not_found(f"{field}.capacityKey", key))
    if key is not None and of_key is None:
        text = "capacityMultiplier is required when capacityKey is set"
        causes.append(required(f"{field}.capacityMultiplier", text))
    elif key is not None and of_key is not None and quantity.value_of(of_key) <= 0:
        causes.append(invalid_value(f"{field}.capacityMultiplier", of_key, "must be positive"))
    if of_device is not None and quantity.value_of(of_device) <= 0:
        causes.append(invalid_value(f"{field}.deviceMultiplier", of_device, "must be positive"))
    if key is None and of_key is not None:
        causes.append(required(f"{field}.capacityKey", "capacityKey is required when capacityMultiplier is set"))
    return causes


def _map(
    values: Mapping[str, Any],
    longest: int,
    field: str,
    check_key: Callable[[str, str], list[Cause]],
    check: Callable[[Any, str], list[Cause]],
) -> list[Cause]:
    causes: list[Cause] = []
    for key, value in values.items():
        path = f"{field}[{_shortened(key, longest)}]"
        causes += check_key(key, field) + check(value, path)
    return causes


def _shortened(text: str, most: int) -> str:
    if len(text) <= most:
        return text
    left = most - 3
    return f"{text[: (left + 1) // 2]}...{text[len(text) - left // 2 :]}"


def _counter_set(given: Object, field: str) -> list[Cause]:
    counters = given.get("counters") or {}
    return [too_many(f"{field}.counters", len(counters), MAX_COUNTERS)] if len(counters) > MAX_COUNTERS else []


def _entries(attribute: Object) -> int:
    """Return the number of an attribute's values."""
    return sum(len(attribute.get(name) or ()) for name in _LISTS) or 1


def _attribute(attribute: Object, field: str) -> list[Cause]:
    causes: list[Cause] = []
    text, version = attribute.get("string"), attribute.get("version")
    if text is not None and len(text.encode()) > MAX_VALUE:
        causes.append(too_long(f"{field}.string", MAX_VALUE))
    if version is not None:
        causes += _version(version, f"{field}.version")
    for index, each in enumerate(attribute.get("versions") or ()):
        causes += _version(each, f"{field}.versions[{index}]")
    return causes


def _version(text: str, field: str) -> list[Cause]:
    causes: list[Cause] = []
    if not _SEMANTIC.match(text):
        causes.append(invalid_value(field, text, "must be a string compatible with semver.org spec 2.0.0"))
    return causes + ([too_long(field, MAX_VALUE)] if len(text.encode()) > MAX_VALUE else [])


def _partition_type(name: str, spec: Object, field: str) -> list[Cause]:
    """Check that devices which consume counters have a text as the attribute that tells the type of a partition."""
    consuming = [(index, each) for index, each in enumerate(spec.get("devices") or ()) if each.get("consumesCounters")]
    if not consuming:
        text = "may only be set on a slice which declares devices that consume counters"
        return [invalid_value(field, name, text)]
    if name.count("/") != 1 or attribute_name(name, field):
        return []  # wrong by a tag
    causes: list[Cause] = []
    for index, device in consuming:
        path, attributes = f"spec.devices[{index}].attributes[{name}]", device.get("attributes") or {}
        found = attributes.get(name, attributes.get(name.removeprefix(f"{spec.get('driver', '')}/")))
        if found is None:
            text = "device consumes counters and `partitionTypeAttribute` names this attribute, so it must be set"
            causes.append(required(path, text))
        elif found.get("string") is None:
            text = "must be a string value because `partitionTypeAttribute` names this attribute"
            causes.append(invalid_value(path, record(found, "DeviceAttribute"), text))
    return causes


def taint(given: Object, field: str) -> list[Cause]:
    """Check the key and value of a taint."""
    value, causes = given.get("value", ""), qualified_name(given.get("key", ""), f"{field}.key")
    return causes + wrong(f"{field}.value", value, names.label_value(value)) if value else causes


# -- capacity ---------------------------------------------------------------------------------------------------------
