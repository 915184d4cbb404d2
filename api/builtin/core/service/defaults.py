"""Defaults of Services."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from kubechronicle.api.values.objects import Object

CLIENT_IP_AFFINITY_SECONDS: Final = 10800


def service(obj: Object) -> None:
    """Set the session affinity, type, ports and traffic policies."""
    spec = obj["spec"]
    if not spec.get("sessionAffinity"):
        spec["sessionAffinity"] = "None"
    if spec["sessionAffinity"] == "None":
        spec.pop("sessionAffinityConfig", None)
    elif spec["sessionAffinity"] == "ClientIP":
        config = spec.get("sessionAffinityConfig") or {}
        if (config.get("clientIP") or {}).get("timeoutSeconds") is None:
            spec["sessionAffinityConfig"] = {"clientIP": {"timeoutSeconds": CLIENT_IP_AFFINITY_SECONDS}}
    kind = spec.get("type") or "ClusterIP"
    spec["type"] = kind
    for port in spec.get("ports") or ():
        if not port.get("protocol"):
            port["protocol"] = "TCP"
        if not port.get("targetPort"):
            port["targetPort"] = port.get("port", 0)
    external = kind in ("NodePort", "LoadBalancer") or (kind == "ClusterIP" and spec.get("externalIPs"))
    if external and not spec.get("externalTrafficPolicy"):
        spec["externalTrafficPolicy"] = "Cluster"
    if kind in ("NodePort", "LoadBalancer", "ClusterIP") and spec.get("internalTrafficPolicy") is None:
        spec["internalTrafficPolicy"] = "Cluster"
    if kind == "LoadBalancer":
        if spec.get("allocateLoadBalancerNodePorts") is None:
            spec["allocateLoadBalancerNodePorts"] = True
        balancer = (obj.get("status") or {}).get("loadBalancer") or {}
        for ingress in balancer.get("ingress") or ():
            if ingress.get("ip") and ingress.get("ipMode") is None:
                ingress["ipMode"] = "VIP"


FUNCTIONS: Final[Mapping[str, Callable[[Object], None]]] = {
    "core.v1.Service": service,
}
