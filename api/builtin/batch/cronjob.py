"""CronJob: Jobs at the times of a schedule. The same in batch/v1 and batch/v1beta1.

Source: Kubernetes' ``registry/batch/cronjob``, ``apis/batch`` and ``pkg/printers/internalversion``.
"""

from __future__ import annotations

import functools
import re
import zoneinfo
from collections.abc import Mapping
from typing import Any, Final

from kubechronicle.api.builtin.batch.job import warnings_in_job_spec
from kubechronicle.api.builtin.batch.job_validation import job_spec
from kubechronicle.api.builtin.common.cell_text import Since, containers_text, selector_text, yes_no
from kubechronicle.api.builtin.common.checks import NOT_NEGATIVE, not_negative
from kubechronicle.api.builtin.common.go_shapes import selector
from kubechronicle.api.builtin.common.kind import STATUS, BuiltinKind
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
from kubechronicle.api.builtin.core.pod.warnings import OWNER_NAME, name_warnings
from kubechronicle.api.builtin.core.podtemplate import same_generation
from kubechronicle.api.errors.field_errors import Cause, invalid_value, not_supported
from kubechronicle.api.kinds.reading import enum
from kubechronicle.api.strategy.gated_fields import GatedField
from kubechronicle.api.strategy.strategy import Check, Strategy
from kubechronicle.api.values.objects import Object, ReadOnlyObject

# -- defaults ---------------------------------------------------------------------------------------------------------

_SPEC: Final[Mapping[str, Any]] = {
    "concurrencyPolicy": "Allow",
    "suspend": False,
    "successfulJobsHistoryLimit": 3,
    "failedJobsHistoryLimit": 1,
}


# -- validation -------------------------------------------------------------------------------------------------------

CRON_NAME_MAX: Final = 52
"""Longest name of a CronJob, in characters: its Jobs' names add eleven and must fit into a label (63)."""


def validate_cron_job(obj: Object, options: PodOptions = USUAL) -> list[Cause]:
    """Check the name, schedule, policies and job template of a CronJob."""
    spec = obj["spec"]
    causes = _cron_spec(spec, None, options)
    name = obj["metadata"].get("name", "")
    if len(name) > CRON_NAME_MAX:
        detail = f"must be no more than {CRON_NAME_MAX} characters"
        causes.append(invalid_value("metadata.name", name, detail))
    return causes


def validate_cron_job_update(new: Object, old: Object, options: PodOptions = USUAL) -> list[Cause]:
    """Check a changed CronJob; its name, accepted before, is not checked again."""
    return _cron_spec(new["spec"], old["spec"], options)


def _cron_spec(spec: Object, held: Object | None, options: PodOptions) -> list[Cause]:
    schedule = spec.get("schedule", "")
    causes = _schedule(schedule, spec.get("timeZone"), held) if schedule else []
    deadline = spec.get("startingDeadlineSeconds")
    if deadline is not None and deadline < 0:
        causes.append(invalid_value("spec.startingDeadlineSeconds", deadline, NOT_NEGATIVE))
    if held is None or spec.get("timeZone") != held.get("timeZone"):
        causes += _time_zone(spec.get("timeZone"), "spec.timeZone")
    policy = spec.get("concurrencyPolicy", "")
    if policy not in enum("batch.v1.ConcurrencyPolicy"):
        causes.append(not_supported("spec.concurrencyPolicy", policy, enum("batch.v1.ConcurrencyPolicy")))
    template, field = (spec.get("jobTemplate") or {}).get("spec") or {}, "spec.jobTemplate.spec"
    causes += job_spec(template, field, options)
    if template.get("selector") is not None:
        shown = selector(template["selector"])
        causes.append(invalid_value(f"{field}.selector", shown, "`selector` will be auto-generated"))
    if template.get("manualSelector"):
        causes.append(not_supported(f"{field}.manualSelector", True, ("nil", "false")))
    return causes + not_negative(spec, "spec", "successfulJobsHistoryLimit", "failedJobsHistoryLimit")


