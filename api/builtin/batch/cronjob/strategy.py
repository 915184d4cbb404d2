"""The strategy of CronJob.

Source: ``registry/batch/cronjob/strategy.go``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from kubechronicle.api.builtin.batch.cronjob import validation, warnings
from kubechronicle.api.builtin.common.status import STATUS
from kubechronicle.api.builtin.core.pod.strategy import drop_disabled
from kubechronicle.api.strategy.strategy import Strategy

Object = dict[str, Any]


def new_cron_job(new: Object) -> None:
    """Drop what belongs to features that are off from the template of the jobs' pods."""
    job = (new["spec"].get("jobTemplate") or {}).get("spec") or {}
    drop_disabled((job.get("template") or {}).get("spec") or {})


def cron_job_gates(new: Object, old: Object) -> None:
    """The same for an update."""
    new_cron_job(new)


STRATEGIES: Final[Mapping[str, Strategy]] = {
    "cronjobs.batch": Strategy(
        generation=True,
        validates_whole_update=False,
        validates_spec_update=False,
        prepare_create=new_cron_job,
        prepare_update=cron_job_gates,
        validate=validation.cron_job,
        validate_update=validation.cron_job_update,
        warnings=warnings.cron_job_warnings,
        subresources=STATUS,
    ),
}
