"""Table columns of CronJobs. | Source: Kubernetes' ``pkg/printers/internalversion``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from kubechronicle.api.builtin.common.cell_text import Since, containers_text, selector_text, yes_no
from kubechronicle.api.builtin.common.printer import (
    AGE,
    CONTAINERS,
    IMAGES,
    NAME,
    Printer,
    age_of,
    at,
    field,
    name_of,
    wide_field,
)
from kubechronicle.api.values.objects import ReadOnlyObject


def _cron_job(obj: ReadOnlyObject, since: Since) -> list[Any]:
    spec = obj.get("spec") or {}
    last = at(obj, "status", "lastScheduleTime")
    job = at(spec, "jobTemplate", "spec", default={})
    return [
        name_of(obj),
        spec.get("schedule") or "",
        spec.get("timeZone") or "<none>",
        yes_no(spec.get("suspend")),
        len(at(obj, "status", "active", default=())),
        since(last) if last else "<none>",
        age_of(obj, since),
        *containers_text(at(job, "template", "spec", "containers")),
        selector_text(job.get("selector")),
    ]


PRINTERS: Final[Mapping[str, Printer]] = {
    "cronjobs.batch": Printer(
        (
            NAME,
            field("Schedule", "batch.v1.CronJobSpec.schedule"),
            field("Timezone", "batch.v1.CronJobSpec.timeZone"),
            field("Suspend", "batch.v1.CronJobSpec.suspend", "boolean"),
            field("Active", "batch.v1.CronJobStatus.active", "integer"),
            field("Last Schedule", "batch.v1.CronJobStatus.lastScheduleTime"),
            AGE,
            CONTAINERS,
            IMAGES,
            wide_field("Selector", "batch.v1.JobSpec.selector"),
        ),
        _cron_job,
    ),
}