def _schedule(schedule: str, zone: str | None, held: Object | None) -> list[Cause]:
    """Check the syntax; reject a time zone within the schedule unless the old schedule has one and ``timeZone`` is
    unset."""
    field, problem = "spec.schedule", schedule_problem(schedule)
    causes = [invalid_value(field, schedule, problem)] if problem else []
    if "TZ" not in schedule:
        return causes
    if held is None or "TZ" not in held.get("schedule", ""):
        detail = "cannot use TZ or CRON_TZ in schedule, use timeZone field instead"
        causes.append(invalid_value(field, schedule, detail))
    elif zone is not None:
        detail = "cannot use both timeZone field and TZ or CRON_TZ in schedule"
        causes.append(invalid_value(field, schedule, detail))
    return causes


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
    """Return the problem of a cron schedule in the words of Kubernetes' cron library, or ""."""
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


# -- warnings ---------------------------------------------------------------------------------------------------------

_ZONE_IN_SCHEDULE: Final = (
    "cannot use TZ or CRON_TZ in spec.spec.schedule, use timeZone instead, see "
    "https://kubernetes.io/docs/concepts/workloads/controllers/cron-jobs/ for more details"
)


def cron_job_warnings(new: Object, old: Object | None) -> list[str]:
    """Return warnings about the name, the job template, and a time zone within a schedule, which only older versions
    accepted."""
    warnings = name_warnings(new["metadata"], OWNER_NAME) if old is None else []
    if not same_generation(new, old):
        jobs = (new["spec"].get("jobTemplate") or {}).get("spec") or {}
        warnings += warnings_in_job_spec(jobs, "spec.jobTemplate.spec")
    if old is not None and "TZ" in new["spec"].get("schedule", ""):
        warnings.append(_ZONE_IN_SCHEDULE)
    return warnings


# -- table columns ----------------------------------------------------------------------------------------------------


def _cells(obj: ReadOnlyObject, since: Since) -> list[Any]:
    spec = obj.get("spec") or {}
    last = at(obj, "status", "lastScheduleTime")
    job = at(spec, "jobTemplate", "spec", default={})
    return [
        name_of(obj),
        spec.get("schedule") or "",
        spec.get("timeZone") or "<none>",
        yes_no(spec.get("suspend")),
        len(at(obj, "status", "active", default=())),
        since(last) if last else "<none>",
        age_of(obj, since),
        *containers_text(at(job, "template", "spec", "containers")),
        selector_text(job.get("selector")),
    ]


# -- the kind ---------------------------------------------------------------------------------------------------------

KIND: Final = BuiltinKind(
    resource="cronjobs.batch",
    strategy=Strategy(
        pod_spec="spec.jobTemplate.spec.template.spec",
        update_checks=(Check.METADATA_CHANGE, Check.CHANGE),
        generation=True,
        validate=validate_cron_job,
        validate_update=validate_cron_job_update,
        warnings=cron_job_warnings,
        subresources=STATUS,
    ),
    gated_fields={
        "": (GatedField(gate="WorkloadWithJob", since=37, fields=("spec.jobTemplate.spec.scheduling",)),),
    },
    default_values={"batch.v1.CronJobSpec": _SPEC},
    printer=Printer(
        (
            NAME,
            field_column("Schedule", "batch.v1.CronJobSpec.schedule"),
            field_column("Timezone", "batch.v1.CronJobSpec.timeZone"),
            field_column("Suspend", "batch.v1.CronJobSpec.suspend", "boolean"),
            field_column("Active", "batch.v1.CronJobStatus.active", "integer"),
            field_column("Last Schedule", "batch.v1.CronJobStatus.lastScheduleTime"),
            AGE,
            CONTAINERS,
            IMAGES,
            wide_field("Selector", "batch.v1.JobSpec.selector"),
        ),
        _cells,
    ),
)
