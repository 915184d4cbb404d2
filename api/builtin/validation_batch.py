"""Validation of Jobs and CronJobs, in the form of validation.py."""

from __future__ import annotations

import functools
import re
import zoneinfo
from typing import Any, Final

from kubechronicle.api import names
from kubechronicle.api.builtin.checks import NOT_NEGATIVE, immutable, label_selector, not_negative
from kubechronicle.api.builtin.validation_apps import MISMATCH, in_order, selector_matches
from kubechronicle.api.builtin.validation_pods import pod_template
from kubechronicle.api.field_errors import Cause, go_quote, invalid_value, not_supported, required

Object = dict[str, Any]

CONTROLLER_UID: Final = "batch.kubernetes.io/controller-uid"


def _restart_policy(template: Object, field: str) -> list[Cause]:
    policy = (template.get("spec") or {}).get("restartPolicy", "")
    if policy in ("OnFailure", "Never"):
        return []
    if policy in ("", "Always"):
        return [required(f"{field}.spec.restartPolicy", 'valid values: "OnFailure", "Never"')]
    return [not_supported(f"{field}.spec.restartPolicy", policy, ("OnFailure", "Never"))]


def job_spec(spec: Object, field: str) -> list[Cause]:
    """The rules a job and a cron job's template share."""
    members = ("parallelism", "completions", "activeDeadlineSeconds", "backoffLimit", "ttlSecondsAfterFinished")
    causes = not_negative(spec, field, *members)
    mode = spec.get("completionMode")
    if mode is not None and mode not in ("NonIndexed", "Indexed"):
        causes.append(not_supported(f"{field}.completionMode", mode, ("NonIndexed", "Indexed")))
    elif mode == "Indexed" and spec.get("completions") is None:
        causes.append(required(f"{field}.completions", "when completion mode is Indexed"))
    causes += _managed_by(spec.get("managedBy"), f"{field}.managedBy")
    causes += _replacement(spec, f"{field}.podReplacementPolicy")
    success = spec.get("successPolicy")
    if success is not None and mode != "Indexed":
        shown = {
            "Rules": [
                {"SucceededIndexes": rule.get("succeededIndexes"), "SucceededCount": rule.get("succeededCount")}
                for rule in success.get("rules") or ()
            ]
        }
        causes.append(invalid_value(f"{field}.successPolicy", shown, "requires indexed completion mode"))
    elif success is not None:
        causes += _success_policy(success, spec.get("completions") or 0, f"{field}.successPolicy")
    template = spec.get("template") or {}
    return causes + pod_template(template, f"{field}.template") + _restart_policy(template, f"{field}.template")


def _success_policy(policy: Object, completions: int, field: str) -> list[Cause]:
    """Each rule says which of a job's pods, or how many, are enough."""
    rules = policy.get("rules") or ()
    if not rules:
        detail = "at least one rules must be specified when the successPolicy is specified"
        return [required(f"{field}.rules", detail)]
    causes: list[Cause] = []
    for index, rule in enumerate(rules):
        path, indexes, count = f"{field}.rules[{index}]", rule.get("succeededIndexes"), rule.get("succeededCount")
        if indexes is None and count is None:
            detail = "at least one of succeededCount or succeededIndexes must be specified"
            causes.append(required(path, detail))
        if indexes is not None:
            problem = _indexes_problem(indexes, completions)
            if problem:
                detail = f"error parsing succeededIndexes: {problem}"
                causes.append(invalid_value(f"{path}.succeededIndexes", indexes, detail))
        if count is not None:
            causes += not_negative(rule, path, "succeededCount")
            if count > completions:
                detail = f"must be less than or equal to {completions} (the number of specified completions)"
                causes.append(invalid_value(f"{path}.succeededCount", count, detail))
    return causes


def _indexes_problem(text: str, completions: int) -> str:
    """Return what is wrong with indexes such as "1,3-5", "" if nothing is."""
    last = -1
    for interval in text.split(",") if text else ():
        limits = interval.split("-")
        if len(limits) > 2:
            shown = go_quote(interval)
            rule = "an index interval can have at most two parts separated by '-'"
            return f"the fragment {shown} violates the requirement that {rule}"
        for limit in limits:
            if not (limit.isascii() and limit.isdigit()):
                return f"cannot convert string to integer for index: {go_quote(limit)}"
            if int(limit) >= completions:
                return f"too large index: {go_quote(limit)}"
            if last >= int(limit):
                return f"non-increasing order, previous: {last}, current: {int(limit)}"
            last = int(limit)
    return ""


def _managed_by(manager: str | None, field: str) -> list[Cause]:
    if manager is None:
        return []
    domain, slash, path = manager.partition("/")
    if not slash or not domain or not path:
        detail = 'must be a domain-prefixed path (such as "acme.io/foo")'
        return [invalid_value(field, manager, detail)]
    return [invalid_value(field, domain, problem) for problem in names.dns_subdomain(domain)]


