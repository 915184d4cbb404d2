"""How the kinds that run and scale pods are shown: apps, batch, autoscaling, policy.

Source: Kubernetes' ``pkg/printers/internalversion``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from kubechronicle.api.builtin.cell_text import (
    Since,
    containers_text,
    duration_between,
    is_true,
    labels_text,
    selector_text,
    yes_no,
)
from kubechronicle.api.builtin.printer import (
    AGE,
    CONTAINERS,
    IMAGES,
    NAME,
    Column,
    Object,
    Printer,
    age_of,
    at,
    field,
    name_of,
    wide_field,
)

METRICS_SHOWN: Final = 2
_UNKNOWN: Final = "<unknown>"


def _template_containers(obj: Object) -> tuple[str, str]:
    return containers_text(at(obj, "spec", "template", "spec", "containers"))


def _deployment(obj: Object, since: Since) -> list[Any]:
    status = obj.get("status") or {}
    return [
        name_of(obj),
        f"{status.get('readyReplicas') or 0}/{at(obj, 'spec', 'replicas', default=0)}",
        status.get("updatedReplicas") or 0,
        status.get("availableReplicas") or 0,
        age_of(obj, since),
        *_template_containers(obj),
        selector_text(at(obj, "spec", "selector"), empty=""),
    ]


def _replica_set(obj: Object, since: Since) -> list[Any]:
    status = obj.get("status") or {}
    return [
        name_of(obj),
        at(obj, "spec", "replicas", default=0),
        status.get("replicas") or 0,
        status.get("readyReplicas") or 0,
        age_of(obj, since),
        *_template_containers(obj),
        selector_text(at(obj, "spec", "selector")),
    ]


def _stateful_set(obj: Object, since: Since) -> list[Any]:
    ready = at(obj, "status", "readyReplicas", default=0)
    desired = at(obj, "spec", "replicas", default=0)
    return [name_of(obj), f"{ready}/{desired}", age_of(obj, since), *_template_containers(obj)]


def _daemon_set(obj: Object, since: Since) -> list[Any]:
    status = obj.get("status") or {}
    counts = (
        "desiredNumberScheduled",
        "currentNumberScheduled",
        "numberReady",
        "updatedNumberScheduled",
        "numberAvailable",
    )
    return [
        name_of(obj),
        *(status.get(count) or 0 for count in counts),
        labels_text(at(obj, "spec", "template", "spec", "nodeSelector")),
        age_of(obj, since),
        *_template_containers(obj),
        selector_text(at(obj, "spec", "selector")),
    ]


def _controller_revision(obj: Object, since: Since) -> list[Any]:
    owner = next((owner for owner in obj["metadata"].get("ownerReferences") or () if owner.get("controller")), None)
    controller = "<none>"
    if owner is not None:
        group = owner.get("apiVersion", "").rpartition("/")[0]
        kind = f"{owner.get('kind', '')}.{group}" if group else owner.get("kind", "")
        controller = f"{kind.lower()}/{owner.get('name', '')}"
    return [name_of(obj), controller, obj.get("revision") or 0, age_of(obj, since)]


# -- batch ------------------------------------------------------------------------------------------------------------

_JOB_ENDS: Final = (("Complete", "Complete"), ("Failed", "Failed"))
_JOB_PAUSES: Final = (("Suspended", "Suspended"), ("FailureTarget", "FailureTarget"))


def _job_status(obj: Object) -> str:
    conditions = at(obj, "status", "conditions")
    for kind, word in _JOB_ENDS:
        if is_true(conditions, kind):
            return word
    if obj["metadata"].get("deletionTimestamp"):
        return "Terminating"
    return next((word for kind, word in _JOB_PAUSES if is_true(conditions, kind)), "Running")


def _completions(obj: Object) -> str:
    succeeded = at(obj, "status", "succeeded", default=0)
    wanted = at(obj, "spec", "completions")
    if wanted is not None:
        return f"{succeeded}/{wanted}"
    parallelism = at(obj, "spec", "parallelism", default=0)
    return f"{succeeded}/1 of {parallelism}" if parallelism > 1 else f"{succeeded}/1"


def _job(obj: Object, since: Since) -> list[Any]:
    start, end = at(obj, "status", "startTime"), at(obj, "status", "completionTime")
    duration = "" if not start else duration_between(start, end) if end else since(start)
    return [
        name_of(obj),
        _job_status(obj),
        _completions(obj),
        duration,
        age_of(obj, since),
        *_template_containers(obj),
        selector_text(at(obj, "spec", "selector")),
    ]


def _cron_job(obj: Object, since: Since) -> list[Any]:
    spec = obj.get("spec") or {}
    last = at(obj, "status", "lastScheduleTime")
    job = at(spec, "jobTemplate", "spec", default={})
    return [
        name_of(obj),
        spec.get("schedule") or "",
        spec.get("timeZone") or "<none>",
        yes_no(spec.get("suspend")),
        len(at(obj, "status", "active", default=())),
        since(last) if last else "<none>",
        age_of(obj, since),
        *containers_text(at(job, "template", "spec", "containers")),
        selector_text(job.get("selector")),
    ]


# -- autoscaling ------------------------------------------------------------------------------------------------------


def _amount(spec: Object, current: Object | None) -> str:
    """An external or object metric: an average or a value, of what is wanted."""
    target = spec.get("target") or {}
    if target.get("averageValue") is not None:
        return f"{at(current, 'current', 'averageValue', default=_UNKNOWN)}/{target['averageValue']} (avg)"
    return f"{at(current, 'current', 'value', default=_UNKNOWN)}/{target.get('value')}"


def _average(spec: Object, current: Object | None) -> str:
    wanted = at(spec, "target", "averageValue")
    return f"{at(current, 'current', 'averageValue', default=_UNKNOWN)}/{wanted}"


def _resource(spec: Object, current: Object | None) -> str:
    if at(spec, "target", "averageValue") is not None:
        return f"{spec.get('name', '')}: {_average(spec, current)}"
    used = at(current, "current", "averageUtilization")
    wanted = at(spec, "target", "averageUtilization")
    now = _UNKNOWN if used is None else f"{used}%"
    return f"{spec.get('name', '')}: {now}/{'<auto>' if wanted is None else f'{wanted}%'}"


_METRICS: Final[Mapping[str, tuple[str, Callable[[Object, Object | None], str]]]] = {
    "External": ("external", _amount),
    "Object": ("object", _amount),
    "Pods": ("pods", _average),
    "Resource": ("resource", _resource),
    "ContainerResource": ("containerResource", _resource),
}


def _metrics(specs: Sequence[Object], statuses: Sequence[Object]) -> str:
    texts = []
    for position, spec in enumerate(specs[:METRICS_SHOWN]):
        source, text = _METRICS.get(spec.get("type", ""), ("", None))
        current = statuses[position].get(source) if position < len(statuses) else None
        texts.append("<unknown type>" if text is None else text(spec.get(source) or {}, current))
    more = len(specs) - METRICS_SHOWN
    return ", ".join(texts) + (f" + {more} more..." if more > 0 else "")


def _autoscaler(obj: Object, since: Since) -> list[Any]:
    spec = obj.get("spec") or {}
    target = spec.get("scaleTargetRef") or {}
    metrics = spec.get("metrics") or ()
    least = spec.get("minReplicas")
    return [
        name_of(obj),
        f"{target.get('kind', '')}/{target.get('name', '')}",
        _metrics(metrics, at(obj, "status", "currentMetrics", default=())) if metrics else "<none>",
        "<unset>" if least is None else str(least),
        spec.get("maxReplicas") or 0,
        at(obj, "status", "currentReplicas", default=0),
        age_of(obj, since),
    ]


def _scale(obj: Object, since: Since) -> list[Any]:
    desired, available = at(obj, "spec", "replicas", default=0), at(obj, "status", "replicas", default=0)
    return [name_of(obj), desired, available, age_of(obj, since)]


def _disruption_budget(obj: Object, since: Since) -> list[Any]:
    least, most = at(obj, "spec", "minAvailable"), at(obj, "spec", "maxUnavailable")
    return [
        name_of(obj),
        "N/A" if least is None else str(least),
        "N/A" if most is None else str(most),
        at(obj, "status", "disruptionsAllowed", default=0),
        age_of(obj, since),
    ]


_READY: Final = Column("Ready", text="Number of the pod with ready state")

SCALE: Final = Printer(
    (
        Column("Name", field="ObjectMeta.name"),
        field("Desired", "autoscaling.v1.ScaleSpec.replicas", "integer"),
        field("Available", "autoscaling.v1.ScaleStatus.replicas", "integer"),
        AGE,
    ),
    _scale,
)
"""The scale subresource, of whatever resource."""

PRINTERS: Final[Mapping[str, Printer]] = {
    "deployments.apps": Printer(
        (
            NAME,
            _READY,
            field("Up-to-date", "apps.v1.DeploymentStatus.updatedReplicas"),
            field("Available", "apps.v1.DeploymentStatus.availableReplicas"),
            AGE,
            CONTAINERS,
            IMAGES,
            wide_field("Selector", "apps.v1.DeploymentSpec.selector"),
        ),
        _deployment,
    ),
    "replicasets.apps": Printer(
        (
            NAME,
            field("Desired", "apps.v1.ReplicaSetSpec.replicas", "integer"),
            field("Current", "apps.v1.ReplicaSetStatus.replicas", "integer"),
            field("Ready", "apps.v1.ReplicaSetStatus.readyReplicas", "integer"),
            AGE,
            CONTAINERS,
            IMAGES,
            wide_field("Selector", "apps.v1.ReplicaSetSpec.selector"),
        ),
        _replica_set,
    ),
    "statefulsets.apps": Printer((NAME, _READY, AGE, CONTAINERS, IMAGES), _stateful_set),
    "daemonsets.apps": Printer(
        (
            NAME,
            field("Desired", "apps.v1.DaemonSetStatus.desiredNumberScheduled", "integer"),
            field("Current", "apps.v1.DaemonSetStatus.currentNumberScheduled", "integer"),
            field("Ready", "apps.v1.DaemonSetStatus.numberReady", "integer"),
            field("Up-to-date", "apps.v1.DaemonSetStatus.updatedNumberScheduled", "integer"),
            field("Available", "apps.v1.DaemonSetStatus.numberAvailable", "integer"),
            field("Node Selector", "core.v1.PodSpec.nodeSelector"),
            AGE,
            CONTAINERS,
            IMAGES,
            wide_field("Selector", "apps.v1.DaemonSetSpec.selector"),
        ),
        _daemon_set,
    ),
    "controllerrevisions.apps": Printer(
        (
            NAME,
            Column("Controller", text="Controller of the object"),
            field("Revision", "apps.v1.ControllerRevision.revision"),
            AGE,
        ),
        _controller_revision,
    ),
    "jobs.batch": Printer(
        (
            NAME,
            Column("Status", text="Status of the job."),
            field("Completions", "batch.v1.JobStatus.succeeded"),
            Column("Duration", text="Time required to complete the job."),
            AGE,
            CONTAINERS,
            IMAGES,
            wide_field("Selector", "batch.v1.JobSpec.selector"),
        ),
        _job,
    ),
    "cronjobs.batch": Printer(
        (
            NAME,
            field("Schedule", "batch.v1.CronJobSpec.schedule"),
            field("Timezone", "batch.v1.CronJobSpec.timeZone"),
            field("Suspend", "batch.v1.CronJobSpec.suspend", "boolean"),
            field("Active", "batch.v1.CronJobStatus.active", "integer"),
            field("Last Schedule", "batch.v1.CronJobStatus.lastScheduleTime"),
            AGE,
            CONTAINERS,
            IMAGES,
            wide_field("Selector", "batch.v1.JobSpec.selector"),
        ),
        _cron_job,
    ),
    "horizontalpodautoscalers.autoscaling": Printer(
        (
            NAME,
            field("Reference", "autoscaling.v2.HorizontalPodAutoscalerSpec.scaleTargetRef"),
            field("Targets", "autoscaling.v2.HorizontalPodAutoscalerSpec.metrics"),
            field("MinPods", "autoscaling.v2.HorizontalPodAutoscalerSpec.minReplicas"),
            field("MaxPods", "autoscaling.v2.HorizontalPodAutoscalerSpec.maxReplicas"),
            field("Replicas", "autoscaling.v2.HorizontalPodAutoscalerStatus.currentReplicas"),
            AGE,
        ),
        _autoscaler,
    ),
    "poddisruptionbudgets.policy": Printer(
        (
            NAME,
            Column("Min Available", text="The minimum number of pods that must be available."),
            Column("Max Unavailable", text="The maximum number of pods that may be unavailable."),
            Column(
                "Allowed Disruptions",
                "integer",
                text="Calculated number of pods that may be disrupted at this time.",
            ),
            AGE,
        ),
        _disruption_budget,
    ),
}
"""Storage resource -> printer."""
