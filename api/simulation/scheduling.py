"""The choice of a node for a pod, by the rules of kube-scheduler that need no other pods.

    nodes        ready, not cordoned, taints tolerated (NoSchedule, NoExecute)
    the pod      nodeSelector, required node affinity, requests within what is left, a free host port
    among these  the node with the fewest pods; the first by name

Rules that need more are refused by name: pods that have one stay Pending, and their condition says why. Volumes,
preferences and priorities are not looked at.

Simulated nodes: the mark by which they are known, which is kwok's, and the object of a new one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from kubechronicle.api.quota.amounts import ZERO, Usage, parsed
from kubechronicle.api.quota.pods import requests_of_spec
from kubechronicle.api.selectors.node_selectors import node_matcher
from kubechronicle.api.values.objects import Object, ReadOnlyObject

SCHEDULER: Final = "default-scheduler"
KEEP_AWAY: Final = ("NoSchedule", "NoExecute")
PODS: Final = "pods"
_UNSCHEDULABLE: Final = "node.kubernetes.io/unschedulable"

HostPort = tuple[str, int]
"""Protocol and port."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """The part of a node that a pod takes."""

    requests: Usage
    ports: frozenset[HostPort]


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeState:
    """A node with the loads of its pods, by their keys."""

    name: str
    labels: Mapping[str, str]
    taints: Sequence[ReadOnlyObject]
    cordoned: bool
    ready: bool
    allocatable: Usage
    loads: Mapping[tuple[str, str], Load]


def node_state(node: ReadOnlyObject, loads: Mapping[tuple[str, str], Load]) -> NodeState:
    """Return the state of a Node. ``loads``: of its pods; may change later."""
    spec, status = node.get("spec") or {}, node.get("status") or {}
    ready = any(each["type"] == "Ready" and each["status"] == "True" for each in status.get("conditions") or ())
    return NodeState(
        name=node["metadata"]["name"],
        labels=node["metadata"].get("labels") or {},
        taints=spec.get("taints") or (),
        cordoned=bool(spec.get("unschedulable")),
        ready=ready and not node["metadata"].get("deletionTimestamp"),
        allocatable=parsed(status.get("allocatable") or status.get("capacity")),
        loads=loads,
    )


def load_of(pod: ReadOnlyObject) -> Load:
    """Return the part of a node that a pod takes."""
    spec = pod.get("spec") or {}
    ports = (
        (port.get("protocol", "TCP"), int(port["hostPort"]))
        for container in (*(spec.get("containers") or ()), *(spec.get("initContainers") or ()))
        for port in container.get("ports") or ()
        if port.get("hostPort")
    )
    return Load(requests=requests_of_spec(dict(pod)), ports=frozenset(ports))


def is_waiting(pod: ReadOnlyObject) -> bool:
    """Tell whether a pod waits for the default scheduler."""
    spec, status = pod.get("spec") or {}, pod.get("status") or {}
    return (
        not spec.get("nodeName")
        and spec.get("schedulerName", SCHEDULER) == SCHEDULER
        and not spec.get("schedulingGates")
        and not pod["metadata"].get("deletionTimestamp")
        and status.get("phase") not in ("Succeeded", "Failed")
    )


def choose(pod: ReadOnlyObject, nodes: Collection[NodeState]) -> tuple[str, str]:
    """Return the name of the node, and "", or "" and why there is none, in kube-scheduler's words."""
    if not nodes:
        return "", "no nodes available to schedule pods"
    unknown = list(_unknown_rules(pod))
    if unknown:
        return "", f"the simulated scheduler does not know {', '.join(unknown)}; run kube-scheduler for this pod"
    spec = pod.get("spec") or {}
    load, selected = load_of(pod), _selected(spec)
    refusals: Counter[str] = Counter()
    fitting = []
    for node in nodes:
        reasons = _reasons(node, spec, load) if selected(node) else [_NO_MATCH]
        refusals.update(reasons)
        if not reasons:
            fitting.append(node)
    if not fitting:
        shown = ", ".join(sorted(f"{count} {reason}" for reason, count in refusals.items()))
        return "", f"0/{len(nodes)} nodes are available: {shown}."
    return min(fitting, key=lambda node: (len(node.loads), node.name)).name, ""


