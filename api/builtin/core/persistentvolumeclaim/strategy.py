"""The strategy of PersistentVolumeClaim.

Source: ``registry/core/persistentvolumeclaim/strategy.go``.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from kubechronicle.api.builtin.core.persistentvolumeclaim import validation, warnings
from kubechronicle.api.builtin.core.persistentvolumeclaim.data_sources import copy_between_fields, drop_unusable
from kubechronicle.api.strategy.strategy import Check, Strategy, status_update
from kubechronicle.api.values.objects import Object


def prepare_new_claim(new: Object) -> None:
    """Reset the status, and write the data source into both of its fields. The phase is Pending by default. Kubernetes
    stores it with the first update only: until then, each read sets it."""
    new["status"] = {}
    drop_unusable(new["spec"], {})
    copy_between_fields(new["spec"])


def prepare_claim_update(new: Object, old: Object) -> None:
    """Write the data source into both of its fields: older clients know one only."""
    drop_unusable(new["spec"], old["spec"])
    copy_between_fields(new["spec"])


STRATEGIES: Final[Mapping[str, Strategy]] = {
    "persistentvolumeclaims": Strategy(
        update_checks=(Check.METADATA_CHANGE, Check.METADATA, Check.CHANGE),
        returns_deleted=True,
        defaults_again=True,
        changes_when_read=lambda new: True,
        prepare_create=prepare_new_claim,
        prepare_update=prepare_claim_update,
        validate=validation.claim,
        validate_update=validation.claim_update,
        warnings=warnings.claim_warnings,
        subresources=MappingProxyType({"status": status_update("spec", validate_update=validation.claim_status)}),
    ),
}
