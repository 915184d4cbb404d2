"""Simulated nodes: the mark by which they are known, which is kwok's, and the object of a new one."""

from __future__ import annotations

from typing import Final

from kubechronicle.api.values.objects import Object, ReadOnlyObject

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
