"""Validation of ReplicaSets and ControllerRevisions."""

from __future__ import annotations

from kubechronicle.api.builtin.common.checks import immutable, not_negative
from kubechronicle.api.builtin.core.podtemplate.workloads import selector_and_template
from kubechronicle.api.errors.field_errors import Cause, required
from kubechronicle.api.values.objects import Object


def replica_set(obj: Object) -> list[Cause]:
    """Check the counts, selector and template of a ReplicaSet."""
    spec = obj["spec"]
    return not_negative(spec, "spec", "replicas", "minReadySeconds") + selector_and_template(spec, "deployment")


def controller_revision(obj: Object) -> list[Cause]:
    """Require data and a revision number that is not negative."""
    causes: list[Cause] = []
    if obj.get("data") is None:
        causes.append(required("data", "data is mandatory"))
    return causes + not_negative(obj, "", "revision")


def controller_revision_update(new: Object, old: Object) -> list[Cause]:
    """Reject changes of the recorded data."""
    return immutable("data", new.get("data"), old.get("data"))
