"""Pod: its strategy and its tables of defaults. The files beside this one have the rules of its parts.

Source: Kubernetes' ``registry/core/pod/strategy.go`` and ``apis/core/v1/defaults.go``.
"""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType
from typing import Final

from kubechronicle.api.builtin.common.kind import BuiltinKind
from kubechronicle.api.builtin.core.pod import validation_status, validation_subresources, warnings
from kubechronicle.api.builtin.core.pod.columns import POD
from kubechronicle.api.builtin.core.pod.defaults import (
    FILE_MODE,
    complete_pod_resources,
    default_container,
    default_pod,
    default_pod_spec,
    default_pod_status,
    default_probe,
    default_protocols,
    default_template,
    default_volume,
    qos_class,
)
from kubechronicle.api.builtin.core.pod.gated_fields import POD_SPEC, POD_STATUS
from kubechronicle.api.builtin.core.pod.options import USUAL, PodOptions
from kubechronicle.api.builtin.core.pod.validation import APP_ARMOR, app_armor_field, pod, pod_update
from kubechronicle.api.builtin.core.pod.validation_security import containers_of
from kubechronicle.api.meta.encoding import copy_object
from kubechronicle.api.strategy.gated_fields import below
from kubechronicle.api.strategy.strategy import (
    STATUS_METADATA,
    Check,
    Strategy,
    SubresourceStrategy,
    keep,
    keep_metadata,
    status_update,
)
from kubechronicle.api.values.objects import Object


def prepare_new_pod(new: Object, *, options: PodOptions = USUAL) -> None:
    """Set the initial status, complete the pod's own resources, and expand label keys.

    The scheduler expands those of spread constraints while ``merged_selectors`` is off.
    """
    spec = new["spec"]
    if options.completed_resources:
        complete_pod_resources(spec)
    new["status"] = {"phase": "Pending", "qosClass": qos_class(spec, empty_decide=not options.amounts_decide)}
    if spec.get("schedulingGates"):
        new["status"]["conditions"] = [
            {
                "type": "PodScheduled",
                "status": "False",
                "lastProbeTime": None,
                "lastTransitionTime": new["metadata"]["creationTimestamp"],
                "reason": "SchedulingGated",
                "message": "Scheduling is blocked due to non-empty scheduling gates",
            }
        ]

    labels = new["metadata"].get("labels")
    if labels and ("affinity" in spec or "topologySpreadConstraints" in spec):
        _expand_label_keys(spec, labels, spread=options.merged_selectors)


_TERMS: Final = (
    ("requiredDuringSchedulingIgnoredDuringExecution", ""),
    ("preferredDuringSchedulingIgnoredDuringExecution", "podAffinityTerm"),
)
"""(affinity list, member of its items that holds the term or "")."""
_KEYS: Final = (("matchLabelKeys", "In"), ("mismatchLabelKeys", "NotIn"))


def _expand_label_keys(spec: Object, labels: Object, *, spread: bool) -> None:
    """Add an expression to the selector for each label key of the pod (KEP-3633, KEP-3243)."""
    affinity = spec.get("affinity") or {}
    for kind in ("podAffinity", "podAntiAffinity"):
        for name, member in _TERMS:
            for term in (affinity.get(kind) or {}).get(name) or ():
                _expand_keys_of_term(term.get(member) or {} if member else term, labels)
    for constraint in (spec.get("topologySpreadConstraints") or ()) if spread else ():
        _expand_keys_of_term(constraint, labels)


def _expand_keys_of_term(term: Object, labels: Object) -> None:
    selector = term.get("labelSelector")
    if selector is None:
        return
    for member, operator in _KEYS:
        for key in term.get(member) or ():
            if key in labels:
                expression = {"key": key, "operator": operator, "values": [labels[key]]}
                selector.setdefault("matchExpressions", []).append(expression)


def set_app_armor_fields(new: Object) -> None:
    """Copy AppArmor profiles from annotations to fields (KEP-24). Warnings are about the annotations alone."""
    spec, annotations = new["spec"], new["metadata"].get("annotations")
    if not annotations or (spec.get("os") or {}).get("name") == "windows":
        return
    of_pod = (spec.get("securityContext") or {}).get("appArmorProfile")
    for container, _ in containers_of(spec, ""):
        annotation = annotations.get(APP_ARMOR + container.get("name", ""))
        if annotation is None or (container.get("securityContext") or {}).get("appArmorProfile") is not None:
            continue
        profile = app_armor_field(annotation)
        if profile is not None and profile != of_pod:
            container.setdefault("securityContext", {})["appArmorProfile"] = profile


CLAIM_STATUSES: Final = (
    "resourceClaimStatuses",
    "extendedResourceClaimStatus",
    "nodeAllocatableResourceClaimStatuses",
)
"""Fields of a pod's status that an older kubelet does not know. An empty list clears them."""


def prepare_pod_status(new: Object, old: Object) -> None:
    """Keep the QoS class, the observed generations, and the claims that a kubelet leaves out."""
    status, held = new.setdefault("status", {}), old.get("status") or {}
    for name in CLAIM_STATUSES:
        if status.get(name) is None and held.get(name) is not None:
            status[name] = held[name]
    for name in ("qosClass", "observedGeneration"):
        if not status.get(name) and held.get(name):
            status[name] = held[name]
    observed: dict[str, list[int]] = {}
    for condition in held.get("conditions") or ():
        observed.setdefault(condition.get("type", ""), []).append(condition.get("observedGeneration", 0))
    for condition in status.get("conditions") or ():
        earlier = observed.get(condition.get("type", ""))
        generation = earlier.pop(0) if earlier else 0
        if generation and not condition.get("observedGeneration"):
            condition["observedGeneration"] = generation


