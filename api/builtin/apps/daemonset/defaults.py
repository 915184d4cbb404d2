"""Defaults of DaemonSets."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from kubechronicle.api.errors.field_errors import go_quote
from kubechronicle.api.schema.check import TypeMismatch
from kubechronicle.api.values.objects import Object

TEMPLATE_GENERATION: Final = "deprecated.daemonset.template.generation"
"""Annotation that counts the changes of the template, for old clients."""

VALUES: Final[Mapping[str, Mapping[str, Any]]] = {
    "apps.v1.DaemonSetSpec": {"revisionHistoryLimit": 10},
}


def daemon_set(obj: Object) -> None:
    """Default to a rolling update that replaces the pod of one node at a time."""
    strategy = obj["spec"].setdefault("updateStrategy", {})
    if not strategy.get("type"):
        strategy["type"] = "RollingUpdate"
    if strategy["type"] == "RollingUpdate":
        rolling = strategy.setdefault("rollingUpdate", {})
        rolling.setdefault("maxUnavailable", 1)
        rolling.setdefault("maxSurge", 0)
    _demand_number(obj["metadata"].setdefault("annotations", {}).setdefault(TEMPLATE_GENERATION, "0"))


_NUMBER: Final = re.compile(r"[+-]?[0-9]+\Z")
_LARGEST: Final = 2**63 - 1


def _demand_number(text: str) -> None:
    """Reject an annotation that Kubernetes' decoder cannot read as a generation."""
    problem = ""
    if not _NUMBER.match(text):
        problem = "invalid syntax"
    elif len(text) > len(str(_LARGEST)) + 1 or not -_LARGEST - 1 <= int(text) <= _LARGEST:
        problem = "value out of range"
    if problem:
        raise TypeMismatch(f"strconv.ParseInt: parsing {go_quote(text)}: {problem}")


FUNCTIONS: Final[Mapping[str, Callable[[Object], None]]] = {
    "apps.v1.DaemonSet": daemon_set,
}
