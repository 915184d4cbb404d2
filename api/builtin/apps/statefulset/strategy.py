"""The strategy of StatefulSet.

Source: ``registry/apps/statefulset/strategy.go``.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from kubechronicle.api.builtin.apps.statefulset import validation, warnings
from kubechronicle.api.strategy.strategy import Check, Strategy, status_update
from kubechronicle.api.values.objects import Object


def default_unavailable(new: Object, old: Object | None = None) -> None:
    """Let a rolling update replace one pod at a time, as Kubernetes' defaults do with MaxUnavailableStatefulSet."""
    rolling = (new["spec"].get("updateStrategy") or {}).get("rollingUpdate")
    if rolling is not None:
        rolling.setdefault("maxUnavailable", 1)


STRATEGIES: Final[Mapping[str, Strategy]] = {
    "statefulsets.apps": Strategy(
        pod_spec="spec.template.spec",
        update_checks=(Check.METADATA_CHANGE, Check.CHANGE),
        names="label",
        generation=True,
        with_gates={
            "MaxUnavailableStatefulSet": {"prepare_create": default_unavailable, "prepare_update": default_unavailable}
        },
        validate=validation.stateful_set,
        validate_update=validation.stateful_set_update,
        warnings=warnings.stateful_set_warnings,
        subresources=MappingProxyType(
            {"status": status_update("spec", validate_update=validation.stateful_set_status)}
        ),
    ),
}