def _restrict_to_spec_fields(new: Object, old: Object, *names: str) -> None:
    spec: Object = copy_object(old["spec"])
    for name in names:
        keep(name, spec, new["spec"])
    if spec != old["spec"]:
        new["metadata"]["generation"] = old["metadata"].get("generation", 0) + 1
    new["spec"] = spec
    keep("status", new, old)
    keep_metadata(new, old, *STATUS_METADATA)


def restrict_to_ephemeral_containers(new: Object, old: Object) -> None:
    """Keep all but spec.ephemeralContainers: the ephemeralcontainers subresource changes nothing else."""
    _restrict_to_spec_fields(new, old, "ephemeralContainers")


def restrict_to_resources(new: Object, old: Object, *, options: PodOptions = USUAL) -> None:
    """Keep all but resources, resize policies, and volumes where a gate says so: a resize changes nothing else."""
    if options.completed_resources:
        keep_pod_resources(new, old)
        complete_pod_resources(new["spec"])
    containers = {}
    for group in ("containers", "initContainers"):
        wanted, held = new["spec"].get(group) or [], copy_object(old["spec"].get(group) or [])
        if len(wanted) != len(held):
            return  # validation rejects this
        if [each.get("name") for each in wanted] != [each.get("name") for each in held]:
            containers[group] = wanted  # and this
            continue
        for one, other in zip(held, wanted, strict=True):
            for name in ("resources", "resizePolicy"):
                keep(name, one, other)
        if held:
            containers[group] = held
    new["spec"] = {**new["spec"], **containers}
    of_pod = {"resources": options.resized_as_a_whole, "volumes": options.resized_volumes}
    _restrict_to_spec_fields(new, old, *(name for name, may_change in of_pod.items() if may_change), *containers)


def keep_pod_resources(new: Object, old: Object) -> None:
    """Keep the resources of a pod as a whole if a client that does not know them has dropped them."""
    spec, held = new["spec"], old["spec"]
    if spec.get("resources") is None and held.get("resources") is not None:
        spec["resources"] = copy_object(held["resources"])


_STATUS: Final = status_update(
    "spec",
    metadata=("ownerReferences", "deletionTimestamp"),
    prepare=prepare_pod_status,
    validate_update=validation_status.pod_status,
    warnings=warnings.pod_status_warnings,
    reset=(("spec",), ("metadata", "deletionTimestamp"), ("metadata", "ownerReferences")),
)
_SUBRESOURCES: Final = {
    "status": replace(_STATUS, empties=tuple(f"status.{name}" for name in CLAIM_STATUSES)),
    "ephemeralcontainers": SubresourceStrategy(
        prepare=restrict_to_ephemeral_containers,
        validate_update=validation_subresources.ephemeral_containers_update,
    ),
    "resize": SubresourceStrategy(prepare=restrict_to_resources, validate_update=validation_subresources.resize),
}

KINDS: Final = (
    BuiltinKind(
        resource="pods",
        strategy=Strategy(
            pod_spec="spec",
            status_on_create=True,
            update_checks=(Check.METADATA_CHANGE, Check.METADATA, Check.CHANGE),
            generation=True,
            graceful=True,
            returns_deleted=True,
            prepare_create=prepare_new_pod,
            validate=pod,
            validate_update=pod_update,
            canonicalize=set_app_armor_fields,
            warnings=warnings.pod_warnings,
            subresources=MappingProxyType(_SUBRESOURCES),
            with_gates={
                "PodLevelResourcesFixDefaulting": {"prepare_update": keep_pod_resources},
                "H2CContainerProbe": {"defaults": lambda new, now: default_protocols(new["spec"])},
            },
        ),
        gated_fields={
            "ephemeralcontainers": below("spec", POD_SPEC),
            "resize": below("spec", POD_SPEC),
            "status": POD_STATUS,
        },
        default_values={
            "core.v1.PodSpec": {
                "dnsPolicy": "ClusterFirst",
                "restartPolicy": "Always",
                "securityContext": {},
                "terminationGracePeriodSeconds": 30,
                "schedulerName": "default-scheduler",
            },
            "core.v1.HTTPGetAction": {"path": "/", "scheme": "HTTP"},
            "core.v1.ObjectFieldSelector": {"apiVersion": "v1"},
            "core.v1.SecretVolumeSource": {"defaultMode": FILE_MODE},
            "core.v1.ConfigMapVolumeSource": {"defaultMode": FILE_MODE},
            "core.v1.DownwardAPIVolumeSource": {"defaultMode": FILE_MODE},
            "core.v1.ProjectedVolumeSource": {"defaultMode": FILE_MODE},
            "core.v1.ServiceAccountTokenProjection": {"expirationSeconds": 3600},
            "core.v1.HostPathVolumeSource": {"type": ""},
        },
        default_functions={
            "core.v1.Container": default_container,
            "core.v1.EphemeralContainer": default_container,
            "core.v1.PodSpec": default_pod_spec,
            "core.v1.Probe": default_probe,
            "core.v1.Volume": default_volume,
            "core.v1.PodTemplateSpec": default_template,
            "core.v1.Pod": default_pod,
            "core.v1.PodStatus": default_pod_status,
        },
        resource_lists={
            "core.v1.ContainerStatus": ("allocatedResources",),
            "core.v1.PodSpec": ("overhead",),
            "core.v1.PodStatus": ("allocatedResources",),
            "core.v1.ResourceRequirements": ("limits", "requests"),
        },
        printer=POD,
    ),
    BuiltinKind(resource="bindings"),
)
