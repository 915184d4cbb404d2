"""PodResizeValidator and NodeDeclaredFeatureValidator: reject changes of running pods that their nodes cannot follow
(plugin/pkg/admission/{podresize,nodedeclaredfeatures} of kube-apiserver)."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import Any, Final

from kubechronicle.actors.admission.chain import (
    CREATE,
    UPDATE,
    AdmissionPlugin,
    AdmissionState,
    AdmissionSteps,
    Attributes,
    forbidden,
)
from kubechronicle.actors.evaluation import judge_copy
from kubechronicle.api.errors.field_errors import Cause, go_quote
from kubechronicle.api.errors.status import StatusError
from kubechronicle.api.quota.pods import requests_of_spec
from kubechronicle.api.selectors.node_selectors import node_matcher
from kubechronicle.api.values import quantity
from kubechronicle.eventlog.entries import Entry

Object = dict[str, Any]
MILLI: Final = -3
_COMPARED: Final = (("cpu", MILLI), ("memory", 0))
"""The resources that a node must have, with the exponent of the unit that messages show."""

POD_LEVEL_RESIZE: Final = "InPlacePodLevelResourcesVerticalScaling"
ALLOCATABLE: Final = "DRANodeAllocatableResources"
_NODES_A_STEP: Final = 50
SLICES: Final = "resourceslices.resource.k8s.io"
INIT_CONTAINER_RESIZE: Final = "InPlacePodVerticalScalingInitContainers"
MEMORY_VOLUME_RESIZE: Final = "InPlacePodVerticalScalingMemoryBackedVolumes"


class _PodUpdate(AdmissionPlugin):
    resources = frozenset({"pods"})
    operations = frozenset({UPDATE})


def _changed_on_node(attributes: Attributes) -> tuple[Object, Object, str] | None:
    """Return the pod after and before, and its node, if the update changes a scheduled pod's generation."""
    if attributes.object is None or attributes.old is None:
        return None
    pod, old = attributes.object, attributes.before
    node = (pod.get("spec") or {}).get("nodeName", "")
    if not node or pod["metadata"].get("generation", 0) == old["metadata"].get("generation", 0):
        return None
    return pod, old, node


class PodResizeValidator(_PodUpdate):
    """A resized pod must run on Linux, and request no more than its node can allocate."""

    name = "PodResizeValidator"
    gate = "InPlacePodVerticalScaling"

    def validate(self, attributes: Attributes, state: AdmissionState) -> None:
        found = _changed_on_node(attributes) if attributes.subresource == "resize" else None
        if found is None:
            return
        pod, _, name = found
        entry = state.peek("nodes", "", name)
        if entry is None:
            raise forbidden(attributes, f"node {go_quote(name)} not found")
        system = entry.labels.get("kubernetes.io/os", "linux")
        if system != "linux":
            why = f"pod resize is only supported on linux nodes, node {go_quote(name)} is {go_quote(system)}"
            raise _with_cause(forbidden(attributes, why), "UnsupportedPlatform")
        place = (self.name, attributes.old.revision if attributes.old else 0, entry.revision)
        if lacking := judge_copy(place, None, _lacking, pod, entry):
            why = f"node didn't have enough allocatable resources: {'; '.join(lacking)}"
            raise _with_cause(forbidden(attributes, why), "NodeCapacity")


def _lacking(pod: Object, node: Entry) -> list[str]:
    requests = requests_of_spec(pod)
    allocatable = (node.object().get("status") or {}).get("allocatable") or {}
    lacking = []
    for name, exponent in _COMPARED:
        wanted, family = requests.get(name, (Decimal(0), "decimal"))
        available = str(allocatable.get(name, "0"))
        if wanted > quantity.value_of(available):
            shown = quantity.in_units(quantity.spelled(wanted, family), exponent)
            lacking.append(f"{name}, requested: {shown}, allocatable: {quantity.in_units(available, exponent)}")
    return lacking


def _with_cause(error: StatusError, reason: str) -> StatusError:
    details = error.details or {}
    error.details = {**details, "causes": [*(details.get("causes") or ()), Cause(reason, "").body()]}
    return error


