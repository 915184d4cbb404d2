"""Admin access to devices that others have allocated: allowed in labelled namespaces only (KEP-5018)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from kubechronicle.actors.admission.chain import CREATE, Attributes, State
from kubechronicle.actors.companion_changes import CompanionChange
from kubechronicle.api.errors.field_errors import forbidden
from kubechronicle.eventlog.entries import Entry

LABEL: Final = "resource.kubernetes.io/admin-access"
CLAIMS: Final = "resourceclaims.resource.k8s.io"
CLAIM_STATUS: Final = f"{CLAIMS}/status"
TEMPLATES: Final = "resourceclaimtemplates.resource.k8s.io"
NEEDED: Final = f"admin access to devices requires the `{LABEL}: true` label on the containing namespace"


def _asked(obj: dict[str, Any], resource: str) -> str:
    """Return the path of the first request of a new claim or template that asks for admin access."""
    spec = obj.get("spec") or {}
    if resource == TEMPLATES:
        spec = spec.get("spec") or {}
    for index, request in enumerate((spec.get("devices") or {}).get("requests") or ()):
        if (request.get("exactly") or {}).get("adminAccess"):
            return f"spec.devices.requests[{index}].adminAccess"
    return ""


def _granted(obj: dict[str, Any]) -> str:
    """Return the path of the first allocated device of a claim with admin access."""
    allocation = (obj.get("status") or {}).get("allocation") or {}
    for index, result in enumerate((allocation.get("devices") or {}).get("results") or ()):
        if result.get("adminAccess"):
            return f"status.allocation.devices.results[{index}].adminAccess"
    return ""


class AdminAccess:
    """A StorageHook that checks claims for admin access."""

    resources = frozenset({CLAIMS, TEMPLATES, CLAIM_STATUS})

    def begin_write(self, attributes: Attributes, state: State) -> None:
        """Report new admin access in a namespace without the label: of a claim or template, or in an allocation."""
        obj, old = attributes.object, attributes.old
        if obj is None:
            return
        if attributes.subresource:
            field = "" if old is None or _granted(old.object()) else _granted(obj)
        else:
            field = _asked(obj, attributes.rt.resource) if attributes.operation == CREATE else ""
        if not field:
            return
        namespace = state.peek("namespaces", "", attributes.namespace)
        if namespace is None or namespace.labels.get(LABEL) != "true":
            attributes.causes.append(forbidden(field, NEEDED))

    def release(self, entry: Entry, state: State) -> Sequence[CompanionChange]:
        """Return nothing: a check holds nothing."""
        return ()
