"""DaemonSet: a pod on each node. | Source: Kubernetes' ``registry/apps/daemonset`` and ``apis/apps``."""

from __future__ import annotations

import re
from types import MappingProxyType
from typing import Any, Final

from kubechronicle.api.builtin.common.cell_text import Since, labels_text, selector_text
from kubechronicle.api.builtin.common.checks import (
    at_most_100_percent,
    int_or_percent,
    is_zero,
    label_selector,
    not_negative,
)
from kubechronicle.api.builtin.common.kind import BuiltinKind
from kubechronicle.api.builtin.common.printer import (
    AGE,
    CONTAINERS,
    IMAGES,
    NAME,
    Printer,
    age_of,
    at,
    field_column,
    name_of,
    wide_field,
)
from kubechronicle.api.builtin.core.pod.options import USUAL, PodOptions
from kubechronicle.api.builtin.core.podtemplate import (
    collisions,
    long_running,
    not_empty,
    pod_template,
    selector_update,
    shown_rolling_update,
    template_containers,
    template_labels,
    warnings_in_template,
)
from kubechronicle.api.errors.field_errors import Cause, go_quote, invalid_value, not_supported, required
from kubechronicle.api.schema.check import ConversionFailed
from kubechronicle.api.strategy.strategy import Check, Strategy, status_update
from kubechronicle.api.values.objects import Object, ReadOnlyObject

# -- defaults ---------------------------------------------------------------------------------------------------------

TEMPLATE_GENERATION: Final = "deprecated.daemonset.template.generation"
"""Annotation that counts the changes of the template, for old clients."""


def default_daemon_set(obj: Object) -> None:
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


# -- preparation ------------------------------------------------------------------------------------------------------


def prepare_new_daemon_set(new: Object) -> None:
    """Start the template generation in its annotation: at 1, or a higher number given."""
    new["metadata"].setdefault("annotations", {})[TEMPLATE_GENERATION] = str(max(_template_generation(new), 1))


def prepare_daemon_set_update(new: Object, old: Object) -> None:
    """Increment the template generation when the template has changed."""
    generation = _template_generation(old)
    if new["spec"].get("template") != old["spec"].get("template"):
        generation += 1
    new["metadata"].setdefault("annotations", {})[TEMPLATE_GENERATION] = str(generation)


def keep_template_generation(new: Object, old: Object) -> None:
    """Keep the template generation, which is a part of the spec in Kubernetes, in an update of the status."""
    new["metadata"].setdefault("annotations", {})[TEMPLATE_GENERATION] = str(_template_generation(old))


def fill_template_generation(empty: Object) -> None:
    """Set the template generation of an object without contents."""
    empty["metadata"].setdefault("annotations", {})[TEMPLATE_GENERATION] = "0"


def _template_generation(obj: Object) -> int:
    return int((obj["metadata"].get("annotations") or {}).get(TEMPLATE_GENERATION, "0"))


def daemon_set_warnings(new: Object, old: Object | None) -> list[str]:
    """Return warnings about a new or changed template."""
    template = new["spec"].get("template")
    if old is not None and template == old["spec"].get("template"):
        return []
    return warnings_in_template(template, "spec.template")


# -- validation -------------------------------------------------------------------------------------------------------

_SCHEDULED: Final = (
    "currentNumberScheduled",
    "numberMisscheduled",
    "desiredNumberScheduled",
    "numberReady",
    "observedGeneration",
    "updatedNumberScheduled",
    "numberAvailable",
    "numberUnavailable",
    "collisionCount",
)


def validate_daemon_set_status(new: Object, old: Object) -> list[Cause]:
    """Check that counts are not negative and the collision count does not decrease."""
    status = new.get("status") or {}
    return not_negative(status, "status", *_SCHEDULED) + collisions(status, old)


def _selector(spec: Object) -> list[Cause]:
    given = spec.get("selector")
    causes = label_selector(given, "spec.selector")
    if not causes:
        causes += template_labels(spec)
    return causes if given is None else causes + not_empty(given, "daemonset")


