"""Defaults of device requests and tolerations."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from kubechronicle.api.values.objects import Object

VALUES: Final[Mapping[str, Mapping[str, Any]]] = {
    "resource.v1.ExactDeviceRequest": {},
    "resource.v1.DeviceToleration": {"operator": "Equal"},
}


def exact_device_request(obj: Object) -> None:
    """Default to a count of exactly one device."""
    if not obj.get("allocationMode"):
        obj["allocationMode"] = "ExactCount"
    if obj["allocationMode"] == "ExactCount" and not obj.get("count"):
        obj["count"] = 1


FUNCTIONS: Final[Mapping[str, Callable[[Object], None]]] = {
    "resource.v1.ExactDeviceRequest": exact_device_request,
    "resource.v1.DeviceSubRequest": exact_device_request,
}
