"""Warnings about old node labels, in every kind that selects nodes by labels."""

from __future__ import annotations

from pipeline_writes import context

from kubechronicle.api.pipeline import pipeline
from kubechronicle.api.registry.registry import builtin_registry


def test_old_node_labels_get_a_warning() -> None:
    zone = "failure-domain.beta.kubernetes.io/zone"
    warning = 'deprecated since v1.17; use "topology.kubernetes.io/zone" instead'
    topology = {"matchLabelExpressions": [{"key": zone, "values": ["a"]}]}
    for path, body, field in (
        (
            "storage.k8s.io/v1/storageclasses",
            {"provisioner": "p.example.com", "allowedTopologies": [topology]},
            "allowedTopologies[0].matchLabelExpressions[0].key",
        ),
        (
            "storage.k8s.io/v1/csistoragecapacities",
            {"storageClassName": "s", "nodeTopology": {"matchExpressions": [{"key": zone, "operator": "Exists"}]}},
            "nodeTopology.matchExpressions[0].key",
        ),
        (
            "node.k8s.io/v1/runtimeclasses",
            {"handler": "h", "scheduling": {"nodeSelector": {zone: "a"}}},
            "scheduling.nodeSelector",
        ),
    ):
        rt = builtin_registry().lookup(*path.split("/"))
        assert rt is not None
        obj, _ = pipeline.decode_object(rt, {**body, "metadata": {"name": "a"}}, context(path), create=True)
        assert list(pipeline.prepare_create(rt, obj, context(path)).warnings) == [f"{field}: {warning}"]
