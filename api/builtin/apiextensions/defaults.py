"""Defaults of CustomResourceDefinitions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from kubechronicle.api.values.objects import Object


def custom_resource_definition(obj: Object) -> None:
    """Derive the singular and list names from the kind, and set the conversion strategy and the webhook's port."""
    spec = obj["spec"]
    spec_names = spec.setdefault("names", {})
    kind = spec_names.get("kind", "")
    if kind:
        spec_names["singular"] = spec_names.get("singular") or kind.lower()
        spec_names["listKind"] = spec_names.get("listKind") or f"{kind}List"
    if spec.get("conversion") is None:
        spec["conversion"] = {"strategy": "None"}
    service_reference = ((spec["conversion"].get("webhook") or {}).get("clientConfig") or {}).get("service")
    if service_reference is not None and service_reference.get("port") is None:
        service_reference["port"] = 443


FUNCTIONS: Final[Mapping[str, Callable[[Object], None]]] = {
    "apiextensions.v1.CustomResourceDefinition": custom_resource_definition,
}
