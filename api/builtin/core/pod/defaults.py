"""Defaults of pods and their parts that depend on other fields, and the quality of service class.

Source: Kubernetes' ``apis/core/v1/defaults.go`` and ``ComputePodQOS``.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Final

from kubechronicle.api.values import names, quantity
from kubechronicle.api.values.objects import Object

# -- quality of service class -----------------------------------------------------------------------------------------

_QOS_RESOURCES: Final = ("cpu", "memory")
_PARTS: Final = ("requests", "limits")


def qos_class(spec: Object, *, empty_decide: bool = False) -> str:
    """Return Guaranteed, Burstable or BestEffort. Resources of the pod as a whole decide, if they name any amount.

    ``empty_decide``: they also do without an amount, as in Kubernetes before v1.37.
    """
    of_pod = spec.get("resources")
    if of_pod is not None and (empty_decide or of_pod.get("requests") or of_pod.get("limits")):
        return _common({_class_of(of_pod)})
    holders = (*(spec.get("initContainers") or ()), *(spec.get("containers") or ()))
    return _common({_class_of(holder.get("resources") or {}) for holder in holders})


def _class_of(resources: Object) -> str:
    """Return the class by the requests and limits of one holder: equal ones, if any, for each resource."""
    classes = set()
    for name in _QOS_RESOURCES:
        request, limit = (quantity.value_of((resources.get(part) or {}).get(name, "0")) for part in _PARTS)
        classes.add("Burstable" if request != limit else "Guaranteed" if request else "BestEffort")
    return _common(classes)


def _common(classes: set[str]) -> str:
    return "Burstable" if len(classes) > 1 else next(iter(classes), "BestEffort")


# -- defaults ---------------------------------------------------------------------------------------------------------

FILE_MODE: Final = 0o644


def pull_policy(image: str) -> str:
    """Return the default pull policy of an image: only the tag ``latest`` is always pulled."""
    return "Always" if names.tag_of(image) == names.DEFAULT_TAG else "IfNotPresent"


def default_container(obj: Object) -> None:
    """Set the pull policy and the termination message of a container of any kind."""
    if not obj.get("imagePullPolicy"):
        obj["imagePullPolicy"] = pull_policy(obj.get("image", ""))
    if not obj.get("terminationMessagePath"):
        obj["terminationMessagePath"] = "/dev/termination-log"
    if not obj.get("terminationMessagePolicy"):
        obj["terminationMessagePolicy"] = "File"


def default_pod_spec(obj: Object) -> None:
    """Copy the service account's name to its deprecated field, or the other way."""
    name = obj.get("serviceAccountName") or obj.get("serviceAccount")
    if name:
        obj["serviceAccountName"] = obj["serviceAccount"] = name


_PROBE: Final = {"timeoutSeconds": 1, "periodSeconds": 10, "successThreshold": 1, "failureThreshold": 3}


def default_probe(obj: Object) -> None:
    """Replace zero values of a probe by the defaults."""
    for name, value in _PROBE.items():
        if not obj.get(name):
            obj[name] = value


def default_volume(obj: Object) -> None:
    """Make a volume without a source an empty directory, and set the pull policy of an image."""
    if not obj.keys() - {"name"}:
        obj["emptyDir"] = {}
    image = obj.get("image")
    if image is not None and not image.get("pullPolicy"):
        image["pullPolicy"] = pull_policy(image.get("reference", ""))


INIT_ANNOTATIONS: Final = tuple(
    f"pod.{stage}.kubernetes.io/init-container{part}" for stage in ("alpha", "beta") for part in ("s", "-statuses")
)
"""Annotations that kubelets before 1.8 read instead of spec.initContainers. Kubernetes drops them."""


def default_template(obj: Object) -> None:
    """Drop the annotations of init containers."""
    metadata = obj.get("metadata") or {}
    annotations = metadata.get("annotations")
    if not annotations:
        return
    for name in INIT_ANNOTATIONS:
        annotations.pop(name, None)
    if not annotations:
        del metadata["annotations"]


def default_pod(obj: Object) -> None:
    """Set requests, host ports and service links: defaults of pods that templates do not get.

    A negative grace period becomes one second, in pods alone.
    """
    default_template(obj)
    spec = obj["spec"]
    if (spec.get("terminationGracePeriodSeconds") or 0) < 0:
        spec["terminationGracePeriodSeconds"] = 1
    for held in (*(spec.get("containers") or ()), *(spec.get("initContainers") or ())):
        resources = held.get("resources") or {}
        if resources.get("limits"):
            requests = resources.setdefault("requests", {})
            for name, amount in resources["limits"].items():
                requests.setdefault(name, amount)
        if spec.get("hostNetwork"):
            for port in held.get("ports") or ():
                if not port.get("hostPort"):
                    port["hostPort"] = port.get("containerPort", 0)
    if spec.get("resources"):
        _pod_level_limits(spec, spec["resources"])
        if spec["resources"].get("limits"):
            _pod_level_requests(spec, spec["resources"])
    if spec.get("enableServiceLinks") is None:
        spec["enableServiceLinks"] = True