class NodeDeclaredFeatureValidator(AdmissionPlugin):
    """An update that needs a feature of the kubelet requires that the node declares it (KEP-5328). So do devices that
    take resources of their nodes."""

    name = "NodeDeclaredFeatureValidator"
    gate = "NodeDeclaredFeatures"
    resources = frozenset({"pods", SLICES})
    operations = frozenset({CREATE, UPDATE})

    def validate(self, attributes: Attributes, state: AdmissionState) -> AdmissionSteps | None:
        if attributes.rt.resource == SLICES:
            return _check_devices(attributes, state)
        if attributes.operation == UPDATE:
            self._validate_pod(attributes, state)
        return None

    def _validate_pod(self, attributes: Attributes, state: AdmissionState) -> None:
        found = _changed_on_node(attributes) if attributes.subresource in ("", "resize") else None
        if found is None:
            return
        pod, old, name = found
        needed = features_of_update(pod.get("spec") or {}, old.get("spec") or {})
        if not needed:
            return
        entry = state.peek("nodes", "", name)
        if entry is None:
            raise forbidden(attributes, f"node {go_quote(name)} not found")
        declared = (entry.object().get("status") or {}).get("declaredFeatures") or ()
        if missing := [feature for feature in needed if feature not in declared]:
            features = ", ".join(missing)
            why = f"pod update requires features {features} which are not available on node {go_quote(name)}"
            raise forbidden(attributes, why)


def _check_devices(attributes: Attributes, state: AdmissionState) -> AdmissionSteps:
    """Reject devices that take allocatable resources of nodes that do not declare this feature, or of no node."""
    spec: Object = (attributes.object or {}).get("spec") or {}
    for device in spec.get("devices") or ():
        if not device.get("nodeAllocatableResources"):
            continue
        holder, shown = device if spec.get("perDeviceNodeSelection") else spec, go_quote(device.get("name", ""))
        name, selector = holder.get("nodeName"), holder.get("nodeSelector")
        if name:
            entry = state.peek("nodes", "", name)
            if entry is None:
                raise forbidden(attributes, f"node {go_quote(name)} not found for device {shown}")
            _check_feature(attributes, entry)
        elif selector is not None or holder.get("allNodes"):
            matches = None if selector is None else node_matcher(selector)
            for count, entry in enumerate(state.entries("nodes", "")):
                if matches is None or matches(entry.labels, entry.key.name):
                    _check_feature(attributes, entry)
                if count % _NODES_A_STEP == 0:
                    yield None
        else:
            why = f"device {shown} in ResourceSlice has NodeAllocatableResources but does not map to any nodes"
            raise forbidden(attributes, why)
        if not spec.get("perDeviceNodeSelection"):
            return  # the others are on the same nodes
        yield None


def _check_feature(attributes: Attributes, node: Entry) -> None:
    if ALLOCATABLE not in ((node.object().get("status") or {}).get("declaredFeatures") or ()):
        raise forbidden(attributes, f"node {go_quote(node.key.name)} does not support {ALLOCATABLE} feature")


def features_of_update(spec: Object, old: Object) -> list[str]:
    """Return the features that the change of a pod's spec needs, in alphabetical order."""
    needed = []
    if (spec.get("resources") or None) != (old.get("resources") or None):
        needed.append(POD_LEVEL_RESIZE)
    pairs = zip(old.get("initContainers") or (), spec.get("initContainers") or (), strict=False)
    for before, now in pairs:
        resized = (before.get("resources") or None) != (now.get("resources") or None)
        if before.get("restartPolicy") != "Always" and resized:
            needed.append(INIT_CONTAINER_RESIZE)
            break
    if _resizes_memory(spec.get("volumes") or (), old.get("volumes") or ()):
        needed.append(MEMORY_VOLUME_RESIZE)
    return needed


def _resizes_memory(volumes: Sequence[Object], old: Sequence[Object]) -> bool:
    """Return whether the size limit of a volume in memory changes. Validation rejects other changes of volumes."""
    if len(volumes) != len(old):
        return False
    for now, before in zip(volumes, old, strict=True):
        directory, former = now.get("emptyDir") or {}, before.get("emptyDir") or {}
        limit, present = directory.get("sizeLimit"), former.get("sizeLimit")
        if now.get("name") != before.get("name") or directory.get("medium") != "Memory":
            continue
        if limit is None or present is None:
            continue
        if quantity.value_of(limit) != quantity.value_of(present):
            return True
    return False
