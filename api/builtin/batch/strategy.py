"""The strategies of the batch group, gathered from the folders of its kinds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from kubechronicle.api.builtin.batch.cronjob import strategy as cronjob
from kubechronicle.api.builtin.batch.job import strategy as job
from kubechronicle.api.strategy.strategy import Strategy

STRATEGIES: Final[Mapping[str, Strategy]] = {
    **cronjob.STRATEGIES,
    **job.STRATEGIES,
}
