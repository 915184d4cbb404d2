"""TaintNodesByCondition, DefaultTolerationSeconds and PodTopologyLabels
(plugin/pkg/admission/{nodetaint,defaulttolerationseconds,podtopologylabels} of kube-apiserver)."""

from __future__ import annotations

from typing import Any, Final

from kubechronicle.actors.admission.chain import CREATE, AdmissionPlugin, AdmissionState, Attributes

NOT_READY: Final = "node.kubernetes.io/not-ready"
UNREACHABLE: Final = "node.kubernetes.io/unreachable"
# Default of --default-not-ready-toleration-seconds and --default-unreachable-toleration-seconds.
TOLERATION_SECONDS: Final = 300
TOPOLOGY_LABELS: Final = ("topology.kubernetes.io/zone", "topology.kubernetes.io/region")


class TaintNodesByCondition(AdmissionPlugin):
    """Taints a new node, so that it receives no pods until its conditions are known."""

    name = "TaintNodesByCondition"
    resources = frozenset({"nodes"})
    operations = frozenset({CREATE})

    def admit(self, attributes: Attributes, state: AdmissionState) -> None:
        node = attributes.object
        if node is None or attributes.subresource:
            return
        spec = node.setdefault("spec", {})
        taints = spec.get("taints") or []
        if all((taint.get("key"), taint.get("effect")) != (NOT_READY, "NoSchedule") for taint in taints):
            spec["taints"] = [*taints, {"key": NOT_READY, "effect": "NoSchedule"}]


class DefaultTolerationSeconds(AdmissionPlugin):
    """Lets pods stay on an unreachable node for five minutes, unless they have tolerations of their own."""

    name = "DefaultTolerationSeconds"
    resources = frozenset({"pods"})

    def __init__(self, not_ready: int = TOLERATION_SECONDS, unreachable: int = TOLERATION_SECONDS) -> None:
        self._seconds = {NOT_READY: not_ready, UNREACHABLE: unreachable}

    def admit(self, attributes: Attributes, state: AdmissionState) -> None:
        pod = attributes.object
        if pod is None or attributes.subresource:
            return
        spec = pod.setdefault("spec", {})
        tolerations = spec.get("tolerations") or []
        missing = [key for key in self._seconds if not any(_tolerates(one, key) for one in tolerations)]
        if missing:
            spec["tolerations"] = [*tolerations, *(_toleration(key, self._seconds[key]) for key in missing)]


def _tolerates(toleration: dict[str, Any], key: str) -> bool:
    return toleration.get("key", "") in ("", key) and toleration.get("effect", "") in ("", "NoExecute")


def _toleration(key: str, seconds: int) -> dict[str, Any]:
    return {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": seconds}


class PodTopologyLabels(AdmissionPlugin):
    """Labels a pod with the zone and region of its node, at creation or binding."""

    name = "PodTopologyLabels"
    gate = "PodTopologyLabelsAdmission"
    resources = frozenset({"pods"})

    def admit(self, attributes: Attributes, state: AdmissionState) -> None:
        obj = attributes.object
        if obj is None or attributes.subresource not in ("", "binding"):
            return
        if attributes.subresource:
            target = obj.get("target") or {}
            node = target.get("name", "") if target.get("kind") == "Node" else ""
        else:
            node = (obj.get("spec") or {}).get("nodeName", "")
        entry = state.peek("nodes", "", node) if node else None
        if entry is None:
            return
        labels = {name: entry.labels[name] for name in TOPOLOGY_LABELS if name in entry.labels}
        if labels:
            obj["metadata"]["labels"] = {**(obj["metadata"].get("labels") or {}), **labels}
