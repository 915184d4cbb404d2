"""LimitRanger: default requests and limits for containers, and bounds for containers, pods and claims
(plugin/pkg/admission/limitranger of kube-apiserver).

    LimitRange: Container default cpu 500m, defaultRequest cpu 100m, max cpu 1
    pod without resources → requests cpu 100m, limits cpu 500m, and an annotation that says so
    pod with limits cpu 2 → 403 maximum cpu usage per Container is 1, but limit is 2
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from kubechronicle.actors.admission.chain import (
    UPDATE,
    AdmissionPlugin,
    AdmissionState,
    AdmissionSteps,
    Attributes,
    forbidden,
)
from kubechronicle.actors.evaluation import note_growth
from kubechronicle.api.quota import amounts
from kubechronicle.api.quota.amounts import Usage
from kubechronicle.api.values.objects import Object
from kubechronicle.api.values.quantity import value_of
from kubechronicle.api.values.steps import Steps
from kubechronicle.eventlog.entries import Entry

Amounts = Mapping[str, str]

LIMIT_RANGES: Final = "limitranges"
CLAIMS: Final = "persistentvolumeclaims"
ANNOTATION: Final = "kubernetes.io/limit-ranger"
# Resources that a pod may set itself (names or prefixes); others are the sum of its containers.
POD_LEVEL: Final = ("cpu", "memory", "hugepages-")
SIDES: Final = (("requests", "request"), ("limits", "limit"))
KINDS: Final = (("containers", "container"), ("initContainers", "init container"))


class LimitRanger(AdmissionPlugin):
    name = "LimitRanger"
    resources = frozenset({"pods", CLAIMS})

    def admit(self, attributes: Attributes, state: AdmissionState) -> AdmissionSteps | None:
        pod = attributes.object
        if attributes.rt.resource != "pods" or pod is None or not _concerns(attributes):
            return None
        ranges = _limit_ranges(attributes, state)
        if not ranges:
            return None
        return _completed(pod, ranges)

    def validate(self, attributes: Attributes, state: AdmissionState) -> AdmissionSteps | None:
        if attributes.object is None or not _concerns(attributes):
            return None
        ranges = _limit_ranges(attributes, state)
        if not ranges:
            return None
        return _checked(attributes, attributes.object.get("spec") or {}, ranges)


def _checked(attributes: Attributes, spec: Object, ranges: Sequence[Entry]) -> AdmissionSteps:
    check = _claim_problems if attributes.rt.resource == CLAIMS else _pod_problems
    for entry in ranges:
        problems: dict[str, None] = {}
        for problem in check(spec, _limits(entry)):
            if problem is None:
                yield None
            else:
                problems[problem] = None
        if problems:
            text = ", ".join(problems)
            raise forbidden(attributes, text if len(problems) == 1 else f"[{text}]")


def _concerns(attributes: Attributes) -> bool:
    """Return True for created or resized pods, since nothing else changes their resources, and for every claim."""
    if attributes.rt.resource == "pods" and attributes.operation == UPDATE:
        return attributes.subresource == "resize"
    return not attributes.subresource


def _limit_ranges(attributes: Attributes, state: AdmissionState) -> Sequence[Entry]:
    """Return the LimitRanges of the namespace; none for an object that is being deleted."""
    ranges = state.entries(LIMIT_RANGES, attributes.namespace)
    if ranges and attributes.old is not None and "deletionTimestamp" in attributes.before["metadata"]:
        return ()
    return ranges


def _limits(entry: Entry) -> list[Object]:
    return (entry.object().get("spec") or {}).get("limits") or []


# -- defaults ---------------------------------------------------------------------------------------------------------


def _completed(pod: Object, ranges: Sequence[Entry]) -> AdmissionSteps:
    known: dict[str, set[str]] = {side: set() for side, _ in SIDES}
    for entry in ranges:
        limits = _limits(entry)
        yield None
        yield from _apply_defaults(pod, limits, known)


def _apply_defaults(pod: Object, limits: list[Object], known: Mapping[str, set[str]]) -> AdmissionSteps:
    """Complete the containers. ``known``: the names that all of them have already, by side; completed, too."""
    requests: dict[str, str] = {}
    maxima: dict[str, str] = {}
    for limit in limits:
        if limit.get("type") == "Container":
            requests.update(limit.get("defaultRequest") or {})
            maxima.update(limit.get("default") or {})
    wanted = []
    for (side, word), given in zip(SIDES, (requests, maxima), strict=True):
        if values := {name: value for name, value in given.items() if name not in known[side]}:
            known[side].update(values)
            wanted.append((side, values, word))
        yield None
    if not wanted:
        return
    defaulted: list[str] = []
    spec = pod.get("spec") or {}
    for field, kind in KINDS:
        for container in spec.get(field) or []:
            resources = container.setdefault("resources", {})
            for side, values, word in wanted:
                present = resources.get(side) or {}
                missing = sorted(values.keys() - present.keys())
                if missing:
                    resources[side] = {**present, **{name: values[name] for name in missing}}
                    defaulted.append(f"{', '.join(missing)} {word} for {kind} {container.get('name', '')}")
                yield None
    if defaulted:
        meta = pod["metadata"]
        text = "LimitRanger plugin set: " + "; ".join(defaulted)
        meta["annotations"] = {**(meta.get("annotations") or {}), ANNOTATION: text}
        note_growth(2 * len(text))


# -- constraints ------------------------------------------------------------------------------------------------------


def _pod_problems(spec: Object, limits: list[Object]) -> Iterable[str | None]:
    """Yield the problems of a pod; None: a step."""
    for limit in limits:
        kind = limit.get("type", "")
        if kind == "Container":
            for field, _ in KINDS:
                for container in spec.get(field) or []:
                    yield None
                    resources = container.get("resources") or {}
                    yield from _violations(limit, resources.get("requests") or {}, resources.get("limits") or {})
        elif kind == "Pod":
            requests = yield from pod_total(spec, "requests")
            limits_of_pod = yield from pod_total(spec, "limits")
            yield from _violations(limit, requests, limits_of_pod)


def _violations(limit: Object, requests: Amounts, limits: Amounts) -> Iterable[str | None]:
    """Yield the problems of some amounts; None: a step."""
    kind = limit.get("type", "")
    for name, bound in sorted((limit.get("min") or {}).items()):
        yield None
        head = f"minimum {name} usage per {kind} is {bound}"
        if name not in requests:
            yield f"{head}.  No request is specified"
        elif value_of(requests[name]) < value_of(bound):
            yield f"{head}, but request is {requests[name]}"
        elif name in limits and value_of(limits[name]) < value_of(bound):
            yield f"{head}, but limit is {limits[name]}"
    for name, bound in sorted((limit.get("max") or {}).items()):
        yield None
        head = f"maximum {name} usage per {kind} is {bound}"
        if name not in limits:
            yield f"{head}.  No limit is specified"
        elif value_of(limits[name]) > value_of(bound):
            yield f"{head}, but limit is {limits[name]}"
        elif name in requests and value_of(requests[name]) > value_of(bound):
            yield f"{head}, but request is {requests[name]}"
    for name, bound in sorted((limit.get("maxLimitRequestRatio") or {}).items()):
        yield None
        head = f"{name} max limit to request ratio per {kind} is {bound}"
        request, most = value_of(requests.get(name, "0")), value_of(limits.get(name, "0"))
        if not request:
            yield f"{head}, but no request is specified or request is 0"
        elif not most:
            yield f"{head}, but no limit is specified or limit is 0"
        elif most / request > value_of(bound):
            yield f"{head}, but provided ratio is {float(most / request):f}"


def _claim_problems(spec: Object, limits: list[Object]) -> Iterable[str | None]:
    """Yield the problems of a claim; None: a step."""
    requests = (spec.get("resources") or {}).get("requests") or {}
    for limit in limits:
        yield None
        if limit.get("type") != "PersistentVolumeClaim":
            continue
        yield from _violations({"type": limit["type"], "min": limit.get("min")}, requests, {})
        for name, bound in sorted((limit.get("max") or {}).items()):
            yield None
            head = f"maximum {name} usage per {limit['type']} is {bound}"
            if name not in requests:
                yield f"{head}.  No request is specified"
            elif value_of(requests[name]) > value_of(bound):
                yield f"{head}, but request is {requests[name]}"


def pod_total(spec: Object, side: str) -> Steps[dict[str, str]]:
    """Return the requests or limits (``side``) of a whole pod.

    That is the larger one of two sums: all containers and sidecars; an init container and the sidecars started before
    it. Resources that the pod sets itself take precedence.
    """
    sums: Usage = {}
    for container in spec.get("containers") or []:
        yield
        amounts.add(sums, amounts.parsed((container.get("resources") or {}).get(side)))
    sidecars: Usage = {}
    peak: Usage = {}
    for container in spec.get("initContainers") or []:
        yield
        own = amounts.parsed((container.get("resources") or {}).get(side))
        if container.get("restartPolicy") == "Always":
            amounts.add(sums, own)
            amounts.add(sidecars, own)
            needed = {name: sidecars[name] for name in own}
        else:
            needed = {name: amounts.plus(sidecars.get(name, amounts.ZERO), own[name]) for name in own}
        amounts.raise_to(peak, needed)  # for other names, the sidecars need what they did before
    amounts.raise_to(sums, peak)
    texts = amounts.texts(sums)
    for name, text in ((spec.get("resources") or {}).get(side) or {}).items():
        if name.startswith(POD_LEVEL):
            texts[name] = text
    return texts