_NO_MATCH: Final = "node(s) didn't match Pod's node affinity/selector"


def _selected(spec: ReadOnlyObject) -> Any:
    labels = spec.get("nodeSelector") or {}
    affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
    matches = node_matcher(required) if required is not None else None

    def selected(node: NodeState) -> bool:
        if any(node.labels.get(key) != value for key, value in labels.items()):
            return False
        return matches is None or matches(node.labels, node.name)

    return selected


def _reasons(node: NodeState, spec: ReadOnlyObject, load: Load) -> list[str]:
    """Return why a pod does not fit on a node that it selects: the first of these rules, or each scarce resource."""
    tolerations = spec.get("tolerations") or ()
    if not node.ready:
        return ["node(s) were not ready"]
    if node.cordoned and not tolerates(tolerations, {"key": _UNSCHEDULABLE, "effect": KEEP_AWAY[0]}):
        return ["node(s) were unschedulable"]
    if any(each.get("effect") in KEEP_AWAY and not tolerates(tolerations, each) for each in node.taints):
        return ["node(s) had untolerated taint(s)"]
    if any(load.ports & other.ports for other in node.loads.values()):
        return ["node(s) didn't have free ports for the requested pod ports"]
    return list(_scarce(node, load))


def _scarce(node: NodeState, load: Load) -> Iterator[str]:
    if PODS in node.allocatable and len(node.loads) + 1 > node.allocatable[PODS][0]:
        yield "Too many pods"
    for name, (wanted, _) in load.requests.items():
        used = sum(other.requests.get(name, ZERO)[0] for other in node.loads.values())
        if wanted and used + wanted > node.allocatable.get(name, ZERO)[0]:
            yield f"Insufficient {name}"


def tolerates(tolerations: Iterable[ReadOnlyObject], taint: ReadOnlyObject) -> bool:
    """Tell whether one of the tolerations matches a taint."""
    for each in tolerations:
        if each.get("effect") and each["effect"] != taint.get("effect"):
            continue
        if each.get("key") and each["key"] != taint.get("key"):
            continue
        operator = each.get("operator") or "Equal"
        if operator == "Exists" or (operator == "Equal" and each.get("key") and _values_equal(each, taint)):
            return True
    return False


def _values_equal(toleration: ReadOnlyObject, taint: ReadOnlyObject) -> bool:
    return bool((toleration.get("value") or "") == (taint.get("value") or ""))


def _unknown_rules(pod: ReadOnlyObject) -> Iterator[str]:
    """Yield the required rules of a pod that are not known here."""
    spec = pod.get("spec") or {}
    required = "requiredDuringSchedulingIgnoredDuringExecution"
    for name in ("podAffinity", "podAntiAffinity"):
        if ((spec.get("affinity") or {}).get(name) or {}).get(required):
            yield f"a required {name}"
    if any(each.get("whenUnsatisfiable") == "DoNotSchedule" for each in spec.get("topologySpreadConstraints") or ()):
        yield "topology spread constraints"
    if spec.get("resourceClaims"):
        yield "resource claims"


SIMULATED: Final = "kwok.x-k8s.io/node"
MARK: Final = "fake"
CAPACITY: Final = {"cpu": "8", "memory": "32Gi", "pods": "110", "ephemeral-storage": "100Gi"}


def is_simulated(node: ReadOnlyObject) -> bool:
    """Tell whether a Node has no machine."""
    return (node["metadata"].get("annotations") or {}).get(SIMULATED) == MARK


def new_node(number: int) -> Object:
    """Return a node of 8 CPUs, 32 GiB and 110 pods. Stages make it and its pods ready."""
    name = f"node-{number}"
    labels = {"kubernetes.io/hostname": name, "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {**labels, "type": "kwok"}, "annotations": {SIMULATED: MARK}},
        "status": {"capacity": dict(CAPACITY), "allocatable": dict(CAPACITY)},
    }
