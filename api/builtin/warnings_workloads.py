"""Warnings of pods and of the kinds that make pods. An update is told of its template if it has changed the object's
generation; a pod's update is told of nothing."""

from __future__ import annotations

from typing import Final

from kubechronicle.api.builtin.network_values import ip_warnings
from kubechronicle.api.builtin.warnings_pods import OWNER_NAME, POD_NAME, name_warnings, spec_warnings
from kubechronicle.api.builtin.warnings_volumes import fractional
from kubechronicle.api.values.objects import Object

MANY_COMPLETIONS: Final = 100_000
MANY_AT_ONCE: Final = 10_000
_TOO_MANY: Final = (
    "In Indexed Jobs with a number of completions higher than 10^5 and a parallelism higher than 10^4, "
    "Kubernetes might not be able to track completedIndexes when a big number of indexes fail"
)
_NEGATIVE_HISTORY: Final = "a negative value retains all historical revisions; a value >= 0 is recommended"
_ZONE_IN_SCHEDULE: Final = (
    "cannot use TZ or CRON_TZ in spec.spec.schedule, use timeZone instead, see "
    "https://kubernetes.io/docs/concepts/workloads/controllers/cron-jobs/ for more details"
)


def pod_warnings(new: Object, old: Object | None) -> list[str]:
    """What to tell whoever creates a pod."""
    if old is not None:
        return []
    return name_warnings(new["metadata"], POD_NAME) + spec_warnings(new["metadata"], new.get("spec") or {}, "")


def pod_status_warnings(new: Object, old: Object | None) -> list[str]:
    """Addresses that are to be written otherwise."""
    told: list[str] = []
    for member in ("podIPs", "hostIPs"):
        for index, held in enumerate((new.get("status") or {}).get(member) or ()):
            told += ip_warnings(held.get("ip", ""), f"status.{member}[{index}].ip")
    return told


def _unchanged(new: Object, old: Object | None) -> bool:
    return old is not None and new["metadata"].get("generation", 0) == old["metadata"].get("generation", 0)


def _template(template: Object | None, field: str) -> list[str]:
    return spec_warnings(template.get("metadata"), template.get("spec") or {}, field) if template else []


def pod_template_warnings(new: Object, old: Object | None) -> list[str]:
    """A template that stands alone."""
    return [] if _unchanged(new, old) else _template(new.get("template"), "template")


def template_warnings(new: Object, old: Object | None) -> list[str]:
    """A kind that names its pods so that its own name is no host's."""
    return [] if _unchanged(new, old) else _template((new.get("spec") or {}).get("template"), "spec.template")


def named_template_warnings(new: Object, old: Object | None) -> list[str]:
    """A kind whose pods are named after it."""
    told = name_warnings(new["metadata"], OWNER_NAME) if old is None else []
    return told + template_warnings(new, old)


def stateful_set_warnings(new: Object, old: Object | None) -> list[str]:
    """The claims and the history as well as the template."""
    if _unchanged(new, old):
        return []
    spec = new["spec"]
    told = _template(spec.get("template"), "spec.template")
    for index, claim in enumerate(spec.get("volumeClaimTemplates") or ()):
        field = f"spec.volumeClaimTemplates[{index}]"
        told += storage_warnings(claim.get("spec") or {}, field if old is None else f"{field}.Spec")
    if (spec.get("revisionHistoryLimit") or 0) < 0:
        told.append(f"spec.revisionHistoryLimit: {_NEGATIVE_HISTORY}")
    return told


def storage_warnings(spec: Object, field: str) -> list[str]:
    """Amounts of storage that are not whole."""
    resources = spec.get("resources") or {}
    told = fractional(resources.get("requests"), f"{field}.resources.requests", "storage")
    return told + fractional(resources.get("limits"), f"{field}.resources.limits", "storage")


def _job_spec(spec: Object, field: str) -> list[str]:
    many = (spec.get("completions") or 0) > MANY_COMPLETIONS and (spec.get("parallelism") or 0) > MANY_AT_ONCE
    told = [f"{field}: {_TOO_MANY}"] if many and spec.get("completionMode") == "Indexed" else []
    return told + _template(spec.get("template"), f"{field}.template")


def job_warnings(new: Object, old: Object | None) -> list[str]:
    """The name, how much is to be counted, and the template."""
    told = name_warnings(new["metadata"], OWNER_NAME) if old is None else []
    return told if _unchanged(new, old) else told + _job_spec(new["spec"], "spec")


def cron_job_warnings(new: Object, old: Object | None) -> list[str]:
    """The name, the template of jobs, and a time zone that older versions have let into a schedule."""
    told = name_warnings(new["metadata"], OWNER_NAME) if old is None else []
    if not _unchanged(new, old):
        jobs = (new["spec"].get("jobTemplate") or {}).get("spec") or {}
        told += _job_spec(jobs, "spec.jobTemplate.spec")
    if old is not None and "TZ" in new["spec"].get("schedule", ""):
        told.append(_ZONE_IN_SCHEDULE)
    return told
