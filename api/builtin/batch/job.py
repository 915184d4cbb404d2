"""Job: pods that run to completion. Its validation stands in the files beside this one.

Source: Kubernetes' ``registry/batch/job``, ``apis/batch`` and ``pkg/printers/internalversion``.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import Any, Final

from kubechronicle.api.builtin.batch import job_policies_and_status, job_validation
from kubechronicle.api.builtin.common.cell_text import Since, duration_between, is_true, selector_text
from kubechronicle.api.builtin.common.kind import BuiltinKind
from kubechronicle.api.builtin.common.printer import (
    AGE,
    CONTAINERS,
    IMAGES,
    NAME,
    Column,
    Printer,
    age_of,
    at,
    field_column,
    name_of,
    wide_field,
)
from kubechronicle.api.builtin.core.pod.warnings import OWNER_NAME, name_warnings
from kubechronicle.api.builtin.core.podtemplate import same_generation, template_containers, warnings_in_template
from kubechronicle.api.strategy.gated_fields import GatedField
from kubechronicle.api.strategy.strategy import ORPHAN, Check, Strategy, status_update
from kubechronicle.api.values.objects import Object, ReadOnlyObject

# -- defaults ---------------------------------------------------------------------------------------------------------

MAX_INT32: Final = 2**31 - 1


def default_job(obj: Object) -> None:
    """Default to one pod that must succeed once, and fill in the policies and the labels."""
    spec = obj["spec"]
    if spec.get("completions") is None and spec.get("parallelism") is None:
        spec["completions"] = 1
    spec.setdefault("parallelism", 1)
    if spec.get("backoffLimit") is None:
        spec["backoffLimit"] = MAX_INT32 if spec.get("backoffLimitPerIndex") is not None else 6
    labels = ((spec.get("template") or {}).get("metadata") or {}).get("labels")
    if labels and not obj["metadata"].get("labels"):
        # One mapping, as in Kubernetes: labels that the strategy adds to the pods of a new Job are the Job's, too.
        obj["metadata"]["labels"] = labels
    spec.setdefault("completionMode", "NonIndexed")
    spec.setdefault("suspend", False)
    if spec.get("podReplacementPolicy") is None:
        spec["podReplacementPolicy"] = "Failed" if spec.get("podFailurePolicy") is not None else "TerminatingOrFailed"
    spec.setdefault("manualSelector", False)


# -- preparation ------------------------------------------------------------------------------------------------------

_JOB_LABELS: Final = (
    ("controller-uid", "uid"),
    ("job-name", "name"),
    ("batch.kubernetes.io/controller-uid", "uid"),
    ("batch.kubernetes.io/job-name", "name"),
)


def prepare_new_job(new: Object) -> None:
    """Select the pods by the job's uid unless ``manualSelector`` is set."""
    spec = new["spec"]
    if spec.get("manualSelector"):
        return
    metadata = new["metadata"]
    template = spec["template"].setdefault("metadata", {})
    labels = template.setdefault("labels", {})
    for label, source in _JOB_LABELS:
        labels.setdefault(label, metadata.get(source, ""))  # validation rejects another value, and no name
    selector = spec.get("selector") or {}
    matching = dict(selector.get("matchLabels") or {})
    matching.setdefault("batch.kubernetes.io/controller-uid", metadata["uid"])
    spec["selector"] = {**selector, "matchLabels": matching}


def has_labels_of_its_strategy(job: Object) -> bool:
    """Return whether the labels of a Job are those that its strategy made for its pods, and no others."""
    labels = job["metadata"].get("labels") or {}
    return not job["spec"].get("manualSelector") and labels.keys() == {name for name, _ in _JOB_LABELS}


# -- warnings ---------------------------------------------------------------------------------------------------------

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


# -- table columns ----------------------------------------------------------------------------------------------------

_JOB_ENDS: Final = (("Complete", "Complete"), ("Failed", "Failed"))
_JOB_PAUSES: Final = (("Suspended", "Suspended"), ("FailureTarget", "FailureTarget"))


def _job_status(obj: ReadOnlyObject) -> str:
    conditions = at(obj, "status", "conditions")
    for kind, word in _JOB_ENDS:
        if is_true(conditions, kind):
            return word
    if obj["metadata"].get("deletionTimestamp"):
        return "Terminating"
    return next((word for kind, word in _JOB_PAUSES if is_true(conditions, kind)), "Running")


def _completions(obj: ReadOnlyObject) -> str:
    succeeded = at(obj, "status", "succeeded", default=0)
    wanted = at(obj, "spec", "completions")
    if wanted is not None:
        return f"{succeeded}/{wanted}"
    parallelism = at(obj, "spec", "parallelism", default=0)
    return f"{succeeded}/1 of {parallelism}" if parallelism > 1 else f"{succeeded}/1"


def _cells(obj: ReadOnlyObject, since: Since) -> list[Any]:
    start, end = at(obj, "status", "startTime"), at(obj, "status", "completionTime")
    duration = "" if not start else duration_between(start, end) if end else since(start)
    return [
        name_of(obj),
        _job_status(obj),
        _completions(obj),
        duration,
        age_of(obj, since),
        *template_containers(obj),
        selector_text(at(obj, "spec", "selector")),
    ]


# -- the kind ---------------------------------------------------------------------------------------------------------

KIND: Final = BuiltinKind(
    resource="jobs.batch",
    strategy=Strategy(
        pod_spec="spec.template.spec",
        update_checks=(Check.METADATA_CHANGE, Check.CHANGE),
        generation=True,
        dependents=ORPHAN,
        defaults_again=True,
        changes_when_read=has_labels_of_its_strategy,
        prepare_create=prepare_new_job,
        validate=job_validation.job,
        validate_update=job_validation.job_update,
        warnings=job_warnings,
        subresources=MappingProxyType(
            {"status": status_update("spec", validate_update=job_policies_and_status.job_status)}
        ),
    ),
    gated_fields={
        "": (
            GatedField(gate="JobManagedBy", fields=("spec.managedBy",), on_create=True),
            GatedField(gate="WorkloadWithJob", since=37, fields=("spec.scheduling",)),
        ),
    },
    default_values={"batch.v1.PodFailurePolicyOnPodConditionsPattern": {"status": "True"}},
    default_functions={"batch.v1.Job": default_job},
    printer=Printer(
        (
            NAME,
            Column("Status", text="Status of the job."),
            field_column("Completions", "batch.v1.JobStatus.succeeded"),
            Column("Duration", text="Time required to complete the job."),
            AGE,
            CONTAINERS,
            IMAGES,
            wide_field("Selector", "batch.v1.JobSpec.selector"),
        ),
        _cells,
    ),
)
