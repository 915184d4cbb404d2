"""The strategy of Job.

Source: ``registry/batch/job/strategy.go``.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from kubechronicle.api.builtin.batch.job import validation, validation_status, warnings
from kubechronicle.api.strategy.strategy import ORPHAN, Check, Strategy, status_update
from kubechronicle.api.values.objects import Object

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


STRATEGIES: Final[Mapping[str, Strategy]] = {
    "jobs.batch": Strategy(
        pod_spec="spec.template.spec",
        update_checks=(Check.METADATA, Check.OBJECT, Check.METADATA_CHANGE, Check.CHANGE),
        generation=True,
        dependents=ORPHAN,
        defaults_again=True,
        changes_when_read=has_labels_of_its_strategy,
        prepare_create=prepare_new_job,
        validate=validation.job,
        validate_changed=validation.changed_job,
        validate_update=validation.job_update,
        warnings=warnings.job_warnings,
        subresources=MappingProxyType({"status": status_update("spec", validate_update=validation_status.job_status)}),
    ),
}
