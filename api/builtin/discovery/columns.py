"""Table columns of EndpointSlices. | Source: Kubernetes' ``pkg/printers/internalversion``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from kubechronicle.api.builtin.common.cell_text import Since, joined
from kubechronicle.api.builtin.common.printer import AGE, NAME, Printer, age_of, field, name_of
from kubechronicle.api.values.objects import ReadOnlyObject

LIST_SHOWN: Final = 3


def _slice_port(port: ReadOnlyObject) -> str:
    number = port.get("port")
    return str(number) if number is not None else port.get("name") or "*"


def _endpoint_slice(obj: ReadOnlyObject, since: Since) -> list[Any]:
    addresses = [address for endpoint in obj.get("endpoints") or () for address in endpoint.get("addresses") or ()]
    return [
        name_of(obj),
        obj.get("addressType") or "",
        joined([_slice_port(port) for port in obj.get("ports") or ()], LIST_SHOWN, empty="<unset>"),
        joined(addresses, LIST_SHOWN, empty="<unset>"),
        age_of(obj, since),
    ]


PRINTERS: Final[Mapping[str, Printer]] = {
    "endpointslices.discovery.k8s.io": Printer(
        (
            NAME,
            field("AddressType", "discovery.v1.EndpointSlice.addressType"),
            field("Ports", "discovery.v1.EndpointSlice.ports"),
            field("Endpoints", "discovery.v1.EndpointSlice.endpoints"),
            AGE,
        ),
        _endpoint_slice,
    ),
}
