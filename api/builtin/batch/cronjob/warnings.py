"""Warnings about CronJobs."""

from __future__ import annotations

from typing import Any, Final

from kubechronicle.api.builtin.batch.job.warnings import of_job_spec
from kubechronicle.api.builtin.core.pod.warnings import OWNER_NAME, name_warnings
from kubechronicle.api.builtin.core.podtemplate.warnings import unchanged

Object = dict[str, Any]

_ZONE_IN_SCHEDULE: Final = (
    "cannot use TZ or CRON_TZ in spec.spec.schedule, use timeZone instead, see "
    "https://kubernetes.io/docs/concepts/workloads/controllers/cron-jobs/ for more details"
)


def cron_job_warnings(new: Object, old: Object | None) -> list[str]:
    """The name, the template of jobs, and a time zone that older versions have let into a schedule."""
    told = name_warnings(new["metadata"], OWNER_NAME) if old is None else []
    if not unchanged(new, old):
        jobs = (new["spec"].get("jobTemplate") or {}).get("spec") or {}
        told += of_job_spec(jobs, "spec.jobTemplate.spec")
    if old is not None and "TZ" in new["spec"].get("schedule", ""):
        told.append(_ZONE_IN_SCHEDULE)
    return told
