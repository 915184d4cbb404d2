"""Validation of the workload kinds (apps, ReplicationController), in the form of validation.py."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from kubechronicle.api import names
from kubechronicle.api.builtin.checks import NOT_NEGATIVE, immutable, label_selector, not_negative
from kubechronicle.api.builtin.validation_pod_spec import RESTART_POLICIES
from kubechronicle.api.builtin.validation_pods import pod_template
from kubechronicle.api.field_errors import Cause, forbidden, invalid_value, not_supported, required

Object = dict[str, Any]


def selector_matches(selector: Object, labels: Mapping[str, str]) -> bool:
    """Tell whether a label selector selects these labels."""
    for key, value in (selector.get("matchLabels") or {}).items():
        if labels.get(key) != value:
            return False
    for requirement in selector.get("matchExpressions") or ():
        key, operator, values = requirement.get("key"), requirement.get("operator"), requirement.get("values") or ()
        present = key in labels
        if operator == "In" and not (present and labels[key] in values):
            return False
        if operator == "NotIn" and present and labels[key] in values:
            return False
        if operator == "Exists" and not present:
            return False
        if operator == "DoesNotExist" and present:
            return False
    return True


def _long_running(template: Object, field: str) -> list[Cause]:
    """Pods of these workloads run until they are deleted."""
    spec = template.get("spec") or {}
    causes: list[Cause] = []
    policy = spec.get("restartPolicy", "")
    if policy in RESTART_POLICIES and policy != "Always":
        causes.append(not_supported(f"{field}.spec.restartPolicy", policy, ("Always",)))
    if spec.get("activeDeadlineSeconds") is not None:
        detail = "activeDeadlineSeconds in ReplicaSet is not Supported"
        causes.append(forbidden(f"{field}.spec.activeDeadlineSeconds", detail))
    return causes


def in_order(labels: Mapping[str, str] | None) -> dict[str, str] | None:
    """Return labels as messages show them: sorted by their keys."""
    return None if labels is None else dict(sorted(labels.items()))


def selector_and_template(spec: Object, what: str) -> list[Cause]:
    """The selector is there, selects something, and selects the template's pods."""
    causes: list[Cause] = []
    selector = spec.get("selector")
    template = spec.get("template") or {}
    labels = (template.get("metadata") or {}).get("labels")
    selects = True
    if selector is None:
        causes.append(required("spec.selector"))
        selects = False
    else:
        causes += label_selector(selector, "spec.selector")
        if not selector.get("matchLabels") and not selector.get("matchExpressions"):
            causes.append(invalid_value("spec.selector", {}, f"empty selector is invalid for {what}"))
        else:
            selects = selector_matches(selector, labels or {})
    if not selects:
        causes.append(invalid_value("spec.template.metadata.labels", in_order(labels), MISMATCH))
    return causes + pod_template(template, "spec.template") + _long_running(template, "spec.template")


MISMATCH: Final = "`selector` does not match template `labels`"
_PERCENT: Final = re.compile(r"[0-9]+%\Z")


def int_or_percent(value: int | str, field: str) -> list[Cause]:
    """A number that is not negative, or a percentage."""
    if isinstance(value, int):
        return [] if value >= 0 else [invalid_value(field, value, NOT_NEGATIVE)]
    if _PERCENT.match(value):
        return []
    message = "a valid percent string must be a numeric string followed by an ending '%'"
    return [invalid_value(field, value, names.regex_message(message, "[0-9]+%", "1%", "93%"))]


def at_most_whole(value: int | str, field: str) -> list[Cause]:
    """A percentage is a hundred at most."""
    if isinstance(value, str) and _PERCENT.match(value) and int(value[:-1]) > 100:
        return [invalid_value(field, value, "must not be greater than 100%")]
    return []


def _is_zero(value: int | str) -> bool:
    return value == 0 or (isinstance(value, str) and bool(_PERCENT.match(value)) and int(value[:-1]) == 0)


