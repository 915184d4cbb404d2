"""PodTemplate, and the rules that all kinds with a pod template share: selectors, counts, warnings and columns.

Source: Kubernetes' ``registry/core/podtemplate``, ``apis/core`` and ``pkg/printers/internalversion``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from kubechronicle.api.builtin.common.cell_text import Since, containers_text, labels_text
from kubechronicle.api.builtin.common.checks import immutable, label_selector, not_negative, sorted_labels
from kubechronicle.api.builtin.common.go_shapes import selector
from kubechronicle.api.builtin.common.kind import BuiltinKind
from kubechronicle.api.builtin.common.printer import CONTAINERS, IMAGES, NAME, Column, Printer, at, name_of
from kubechronicle.api.builtin.core.pod.options import USUAL, PodOptions
from kubechronicle.api.builtin.core.pod.validation import matching_profiles, specific_annotations
from kubechronicle.api.builtin.core.pod.validation_spec import pod_spec
from kubechronicle.api.builtin.core.pod.warnings import OWNER_NAME, name_warnings, spec_warnings
from kubechronicle.api.errors.field_errors import Cause, forbidden, invalid_value, not_supported, required
from kubechronicle.api.meta.metadata import validate_annotations, validate_labels
from kubechronicle.api.strategy.gated_fields import GatedField
from kubechronicle.api.strategy.strategy import Check, Strategy
from kubechronicle.api.values.objects import Object, ReadOnlyObject

# -- workloads --------------------------------------------------------------------------------------------------------


def selector_matches(selector: Object, labels: Mapping[str, str]) -> bool:
    """Return whether a label selector matches these labels."""
    for key, value in (selector.get("matchLabels") or {}).items():
        if labels.get(key) != value:
            return False
    for requirement in selector.get("matchExpressions") or ():
        key, operator, values = requirement.get("key"), requirement.get("operator"), requirement.get("values") or ()
        present = key in labels
        if operator == "In" and not (present and labels[key] in values):
            return False
        if operator == "NotIn" and present and labels[key] in values:
            return False
        if operator == "Exists" and not present:
            return False
        if operator == "DoesNotExist" and present:
            return False
    return True


def long_running(template: Object, field: str, kind: str = "ReplicaSet") -> list[Cause]:
    """Require pods that run until they are deleted: restart policy Always and no deadline."""
    spec = template.get("spec") or {}
    causes: list[Cause] = []
    policy = spec.get("restartPolicy", "")
    if policy != "Always":
        causes.append(not_supported(f"{field}.spec.restartPolicy", policy, ("Always",)))
    if spec.get("activeDeadlineSeconds") is not None:
        detail = f"activeDeadlineSeconds in {kind} is not Supported"
        causes.append(forbidden(f"{field}.spec.activeDeadlineSeconds", detail))
    return causes


def selector_and_template(spec: Object, workload: str, options: PodOptions) -> list[Cause]:
    """Check the selector and the pod template of a workload that is like a ReplicaSet.

    The template is checked only if the selector can be parsed.
    """
    template = spec.get("template") or {}
    causes, parses = workload_selector(spec, workload)
    if not parses:
        return [*causes, invalid_value("spec.selector", selector(spec.get("selector")), "invalid label selector")]
    causes += template_labels(spec) + pod_template(template, "spec.template", options)
    return causes + long_running(template, "spec.template")


def workload_selector(spec: Object, workload: str) -> tuple[list[Cause], bool]:
    """Check that the selector is present and not empty. Return the causes, and whether it can be parsed."""
    given = spec.get("selector")
    if given is None:
        return [required("spec.selector")], True
    causes = label_selector(given, "spec.selector")
    parses = not causes
    return causes + not_empty(given, workload), parses


def not_empty(given: Object, workload: str) -> list[Cause]:
    """Reject a selector that selects everything."""
    if given.get("matchLabels") or given.get("matchExpressions"):
        return []
    return [invalid_value("spec.selector", {}, f"empty selector is invalid for {workload}")]


def template_labels(spec: Object) -> list[Cause]:
    """Check that the selector matches the template's labels; no selector matches nothing."""
    given = spec.get("selector")
    labels = ((spec.get("template") or {}).get("metadata") or {}).get("labels")
    if given is not None and selector_matches(given, labels or {}):
        return []
    return [invalid_value("spec.template.metadata.labels", sorted_labels(labels), MISMATCH)]


MISMATCH: Final = "`selector` does not match template `labels`"


def immutable_selector(new: Object | None, old: Object | None) -> list[Cause]:
    """Reject a changed selector."""
    return [] if new == old else immutable("spec.selector", selector(new), selector(old))


def selector_update(new: Object, old: Object) -> list[Cause]:
    """Reject a changed selector of a workload."""
    return immutable_selector(new["spec"].get("selector"), old["spec"].get("selector"))


