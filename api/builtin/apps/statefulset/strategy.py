"""The strategy of StatefulSet.

Source: ``registry/apps/statefulset/strategy.go``.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from kubechronicle.api.builtin.apps.statefulset import validation, warnings
from kubechronicle.api.strategy.strategy import Check, Strategy, status_update

STRATEGIES: Final[Mapping[str, Strategy]] = {
    "statefulsets.apps": Strategy(
        update_checks=(Check.METADATA_CHANGE, Check.CHANGE),
        names="label",
        generation=True,
        validate=validation.stateful_set,
        validate_update=validation.stateful_set_update,
        warnings=warnings.stateful_set_warnings,
        subresources=MappingProxyType(
            {"status": status_update("spec", validate_update=validation.stateful_set_status)}
        ),
    ),
}
