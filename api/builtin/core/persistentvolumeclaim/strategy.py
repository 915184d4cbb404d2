"""The strategy of PersistentVolumeClaim.

Source: ``registry/core/persistentvolumeclaim/strategy.go``.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from kubechronicle.api.builtin.core.persistentvolumeclaim import validation, warnings
from kubechronicle.api.strategy.strategy import Strategy, status_update
from kubechronicle.api.values.objects import Object

_DATA_SOURCES: Final = (("", "PersistentVolumeClaim"), ("snapshot.storage.k8s.io", "VolumeSnapshot"))


def _is_data_source(reference: Object) -> bool:
    return (reference.get("apiGroup") or "", reference.get("kind")) in _DATA_SOURCES


def prepare_new_claim(new: Object) -> None:
    """Set the phase to Pending; copy the data source between its older field (dataSource) and its newer
    (dataSourceRef)."""
    new["status"] = {"phase": "Pending"}
    spec = new["spec"]
    if (spec.get("dataSourceRef") or {}).get("namespace"):
        del spec["dataSourceRef"]  # CrossNamespaceVolumeDataSource is disabled
    source, reference = spec.get("dataSource"), spec.get("dataSourceRef")
    if source and not reference and not _is_data_source(source):
        del spec["dataSource"]
    elif source and not reference:
        spec["dataSourceRef"] = dict(source)
    elif reference and not source and not reference.get("namespace") and _is_data_source(reference):
        spec["dataSource"] = dict(reference)


STRATEGIES: Final[Mapping[str, Strategy]] = {
    "persistentvolumeclaims": Strategy(
        returns_deleted=True,
        prepare_create=prepare_new_claim,
        validates_spec_update=False,
        validate=validation.claim,
        validate_update=validation.claim_update,
        warnings=warnings.claim_warnings,
        subresources=MappingProxyType({"status": status_update("spec", validate_update=validation.claim_status)}),
        validates_whole_update=False,
    ),
}
