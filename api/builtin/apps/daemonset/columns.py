"""Table columns of DaemonSets. | Source: Kubernetes' ``pkg/printers/internalversion``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from kubechronicle.api.builtin.common.cell_text import Since, labels_text, selector_text
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
from kubechronicle.api.builtin.core.podtemplate.columns import template_containers
from kubechronicle.api.values.objects import ReadOnlyObject


def _daemon_set(obj: ReadOnlyObject, since: Since) -> list[Any]:
    status = obj.get("status") or {}
    counts = (
        "desiredNumberScheduled",
        "currentNumberScheduled",
        "numberReady",
        "updatedNumberScheduled",
        "numberAvailable",
    )
    return [
        name_of(obj),
        *(status.get(count) or 0 for count in counts),
        labels_text(at(obj, "spec", "template", "spec", "nodeSelector")),
        age_of(obj, since),
        *template_containers(obj),
        selector_text(at(obj, "spec", "selector")),
    ]


PRINTERS: Final[Mapping[str, Printer]] = {
    "daemonsets.apps": Printer(
        (
            NAME,
            field("Desired", "apps.v1.DaemonSetStatus.desiredNumberScheduled", "integer"),
            field("Current", "apps.v1.DaemonSetStatus.currentNumberScheduled", "integer"),
            field("Ready", "apps.v1.DaemonSetStatus.numberReady", "integer"),
            field("Up-to-date", "apps.v1.DaemonSetStatus.updatedNumberScheduled", "integer"),
            field("Available", "apps.v1.DaemonSetStatus.numberAvailable", "integer"),
            field("Node Selector", "core.v1.PodSpec.nodeSelector"),
            AGE,
            CONTAINERS,
            IMAGES,
            wide_field("Selector", "apps.v1.DaemonSetSpec.selector"),
        ),
        _daemon_set,
    ),
}