def _replacement(spec: Object, field: str) -> list[Cause]:
    policy = spec.get("podReplacementPolicy")
    allowed = ("Failed",) if spec.get("podFailurePolicy") is not None else ("Failed", "TerminatingOrFailed")
    return [] if policy is None or policy in allowed else [not_supported(field, policy, allowed)]


def job(obj: Object) -> list[Cause]:
    """Numbers, selector and template of a job."""
    spec = obj["spec"]
    causes: list[Cause] = []
    selector = spec.get("selector")
    labels = ((spec.get("template") or {}).get("metadata") or {}).get("labels")
    if selector is None:
        causes.append(required("spec.selector"))
    else:
        causes += label_selector(selector, "spec.selector")
        if not spec.get("manualSelector"):
            causes += _generated_selector(obj, selector)
    if selector is None or not selector_matches(selector, labels or {}):
        causes.append(invalid_value("spec.template.metadata.labels", in_order(labels), MISMATCH))
    return causes + job_spec(spec, "spec")


def _generated_selector(obj: Object, selector: Object) -> list[Cause]:
    wanted = {"matchLabels": {CONTROLLER_UID: obj["metadata"].get("uid", "")}}
    older = {"matchLabels": {"controller-uid": obj["metadata"].get("uid", "")}}
    if selector in (wanted, older):
        return []
    return [invalid_value("spec.selector", selector, "`selector` not auto-generated")]


def job_update(new: Object, old: Object) -> list[Cause]:
    """What a job runs, and how often, never changes (while it is not suspended)."""
    causes: list[Cause] = []
    spec, held = new["spec"], old["spec"]
    elastic = spec.get("completionMode") == "Indexed" and spec.get("completions") == spec.get("parallelism")
    if not elastic:
        causes += immutable("spec.completions", spec.get("completions"), held.get("completions"))
    causes += immutable("spec.selector", spec.get("selector"), held.get("selector"))
    if spec.get("template") != held.get("template") and not _scheduling_only(spec, old):
        causes += immutable("spec.template", spec.get("template"), held.get("template"))
    for name in ("completionMode", "podFailurePolicy", "backoffLimitPerIndex", "managedBy", "successPolicy"):
        causes += immutable(f"spec.{name}", spec.get(name), held.get(name))
    return causes


_SCHEDULING: Final = ("nodeSelector", "tolerations", "schedulingGates", "affinity")


def _scheduling_only(spec: Object, old: Object) -> bool:
    """Tell whether only scheduling directives of a suspended job that never ran change."""
    if not old["spec"].get("suspend") or (old.get("status") or {}).get("startTime"):
        return False

    def frozen(template: Object) -> Object:
        pod = {name: value for name, value in (template.get("spec") or {}).items() if name not in _SCHEDULING}
        metadata = dict(template.get("metadata") or {})
        metadata.pop("annotations", None)
        metadata.pop("labels", None)
        return {"metadata": metadata, "spec": pod}

    return frozen(spec.get("template") or {}) == frozen(old["spec"].get("template") or {})


def job_status(new: Object, old: Object) -> list[Cause]:
    """Counters are not negative and do not go back."""
    status, held = new.get("status") or {}, old.get("status") or {}
    causes = not_negative(status, "status", "active", "succeeded", "failed", "ready", "terminating")
    for name in ("succeeded", "failed"):
        if status.get(name, 0) < held.get(name, 0):
            detail = f"cannot decrease the {name} counter"
            causes.append(invalid_value(f"status.{name}", status.get(name, 0), detail))
    changed = any(status.get(name) != held.get(name) for name in ("conditions", "completionTime", "startTime"))
    return causes + _finish(status) if changed else causes


def _finish(status: Object) -> list[Cause]:
    """A finished job says when it began, a complete one when it was; why comes before that it is."""
    met = {each.get("type") for each in status.get("conditions") or () if each.get("status") == "True"}
    causes: list[Cause] = []
    if "Complete" in met and not status.get("completionTime"):
        causes.append(required("status.completionTime", "completionTime is required for Complete jobs"))
    if status.get("completionTime") and "Complete" not in met:
        detail = "cannot set completionTime when there is no Complete=True condition"
        causes.append(invalid_value("status.completionTime", status["completionTime"], detail))
    problems = []
    if {"Complete", "Failed"} <= met:
        problems.append("cannot set Complete=True and Failed=true conditions")
    if "Complete" in met and "SuccessCriteriaMet" not in met:
        problems.append("cannot set Complete=True condition without the SuccessCriteriaMet=true condition")
    if "Failed" in met and "FailureTarget" not in met:
        problems.append("cannot set Failed=True condition without the FailureTarget=true condition")
    # The conditions themselves are left out of these words.
    causes += [Cause("FieldValueInvalid", f"Invalid value: {text}", "status.conditions") for text in problems]
    if met & {"Complete", "Failed"} and not status.get("startTime"):
        causes.append(required("status.startTime", "startTime is required for finished job"))
    return causes


