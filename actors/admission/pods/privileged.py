"""Privileged containers, refused everywhere if --allow-privileged is false."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from kubechronicle.actors.admission.chain import AdmissionState, Attributes
from kubechronicle.actors.admission.pod_security.plugin import TEMPLATES
from kubechronicle.actors.companion_changes import CompanionChange
from kubechronicle.api.errors.field_errors import forbidden
from kubechronicle.eventlog.entries import Entry

PODS: Final = ("pods", "pods/ephemeralcontainers")
CONTAINERS: Final = ("containers", "initContainers", "ephemeralContainers")
REFUSED: Final = "disallowed by cluster policy"


class RefusedPrivilege:
    """A StorageHook that refuses pods and pod templates with privileged containers (ValidateSecurityContext of
    kube-apiserver)."""

    resources = frozenset({*PODS, *TEMPLATES})

    def begin_write(self, attributes: Attributes, state: AdmissionState) -> None:
        obj: Any = attributes.object
        path = TEMPLATES.get(attributes.rt.resource, ())
        for key in path:
            obj = (obj or {}).get(key)
        spec = (obj or {}).get("spec") or {}
        for field in CONTAINERS:
            for index, container in enumerate(spec.get(field) or ()):
                if (container.get("securityContext") or {}).get("privileged"):
                    where = ".".join((*path, f"spec.{field}[{index}].securityContext.privileged"))
                    attributes.causes.append(forbidden(where, REFUSED))

    def release(self, entry: Entry, state: AdmissionState) -> Sequence[CompanionChange]:
        return ()
