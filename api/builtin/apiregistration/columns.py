"""Table columns of APIServices. | Source: kube-aggregator's ``registry/apiservice/etcd``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from kubechronicle.api.builtin.common.cell_text import Since, condition
from kubechronicle.api.builtin.common.printer import AGE, NAME, Column, Printer, age_of, at, name_of
from kubechronicle.api.values.objects import ReadOnlyObject


def _api_service(obj: ReadOnlyObject, since: Since) -> list[Any]:
    service = at(obj, "spec", "service")
    available = condition(at(obj, "status", "conditions"), "Available")
    word = "Unknown"
    if available is not None:
        word, reason = available.get("status") or "", available.get("reason") or ""
        if word != "True" and reason:
            word = f"{word} ({reason})"
    local = service is None
    return [
        name_of(obj),
        "Local" if local else f"{service.get('namespace', '')}/{service.get('name', '')}",
        word,
        age_of(obj, since),
    ]


PRINTERS: Final[Mapping[str, Printer]] = {
    "apiservices.apiregistration.k8s.io": Printer(
        (
            NAME,
            Column("Service", text="The reference to the service that hosts this API endpoint."),
            Column("Available", text="Whether this service is available."),
            AGE,
        ),
        _api_service,
    ),
}
