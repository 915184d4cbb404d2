"""Table columns of Deployments. | Source: Kubernetes' ``pkg/printers/internalversion``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from kubechronicle.api.builtin.common.cell_text import Since, selector_text
from kubechronicle.api.builtin.common.printer import (
    AGE,
    CONTAINERS,
    IMAGES,
    NAME,
    Printer,
    age_of,
    at,
    field,
    name_of,
    wide_field,
)
from kubechronicle.api.builtin.core.podtemplate.columns import READY, template_containers
from kubechronicle.api.values.objects import ReadOnlyObject


def _deployment(obj: ReadOnlyObject, since: Since) -> list[Any]:
    status = obj.get("status") or {}
    return [
        name_of(obj),
        f"{status.get('readyReplicas') or 0}/{at(obj, 'spec', 'replicas', default=0)}",
        status.get("updatedReplicas") or 0,
        status.get("availableReplicas") or 0,
        age_of(obj, since),
        *template_containers(obj),
        selector_text(at(obj, "spec", "selector"), empty=""),
    ]


PRINTERS: Final[Mapping[str, Printer]] = {
    "deployments.apps": Printer(
        (
            NAME,
            READY,
            field("Up-to-date", "apps.v1.DeploymentStatus.updatedReplicas"),
            field("Available", "apps.v1.DeploymentStatus.availableReplicas"),
            AGE,
            CONTAINERS,
            IMAGES,
            wide_field("Selector", "apps.v1.DeploymentSpec.selector"),
        ),
        _deployment,
    ),
}
