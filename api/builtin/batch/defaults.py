"""Defaults of the batch group, merged from the kinds' folders."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from kubechronicle.api.builtin.batch.cronjob import defaults as cronjob
from kubechronicle.api.builtin.batch.job import defaults as job
from kubechronicle.api.values.objects import Object

VALUES: Final[Mapping[str, Mapping[str, Any]]] = {
    **cronjob.VALUES,
    **job.VALUES,
}

FUNCTIONS: Final[Mapping[str, Callable[[Object], None]]] = {
    **job.FUNCTIONS,
}
