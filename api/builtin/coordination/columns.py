"""Table columns of Leases. | Source: Kubernetes' ``pkg/printers/internalversion``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from kubechronicle.api.builtin.common.cell_text import Since
from kubechronicle.api.builtin.common.printer import AGE, NAME, Printer, age_of, at, field, name_of
from kubechronicle.api.values.objects import ReadOnlyObject


def _lease(obj: ReadOnlyObject, since: Since) -> list[Any]:
    return [name_of(obj), at(obj, "spec", "holderIdentity", default=""), age_of(obj, since)]


PRINTERS: Final[Mapping[str, Printer]] = {
    "leases.coordination.k8s.io": Printer(
        (NAME, field("Holder", "coordination.v1.LeaseSpec.holderIdentity"), AGE), _lease
    ),
}