_POD_LEVEL: Final = ("cpu", "memory")
_HUGE_PAGES: Final = "hugepages-"


def _pod_level_limits(spec: Object, resources: Object) -> None:
    """Derive the limits of huge pages of the pod as a whole from its containers' limits."""
    limits, requests = resources.get("limits") or {}, resources.get("requests") or {}
    if not limits and not requests:
        return
    derived = {
        name: total
        for name, total in container_requests(spec, "limits").items()
        if name.startswith(_HUGE_PAGES) and name not in requests
    }
    if limits or derived:
        resources["limits"] = derived | limits


def _pod_level_requests(spec: Object, resources: Object) -> None:
    """Derive the requests of the pod as a whole from its containers' requests or its own limits."""
    requests = dict(resources.get("requests") or {})
    for name, total in container_requests(spec).items():
        if name in _POD_LEVEL:
            requests.setdefault(name, total)
    for name, amount in (resources.get("limits") or {}).items():
        if name in _POD_LEVEL or name.startswith(_HUGE_PAGES):
            requests.setdefault(name, amount)
    if requests:
        resources["requests"] = requests


def complete_pod_resources(spec: Object) -> None:
    """Derive what the resources of the pod as a whole lack, by PodLevelResourcesFixDefaulting.

    A limit follows from the containers' if all of them have one; it is at least the pod's request.
    """
    resources = spec.get("resources") or {}
    if not resources.get("requests") and not resources.get("limits"):
        return
    _pod_level_limits(spec, resources)
    _pod_level_requests(spec, resources)
    held, requests = resources.get("limits") or {}, resources.get("requests") or {}
    everywhere = [
        (holder.get("resources") or {}).get("limits") or {}
        for holder in (*(spec.get("containers") or ()), *(spec.get("initContainers") or ()))
    ]
    totals = container_requests(spec, "limits")
    derived = {
        name: totals[name] if quantity.parse(totals[name])[0] >= quantity.parse(amount)[0] else amount
        for name, amount in requests.items()
        if name in _POD_LEVEL and name not in held and all(name in limits for limits in everywhere)
    }
    if derived:
        resources["limits"] = held | derived


_Amounts = dict[str, tuple[Decimal, str]]
"""Resource -> (value, family of its suffix)."""


def container_requests(spec: Object, part: str = "requests") -> dict[str, str]:
    """Return the total requests (or limits) of a pod's containers, or an init container's peak if that is higher."""
    total: _Amounts = {}
    for held in spec.get("containers") or ():
        _add(total, _amounts(held, part))
    sidecars: _Amounts = {}
    peak: _Amounts = {}
    for held in spec.get("initContainers") or ():
        running = _amounts(held, part)
        if held.get("restartPolicy") == "Always":
            _add(total, running)
            _add(sidecars, running)
            _raise(peak, {name: sidecars[name] for name in running})  # the others are as before
        else:
            _add(running, {name: sidecars[name] for name in running if name in sidecars})
            _raise(peak, running)
    _raise(total, peak)
    return {name: quantity.spelled(*amount) for name, amount in total.items()}


def _amounts(held: Object, part: str) -> _Amounts:
    return {name: quantity.parse(amount) for name, amount in ((held.get("resources") or {}).get(part) or {}).items()}


def _add(total: _Amounts, amounts: _Amounts) -> None:
    """Add amounts; a sum keeps the family of its first part that is not zero."""
    for name, (value, family) in amounts.items():
        held, held_family = total.get(name, (Decimal(0), family))
        total[name] = held + value, held_family if held else family


def _raise(total: _Amounts, amounts: _Amounts) -> None:
    for name, amount in amounts.items():
        if name not in total or amount[0] > total[name][0]:
            total[name] = amount


def default_pod_status(obj: Object) -> None:
    """Copy podIP to podIPs or the other way: podIP, the only one that old kubelets know, is the first of podIPs."""
    alone, several = obj.get("podIP"), obj.get("podIPs")
    if alone and (not several or several[0].get("ip") != alone):
        obj["podIPs"] = [{"ip": alone}]
    elif several and not alone and several[0].get("ip"):
        obj["podIP"] = several[0]["ip"]


def default_protocols(spec: Object) -> None:
    """Set the protocol of HTTP probes and hooks of a pod, which templates leave open."""
    for group in ("containers", "initContainers", "ephemeralContainers"):
        for container in spec.get(group) or ():
            lifecycle = container.get("lifecycle") or {}
            handlers = [container.get(name) for name in ("livenessProbe", "readinessProbe", "startupProbe")]
            for handler in (*handlers, lifecycle.get("postStart"), lifecycle.get("preStop")):
                action = (handler or {}).get("httpGet")
                if action is not None and action.get("protocol") is None:
                    action["protocol"] = "HTTP1"
