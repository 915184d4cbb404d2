"""Facts beyond the object that measuring it may need."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime

from kubechronicle.api.values.objects import Object


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """The time, and functions that look up other objects, each called only if needed.

    ``device_classes()``: the DeviceClasses of the cluster.
    ``claims(namespace)``: its ResourceClaims.
    ``pod(namespace, name)``: the Pod, None if it does not exist.
    """

    now: datetime
    device_classes: Callable[[], Sequence[Object]]
    claims: Callable[[str], Sequence[Object]]
    pod: Callable[[str, str], Object | None]

    def device_class(self, name: str) -> Object | None:
        """Return the DeviceClass of this name, None if it does not exist."""
        return next((each for each in self.device_classes() if each["metadata"]["name"] == name), None)

    def extended_resource(self, class_name: str) -> str:
        """Return the extended resource of a device class, "" if it names none (KEP-5004)."""
        device_class = self.device_class(class_name)
        return (device_class.get("spec") or {}).get("extendedResourceName") or "" if device_class is not None else ""
