"""Converters between EndpointSlice discovery.k8s.io/v1 and v1beta1, which has a topology instead of a zone.

Source: the conversions of ``pkg/apis/discovery`` in Kubernetes 1.20 to 1.25.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from kubechronicle.api.builtin.common.version_conversion import Converter, lossless_pair, typed
from kubechronicle.api.meta.encoding import copy_object
from kubechronicle.api.values.objects import Object

ZONE: Final = "topology.kubernetes.io/zone"
HOSTNAME: Final = "kubernetes.io/hostname"

SLICE_V1: Final = "io.k8s.api.discovery.v1.EndpointSlice"
SLICE_V1BETA1: Final = "io.k8s.api.discovery.v1beta1.EndpointSlice"


def _slice_to_v1beta1(obj: Object) -> Object:
    obj = copy_object(obj)
    for endpoint in obj.get("endpoints") or ():
        topology = endpoint.pop("deprecatedTopology", None) or {}
        zone, node = endpoint.pop("zone", None), endpoint.get("nodeName")
        if zone is not None:
            topology[ZONE] = zone
        if node is not None and not topology.get(HOSTNAME):
            topology[HOSTNAME] = node
        if topology:
            endpoint["topology"] = topology
    return typed(obj, "discovery.k8s.io/v1beta1", SLICE_V1BETA1)


def _slice_to_v1(obj: Object) -> Object:
    obj = copy_object(obj)
    for endpoint in obj.get("endpoints") or ():
        topology = endpoint.pop("topology", None) or {}
        if ZONE in topology:
            endpoint["zone"] = topology.pop(ZONE)
        if HOSTNAME in topology and endpoint.setdefault("nodeName", topology[HOSTNAME]) == topology[HOSTNAME]:
            del topology[HOSTNAME]
        if topology:
            endpoint["deprecatedTopology"] = topology
    return typed(obj, "discovery.k8s.io/v1", SLICE_V1)


CONVERTERS: Final[Mapping[tuple[str, str, str], Converter]] = lossless_pair(
    "EndpointSlice",
    "discovery.k8s.io/v1",
    "discovery.k8s.io/v1beta1",
    SLICE_V1,
    _slice_to_v1beta1,
    _slice_to_v1,
)