def validate_daemon_set(obj: Object, options: PodOptions = USUAL) -> list[Cause]:
    """Check the selector, template and update strategy of a DaemonSet."""
    spec = obj["spec"]
    template = spec.get("template") or {}
    causes = _selector(spec) + pod_template(template, "spec.template", options)
    causes += long_running(template, "spec.template", "DaemonSet") + not_negative(spec, "spec", "minReadySeconds")
    strategy = spec.get("updateStrategy") or {}
    kind, rolling = strategy.get("type", ""), strategy.get("rollingUpdate")
    field = "spec.updateStrategy.rollingUpdate"
    if kind == "RollingUpdate" and rolling is None:
        causes.append(required(field))
    elif kind == "RollingUpdate" and rolling is not None:
        unavailable, surge = rolling.get("maxUnavailable", 0), rolling.get("maxSurge", 0)
        causes += int_or_percent(unavailable, f"{field}.maxUnavailable") + int_or_percent(surge, f"{field}.maxSurge")
        causes += at_most_100_percent(unavailable, f"{field}.maxUnavailable") + at_most_100_percent(
            surge, f"{field}.maxSurge"
        )
        if is_zero(unavailable) and is_zero(surge):
            causes.append(required(f"{field}.maxUnavailable", "cannot be 0 when maxSurge is 0"))
        elif not is_zero(unavailable) and not is_zero(surge):
            causes.append(invalid_value(f"{field}.maxSurge", surge, "may not be set when maxUnavailable is non-zero"))
    elif kind != "OnDelete":
        shown = {"Type": kind, "RollingUpdate": shown_rolling_update(rolling)}
        causes.append(not_supported("spec.updateStrategy", shown, ("RollingUpdate", "OnDelete")))
    return causes + not_negative(spec, "spec", "revisionHistoryLimit")


def validate_daemon_set_update(new: Object, old: Object) -> list[Cause]:
    """Reject a changed selector, and check a changed DaemonSet like a new one."""
    return selector_update(new, old) + validate_daemon_set(new)


# -- table columns ----------------------------------------------------------------------------------------------------


def _cells(obj: ReadOnlyObject, since: Since) -> list[Any]:
    status = obj.get("status") or {}
    counts = (
        "desiredNumberScheduled",
        "currentNumberScheduled",
        "numberReady",
        "updatedNumberScheduled",
        "numberAvailable",
    )
    return [
        name_of(obj),
        *(status.get(count) or 0 for count in counts),
        labels_text(at(obj, "spec", "template", "spec", "nodeSelector")),
        age_of(obj, since),
        *template_containers(obj),
        selector_text(at(obj, "spec", "selector")),
    ]


# -- the kind ---------------------------------------------------------------------------------------------------------

KIND: Final = BuiltinKind(
    resource="daemonsets.apps",
    strategy=Strategy(
        pod_spec="spec.template.spec",
        update_checks=(Check.METADATA_CHANGE, Check.CHANGE),
        generation=True,
        prepare_create=prepare_new_daemon_set,
        prepare_update=prepare_daemon_set_update,
        validate=validate_daemon_set,
        validate_update=validate_daemon_set_update,
        warnings=daemon_set_warnings,
        subresources=MappingProxyType(
            {
                "status": status_update(
                    "spec", validate_update=validate_daemon_set_status, prepare=keep_template_generation
                )
            }
        ),
    ),
    default_values={"apps.v1.DaemonSetSpec": {"revisionHistoryLimit": 10}},
    default_functions={"apps.v1.DaemonSet": default_daemon_set},
    printer=Printer(
        (
            NAME,
            field_column("Desired", "apps.v1.DaemonSetStatus.desiredNumberScheduled", "integer"),
            field_column("Current", "apps.v1.DaemonSetStatus.currentNumberScheduled", "integer"),
            field_column("Ready", "apps.v1.DaemonSetStatus.numberReady", "integer"),
            field_column("Up-to-date", "apps.v1.DaemonSetStatus.updatedNumberScheduled", "integer"),
            field_column("Available", "apps.v1.DaemonSetStatus.numberAvailable", "integer"),
            field_column("Node Selector", "core.v1.PodSpec.nodeSelector"),
            AGE,
            CONTAINERS,
            IMAGES,
            wide_field("Selector", "apps.v1.DaemonSetSpec.selector"),
        ),
        _cells,
    ),
    fill_empty=fill_template_generation,
)
