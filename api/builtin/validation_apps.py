"""Validation of the workload kinds (apps, batch, ReplicationController), in the form of validation.py."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from kubechronicle.api import names
from kubechronicle.api.builtin.validation import immutable, pod_spec
from kubechronicle.api.field_errors import Cause, forbidden, invalid_value, not_supported, required
from kubechronicle.api.metadata import validate_annotations, validate_labels

Object = dict[str, Any]

NOT_NEGATIVE: Final = "must be greater than or equal to 0"
_OPERATORS: Final = ("In", "NotIn", "Exists", "DoesNotExist")


def not_negative(spec: Mapping[str, Any], field: str, *members: str) -> list[Cause]:
    """Return causes for numbers below zero."""
    return [
        invalid_value(f"{field}.{name}", spec[name], NOT_NEGATIVE)
        for name in members
        if spec.get(name) is not None and spec[name] < 0
    ]


def label_selector(selector: Object | None, field: str) -> list[Cause]:
    """The rules of a label selector."""
    causes: list[Cause] = []
    if not selector:
        return causes
    causes += validate_labels(selector.get("matchLabels") or {}, f"{field}.matchLabels")
    for index, requirement in enumerate(selector.get("matchExpressions") or ()):
        path = f"{field}.matchExpressions[{index}]"
        operator, values = requirement.get("operator", ""), requirement.get("values") or ()
        if operator not in _OPERATORS:
            causes.append(invalid_value(f"{path}.operator", operator, "not a valid selector operator"))
        elif operator in ("In", "NotIn") and not values:
            causes.append(required(f"{path}.values", "must be specified when `operator` is 'In' or 'NotIn'"))
        elif operator in ("Exists", "DoesNotExist") and values:
            detail = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
            causes.append(forbidden(f"{path}.values", detail))
        key = requirement.get("key", "")
        causes += [invalid_value(f"{path}.key", key, problem) for problem in names.qualified_name(key)]
        for position, value in enumerate(values):
            causes += [invalid_value(f"{path}.values[{position}]", value, text) for text in names.label_value(value)]
    return causes


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


def _pod_template(template: Object, field: str, *, restart: tuple[str, ...] = ("Always",)) -> list[Cause]:
    metadata = template.get("metadata") or {}
    causes = validate_labels(metadata.get("labels") or {}, f"{field}.metadata.labels")
    causes += validate_annotations(metadata.get("annotations") or {}, f"{field}.metadata.annotations")
    spec = template.get("spec") or {}
    causes += pod_spec(spec, f"{field}.spec")
    policy = spec.get("restartPolicy", "")
    if policy in ("Always", "Never", "OnFailure") and policy not in restart:
        causes.append(not_supported(f"{field}.spec.restartPolicy", policy, restart))
    return causes


def _selector_and_template(spec: Object, field: str = "spec") -> list[Cause]:
    """The selector is there, selects something, and selects the template's pods."""
    causes: list[Cause] = []
    selector = spec.get("selector")
    if selector is None:
        causes.append(required(f"{field}.selector"))
    else:
        causes += label_selector(selector, f"{field}.selector")
        if not selector.get("matchLabels") and not selector.get("matchExpressions"):
            causes.append(invalid_value(f"{field}.selector", {}, "empty selector is invalid for deployment"))
    template = spec.get("template") or {}
    labels = (template.get("metadata") or {}).get("labels") or {}
    if selector and not causes and not selector_matches(selector, labels):
        detail = "`selector` does not match template `labels`"
        causes.append(invalid_value(f"{field}.template.metadata.labels", labels, detail))
    return causes + _pod_template(template, f"{field}.template")


def deployment(obj: Object) -> list[Cause]:
    """Selector, template and strategy of a deployment."""
    spec = obj["spec"]
    causes = not_negative(spec, "spec", "replicas") + _selector_and_template(spec)
    kind = (spec.get("strategy") or {}).get("type", "")
    if kind not in ("Recreate", "RollingUpdate"):
        causes.append(not_supported("spec.strategy.type", kind, ("Recreate", "RollingUpdate")))
    elif kind == "Recreate" and (spec.get("strategy") or {}).get("rollingUpdate") is not None:
        detail = "may not be specified when strategy `type` is 'Recreate'"
        causes.append(forbidden("spec.strategy.rollingUpdate", detail))
    causes += not_negative(spec, "spec", "minReadySeconds", "revisionHistoryLimit", "progressDeadlineSeconds")
    deadline = spec.get("progressDeadlineSeconds")
    if deadline is not None and deadline <= spec.get("minReadySeconds", 0):
        detail = "must be greater than minReadySeconds"
        causes.append(invalid_value("spec.progressDeadlineSeconds", deadline, detail))
    return causes


