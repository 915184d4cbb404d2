"""Defaults of CronJobs, the same in batch/v1 and batch/v1beta1."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

_SPEC: Final[Mapping[str, Any]] = {
    "concurrencyPolicy": "Allow",
    "suspend": False,
    "successfulJobsHistoryLimit": 3,
    "failedJobsHistoryLimit": 1,
}

VALUES: Final[Mapping[str, Mapping[str, Any]]] = {
    "batch.v1.CronJobSpec": _SPEC,
    "batch.v1beta1.CronJobSpec": _SPEC,
}
