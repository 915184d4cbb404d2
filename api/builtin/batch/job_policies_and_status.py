"""Validation of a Job's status (KEP-4368): counters, conditions and times must agree, and a finished job stays
finished.

Most rules apply only to fields that the request changes. So a status that broke a rule earlier can still be updated.

Validation of a Job's pod failure policy and success policy.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, Final

from kubechronicle.api.builtin.common.checks import not_negative, qualified_name, repeated
from kubechronicle.api.builtin.common.go_shapes import record
from kubechronicle.api.errors.field_errors import (
    Cause,
    duplicate,
    go_quote,
    invalid_value,
    not_supported,
    required,
    too_long,
    too_many,
)
from kubechronicle.api.kinds.reading import enum
from kubechronicle.api.meta.metadata import IMMUTABLE
from kubechronicle.api.values.objects import Object

MAX_RULES: Final = 20
MAX_EXIT_CODES: Final = 255
MAX_SUCCEEDED_INDEXES: Final = 64 * 1024
_STATUSES: Final = ("False", "True", "Unknown")


def _choices(values: Sequence[str]) -> str:
    """Return the choices as Go's %q prints a list."""
    return f"valid values: [{' '.join(map(go_quote, values))}]"


def _one_of(value: str, choices: Sequence[str], field: str) -> list[Cause]:
    if value in choices:
        return []
    return [not_supported(field, value, choices)] if value else [required(field, _choices(choices))]


def failure_policy(spec: Object, field: str) -> list[Cause]:
    """Check each rule of a pod failure policy, by exit codes or by pod conditions (KEP-3329)."""
    rules, path = spec["podFailurePolicy"].get("rules") or (), f"{field}.rules"
    causes = [too_many(path, len(rules), MAX_RULES)] if len(rules) > MAX_RULES else []
    pod = (spec.get("template") or {}).get("spec") or {}
    containers = {each.get("name") for group in ("containers", "initContainers") for each in pod.get(group) or ()}
    for index, rule in enumerate(rules):
        place, action = f"{path}[{index}]", rule.get("action", "")
        if action == "FailIndex":
            if spec.get("backoffLimitPerIndex") is None:
                detail = "requires the backoffLimitPerIndex to be set"
                causes.append(invalid_value(f"{place}.action", action, detail))
        else:
            causes += _one_of(action, enum("batch.v1.PodFailurePolicyAction"), f"{place}.action")
        codes, conditions = rule.get("onExitCodes"), rule.get("onPodConditions") or ()
        if codes is not None:
            causes += _exit_codes(codes, containers, f"{place}.onExitCodes")
        if len(conditions) > MAX_RULES:
            causes.append(too_many(f"{place}.onPodConditions", len(conditions), MAX_RULES))
        for position, pattern in enumerate(conditions):
            below = f"{place}.onPodConditions[{position}]"
            causes += qualified_name(pattern.get("type", ""), f"{below}.type")
            causes += _one_of(pattern.get("status", ""), _STATUSES, f"{below}.status")
        if codes is not None and conditions:
            causes.append(_invalid(place, "specifying both OnExitCodes and OnPodConditions is not supported"))
        elif codes is None and not conditions:
            causes.append(_invalid(place, "specifying one of OnExitCodes and OnPodConditions is required"))
    return causes


def _invalid(field: str, detail: str) -> Cause:
    """Return a cause without the value, as Kubernetes reports some."""
    return Cause("FieldValueInvalid", f"Invalid value: {detail}", field)


def _exit_codes(codes: Object, containers: set[Any], field: str) -> list[Cause]:
    operator, name, values = codes.get("operator", ""), codes.get("containerName"), codes.get("values") or []
    causes = _one_of(operator, enum("batch.v1.PodFailurePolicyOnExitCodesOperator"), f"{field}.operator")
    if name is not None and name not in containers:
        detail = "must be one of the container or initContainer names in the pod template"
        causes.append(invalid_value(f"{field}.containerName", name, detail))
    path = f"{field}.values"
    if not values:
        causes.append(invalid_value(path, values or codes.get("values"), "at least one value is required"))
    elif len(values) > MAX_EXIT_CODES:
        causes.append(too_many(path, len(values), MAX_EXIT_CODES))
    for index, (value, again) in enumerate(zip(values, repeated(values), strict=True)):
        if operator == "In" and value == 0:
            causes.append(invalid_value(f"{path}[{index}]", value, "must not be 0 for the In operator"))
        if again:
            causes.append(duplicate(f"{path}[{index}]", value))
    if values != sorted(values):
        causes.append(invalid_value(path, values, "must be ordered"))
    return causes


