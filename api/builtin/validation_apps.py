"""Validation of the workload kinds (apps, ReplicationController), in the form of validation.py."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from kubechronicle.api.builtin.checks import NOT_NEGATIVE, immutable, in_order, label_selector, not_negative
from kubechronicle.api.builtin.go_shapes import selector
from kubechronicle.api.builtin.validation_pods import pod_template, specific_annotations
from kubechronicle.api.errors.field_errors import Cause, forbidden, invalid_value, not_supported, required
from kubechronicle.api.meta.metadata import validate_annotations, validate_labels
from kubechronicle.api.values import names
from kubechronicle.api.values.objects import Object


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


def _long_running(template: Object, field: str, kind: str = "ReplicaSet") -> list[Cause]:
    """Pods of these workloads run until they are deleted."""
    spec = template.get("spec") or {}
    causes: list[Cause] = []
    policy = spec.get("restartPolicy", "")
    if policy != "Always":
        causes.append(not_supported(f"{field}.spec.restartPolicy", policy, ("Always",)))
    if spec.get("activeDeadlineSeconds") is not None:
        detail = f"activeDeadlineSeconds in {kind} is not Supported"
        causes.append(forbidden(f"{field}.spec.activeDeadlineSeconds", detail))
    return causes


def selector_and_template(spec: Object, what: str, kind: str = "ReplicaSet") -> list[Cause]:
    """The selector is there, selects something, and selects the template's pods, which are good ones."""
    template = spec.get("template") or {}
    causes = _selector(spec, what) + pod_template(template, "spec.template")
    return causes + _long_running(template, "spec.template", kind)


def _selector(spec: Object, what: str) -> list[Cause]:
    causes: list[Cause] = []
    given = spec.get("selector")
    labels = ((spec.get("template") or {}).get("metadata") or {}).get("labels")
    selects = True
    if given is None:
        if what != "daemonset":
            causes.append(required("spec.selector"))
        selects = False
    else:
        causes += label_selector(given, "spec.selector")
        if not given.get("matchLabels") and not given.get("matchExpressions"):
            causes.append(invalid_value("spec.selector", {}, f"empty selector is invalid for {what}"))
        else:
            selects = selector_matches(given, labels or {})
    if not selects:
        causes.append(invalid_value("spec.template.metadata.labels", in_order(labels), MISMATCH))
    return causes


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
    """Tell whether a number or percentage is none; what is neither counts as none, too."""
    if isinstance(value, int):
        return value == 0
    number = value[:-1] if _PERCENT.match(value) else value
    return not number.isdigit() or int(number) == 0


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


def selector_stays(new: Object | None, old: Object | None) -> list[Cause]:
    """A selector never changes."""
    return [] if new == old else immutable("spec.selector", selector(new), selector(old))


def selector_update(new: Object, old: Object) -> list[Cause]:
    """Which pods a workload owns never changes."""
    return selector_stays(new["spec"].get("selector"), old["spec"].get("selector"))


_COUNTS: Final = ("replicas", "updatedReplicas", "readyReplicas", "availableReplicas", "unavailableReplicas")


def deployment_status(new: Object, old: Object) -> list[Cause]:
    """Counts are not negative, and parts are not more than the whole."""
    status = new.get("status") or {}
    causes = not_negative(status, "status", "observedGeneration", *_COUNTS, "collisionCount")
    if status.get("terminatingReplicas") is not None:
        causes += not_negative(status, "status", "terminatingReplicas")
    return causes + _parts_of_replicas(status, "updatedReplicas") + _collisions(status, old)


def _collisions(status: Object, old: Object) -> list[Cause]:
    """How often names have collided is counted up only."""
    held, count = (old.get("status") or {}).get("collisionCount"), status.get("collisionCount")
    if held is None or (count is not None and count >= held):
        return []
    return [invalid_value("status.collisionCount", count or 0, "cannot be decremented")]


