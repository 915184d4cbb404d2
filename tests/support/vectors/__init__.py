"""Published golden vectors of protobuf, if they are beside the project: objects in protobuf and in JSON."""

from __future__ import annotations

from pathlib import Path
from typing import Final

GOLDEN: Final = Path(__file__).resolve().parents[4] / "shared" / "protobuf-golden"
OF_FORMER_RELEASE: Final = frozenset(
    {
        "core.v1.Pod",
        "core.v1.PodStatusResult",
        "resource.k8s.io.v1beta2.ResourceSlice",
        "scheduling.k8s.io.v1alpha2.PodGroup",
        "scheduling.k8s.io.v1alpha2.Workload",
        "storage.k8s.io.v1.CSINode",
        "storage.k8s.io.v1beta1.CSINode",
    }
)
"""Vectors of v1.36 with fields or kinds that v1.37 has no more, or without a status that it prints."""
VECTORS: Final = sorted(path for path in GOLDEN.glob("*.pb") if path.stem not in OF_FORMER_RELEASE)
