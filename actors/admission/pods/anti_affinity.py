"""LimitPodHardAntiAffinityTopology: allow required anti-affinity of pods within a node only
(plugin/pkg/admission/antiaffinity of kube-apiserver). Disabled by default."""

from __future__ import annotations

from typing import Final

from kubechronicle.actors.admission.chain import AdmissionPlugin, Attributes, State
from kubechronicle.api.errors import status

HOSTNAME: Final = "kubernetes.io/hostname"


class LimitPodHardAntiAffinityTopology(AdmissionPlugin):
    name = "LimitPodHardAntiAffinityTopology"
    resources = frozenset({"pods"})

    def validate(self, attributes: Attributes, state: State) -> None:
        pod = attributes.object
        if pod is None or attributes.subresource:
            return
        affinity = ((pod.get("spec") or {}).get("affinity") or {}).get("podAntiAffinity") or {}
        for term in affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or ():
            key = term.get("topologyKey", "")
            if key != HOSTNAME:
                why = (
                    f"affinity.PodAntiAffinity.RequiredDuringScheduling has TopologyKey {key} but only key {HOSTNAME} "
                    "is allowed"
                )
                raise status.forbidden(attributes.rt, pod["metadata"].get("name", ""), why)
