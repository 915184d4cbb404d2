"""Table columns of Jobs. | Source: Kubernetes' ``pkg/printers/internalversion``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from kubechronicle.api.builtin.common.cell_text import Since, duration_between, is_true, selector_text
from kubechronicle.api.builtin.common.printer import (
    AGE,
    CONTAINERS,
    IMAGES,
    NAME,
    Column,
    Printer,
    age_of,
    at,
    field,
    name_of,
    wide_field,
)
from kubechronicle.api.builtin.core.podtemplate.columns import template_containers
from kubechronicle.api.values.objects import ReadOnlyObject

_JOB_ENDS: Final = (("Complete", "Complete"), ("Failed", "Failed"))
_JOB_PAUSES: Final = (("Suspended", "Suspended"), ("FailureTarget", "FailureTarget"))


def _job_status(obj: ReadOnlyObject) -> str:
    conditions = at(obj, "status", "conditions")
    for kind, word in _JOB_ENDS:
        if is_true(conditions, kind):
            return word
    if obj["metadata"].get("deletionTimestamp"):
        return "Terminating"
    return next((word for kind, word in _JOB_PAUSES if is_true(conditions, kind)), "Running")


def _completions(obj: ReadOnlyObject) -> str:
    succeeded = at(obj, "status", "succeeded", default=0)
    wanted = at(obj, "spec", "completions")
    if wanted is not None:
        return f"{succeeded}/{wanted}"
    parallelism = at(obj, "spec", "parallelism", default=0)
    return f"{succeeded}/1 of {parallelism}" if parallelism > 1 else f"{succeeded}/1"


def _job(obj: ReadOnlyObject, since: Since) -> list[Any]:
    start, end = at(obj, "status", "startTime"), at(obj, "status", "completionTime")
    duration = "" if not start else duration_between(start, end) if end else since(start)
    return [
        name_of(obj),
        _job_status(obj),
        _completions(obj),
        duration,
        age_of(obj, since),
        *template_containers(obj),
        selector_text(at(obj, "spec", "selector")),
    ]


PRINTERS: Final[Mapping[str, Printer]] = {
    "jobs.batch": Printer(
        (
            NAME,
            Column("Status", text="Status of the job."),
            field("Completions", "batch.v1.JobStatus.succeeded"),
            Column("Duration", text="Time required to complete the job."),
            AGE,
            CONTAINERS,
            IMAGES,
            wide_field("Selector", "batch.v1.JobSpec.selector"),
        ),
        _job,
    ),
}