def stateful_set_status(new: Object, old: Object) -> list[Cause]:
    """Counts are not negative, and parts are not more than the whole."""
    status = new.get("status") or {}
    parts = ("readyReplicas", "currentReplicas", "updatedReplicas", "availableReplicas")
    causes = not_negative(status, "status", "replicas", *parts, "observedGeneration", "collisionCount")
    for name in parts:
        if status.get(name, 0) > status.get("replicas", 0):
            causes.append(invalid_value(f"status.{name}", status[name], "cannot be greater than status.replicas"))
    available = status.get("availableReplicas", 0)
    if available > status.get("readyReplicas", 0):
        detail = "cannot be greater than status.readyReplicas"
        causes.append(invalid_value("status.availableReplicas", available, detail))
    return causes + _collisions(status, old)


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


def daemon_set_status(new: Object, old: Object) -> list[Cause]:
    """Counts are not negative."""
    status = new.get("status") or {}
    return not_negative(status, "status", *_SCHEDULED) + _collisions(status, old)


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
    causes = selector_and_template(spec, "daemonset", "DaemonSet") + not_negative(spec, "spec", "minReadySeconds")
    strategy = spec.get("updateStrategy") or {}
    kind, rolling = strategy.get("type", ""), strategy.get("rollingUpdate")
    field = "spec.updateStrategy.rollingUpdate"
    if kind == "RollingUpdate" and rolling is None:
        causes.append(required(field))
    elif kind == "RollingUpdate" and rolling is not None:
        unavailable, surge = rolling.get("maxUnavailable", 0), rolling.get("maxSurge", 0)
        causes += int_or_percent(unavailable, f"{field}.maxUnavailable") + int_or_percent(surge, f"{field}.maxSurge")
        causes += at_most_whole(unavailable, f"{field}.maxUnavailable") + at_most_whole(surge, f"{field}.maxSurge")
        if _is_zero(unavailable) and _is_zero(surge):
            causes.append(required(f"{field}.maxUnavailable", "cannot be 0 when maxSurge is 0"))
        elif not _is_zero(unavailable) and not _is_zero(surge):
            causes.append(invalid_value(f"{field}.maxSurge", surge, "may not be set when maxUnavailable is non-zero"))
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
        causes += _stateful_rolling(rolling, "spec.updateStrategy.rollingUpdate")
    elif kind not in ("OnDelete", "RollingUpdate"):
        shown = {"Type": kind, "RollingUpdate": rolling}
        causes.append(invalid_value("spec.updateStrategy", shown, "must be 'RollingUpdate' or 'OnDelete'"))
    causes += _claim_retention(spec.get("persistentVolumeClaimRetentionPolicy") or {})
    causes += not_negative(spec, "spec", "replicas", "minReadySeconds")
    causes += not_negative(spec.get("ordinals") or {}, "spec.ordinals", "start")
    causes += _selector(spec, "statefulset")
    template = spec.get("template") or {}
    causes += _template_metadata(template, "spec.template")
    return causes + _long_running(template, "spec.template", "StatefulSet")


def _stateful_rolling(rolling: Object, field: str) -> list[Cause]:
    causes = not_negative(rolling, field, "partition")
    most = rolling.get("maxUnavailable")
    if most is not None:
        causes += int_or_percent(most, f"{field}.maxUnavailable")
        if _is_zero(most):
            causes.append(invalid_value(f"{field}.maxUnavailable", most, "cannot be 0"))
        causes += at_most_whole(most, f"{field}.maxUnavailable")
    return causes


def _claim_retention(policy: Object) -> list[Cause]:
    choices, field = ("Retain", "Delete"), "spec.persistentVolumeClaimRetentionPolicy"
    return [
        not_supported(f"{field}.{name}", policy[name], choices)
        for name in ("whenDeleted", "whenScaled")
        if name in policy and policy[name] not in choices
    ]


def _template_metadata(template: Object, field: str) -> list[Cause]:
    """Of a stateful set's template only labels and annotations are looked at: its volumes are made for each pod."""
    metadata, spec = template.get("metadata") or {}, template.get("spec") or {}
    causes = validate_labels(metadata.get("labels") or {}, f"{field}.labels")
    if metadata.get("annotations"):
        causes += validate_annotations(metadata["annotations"], f"{field}.annotations")
        causes += specific_annotations(metadata["annotations"], spec, f"{field}.annotations")
    return causes


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
    causes += pod_template(template, "spec.template")
    return causes + _long_running(template, "spec.template", "ReplicationController")


def pod_template_object(obj: Object) -> list[Cause]:
    """The template of a PodTemplate."""
    return pod_template(obj.get("template") or {}, "template")
