"""Table columns of ResourceSlices. | Source: Kubernetes' ``pkg/printers/internalversion``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from kubechronicle.api.builtin.common.cell_text import Since
from kubechronicle.api.builtin.common.printer import AGE, NAME, Printer, age_of, at, field, name_of
from kubechronicle.api.values.objects import ReadOnlyObject


def _resource_slice(obj: ReadOnlyObject, since: Since) -> list[Any]:
    spec = obj.get("spec") or {}
    pool = at(spec, "pool", "name", default="")
    return [name_of(obj), spec.get("nodeName") or "", spec.get("driver") or "", pool, age_of(obj, since)]


PRINTERS: Final[Mapping[str, Printer]] = {
    "resourceslices.resource.k8s.io": Printer(
        (
            NAME,
            field("Node", "resource.v1.ResourceSliceSpec.nodeName"),
            field("Driver", "resource.v1.ResourceSliceSpec.driver"),
            field("Pool", "resource.v1.ResourcePool.name"),
            AGE,
        ),
        _resource_slice,
    ),
}
