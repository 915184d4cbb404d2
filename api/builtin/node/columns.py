"""Table columns of RuntimeClasses. | Source: Kubernetes' ``pkg/printers/internalversion``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from kubechronicle.api.builtin.common.cell_text import Since
from kubechronicle.api.builtin.common.printer import AGE, NAME, Column, Printer, age_of, name_of
from kubechronicle.api.values.objects import ReadOnlyObject


def _runtime_class(obj: ReadOnlyObject, since: Since) -> list[Any]:
    return [name_of(obj), obj.get("handler") or "", age_of(obj, since)]


PRINTERS: Final[Mapping[str, Printer]] = {
    "runtimeclasses.node.k8s.io": Printer((NAME, Column("Handler"), AGE), _runtime_class),
}
