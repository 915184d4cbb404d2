"""Hooks of the strategies: what the server decides when an object is created, and what an update cannot change.

Each works on the new object in place. Sources are the ``strategy.go`` files of Kubernetes' registries, named after
their kinds.
"""

from __future__ import annotations

from typing import Final

from kubechronicle.api.builtin.defaults_groups import TEMPLATE_GENERATION
from kubechronicle.api.builtin.hooks_pods import drop_disabled, new_template, template_gates
from kubechronicle.api.strategy.strategy import keep
from kubechronicle.api.values.objects import Object

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
    if (spec.get("dataSourceRef") or {}).get("namespace"):
        del spec["dataSourceRef"]  # CrossNamespaceVolumeDataSource is off
    source, reference = spec.get("dataSource"), spec.get("dataSourceRef")
    if source and not reference and not _is_data_source(source):
        del spec["dataSource"]
    elif source and not reference:
        spec["dataSourceRef"] = dict(source)
    elif reference and not source and not reference.get("namespace") and _is_data_source(reference):
        spec["dataSource"] = dict(reference)


# -- workloads --------------------------------------------------------------------------------------------------------


def deployment_annotations_count(new: Object, old: Object) -> None:
    """New annotations are a new generation, too: they are copied to replica sets."""
    template_gates(new, old)
    before, after = old["metadata"].get("annotations"), new["metadata"].get("annotations")
    if before != after and new["spec"] == old["spec"]:
        new["metadata"]["generation"] = old["metadata"].get("generation", 0) + 1


def new_daemon_set(new: Object) -> None:
    """The template's generation is kept in an annotation that old clients read."""
    new_template(new)
    new["metadata"].setdefault("annotations", {})[TEMPLATE_GENERATION] = "1"


def daemon_set_template_generation(new: Object, old: Object) -> None:
    """Count changes of the template."""
    held = (old["metadata"].get("annotations") or {}).get(TEMPLATE_GENERATION, "0")
    generation = int(held) if held.isdigit() else 0
    template_gates(new, old)
    if new["spec"].get("template") != old["spec"].get("template"):
        generation += 1
    new["metadata"].setdefault("annotations", {})[TEMPLATE_GENERATION] = str(generation)


def stateful_set_gates(new: Object, old: Object | None = None) -> None:
    """maxUnavailable is of a feature that is off: it stays only where it is already."""
    new_template(new)
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
    new_template(new)
    spec = new["spec"]
    if spec.get("manualSelector"):
        return
    metadata = new["metadata"]
    template = spec["template"].setdefault("metadata", {})
    labels = template.setdefault("labels", {})
    for label, source in _JOB_LABELS:
        labels.setdefault(label, metadata[source])  # another one is refused by validation
    selector = spec.get("selector") or {}
    matching = dict(selector.get("matchLabels") or {})
    matching.setdefault("batch.kubernetes.io/controller-uid", metadata["uid"])
    spec["selector"] = {**selector, "matchLabels": matching}


def new_cron_job(new: Object) -> None:
    """Drop what belongs to features that are off from the template of the jobs' pods."""
    job = (new["spec"].get("jobTemplate") or {}).get("spec") or {}
    drop_disabled((job.get("template") or {}).get("spec") or {})


def cron_job_gates(new: Object, old: Object) -> None:
    """The same for an update."""
    new_cron_job(new)


def new_pod_template(new: Object) -> None:
    """Drop what belongs to features that are off."""
    drop_disabled((new.get("template") or {}).get("spec") or {})


def pod_template_gates(new: Object, old: Object) -> None:
    """The same for an update."""
    new_pod_template(new)


# -- certificates -----------------------------------------------------------------------------------------------------


def request_spec_stays(new: Object, old: Object) -> None:
    """What was asked for in a certificate signing request never changes."""
    keep("spec", new, old)


def node_ranges_agree(new: Object, old: Object | None = None) -> None:
    """Whoever knows of one range of addresses alone is believed."""
    spec = new.get("spec") or {}
    if spec.get("podCIDR") and (spec.get("podCIDRs") or [""])[0] != spec["podCIDR"]:
        spec["podCIDRs"] = [spec["podCIDR"]]
