"""What measuring an object may need to know besides the object."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime

from kubechronicle.api.values.objects import Object


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """``now``, and ways to other objects, each asked only where it is needed: ``device_classes()`` of the cluster,
    ``claims(namespace)`` (ResourceClaims) and ``pod(namespace, name)``."""

    now: datetime
    device_classes: Callable[[], Sequence[Object]]
    claims: Callable[[str], Sequence[Object]]
    pod: Callable[[str, str], Object | None]

    def device_class(self, name: str) -> Object | None:
        """Return the DeviceClass of this name."""
        return next((each for each in self.device_classes() if each["metadata"]["name"] == name), None)

    def extended_resource(self, class_name: str) -> str:
        """Return the extended resource that stands for a device class, "" if it names none (KEP-5004)."""
        found = self.device_class(class_name)
        return (found.get("spec") or {}).get("extendedResourceName") or "" if found is not None else ""
