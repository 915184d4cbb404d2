"""The strategy of StorageVersionMigration.

Source: ``registry/storagemigration/storagemigration/strategy.go``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from kubechronicle.api.builtin.common.status_strategies import only_status
from kubechronicle.api.builtin.storagemigration import validation
from kubechronicle.api.strategy.strategy import Check, Strategy

STRATEGIES: Final[Mapping[str, Strategy]] = {
    "storageversionmigrations.storagemigration.k8s.io": Strategy(
        update_checks=(Check.METADATA, Check.OBJECT, Check.METADATA_CHANGE, Check.CHANGE),
        unconditional_update=False,
        subresources=only_status(validation.migration_status),
        validate=validation.migration,
        validate_update=validation.migration_update,
    ),
}
