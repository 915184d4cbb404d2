"""Warnings about Jobs, and about the job template of CronJobs."""

from __future__ import annotations

from typing import Final

from kubechronicle.api.builtin.core.pod.warnings import OWNER_NAME, name_warnings
from kubechronicle.api.builtin.core.podtemplate.warnings import same_generation, warnings_in_template
from kubechronicle.api.values.objects import Object

MANY_COMPLETIONS: Final = 100_000
MANY_AT_ONCE: Final = 10_000
_TOO_MANY: Final = (
    "In Indexed Jobs with a number of completions higher than 10^5 and a parallelism higher than 10^4, "
    "Kubernetes might not be able to track completedIndexes when a big number of indexes fail"
)


def warnings_in_job_spec(spec: Object, field: str) -> list[str]:
    """Return warnings about a job spec at ``field``."""
    many = (spec.get("completions") or 0) > MANY_COMPLETIONS and (spec.get("parallelism") or 0) > MANY_AT_ONCE
    warnings = [f"{field}: {_TOO_MANY}"] if many and spec.get("completionMode") == "Indexed" else []
    return warnings + warnings_in_template(spec.get("template"), f"{field}.template")


def job_warnings(new: Object, old: Object | None) -> list[str]:
    """Return warnings about the name, the number of indexes and the template."""
    warnings = name_warnings(new["metadata"], OWNER_NAME) if old is None else []
    return warnings if same_generation(new, old) else warnings + warnings_in_job_spec(new["spec"], "spec")