def _deployment_strategy(strategy: Object) -> list[Cause]:
    kind, rolling = strategy.get("type", ""), strategy.get("rollingUpdate")
    field = "spec.strategy.rollingUpdate"
    if kind == "Recreate":
        if rolling is None:
            return []
        return [forbidden(field, "may not be specified when strategy `type` is 'Recreate'")]
    if kind != "RollingUpdate":
        shown = {"Type": kind, "RollingUpdate": rolling}
        return [not_supported("spec.strategy", shown, ("Recreate", "RollingUpdate"))]
    if rolling is None:
        return [required("spec.strategy.rollingUpdate", "this should be defaulted and never be nil")]
    surge, unavailable = rolling.get("maxSurge", 0), rolling.get("maxUnavailable", 0)
    causes = int_or_percent(unavailable, f"{field}.maxUnavailable") + int_or_percent(surge, f"{field}.maxSurge")
    if _is_zero(unavailable) and _is_zero(surge):
        causes.append(invalid_value(f"{field}.maxUnavailable", unavailable, "may not be 0 when `maxSurge` is 0"))
    return causes + at_most_whole(unavailable, f"{field}.maxUnavailable")


def deployment(obj: Object) -> list[Cause]:
    """Selector, template and strategy of a deployment."""
    spec = obj["spec"]
    causes = not_negative(spec, "spec", "replicas") + selector_and_template(spec, "deployment")
    causes += _deployment_strategy(spec.get("strategy") or {})
    causes += not_negative(spec, "spec", "minReadySeconds", "revisionHistoryLimit", "progressDeadlineSeconds")
    deadline = spec.get("progressDeadlineSeconds")
    if deadline is not None and deadline <= spec.get("minReadySeconds", 0):
        detail = "must be greater than minReadySeconds"
        causes.append(invalid_value("spec.progressDeadlineSeconds", deadline, detail))
    return causes


def selector_update(new: Object, old: Object) -> list[Cause]:
    """Which pods a workload owns never changes."""
    return immutable("spec.selector", new["spec"].get("selector"), old["spec"].get("selector"))


_COUNTS: Final = ("replicas", "updatedReplicas", "readyReplicas", "availableReplicas", "unavailableReplicas")


def deployment_status(new: Object, old: Object) -> list[Cause]:
    """Counts are not negative, and parts are not more than the whole."""
    status = new.get("status") or {}
    causes = not_negative(status, "status", "observedGeneration", *_COUNTS, "collisionCount")
    return causes + _parts_of_replicas(status, "updatedReplicas")


def _parts_of_replicas(status: Object, *parts: str) -> list[Cause]:
    causes: list[Cause] = []
    whole = status.get("replicas", 0)
    for name in (*parts, "readyReplicas", "availableReplicas"):
        if status.get(name, 0) > whole:
            causes.append(
                invalid_value(f"status.{name}", status.get(name, 0), "cannot be greater than status.replicas")
            )
    available = status.get("availableReplicas", 0)
    if available > status.get("readyReplicas", 0):
        causes.append(invalid_value("status.availableReplicas", available, "cannot be greater than readyReplicas"))
    return causes


def replica_set_status(new: Object, old: Object) -> list[Cause]:
    """Counts are not negative, and parts are not more than the whole."""
    status = new.get("status") or {}
    members = ("replicas", "fullyLabeledReplicas", "readyReplicas", "availableReplicas", "observedGeneration")
    return not_negative(status, "status", *members) + _parts_of_replicas(status, "fullyLabeledReplicas")


def replica_set(obj: Object) -> list[Cause]:
    """Selector and template of a replica set."""
    spec = obj["spec"]
    return not_negative(spec, "spec", "replicas", "minReadySeconds") + selector_and_template(spec, "deployment")


def daemon_set(obj: Object) -> list[Cause]:
    """Selector, template and strategy of a daemon set."""
    spec = obj["spec"]
    causes = selector_and_template(spec, "daemonset") + not_negative(spec, "spec", "minReadySeconds")
    strategy = spec.get("updateStrategy") or {}
    kind, rolling = strategy.get("type", ""), strategy.get("rollingUpdate")
    field = "spec.updateStrategy.rollingUpdate"
    if kind == "RollingUpdate" and rolling is None:
        causes.append(required(field))
    elif kind == "RollingUpdate" and rolling is not None:
        unavailable, surge = rolling.get("maxUnavailable", 0), rolling.get("maxSurge", 0)
        causes += int_or_percent(unavailable, f"{field}.maxUnavailable") + int_or_percent(surge, f"{field}.maxSurge")
        if _is_zero(unavailable) and _is_zero(surge):
            causes.append(required(f"{field}.maxUnavailable", "cannot be 0 when maxSurge is 0"))
        elif not _is_zero(unavailable) and not _is_zero(surge):
            causes.append(invalid_value(f"{field}.maxSurge", surge, "may not be set when maxUnavailable is non-zero"))
        causes += at_most_whole(unavailable, f"{field}.maxUnavailable") + at_most_whole(surge, f"{field}.maxSurge")
    elif kind != "OnDelete":
        shown = {"Type": kind, "RollingUpdate": rolling}
        causes.append(not_supported("spec.updateStrategy", shown, ("RollingUpdate", "OnDelete")))
    return causes + not_negative(spec, "spec", "revisionHistoryLimit")