# -- cron -------------------------------------------------------------------------------------------------------------

CRON_NAME_MAX: Final = 52
"""Characters of a CronJob's name: its Jobs' names add eleven and must fit into a label."""


def cron_job(obj: Object) -> list[Cause]:
    """Name, schedule, policy and template of a cron job."""
    spec = obj["spec"]
    causes = _cron_spec(spec)
    name = obj["metadata"].get("name", "")
    if len(name) > CRON_NAME_MAX:
        detail = f"must be no more than {CRON_NAME_MAX} characters"
        causes.append(invalid_value("metadata.name", name, detail))
    return causes


def cron_job_update(new: Object, old: Object) -> list[Cause]:
    """A cron job may change as a whole; a name that was accepted stays."""
    return _cron_spec(new["spec"])


def _cron_spec(spec: Object) -> list[Cause]:
    causes: list[Cause] = []
    schedule = spec.get("schedule", "")
    if not schedule:
        causes.append(required("spec.schedule"))
    else:
        problem = schedule_problem(schedule)
        causes += [invalid_value("spec.schedule", schedule, problem)] if problem else []
    causes += _time_zone(spec.get("timeZone"), "spec.timeZone")
    deadline = spec.get("startingDeadlineSeconds")
    if deadline is not None and deadline < 0:
        causes.append(invalid_value("spec.startingDeadlineSeconds", deadline, NOT_NEGATIVE))
    policy = spec.get("concurrencyPolicy", "")
    if policy not in ("Allow", "Forbid", "Replace"):
        causes.append(not_supported("spec.concurrencyPolicy", policy, ("Allow", "Forbid", "Replace")))
    template = (spec.get("jobTemplate") or {}).get("spec") or {}
    causes += job_spec(template, "spec.jobTemplate.spec")
    return causes + not_negative(spec, "spec", "successfulJobsHistoryLimit", "failedJobsHistoryLimit")


@functools.cache
def _zones() -> frozenset[str]:
    return frozenset(zoneinfo.available_timezones())


def _time_zone(zone: str | None, field: str) -> list[Cause]:
    if zone is None:
        return []
    if not zone:
        return [invalid_value(field, zone, "timeZone must be nil or non-empty string")]
    if zone.lower() == "local":
        detail = "timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones"
        return [invalid_value(field, zone, detail)]
    if zone not in _zones():
        return [invalid_value(field, zone, f"unknown time zone {zone}")]
    return []


_MONTHS: Final = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"]
_DAYS: Final = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"]
_FIELDS: Final = ((0, 59, ()), (0, 23, ()), (1, 31, ()), (1, 12, _MONTHS), (0, 6, _DAYS))
_DESCRIPTORS: Final = ("@yearly", "@annually", "@monthly", "@weekly", "@daily", "@midnight", "@hourly")


def schedule_problem(schedule: str) -> str:
    """Return what is wrong with a cron schedule, "" if nothing is. Words are those of the library Kubernetes uses."""
    text = re.sub(r"\A(?:CRON_)?TZ=\S*\s*", "", schedule)
    if text.startswith("@"):
        if text in _DESCRIPTORS or re.fullmatch(r"@every \d+[hms]\S*", text):
            return ""
        return f"unrecognized descriptor: {text}"
    fields = text.split()
    if len(fields) != len(_FIELDS):
        return f"expected exactly 5 fields, found {len(fields)}: [{' '.join(fields)}]"
    for field, (low, high, words) in zip(fields, _FIELDS, strict=True):
        for part in field.split(","):
            problem = _range_problem(part, low, high, list(words))
            if problem:
                return problem
    return ""


def _range_problem(part: str, low: int, high: int, words: list[str]) -> str:
    body, slash, step = part.partition("/")
    start_text, dash, end_text = body.partition("-")
    if "/" in step:
        return f"too many slashes: {part}"
    if "-" in end_text:
        return f"too many hyphens: {part}"
    if slash and (not step.isdigit()):
        return f'failed to parse int from {step}: strconv.Atoi: parsing "{step}": invalid syntax'
    if body in ("*", "?"):
        start, end = low, high
    else:
        numbers = []
        for text in (start_text, end_text) if dash else (start_text,):
            if text.lower() in words:
                numbers.append(words.index(text.lower()) + low)
            elif text.isdigit():
                numbers.append(int(text))
            else:
                return f'failed to parse int from {text}: strconv.Atoi: parsing "{text}": invalid syntax'
        start = numbers[0]
        end = numbers[1] if dash else (high if slash else start)
    if start < low:
        return f"beginning of range ({start}) below minimum ({low}): {part}"
    if end > high:
        return f"end of range ({end}) above maximum ({high}): {part}"
    if start > end:
        return f"beginning of range ({start}) beyond end of range ({end}): {part}"
    if slash and int(step) == 0:
        return f"step of range should be a positive number: {part}"
    return ""