def success_policy(policy: Object, completions: int, field: str) -> list[Cause]:
    """Check that each rule of a success policy has valid indexes or a possible count."""
    rules = policy.get("rules") or ()
    if not rules:
        detail = "at least one rules must be specified when the successPolicy is specified"
        return [required(f"{field}.rules", detail)]
    causes = [too_many(f"{field}.rules", len(rules), MAX_RULES)] if len(rules) > MAX_RULES else []
    for index, rule in enumerate(rules):
        path, indexes, count = f"{field}.rules[{index}]", rule.get("succeededIndexes"), rule.get("succeededCount")
        if indexes is None and count is None:
            detail = "at least one of succeededCount or succeededIndexes must be specified"
            causes.append(required(path, detail))
        total = 0
        if indexes is not None:
            if len(indexes) > MAX_SUCCEEDED_INDEXES:
                causes.append(too_long(f"{path}.succeededIndexes", MAX_SUCCEEDED_INDEXES))
            total, problem = count_indexes(indexes, completions)
            if problem:
                detail = f"error parsing succeededIndexes: {problem}"
                causes.append(invalid_value(f"{path}.succeededIndexes", indexes, detail))
        if count is not None:
            causes += not_negative(rule, path, "succeededCount")
            if count > completions:
                detail = f"must be less than or equal to {completions} (the number of specified completions)"
                causes.append(invalid_value(f"{path}.succeededCount", count, detail))
            if indexes is not None and count > total:
                words = "the number of indexes in the specified succeededIndexes field"
                detail = f"must be less than or equal to {total} ({words})"
                causes.append(invalid_value(f"{path}.succeededCount", count, detail))
    return causes


def intervals(text: str, completions: int) -> Iterator[tuple[int, int] | str]:
    """Yield each interval of an index list such as "1,3-5" as (first, last), or its problem as a text."""
    for interval in text.split(",") if text else ():
        limits = interval.split("-")
        if len(limits) > 2:
            rule = "an index interval can have at most two parts separated by '-'"
            yield f"the fragment {go_quote(interval)} violates the requirement that {rule}"
            continue
        problem = ""
        for limit in limits:
            if not re.fullmatch(r"[+-]?[0-9]+", limit):
                problem = f"cannot convert string to integer for index: {go_quote(limit)}"
            elif int(limit) >= completions:
                problem = f"too large index: {go_quote(limit)}"
            if problem:
                break
        if problem:
            yield problem
        elif len(limits) == 2 and int(limits[0]) >= int(limits[1]):
            yield f"non-increasing order, previous: {int(limits[0])}, current: {int(limits[1])}"
        else:
            yield int(limits[0]), int(limits[-1])


def count_indexes(text: str, completions: int) -> tuple[int, str]:
    """Return (number of indexes in a list, its problem or "")."""
    last, total = None, 0
    for interval in intervals(text, completions):
        if isinstance(interval, str):
            return 0, interval
        first, end = interval
        if last is not None and last >= first:
            return 0, f"non-increasing order, previous: {last}, current: {first}"
        total, last = total + end - first + 1, end
    return total, ""


# -- scheduling (KEP-5547) --------------------------------------------------------------------------------------------


def scheduling(spec: Object, field: str) -> list[Cause]:
    """Check that a gang is not larger than all pods at once, and that pods are disrupted together only in a gang."""
    given = spec["scheduling"]
    policy, disruption = given.get("schedulingPolicy") or {}, given.get("disruptionMode") or {}
    gang, basic = policy.get("gang"), policy.get("basic")
    least = None if gang is None else gang.get("minCount")
    most = 1 if spec.get("parallelism") is None else spec["parallelism"]
    causes: list[Cause] = []
    if least is not None and least > most:
        detail = f"must not be greater than parallelism ({most})"
        causes.append(invalid_value(f"{field}.schedulingPolicy.gang.minCount", least, detail))
    if (basic is not None or gang is None) and disruption.get("all") is not None and disruption.get("single") is None:
        detail = "the disruptionMode `all` is not supported with the Basic scheduling policy"
        causes.append(invalid_value(f"{field}.disruptionMode", "", detail))
    return causes


def scheduling_update(spec: Object, held: Object, field: str) -> list[Cause]:
    """Reject a change between the policies basic and gang. Tags reject that one is added or removed."""
    new, old = ((each.get("scheduling") or {}).get("schedulingPolicy") for each in (spec, held))
    if new is None or old is None or (new.get("basic") is None) == (old.get("basic") is None):
        return []
    detail = (
        "the basic/gang policy variant is immutable after creation; only schedulingPolicy.gang.minCount may be updated"
    )
    return [invalid_value(f"{field}.schedulingPolicy", None, detail)]


