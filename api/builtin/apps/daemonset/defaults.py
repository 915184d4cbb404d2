"""Defaults of DaemonSets."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from kubechronicle.api.errors.field_errors import go_quote
from kubechronicle.api.schema.check import ConversionFailed
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
    elif strategy.get("rollingUpdate") is not None:  # two values that are always there
        strategy["rollingUpdate"].setdefault("maxUnavailable", 0)
        strategy["rollingUpdate"].setdefault("maxSurge", 0)
    annotations = obj["metadata"].setdefault("annotations", {})
    annotations[TEMPLATE_GENERATION] = _number(annotations.get(TEMPLATE_GENERATION, "0"))


_NUMBER: Final = re.compile(r"[+-]?[0-9]+\Z")
_LARGEST: Final = 2**63 - 1


def _number(text: str) -> str:
    """Return a generation as Kubernetes writes it. Rejects an annotation that its decoder cannot read."""
    problem = ""
    if not _NUMBER.match(text):
        problem = "invalid syntax"
    elif len(text) > len(str(_LARGEST)) + 1 or not -_LARGEST - 1 <= int(text) <= _LARGEST:
        problem = "value out of range"
    if problem:
        raise ConversionFailed(f"strconv.ParseInt: parsing {go_quote(text)}: {problem}")
    return str(int(text))


FUNCTIONS: Final[Mapping[str, Callable[[Object], None]]] = {
    "apps.v1.DaemonSet": daemon_set,
}
