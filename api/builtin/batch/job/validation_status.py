"""Validation of a Job's status (KEP-4368): counters, conditions and times must agree, and a finished job stays
finished.

Most rules apply only to fields that the request changes. So a status that broke a rule earlier can still be updated.
"""

from __future__ import annotations

from typing import Any

from kubechronicle.api.builtin.batch.job.validation_policies import count_indexes, intervals
from kubechronicle.api.builtin.common.checks import not_negative
from kubechronicle.api.builtin.common.go_shapes import record
from kubechronicle.api.errors.field_errors import Cause, duplicate, invalid_value, required
from kubechronicle.api.meta.metadata import IMMUTABLE
from kubechronicle.api.values.objects import Object


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
