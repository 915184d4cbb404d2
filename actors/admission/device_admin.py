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
TEMPLATES: Final = "resourceclaimtemplates.resource.k8s.io"
NEEDED: Final = f"admin access to devices requires the `{LABEL}: true` label on the containing namespace"


def _requests(obj: dict[str, Any], resource: str) -> list[dict[str, Any]]:
    spec = obj.get("spec") or {}
    if resource == TEMPLATES:
        spec = spec.get("spec") or {}
    return (spec.get("devices") or {}).get("requests") or []


class AdminAccess:
    """A StorageHook that checks claims for admin access."""

    resources = frozenset({CLAIMS, TEMPLATES})

    def begin_write(self, attributes: Attributes, state: State) -> None:
        """Report a new claim or template with admin access in a namespace without the label."""
        obj = attributes.object
        if obj is None or attributes.operation != CREATE:
            return
        for index, request in enumerate(_requests(obj, attributes.rt.resource)):
            if not (request.get("exactly") or {}).get("adminAccess"):
                continue
            namespace = state.peek("namespaces", "", attributes.namespace)
            if namespace is not None and namespace.labels.get(LABEL) == "true":
                return
            attributes.causes.append(forbidden(f"spec.devices.requests[{index}].adminAccess", NEEDED))
            return

    def release(self, entry: Entry, state: State) -> Sequence[CompanionChange]:
        """Return nothing: a check holds nothing."""
        return ()
