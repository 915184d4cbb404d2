"""Validation of a ResourceClaim's status: allocation, consumers, and device data reported by drivers."""

from __future__ import annotations

from typing import Final

from kubechronicle.api.builtin.common.checks import conditions, dns_label, qualified_name, repeated, unique
from kubechronicle.api.builtin.common.network_values import interface_address
from kubechronicle.api.builtin.common.scheduling import node_selector
from kubechronicle.api.builtin.common.volume_sources import csi_driver_name
from kubechronicle.api.builtin.resource.claim_validation import request_names, request_reference, toleration
from kubechronicle.api.builtin.resource.devices import (
    Check,
    check_each,
    check_tagged,
    configuration,
    parameters,
    pool_name,
    skipped_operations,
)
from kubechronicle.api.errors.field_errors import (
    Cause,
    duplicate,
    forbidden,
    invalid_value,
    required,
    too_many,
)
from kubechronicle.api.values.objects import Object

MAX_RESERVED: Final = 256
MAX_RESULTS: Final = 32
MAX_CONFIGS: Final = 64
MAX_BINDING: Final = 4
MAX_CONDITIONS: Final = 8
MAX_DATA: Final = 10 * 1024
MAX_IPS: Final = 16
DeviceId = tuple[str, str, str, str]


def _id(device: Object) -> DeviceId:
    driver, pool, name = (device.get(part, "") for part in ("driver", "pool", "device"))
    return driver, pool, name, device.get("shareID") or ""


def _shown(identity: DeviceId) -> Object:
    return dict(zip(("Driver", "Pool", "Device", "ShareID"), identity, strict=True))


def _results(status: Object) -> list[Object]:
    return ((status.get("allocation") or {}).get("devices") or {}).get("results") or []


def claim_status(new: Object, old: Object) -> list[Cause]:
    """Check that consumers need an allocation, and that none are added to a deleted claim."""
    status, held, field = new.get("status") or {}, old.get("status") or {}, "status"
    reserved, allocation = status.get("reservedFor") or [], status.get("allocation")
    causes = check_tagged(reserved, MAX_RESERVED, f"{field}.reservedFor", _consumer)
    causes += _devices(status, f"{field}.devices")
    if reserved and allocation is None:
        detail = "may not be specified when `allocated` is not set"
        causes.append(forbidden(f"{field}.reservedFor", detail))
    present = {tuple(sorted(one.items())) for one in held.get("reservedFor") or ()}
    added = any(tuple(sorted(one.items())) not in present for one in reserved)
    if allocation is not None and added and new["metadata"].get("deletionTimestamp"):
        detail = "new entries may not be added while `deallocationRequested` or `deletionTimestamp` are set"
        causes.append(forbidden(f"{field}.reservedFor", detail))
    if allocation is None:
        return causes
    if held.get("allocation") is None:
        return causes + _allocation(allocation, f"{field}.allocation", request_reference(request_names(new["spec"])))
    return causes


def _consumer(reference: Object, field: str) -> list[Cause]:
    return [required(f"{field}.{name}") for name in ("resource", "name", "uid") if not reference.get(name)]


# -- allocations ------------------------------------------------------------------------------------------------------


def _allocation(allocation: Object, field: str, refers: Check) -> list[Cause]:
    devices, path = allocation.get("devices") or {}, f"{field}.devices"

    def result(given: Object, place: str) -> list[Cause]:
        causes = refers(given.get("request", ""), f"{place}.request")
        causes += dns_label(given.get("device", ""), f"{place}.device") + binding(given, place)
        causes += check_each(given.get("tolerations"), -1, f"{place}.tolerations", toleration)
        return causes + skipped_operations(given, place)

    def config(given: Object, place: str) -> list[Cause]:
        causes = check_tagged(given.get("requests"), MAX_RESULTS, f"{place}.requests", refers)
        return causes + configuration(given, place)

    causes = check_tagged(devices.get("results"), MAX_RESULTS, f"{path}.results", result)
    causes += check_tagged(devices.get("config"), MAX_CONFIGS, f"{path}.config", config)
    selector = allocation.get("nodeSelector")
    return causes if selector is None else causes + node_selector(selector, f"{field}.nodeSelector")


