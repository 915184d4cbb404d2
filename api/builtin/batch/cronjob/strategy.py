"""The strategy of CronJob.

Source: ``registry/batch/cronjob/strategy.go``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from kubechronicle.api.builtin.batch.cronjob import validation, warnings
from kubechronicle.api.builtin.common.status_strategies import STATUS
from kubechronicle.api.builtin.core.pod.strategy import drop_disabled_fields
from kubechronicle.api.strategy.strategy import Check, Strategy
from kubechronicle.api.values.objects import Object


def prepare_new_cron_job(new: Object) -> None:
    """Drop the fields of disabled features from the jobs' pod template."""
    job = (new["spec"].get("jobTemplate") or {}).get("spec") or {}
    drop_disabled_fields((job.get("template") or {}).get("spec") or {})


def prepare_cron_job_update(new: Object, old: Object) -> None:
    """Drop the fields of disabled features, as on creation."""
    prepare_new_cron_job(new)


STRATEGIES: Final[Mapping[str, Strategy]] = {
    "cronjobs.batch": Strategy(
        update_checks=(Check.METADATA_CHANGE, Check.CHANGE),
        generation=True,
        prepare_create=prepare_new_cron_job,
        prepare_update=prepare_cron_job_update,
        validate=validation.cron_job,
        validate_update=validation.cron_job_update,
        warnings=warnings.cron_job_warnings,
        subresources=STATUS,
    ),
}
