"""The strategy of CronJob.

Source: ``registry/batch/cronjob/strategy.go``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from kubechronicle.api.builtin.batch.cronjob import validation, warnings
from kubechronicle.api.builtin.common.status_strategies import STATUS
from kubechronicle.api.strategy.strategy import Check, Strategy

STRATEGIES: Final[Mapping[str, Strategy]] = {
    "cronjobs.batch": Strategy(
        pod_spec="spec.jobTemplate.spec.template.spec",
        update_checks=(Check.METADATA_CHANGE, Check.CHANGE),
        generation=True,
        validate=validation.cron_job,
        validate_update=validation.cron_job_update,
        warnings=warnings.cron_job_warnings,
        subresources=STATUS,
    ),
}
