"""Defaults of networking.k8s.io."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from kubechronicle.api.values.objects import Object

VALUES: Final[Mapping[str, Mapping[str, Any]]] = {
    "networking.v1.NetworkPolicyPort": {"protocol": "TCP"},
    "networking.v1.IngressClassParametersReference": {"scope": "Cluster"},
}


def network_policy(obj: Object) -> None:
    """Set the policy types: Ingress, and Egress if the policy has egress rules."""
    spec = obj["spec"]
    if not spec.get("policyTypes"):
        spec["policyTypes"] = ["Ingress", "Egress"] if spec.get("egress") else ["Ingress"]


FUNCTIONS: Final[Mapping[str, Callable[[Object], None]]] = {
    "networking.v1.NetworkPolicy": network_policy,
}
