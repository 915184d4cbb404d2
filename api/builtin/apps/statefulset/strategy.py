"""The strategy of StatefulSet.

Source: ``registry/apps/statefulset/strategy.go``.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from kubechronicle.api.builtin.apps.statefulset import validation, warnings
from kubechronicle.api.builtin.core.podtemplate.strategy import prepare_new_workload
from kubechronicle.api.strategy.strategy import Check, Strategy, status_update
from kubechronicle.api.values.objects import Object


def prepare_stateful_set_update(new: Object, old: Object | None = None) -> None:
    """Drop disabled fields, and ``maxUnavailable`` (a disabled feature) unless the old object has it."""
    prepare_new_workload(new)
    rolling = (new["spec"].get("updateStrategy") or {}).get("rollingUpdate") or {}
    held = ((old or {}).get("spec", {}).get("updateStrategy") or {}).get("rollingUpdate") or {}
    if "maxUnavailable" in rolling and "maxUnavailable" not in held:
        del rolling["maxUnavailable"]


def prepare_new_stateful_set(new: Object) -> None:
    """Drop the fields of disabled features."""
    prepare_stateful_set_update(new)


STRATEGIES: Final[Mapping[str, Strategy]] = {
    "statefulsets.apps": Strategy(
        update_checks=(Check.METADATA_CHANGE, Check.CHANGE),
        names="label",
        generation=True,
        prepare_create=prepare_new_stateful_set,
        prepare_update=prepare_stateful_set_update,
        validate=validation.stateful_set,
        validate_update=validation.stateful_set_update,
        warnings=warnings.stateful_set_warnings,
        subresources=MappingProxyType(
            {"status": status_update("spec", validate_update=validation.stateful_set_status)}
        ),
    ),
}
