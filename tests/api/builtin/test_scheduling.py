"""Validation of PriorityClasses."""

from __future__ import annotations

from typing import Any

import pytest
from pipeline_writes import context
from rejections import rejection_reasons

from kubechronicle.api.errors.status import StatusError
from kubechronicle.api.meta.options import DeleteOptions
from kubechronicle.api.pipeline import deleting
from kubechronicle.api.registry.registry import builtin_registry


@pytest.mark.parametrize(
    ("path", "body", "causes"),
    [
        (
            "scheduling.k8s.io/v1/priorityclasses",
            {"metadata": {"name": "system-x"}, "value": 1},
            [("metadata.name", "Forbidden")],
        ),
    ],
)
def test_rejected_creations(path: str, body: dict[str, Any], causes: list[tuple[str, str]]) -> None:
    assert rejection_reasons(path, body) == causes


@pytest.mark.parametrize("name", ["system-node-critical", "system-cluster-critical"])
def test_system_classes_stay(name: str) -> None:
    path = "scheduling.k8s.io/v1/priorityclasses"
    rt = builtin_registry().lookup(*path.split("/"))
    assert rt is not None
    stored = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}}
    with pytest.raises(StatusError) as refused:
        deleting.prepare_delete(rt, stored, DeleteOptions(), context(path, name=name))
    assert refused.value.code == 403
    reason = "this is a system priority class and cannot be deleted"
    assert refused.value.message == f'priorityclasses.scheduling.k8s.io "{name}" is forbidden: {reason}'
