"""The strategy of CustomResourceDefinition: a write of the object never changes the status but for stored versions.

Source: apiextensions-apiserver ``pkg/registry/customresourcedefinition/strategy.go``.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from kubechronicle.api.builtin.apiextensions import validation
from kubechronicle.api.builtin.apiextensions.validation_defaults import drop_unknown_metadata
from kubechronicle.api.builtin.apiextensions.warnings import definition_warnings
from kubechronicle.api.strategy.strategy import Check, Strategy, status_update
from kubechronicle.api.values.objects import Object


def _note_storage_version(new: Object) -> None:
    """Add the storage version to the stored versions. The old object may hold the same status: it is copied."""
    status = new.get("status") or {}
    stored = status.get("storedVersions") or []
    for version in new["spec"].get("versions") or ():
        if version.get("storage"):
            if version.get("name", "") not in stored:
                new["status"] = {**status, "storedVersions": [*stored, version.get("name", "")]}
            return


STRATEGIES: Final[Mapping[str, Strategy]] = {
    "customresourcedefinitions.apiextensions.k8s.io": Strategy(
        generation=True,
        unconditional_update=False,
        kube_finalizers=False,
        checks_metadata=False,
        update_checks=(Check.METADATA_CHANGE, Check.CHANGE),
        prepare_create=_note_storage_version,
        prepare_update=lambda new, old: _note_storage_version(new),
        validate=validation.definition,
        validate_update=validation.definition_change,
        canonicalize=drop_unknown_metadata,
        warnings=definition_warnings,
        subresources=MappingProxyType(
            # Metadata may change with the status, as in kube-apiserver.
            {"status": status_update("spec", validate_update=validation.definition_status)}
        ),
    ),
}