def stateful_set(obj: Object) -> list[Cause]:
    """Selector, template and policies of a stateful set."""
    spec = obj["spec"]
    causes: list[Cause] = []
    policy = spec.get("podManagementPolicy", "")
    if policy not in ("OrderedReady", "Parallel"):
        causes.append(invalid_value("spec.podManagementPolicy", policy, "must be 'OrderedReady' or 'Parallel'"))
    strategy = spec.get("updateStrategy") or {}
    kind, rolling = strategy.get("type", ""), strategy.get("rollingUpdate")
    if kind == "OnDelete" and rolling is not None:
        shown = {"Partition": rolling.get("partition", 0), "MaxUnavailable": rolling.get("maxUnavailable")}
        detail = "only allowed for updateStrategy 'RollingUpdate'"
        causes.append(invalid_value("spec.updateStrategy.rollingUpdate", shown, detail))
    elif kind == "RollingUpdate" and rolling is not None:
        causes += not_negative(rolling, "spec.updateStrategy.rollingUpdate", "partition")
    elif kind not in ("OnDelete", "RollingUpdate"):
        shown = {"Type": kind, "RollingUpdate": rolling}
        causes.append(invalid_value("spec.updateStrategy", shown, "must be 'RollingUpdate' or 'OnDelete'"))
    causes += not_negative(spec, "spec", "replicas", "minReadySeconds")
    causes += not_negative(spec.get("ordinals") or {}, "spec.ordinals", "start")
    return causes + selector_and_template(spec, "statefulset") + not_negative(spec, "spec", "revisionHistoryLimit")


STATEFUL_SET_UPDATE: Final = (
    "updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', 'updateStrategy', "
    "'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' are forbidden"
)
_STATEFUL_SET_CHANGEABLE: Final = frozenset(
    (
        "replicas",
        "ordinals",
        "template",
        "updateStrategy",
        "revisionHistoryLimit",
        "persistentVolumeClaimRetentionPolicy",
        "minReadySeconds",
    )
)


def stateful_set_update(new: Object, old: Object) -> list[Cause]:
    """Of a stateful set's spec only some fields may change."""
    frozen = [
        {name: value for name, value in each["spec"].items() if name not in _STATEFUL_SET_CHANGEABLE}
        for each in (new, old)
    ]
    return [] if frozen[0] == frozen[1] else [forbidden("spec", STATEFUL_SET_UPDATE)]


def controller_revision(obj: Object) -> list[Cause]:
    """A revision has data, and a number that is not negative."""
    causes: list[Cause] = []
    if obj.get("data") is None:
        causes.append(required("data", "data is mandatory"))
    return causes + not_negative(obj, "", "revision")


def controller_revision_update(new: Object, old: Object) -> list[Cause]:
    """A revision is a record."""
    return immutable("data", new.get("data"), old.get("data"))


def replication_controller(obj: Object) -> list[Cause]:
    """Selector and template of a replication controller."""
    spec = obj["spec"]
    causes = not_negative(spec, "spec", "minReadySeconds")
    selector = spec.get("selector") or {}
    if not selector:
        causes.append(required("spec.selector"))
    causes += not_negative(spec, "spec", "replicas")
    template = spec.get("template")
    if template is None:
        return [*causes, required("spec.template")]
    labels = (template.get("metadata") or {}).get("labels") or {}
    if selector and any(labels.get(key) != value for key, value in selector.items()):
        causes.append(invalid_value("spec.template.metadata.labels", in_order(labels), MISMATCH))
    return causes + pod_template(template, "spec.template") + _long_running(template, "spec.template")
