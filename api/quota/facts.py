"""Facts beyond the object that measuring it may need."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime

from kubechronicle.api.values.objects import Object


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """The time, and functions that look up other objects, each called only if needed.

    ``device_class(name)``: the DeviceClass, None if it does not exist.
    ``device_classes(text)``: those of the cluster whose JSON has the text: only they need be decoded.
    ``claims(namespace, text)``: its ResourceClaims, likewise.
    ``pod(namespace, name)``: the Pod, None if it does not exist.
    """

    now: datetime
    device_class: Callable[[str], Object | None]
    device_classes: Callable[[str], Iterable[Object]]
    claims: Callable[[str, str], Iterable[Object]]
    pod: Callable[[str, str], Object | None]

    def extended_resource(self, class_name: str) -> str:
        """Return the extended resource of a device class, "" if it names none (KEP-5004)."""
        device_class = self.device_class(class_name)
        return (device_class.get("spec") or {}).get("extendedResourceName") or "" if device_class is not None else ""