def _met(status: Object) -> set[Any]:
    return {each.get("type") for each in status.get("conditions") or () if each.get("status") == "True"}


def _conditions(detail: str) -> Cause:
    """Return a cause about the conditions, without their value."""
    return Cause("FieldValueInvalid", f"Invalid value: {detail}", "status.conditions")


def job_status(new: Object, old: Object) -> list[Cause]:
    """Check that counters are valid and do not decrease, and that the conditions of a finished job are consistent and
    permanent."""
    status, held, spec = new.get("status") or {}, old.get("status") or {}, new["spec"]
    causes = not_negative(status, "status", "active", "succeeded", "failed", "ready", "terminating")
    causes += _uncounted(status.get("uncountedTerminatedPods") or {})
    met, before = _met(status), _met(held)
    causes += _completion(status, held, met, before)
    causes += _finish(status, held, spec, met, before)
    causes += _indexes(status, held, spec)
    causes += _counts(status, held, met, before)
    causes += _success(spec, met)
    return causes + _changes(status, held, spec, met, before)


def _uncounted(pods: Object) -> list[Cause]:
    causes: list[Cause] = []
    seen: set[str] = set()
    for member in ("succeeded", "failed"):
        for index, uid in enumerate(pods.get(member) or ()):
            field = f"status.uncountedTerminatedPods.{member}[{index}]"
            if not uid:
                causes.append(invalid_value(field, uid, "must not be empty"))
            elif uid in seen:
                causes.append(duplicate(field, uid))
            seen.add(uid)
    return causes


def _differ(names: tuple[str, ...], status: Object, held: Object) -> bool:
    return any(status.get(name) != held.get(name) for name in names)


def _completion(status: Object, held: Object, met: set[Any], before: set[Any]) -> list[Cause]:
    causes: list[Cause] = []
    complete, changed = "Complete" in met, ("Complete" in met) != ("Complete" in before)
    if complete and "Failed" in met and (changed or "Failed" not in before):
        causes.append(_conditions("cannot set Complete=True and Failed=true conditions"))
    if complete and "FailureTarget" in met and (changed or "FailureTarget" not in before):
        causes.append(_conditions("cannot set Complete=True and FailureTarget=true conditions"))
    time, start, field = status.get("completionTime"), status.get("startTime"), "status.completionTime"
    if changed or time != held.get("completionTime"):
        if time and not complete:
            detail = "cannot set completionTime when there is no Complete=True condition"
            causes.append(invalid_value(field, time, detail))
        if complete and not time:
            causes.append(required(field, "completionTime is required for Complete jobs"))
    if time and start and time < start and _differ(("startTime", "completionTime"), status, held):
        causes.append(invalid_value(field, time, "must be equal to or after `startTime`"))
    return causes


def _finish(status: Object, held: Object, spec: Object, met: set[Any], before: set[Any]) -> list[Cause]:
    """Check that the condition with the reason precedes the final one, and that a finished job has no active pods.

    A suspended job without completions is complete, though it never starts.
    """
    causes: list[Cause] = []
    newly_failed = "Failed" not in before or _differ(("failedIndexes",), status, held)
    if "Failed" in met and "FailureTarget" not in met and newly_failed:
        causes.append(_conditions("cannot set Failed=True condition without the FailureTarget=true condition"))
    newly_complete = "Complete" not in before or "SuccessCriteriaMet" in before
    if "Complete" in met and "SuccessCriteriaMet" not in met and newly_complete:
        causes.append(_conditions("cannot set Complete=True condition without the SuccessCriteriaMet=true condition"))
    if not met & {"Complete", "Failed"}:
        return causes
    changed = not before & {"Complete", "Failed"}
    active, uncounted = (status.get(name) for name in ("active", "uncountedTerminatedPods"))
    if (active or 0) > 0 and (changed or active != held.get("active")):
        causes.append(invalid_value("status.active", active, "active>0 is invalid for finished job"))
    never_starts = spec.get("suspend") is True and spec.get("completions") == 0
    if not status.get("startTime") and (changed or held.get("startTime")) and not never_starts:
        causes.append(required("status.startTime", "startTime is required for finished job"))
    if uncounted and any(uncounted.values()) and (changed or uncounted != held.get("uncountedTerminatedPods")):
        detail = "must be empty for finished job"
        shown = record(uncounted, "UncountedTerminatedPods")
        causes.append(invalid_value("status.uncountedTerminatedPods", shown, detail))
    return causes


