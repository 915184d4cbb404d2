"""Strategies of the batch group, merged from the kinds' folders."""

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
