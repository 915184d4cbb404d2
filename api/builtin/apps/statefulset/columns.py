"""Table columns of StatefulSets. | Source: Kubernetes' ``pkg/printers/internalversion``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from kubechronicle.api.builtin.common.cell_text import Since
from kubechronicle.api.builtin.common.printer import AGE, CONTAINERS, IMAGES, NAME, Printer, age_of, at, name_of
from kubechronicle.api.builtin.core.podtemplate.columns import READY, template_containers
from kubechronicle.api.values.objects import ReadOnlyObject


def _stateful_set(obj: ReadOnlyObject, since: Since) -> list[Any]:
    ready = at(obj, "status", "readyReplicas", default=0)
    desired = at(obj, "spec", "replicas", default=0)
    return [name_of(obj), f"{ready}/{desired}", age_of(obj, since), *template_containers(obj)]


PRINTERS: Final[Mapping[str, Printer]] = {
    "statefulsets.apps": Printer((NAME, READY, AGE, CONTAINERS, IMAGES), _stateful_set),
}
