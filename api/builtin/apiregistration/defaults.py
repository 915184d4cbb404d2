"""Defaults of APIServices."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from kubechronicle.api.values.objects import Object

VALUES: Final[Mapping[str, Mapping[str, Any]]] = {
    "apiregistration.v1.ServiceReference": {"port": 443},
}


def api_service(obj: Object) -> None:
    """Set the port of the service to 443."""
    reference = obj["spec"].get("service")
    if reference is not None and reference.get("port") is None:
        reference["port"] = 443


FUNCTIONS: Final[Mapping[str, Callable[[Object], None]]] = {
    "apiregistration.v1.APIService": api_service,
}
