"""Conversion between resource.k8s.io/v1 and v1beta1, which has other requests and devices.

    v1        {name: a, exactly: {deviceClassName: c, count: 1}}     {name: d, attributes: {…}}
    v1beta1   {name: a, deviceClassName: c, count: 1}                {name: d, basic: {attributes: {…}}}

Source: Kubernetes' ``apis/resource/v1beta1/conversion.go``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from kubechronicle.api.builtin.common.version_conversion import Converter, typed
from kubechronicle.api.meta.encoding import copy_object
from kubechronicle.api.values.objects import Object

_V1: Final = "resource.k8s.io/v1"
_V1BETA1: Final = "resource.k8s.io/v1beta1"
_OWN: Final = ("name", "firstAvailable")
"""The fields of a request that are its own in both versions."""
_EMPTY: Final[Mapping[str, object]] = {"deviceClassName": "", "allocationMode": "", "count": 0}


def pair(
    kind: str, down: Callable[[Object], None], up: Callable[[Object], None]
) -> Mapping[tuple[str, str, str], Converter]:
    """Return the converters of a kind by (kind, from, to). Both steps change a copy, ``down`` to v1beta1."""

    def converter(version: str, step: Callable[[Object], None]) -> Converter:
        definition = f"io.k8s.api.resource.{version.rpartition('/')[2]}.{kind}"

        def convert(obj: Object) -> Object:
            copied: Object = copy_object(obj)
            step(copied["spec"])
            return typed(copied, version, definition)

        return convert

    return {(kind, _V1, _V1BETA1): converter(_V1BETA1, down), (kind, _V1BETA1, _V1): converter(_V1, up)}


def _requests(spec: Object) -> Iterable[Object]:
    return (spec.get("devices") or {}).get("requests") or ()


def claim_to_v1beta1(spec: Object) -> None:
    """Move the fields of exact requests into the requests."""
    for request in _requests(spec):
        request.update(request.pop("exactly", None) or {})


def claim_to_v1(spec: Object) -> None:
    """Move the fields of a request into an exact one, if it has any."""
    for request in _requests(spec):
        given = {name: request.pop(name) for name in tuple(request) if name not in _OWN}
        if any(value is not None and value != _EMPTY.get(name) for name, value in given.items()):
            request["exactly"] = given


def slice_to_v1beta1(spec: Object) -> None:
    """Move all fields of a device but its name into ``basic``."""
    for device in spec.get("devices") or ():
        device["basic"] = {name: device.pop(name) for name in tuple(device) if name != "name"}


def slice_to_v1(spec: Object) -> None:
    """Move the fields of ``basic`` into the device. A node without a name, and not all nodes, are none."""
    for device in spec.get("devices") or ():
        device.update(device.pop("basic", None) or {})
    for name in ("nodeName", "allNodes"):
        if not spec.get(name):
            spec.pop(name, None)
