"""Validation of pod templates, in PodTemplate and in workloads."""

from __future__ import annotations

from kubechronicle.api.builtin.core.pod.options import USUAL, PodOptions
from kubechronicle.api.builtin.core.pod.validation import specific_annotations
from kubechronicle.api.builtin.core.pod.validation_profiles import matching_profiles
from kubechronicle.api.builtin.core.pod.validation_spec import pod_spec
from kubechronicle.api.errors.field_errors import Cause, forbidden
from kubechronicle.api.meta.metadata import validate_annotations, validate_labels
from kubechronicle.api.values.objects import Object


def pod_template(template: Object, field: str, options: PodOptions = USUAL) -> list[Cause]:
    """Check the labels, annotations and spec of a pod template."""
    metadata, spec = template.get("metadata") or {}, template.get("spec") or {}
    causes = validate_labels(metadata.get("labels") or {}, f"{field}.labels")
    if metadata.get("annotations"):
        causes += validate_annotations(metadata["annotations"], f"{field}.annotations")
        causes += specific_annotations(metadata["annotations"], spec, f"{field}.annotations")
    causes += pod_spec(spec, f"{field}.spec", options=options)
    if metadata.get("annotations"):
        causes += matching_profiles(metadata["annotations"], spec, f"{field}.spec")
    if spec.get("ephemeralContainers"):
        detail = "ephemeral containers not allowed in pod template"
        causes.append(forbidden(f"{field}.spec.ephemeralContainers", detail))
    return causes


def pod_template_object(obj: Object, options: PodOptions = USUAL) -> list[Cause]:
    """Check a PodTemplate."""
    return pod_template(obj.get("template") or {}, "template", options)
