"""Defaults of PriorityClasses."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

VALUES: Final[Mapping[str, Mapping[str, Any]]] = {
    "scheduling.v1.PriorityClass": {"preemptionPolicy": "PreemptLowerPriority"},
}
