"""The strategy of PriorityClass.

Source: ``registry/scheduling/priorityclass/strategy.go``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from kubechronicle.api.builtin.scheduling import validation
from kubechronicle.api.strategy.strategy import Check, Strategy


def reason_to_keep(name: str) -> str:
    """Keep the system priority classes."""
    return "this is a system priority class and cannot be deleted" if name in validation.SYSTEM_PRIORITIES else ""


STRATEGIES: Final[Mapping[str, Strategy]] = {
    "priorityclasses.scheduling.k8s.io": Strategy(
        update_checks=(Check.METADATA_CHANGE, Check.CHANGE),
        status=False,
        generation=True,
        generation_fields=(),
        refuses_deletion=reason_to_keep,
        validate=validation.priority_class,
        validate_update=validation.priority_class_update,
    ),
}