def _counts(status: Object, held: Object, met: set[Any], before: set[Any]) -> list[Cause]:
    """Check that a finished job has no terminating pods, and that no more pods are ready than active."""
    causes: list[Cause] = []
    terminating, ready, final = status.get("terminating"), status.get("ready"), {"Complete", "Failed"}
    if met & final and (terminating or 0) > 0 and (not before & final or terminating != held.get("terminating")):
        causes.append(invalid_value("status.terminating", terminating, "terminating>0 is invalid for finished job"))
    if ready is not None and ready > status.get("active", 0) and _differ(("ready", "active"), status, held):
        causes.append(invalid_value("status.ready", ready, "cannot set more ready pods than active"))
    return causes


def _indexes(status: Object, held: Object, spec: Object) -> list[Cause]:
    causes: list[Cause] = []
    done, failed, most = status.get("completedIndexes", ""), status.get("failedIndexes"), spec.get("completions")
    done_changed, failed_changed = (
        status.get(name) != held.get(name) for name in ("completedIndexes", "failedIndexes")
    )
    limit = spec.get("backoffLimitPerIndex")
    if done_changed and most is not None:
        problem = count_indexes(done, most)[1]
        if problem:
            causes.append(invalid_value("status.completedIndexes", done, f"error parsing completedIndexes: {problem}"))
    if failed_changed and failed is not None and most is not None and limit is not None:
        problem = count_indexes(failed, most)[1]
        if problem:
            causes.append(invalid_value("status.failedIndexes", failed, f"error parsing failedIndexes: {problem}"))
    if done_changed and done and spec.get("completionMode") != "Indexed":
        detail = "cannot set non-empty completedIndexes when non-indexed completion mode"
        causes.append(invalid_value("status.completedIndexes", done, detail))
    if failed_changed and failed is not None and limit is None:
        detail = "cannot set non-null failedIndexes when backoffLimitPerIndex is null"
        causes.append(invalid_value("status.failedIndexes", failed, detail))
    if (done_changed or failed_changed) and failed is not None and most is not None:
        both = _overlap(done, failed, most)
        if both is not None:
            detail = f"failedIndexes and completedIndexes overlap at index: {both}"
            causes.append(invalid_value("status.failedIndexes", failed, detail))
    return causes


def _overlap(done: str, failed: str, completions: int) -> int | None:
    """Return the first index in both lists, or None."""
    found = [[each for each in intervals(text, completions) if not isinstance(each, str)] for text in (done, failed)]
    shared = [
        max(one[0], other[0]) for one in found[0] for other in found[1] if one[0] <= other[1] and other[0] <= one[1]
    ]
    return min(shared, default=None)


def _success(spec: Object, met: set[Any]) -> list[Cause]:
    causes: list[Cause] = []
    if "SuccessCriteriaMet" in met:
        for other, words in (("Failed", "Failed=true"), ("FailureTarget", "FailureTarget=true")):
            if other in met:
                causes.append(_conditions(f"cannot set SuccessCriteriaMet=True and {words} conditions"))
    elif spec.get("successPolicy") is not None and "Complete" in met:
        detail = "cannot set Complete=True for Job with SuccessPolicy unless SuccessCriteriaMet=True"
        causes.append(_conditions(detail))
    return causes


def _changes(status: Object, held: Object, spec: Object, met: set[Any], before: set[Any]) -> list[Cause]:
    causes = [
        _conditions(f"cannot disable the terminal {kind}=True condition")
        for kind in ("Failed", "Complete", "FailureTarget")
        if kind in before and kind not in met
    ]
    scaled = spec.get("completionMode") == "Indexed" and spec.get("completions") == spec.get("parallelism")
    for name in ("failed",) if scaled else ("failed", "succeeded"):
        if status.get(name, 0) < held.get(name, 0):
            detail = f"cannot decrease the {name} counter"
            causes.append(invalid_value(f"status.{name}", status.get(name, 0), detail))
    time, was = status.get("completionTime"), held.get("completionTime")
    if time and was and time != was:
        causes.append(invalid_value("status.completionTime", time, IMMUTABLE))
    start = held.get("startTime")
    resumes = "Suspended" in before and any(
        each.get("type") == "Suspended" and each.get("status") == "False" for each in status.get("conditions") or ()
    )
    if start and status.get("startTime") != start and not spec.get("suspend") and not resumes:
        detail = "field is immutable for unsuspended job once set"
        causes.append(invalid_value("status.startTime", status.get("startTime"), detail))
    if "SuccessCriteriaMet" in before and "SuccessCriteriaMet" not in met:
        causes.append(_conditions("cannot disable the SuccessCriteriaMet=True condition"))
    if "Complete" in before and "SuccessCriteriaMet" in met - before:
        detail = "cannot set SuccessCriteriaMet=True for Job already has Complete=true conditions"
        causes.append(_conditions(detail))
    return causes