def selector_update(new: Object, old: Object) -> list[Cause]:
    """Which pods a workload owns never changes."""
    return immutable("spec.selector", new["spec"].get("selector"), old["spec"].get("selector"))


def replica_set(obj: Object) -> list[Cause]:
    """Selector and template of a replica set."""
    spec = obj["spec"]
    return not_negative(spec, "spec", "replicas", "minReadySeconds") + _selector_and_template(spec)


def daemon_set(obj: Object) -> list[Cause]:
    """Selector and template of a daemon set."""
    spec = obj["spec"]
    return _selector_and_template(spec) + not_negative(spec, "spec", "minReadySeconds", "revisionHistoryLimit")


def stateful_set(obj: Object) -> list[Cause]:
    """Selector, template and policies of a stateful set."""
    spec = obj["spec"]
    causes: list[Cause] = []
    policy = spec.get("podManagementPolicy", "")
    if policy not in ("OrderedReady", "Parallel"):
        causes.append(invalid_value("spec.podManagementPolicy", policy, "must be 'OrderedReady' or 'Parallel'"))
    causes += not_negative(spec, "spec", "replicas", "minReadySeconds", "revisionHistoryLimit")
    return causes + _selector_and_template(spec)


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
        detail = "`selector` does not match template `labels`"
        causes.append(invalid_value("spec.template.metadata.labels", labels, detail))
    return causes + _pod_template(template, "spec.template")


def job(obj: Object) -> list[Cause]:
    """Numbers, selector and template of a job."""
    spec = obj["spec"]
    members = ("parallelism", "completions", "activeDeadlineSeconds", "backoffLimit", "ttlSecondsAfterFinished")
    causes = not_negative(spec, "spec", *members)
    if spec.get("selector") is None:
        causes.append(required("spec.selector"))
    else:
        causes += label_selector(spec["selector"], "spec.selector")
    template = spec.get("template") or {}
    labels = (template.get("metadata") or {}).get("labels") or {}
    if spec.get("selector") and not selector_matches(spec["selector"], labels):
        detail = "`selector` does not match template `labels`"
        causes.append(invalid_value("spec.template.metadata.labels", labels, detail))
    return causes + _pod_template(template, "spec.template", restart=("OnFailure", "Never"))


def job_update(new: Object, old: Object) -> list[Cause]:
    """What a job runs, and how often, never changes (while it is not suspended)."""
    causes: list[Cause] = []
    spec, held = new["spec"], old["spec"]
    if spec.get("completionMode") != "Indexed":
        causes += immutable("spec.completions", spec.get("completions"), held.get("completions"))
    causes += immutable("spec.selector", spec.get("selector"), held.get("selector"))
    if not held.get("suspend"):
        causes += immutable("spec.template", spec.get("template"), held.get("template"))
    causes += immutable("spec.completionMode", spec.get("completionMode"), held.get("completionMode"))
    return causes


def cron_job(obj: Object) -> list[Cause]:
    """Schedule, policy and template of a cron job."""
    spec = obj["spec"]
    causes: list[Cause] = []
    if not spec.get("schedule"):
        causes.append(required("spec.schedule"))
    causes += not_negative(spec, "spec", "startingDeadlineSeconds")
    policy = spec.get("concurrencyPolicy", "")
    if policy not in ("Allow", "Forbid", "Replace"):
        causes.append(not_supported("spec.concurrencyPolicy", policy, ("Allow", "Forbid", "Replace")))
    causes += not_negative(spec, "spec", "successfulJobsHistoryLimit", "failedJobsHistoryLimit")
    template = ((spec.get("jobTemplate") or {}).get("spec") or {}).get("template") or {}
    field = "spec.jobTemplate.spec.template"
    return causes + _pod_template(template, field, restart=("OnFailure", "Never"))