def binding(device: Object, field: str) -> list[Cause]:
    """Check binding conditions and binding failure conditions: both lists are set or none, and they share no item."""
    ready, failed = device.get("bindingConditions") or [], device.get("bindingFailureConditions") or []
    ready_path, failed_path = f"{field}.bindingConditions", f"{field}.bindingFailureConditions"
    causes = check_tagged(ready, MAX_BINDING, ready_path, qualified_name)
    causes += check_tagged(failed, MAX_BINDING, failed_path, qualified_name)
    causes += unique(ready, ready_path)
    known = set(ready)
    for index, (name, again) in enumerate(zip(failed, repeated(failed), strict=True)):
        if again:
            causes.append(duplicate(f"{failed_path}[{index}]", name))
        if name in known:
            detail = "bindingFailureConditions must not overlap with bindingConditions"
            causes.append(invalid_value(f"{failed_path}[{index}]", name, detail))
    if failed and not ready:
        detail = "bindingConditions are required to use bindingFailureConditions"
        causes.append(invalid_value(ready_path, device.get("bindingConditions"), detail))
    if ready and not failed:
        detail = "bindingFailureConditions are required to use bindingConditions"
        causes.append(invalid_value(failed_path, device.get("bindingFailureConditions"), detail))
    return causes


# -- data reported by drivers -----------------------------------------------------------------------------------------


def _devices(status: Object, field: str) -> list[Cause]:
    allocated = {_id(result) for result in _results(status)}
    return check_each(status.get("devices"), -1, field, lambda device, place: _device(device, place, allocated))


def _device(device: Object, field: str, allocated: set[DeviceId]) -> list[Cause]:
    causes = csi_driver_name(device.get("driver", ""), f"{field}.driver")
    causes += pool_name(device.get("pool", ""), f"{field}.pool")
    causes += dns_label(device.get("device", ""), f"{field}.device")
    if _id(device) not in allocated:
        causes.append(invalid_value(field, _shown(_id(device)), "must be an allocated device in the claim"))
    given = device.get("conditions") or ()
    if len(given) > MAX_CONDITIONS:
        causes.append(too_many(f"{field}.conditions", len(given), MAX_CONDITIONS))
    causes += conditions(given, f"{field}.conditions")
    if device.get("data") is not None:
        causes += parameters(device["data"], f"{field}.data", MAX_DATA)
    return causes + _network(device.get("networkData") or {}, f"{field}.networkData")


def _network(data: Object, field: str) -> list[Cause]:
    return check_tagged(data.get("ips"), MAX_IPS, f"{field}.ips", interface_address)


def forget_deallocated(new: Object, old: Object) -> None:
    """Drop the data that drivers reported about devices that are no longer allocated."""
    status = new.get("status") or {}
    devices = status.get("devices")
    if not devices:
        return
    gone = {_id(result) for result in _results(old.get("status") or {})} - {_id(one) for one in _results(status)}
    kept = [device for device in devices if _id(device) not in gone]
    if kept:
        status["devices"] = kept
    else:
        del status["devices"]


# -- questions of authorization ---------------------------------------------------------------------------------------


def changed_drivers(status: Object, held: Object) -> list[str]:
    """Return the drivers whose devices were added, removed or changed, sorted."""
    before = {_id(device): device for device in held.get("devices") or ()}
    changed = set()
    for device in status.get("devices") or ():
        if before.pop(_id(device), None) != device:
            changed.add(device.get("driver", ""))
    return sorted(changed | {device.get("driver", "") for device in before.values()})


def node_of_allocation(allocation: Object) -> str:
    """Return the name of the only node that an allocation selects, "" if it selects nodes in another way."""
    terms = (allocation.get("nodeSelector") or {}).get("nodeSelectorTerms") or []
    if len(terms) != 1 or terms[0].get("matchExpressions") or len(terms[0].get("matchFields") or ()) != 1:
        return ""
    (field,) = terms[0]["matchFields"]
    values = field.get("values") or []
    selects = (field.get("key"), field.get("operator"), len(values)) == ("metadata.name", "In", 1)
    return str(values[0]) if selects else ""
