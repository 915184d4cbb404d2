"""Warnings about CronJobs."""

from __future__ import annotations

from typing import Final

from kubechronicle.api.builtin.batch.job.warnings import warnings_in_job_spec
from kubechronicle.api.builtin.core.pod.warnings import OWNER_NAME, name_warnings
from kubechronicle.api.builtin.core.podtemplate.warnings import same_generation
from kubechronicle.api.values.objects import Object

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
