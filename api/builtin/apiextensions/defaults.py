"""Defaults of CustomResourceDefinitions.

Source: apiextensions-apiserver ``pkg/apis/apiextensions/v1/defaults.go``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from kubechronicle.api.values.objects import Object


def custom_resource_definition(obj: Object) -> None:
    """Derive the singular and list names from the kind, set the conversion strategy, and note the stored version."""
    spec = obj["spec"]
    names = spec.setdefault("names", {})
    kind = names.get("kind", "")
    if kind:
        names["singular"] = names.get("singular") or kind.lower()
        names["listKind"] = names.get("listKind") or f"{kind}List"
    if spec.get("conversion") is None:
        spec["conversion"] = {"strategy": "None"}
    webhook = spec["conversion"].get("webhook")
    if webhook is not None and not webhook.get("conversionReviewVersions") and webhook.get("clientConfig") is None:
        del spec["conversion"]["webhook"]  # kube-apiserver's internal form cannot hold it
    service_reference = ((spec["conversion"].get("webhook") or {}).get("clientConfig") or {}).get("service")
    if service_reference is not None and service_reference.get("port") is None:
        service_reference["port"] = 443
    status = obj.get("status")
    if status is not None and not status.get("storedVersions"):
        stored = [version.get("name", "") for version in spec.get("versions") or () if version.get("storage")]
        if stored:
            status["storedVersions"] = stored[:1]


FUNCTIONS: Final[Mapping[str, Callable[[Object], None]]] = {
    "apiextensions.v1.CustomResourceDefinition": custom_resource_definition,
}
