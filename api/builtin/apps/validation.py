"""Validation of ReplicaSets and ControllerRevisions."""

from __future__ import annotations

import orjson

from kubechronicle.api.builtin.common.checks import not_negative
from kubechronicle.api.builtin.core.pod.options import USUAL, PodOptions
from kubechronicle.api.builtin.core.podtemplate.workloads import selector_and_template
from kubechronicle.api.errors.field_errors import Cause, invalid_value, required
from kubechronicle.api.meta.metadata import IMMUTABLE
from kubechronicle.api.values.objects import Object


def replica_set(obj: Object, options: PodOptions = USUAL) -> list[Cause]:
    """Check the counts, selector and template of a ReplicaSet."""
    spec = obj["spec"]
    causes = not_negative(spec, "spec", "replicas", "minReadySeconds")
    return causes + selector_and_template(spec, "deployment", options)


def controller_revision(obj: Object) -> list[Cause]:
    """Check that the revision number is not negative."""
    return not_negative(obj, "", "revision")


def new_controller_revision(api_version: str, new: Object, old: Object | None) -> list[Cause]:
    """Require an object as data of a new ControllerRevision."""
    data = new.get("data")
    if old is not None or isinstance(data, dict):
        return []
    return [required("data", "data is mandatory" if data is None else "data must be a valid JSON object")]


def controller_revision_update(new: Object, old: Object) -> list[Cause]:
    """Reject changes of the recorded data. Kubernetes compares its encodings, so the order of keys counts."""
    data, held = new.get("data"), old.get("data")
    return [] if orjson.dumps(data) == orjson.dumps(held) else [invalid_value("data", data, IMMUTABLE)]
