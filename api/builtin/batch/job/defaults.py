"""Defaults of Jobs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from kubechronicle.api.values.objects import Object

MAX_INT32: Final = 2**31 - 1

VALUES: Final[Mapping[str, Mapping[str, Any]]] = {
    "batch.v1.PodFailurePolicyOnPodConditionsPattern": {"status": "True"},
}


def job(obj: Object) -> None:
    """Default to one pod that must succeed once, and fill in the policies and the labels."""
    spec = obj["spec"]
    if spec.get("completions") is None and spec.get("parallelism") is None:
        spec["completions"] = 1
    spec.setdefault("parallelism", 1)
    if spec.get("backoffLimit") is None:
        spec["backoffLimit"] = MAX_INT32 if spec.get("backoffLimitPerIndex") is not None else 6
    labels = ((spec.get("template") or {}).get("metadata") or {}).get("labels")
    if labels and not obj["metadata"].get("labels"):
        # One mapping, as in Kubernetes: labels that the strategy adds to the pods of a new Job are the Job's, too.
        obj["metadata"]["labels"] = labels
    spec.setdefault("completionMode", "NonIndexed")
    spec.setdefault("suspend", False)
    if spec.get("podReplacementPolicy") is None:
        spec["podReplacementPolicy"] = "Failed" if spec.get("podFailurePolicy") is not None else "TerminatingOrFailed"
    spec.setdefault("manualSelector", False)


FUNCTIONS: Final[Mapping[str, Callable[[Object], None]]] = {
    "batch.v1.Job": job,
}