def shown_rolling_update(rolling: Object | None) -> Object | None:
    """Return the bounds of a rolling update as Kubernetes prints them."""
    if rolling is None:
        return None
    return {"MaxUnavailable": rolling.get("maxUnavailable", 0), "MaxSurge": rolling.get("maxSurge", 0)}


def collisions(status: Object, old: Object) -> list[Cause]:
    """Reject a collision count that decreases."""
    held, count = (old.get("status") or {}).get("collisionCount"), status.get("collisionCount")
    if held is None or (count is not None and count >= held):
        return []
    return [invalid_value("status.collisionCount", count or 0, "cannot be decremented")]


def parts_of_replicas(status: Object, *parts: str) -> list[Cause]:
    """Check that partial counts do not exceed the number of replicas."""
    causes: list[Cause] = []
    whole = status.get("replicas", 0)
    for name in (*parts, "readyReplicas", "availableReplicas"):
        if status.get(name, 0) > whole:
            causes.append(
                invalid_value(f"status.{name}", status.get(name, 0), "cannot be greater than status.replicas")
            )
    available = status.get("availableReplicas", 0)
    if available > status.get("readyReplicas", 0):
        causes.append(invalid_value("status.availableReplicas", available, "cannot be greater than readyReplicas"))
    return causes


_COUNTS: Final = (
    "replicas",
    "fullyLabeledReplicas",
    "readyReplicas",
    "availableReplicas",
    "observedGeneration",
    "terminatingReplicas",
)


def replica_set_status(new: Object, old: Object) -> list[Cause]:
    """Check that counts are not negative and do not exceed the number of replicas."""
    status = new.get("status") or {}
    return not_negative(status, "status", *_COUNTS) + parts_of_replicas(status, "fullyLabeledReplicas")


def fill_replicas(empty: Object) -> None:
    """Set the number of replicas of an object without contents, which is no pointer in Kubernetes' internal type."""
    empty["spec"] = {"replicas": 0, **empty["spec"]}


# -- validation -------------------------------------------------------------------------------------------------------


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


def validate_pod_template_object(obj: Object, options: PodOptions = USUAL) -> list[Cause]:
    """Check a PodTemplate."""
    return pod_template(obj.get("template") or {}, "template", options)


# -- warnings ---------------------------------------------------------------------------------------------------------


def same_generation(new: Object, old: Object | None) -> bool:
    """Return whether an update has left the object's generation unchanged."""
    return old is not None and new["metadata"].get("generation", 0) == old["metadata"].get("generation", 0)


def warnings_in_template(template: Object | None, field: str) -> list[str]:
    """Return warnings about a pod template at ``field``."""
    return spec_warnings(template.get("metadata"), template.get("spec") or {}, field) if template else []


def pod_template_warnings(new: Object, old: Object | None) -> list[str]:
    """Return warnings about a PodTemplate."""
    return [] if same_generation(new, old) else warnings_in_template(new.get("template"), "template")


def template_warnings(new: Object, old: Object | None) -> list[str]:
    """Return warnings about the template of a kind; its name is no part of a host name."""
    return (
        []
        if same_generation(new, old)
        else warnings_in_template((new.get("spec") or {}).get("template"), "spec.template")
    )


def named_template_warnings(new: Object, old: Object | None) -> list[str]:
    """Return warnings about the name and the template of a kind that names its pods after itself."""
    warnings = name_warnings(new["metadata"], OWNER_NAME) if old is None else []
    return warnings + template_warnings(new, old)


# -- table columns ----------------------------------------------------------------------------------------------------


def _cells(obj: ReadOnlyObject, since: Since) -> list[Any]:
    template = obj.get("template") or {}
    names, images = containers_text(at(template, "spec", "containers"))
    return [name_of(obj), names, images, labels_text(at(template, "metadata", "labels"))]


def template_containers(obj: ReadOnlyObject) -> tuple[str, str]:
    """Return (names, images) of the containers in an object's pod template."""
    return containers_text(at(obj, "spec", "template", "spec", "containers"))


READY: Final = Column("Ready", text="Number of the pod with ready state")


# -- the kind ---------------------------------------------------------------------------------------------------------

TERMINATING_REPLICAS: Final = (
    GatedField(gate="DeploymentReplicaSetTerminatingReplicas", fields=("status.terminatingReplicas",)),
)

KIND: Final = BuiltinKind(
    resource="podtemplates",
    strategy=Strategy(
        pod_spec="template.spec",
        update_checks=(Check.METADATA_CHANGE, Check.OBJECT, Check.CHANGE),
        status=False,
        generation=True,
        generation_fields=("template",),
        returns_deleted=True,
        validate=validate_pod_template_object,
        warnings=pod_template_warnings,
    ),
    printer=Printer(
        (
            NAME,
            Column("Containers", text=CONTAINERS.text),
            Column("Images", text=IMAGES.text),
            Column("Pod Labels", text="The labels for the pod template."),
        ),
        _cells,
    ),
)
