"""Hooks of the strategies: what the server decides when an object is created, and what an update cannot change.

Each works on the new object in place. Sources are the ``strategy.go`` files of Kubernetes' registries, named after
their kinds.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Any, Final

from kubechronicle.api import quantity
from kubechronicle.api.builtin.defaults_groups import TEMPLATE_GENERATION
from kubechronicle.api.encoding import copy_object
from kubechronicle.api.strategy import keep

Object = dict[str, Any]

# -- namespaces -------------------------------------------------------------------------------------------------------

NAMESPACE_LABEL: Final = "kubernetes.io/metadata.name"


def new_namespace(new: Object) -> None:
    """A namespace begins active, and its contents have to be cleared before it goes."""
    new["status"] = {"phase": "Active"}
    finalizers = new["spec"].setdefault("finalizers", [])
    if "kubernetes" not in finalizers:
        finalizers.append("kubernetes")


def namespace_finalizers_stay(new: Object, old: Object) -> None:
    """spec.finalizers are changed through the finalize subresource only."""
    keep("finalizers", new["spec"], old["spec"])


def finalize_namespace(new: Object, old: Object) -> None:
    """The finalize subresource changes spec.finalizers and nothing else of the object but metadata."""
    keep("status", new, old)


def label_namespace(new: Object) -> None:
    """The label with the name is always right, also for a generated name."""
    new["metadata"].setdefault("labels", {})[NAMESPACE_LABEL] = new["metadata"]["name"]


# -- secrets ----------------------------------------------------------------------------------------------------------


def secret_type_stays(new: Object, old: Object) -> None:
    """A replacement that names no type keeps the old one."""
    if not new.get("type"):
        keep("type", new, old)


# -- pods -------------------------------------------------------------------------------------------------------------

_QOS_RESOURCES: Final = ("cpu", "memory")


def new_pod(new: Object) -> None:
    """A pod begins pending, with its class of service; gated ones say so."""
    spec = new["spec"]
    new["status"] = {"phase": "Pending", "qosClass": qos_class(spec)}
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


def qos_class(spec: Object) -> str:
    """Return Guaranteed, Burstable or BestEffort (Kubernetes' ``ComputePodQOS``)."""
    pod_level = spec.get("resources")
    if pod_level:
        sources = [pod_level]
    else:
        holders = (*(spec.get("containers") or ()), *(spec.get("initContainers") or ()))
        sources = [holder.get("resources") or {} for holder in holders]
    requests: dict[str, Decimal] = {}
    limits: dict[str, Decimal] = {}
    guaranteed = True
    for resources in sources:
        _add_positive(requests, resources.get("requests"))
        found = _add_positive(limits, resources.get("limits"))
        guaranteed = guaranteed and found == set(_QOS_RESOURCES)
    if not requests and not limits:
        return "BestEffort"
    if (
        guaranteed
        and len(requests) == len(limits)
        and all(limits.get(name) == value for name, value in requests.items())
    ):
        return "Guaranteed"
    return "Burstable"


def _add_positive(total: dict[str, Decimal], amounts: Object | None) -> set[str]:
    found = set()
    for name, amount in (amounts or {}).items():
        value = quantity.value_of(amount)
        if name in _QOS_RESOURCES and value > 0:
            found.add(name)
            total[name] = total.get(name, Decimal(0)) + value
    return found


def pod_status_keeps(new: Object, old: Object) -> None:
    """What a kubelet's status cannot remove: the class of service and what generation was observed."""
    status, held = new.setdefault("status", {}), old.get("status") or {}
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
    _fill_pod_ips(status)


def _fill_pod_ips(status: Object) -> None:
    """podIP is the first of podIPs."""
    if status.get("podIP") and not status.get("podIPs"):
        status["podIPs"] = [{"ip": status["podIP"]}]
    elif status.get("podIPs") and not status.get("podIP"):
        status["podIP"] = status["podIPs"][0].get("ip", "")


def _only_spec_fields(new: Object, old: Object, *names: str) -> None:
    spec: Object = copy_object(old["spec"])
    for name in names:
        keep(name, spec, new["spec"])
    if spec != old["spec"]:
        new["metadata"]["generation"] = old["metadata"].get("generation", 0) + 1
    new["spec"] = spec
    keep("status", new, old)


def only_ephemeral_containers(new: Object, old: Object) -> None:
    """The ephemeralcontainers subresource changes spec.ephemeralContainers only."""
    _only_spec_fields(new, old, "ephemeralContainers")


def only_resources(new: Object, old: Object) -> None:
    """The resize subresource changes resources and resize policies only."""
    containers = {}
    for group in ("containers", "initContainers"):
        wanted, held = new["spec"].get(group) or [], copy_object(old["spec"].get(group) or [])
        if [each.get("name") for each in wanted] != [each.get("name") for each in held]:
            continue
        for one, other in zip(held, wanted, strict=True):
            for name in ("resources", "resizePolicy"):
                keep(name, one, other)
        if held:
            containers[group] = held
    new["spec"] = {**new["spec"], **containers}
    _only_spec_fields(new, old, "resources", *containers)


# -- storage ----------------------------------------------------------------------------------------------------------


def new_persistent_volume(new: Object) -> None:
    """A volume begins pending, and the time of that is kept."""
    new["status"] = {"phase": "Pending", "lastPhaseTransitionTime": new["metadata"]["creationTimestamp"]}


def volume_status_moves(new: Object, old: Object, now: str) -> None:
    """Keep the time of the last change of phase."""
    status, held = new.setdefault("status", {}), old.get("status") or {}
    if status.get("phase") != held.get("phase"):
        if status.get("lastPhaseTransitionTime") in (None, held.get("lastPhaseTransitionTime")):
            status["lastPhaseTransitionTime"] = now
    elif not status.get("lastPhaseTransitionTime"):
        keep("lastPhaseTransitionTime", status, held)


_DATA_SOURCES: Final = (("", "PersistentVolumeClaim"), ("snapshot.storage.k8s.io", "VolumeSnapshot"))


def _is_data_source(reference: Object) -> bool:
    return (reference.get("apiGroup") or "", reference.get("kind")) in _DATA_SOURCES


def new_claim(new: Object) -> None:
    """A claim begins pending; its data source has an older and a newer form."""
    new["status"] = {"phase": "Pending"}
    spec = new["spec"]
    source, reference = spec.get("dataSource"), spec.get("dataSourceRef")
    if source and not _is_data_source(source):
        del spec["dataSource"]
    elif source and not reference:
        spec["dataSourceRef"] = dict(source)
    elif reference and not source and not reference.get("namespace") and _is_data_source(reference):
        spec["dataSource"] = dict(reference)


# -- workloads --------------------------------------------------------------------------------------------------------


def deployment_annotations_count(new: Object, old: Object) -> None:
    """New annotations are a new generation, too: they are copied to replica sets."""
    before, after = old["metadata"].get("annotations"), new["metadata"].get("annotations")
    if before != after and new["spec"] == old["spec"]:
        new["metadata"]["generation"] = old["metadata"].get("generation", 0) + 1


def new_daemon_set(new: Object) -> None:
    """The template's generation is kept in an annotation that old clients read."""
    new["metadata"].setdefault("annotations", {})[TEMPLATE_GENERATION] = "1"


def daemon_set_template_generation(new: Object, old: Object) -> None:
    """Count changes of the template."""
    held = (old["metadata"].get("annotations") or {}).get(TEMPLATE_GENERATION, "0")
    generation = int(held) if held.isdigit() else 0
    if new["spec"].get("template") != old["spec"].get("template"):
        generation += 1
    new["metadata"].setdefault("annotations", {})[TEMPLATE_GENERATION] = str(generation)


def stateful_set_gates(new: Object, old: Object | None = None) -> None:
    """maxUnavailable is of a feature that is off: it stays only where it is already."""
    rolling = (new["spec"].get("updateStrategy") or {}).get("rollingUpdate") or {}
    held = ((old or {}).get("spec", {}).get("updateStrategy") or {}).get("rollingUpdate") or {}
    if "maxUnavailable" in rolling and "maxUnavailable" not in held:
        del rolling["maxUnavailable"]


def new_stateful_set(new: Object) -> None:
    """Drop what is of features that are off."""
    stateful_set_gates(new)


_JOB_LABELS: Final = (
    ("controller-uid", "uid"),
    ("job-name", "name"),
    ("batch.kubernetes.io/controller-uid", "uid"),
    ("batch.kubernetes.io/job-name", "name"),
)


def new_job(new: Object) -> None:
    """A job selects its pods by its own uid, unless it says otherwise."""
    spec = new["spec"]
    if spec.get("manualSelector"):
        return
    metadata = new["metadata"]
    template = spec["template"].setdefault("metadata", {})
    labels = template.setdefault("labels", {})
    for label, source in _JOB_LABELS:
        labels[label] = metadata[source]
    selector = spec.get("selector") or {}
    matching = dict(selector.get("matchLabels") or {})
    matching.setdefault("batch.kubernetes.io/controller-uid", metadata["uid"])
    spec["selector"] = {**selector, "matchLabels": matching}


# -- certificates -----------------------------------------------------------------------------------------------------


def request_spec_stays(new: Object, old: Object) -> None:
    """What was asked for in a certificate signing request never changes."""
    keep("spec", new, old)
