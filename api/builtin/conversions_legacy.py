"""Converters between the versions of the past (legacy.py) and those objects are kept in, as Kubernetes converted them.

A version of the past cannot say everything the present one can, and now and then says a thing twice. What Kubernetes
put into annotations stands in the same ones here; whatever else would be lost on the way there and back is kept in one
of our own (``KEPT``), so that an old client who reads an object and writes it back changes nothing it does not know of:

    discovery.k8s.io/v1       zone: a, deprecatedTopology: {topology.kubernetes.io/zone: b}
    discovery.k8s.io/v1beta1  topology: {topology.kubernetes.io/zone: a}, annotation: deprecatedTopology comes back as
                              nothing, and is {topology.kubernetes.io/zone: b}

Sources: the conversions of pkg/apis/{autoscaling,discovery,policy} in Kubernetes 1.20 to 1.25.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import orjson

from kubechronicle.api.builtin import conversions
from kubechronicle.api.builtin.conversions import METRIC_FIELDS, Converter, status_name
from kubechronicle.api.errors.field_errors import go_json
from kubechronicle.api.meta.encoding import copy_object
from kubechronicle.api.schema import check, types, values
from kubechronicle.api.values.objects import Object

KEPT: Final = "kubechronicle.io/kept-by-conversion"
"""Annotation, never stored, with what a version of the past has no words for: a JSON list of {"at": path, "as": what
comes back without it, "is": what it is}, where a member that is missing stands for a field that is."""

PDB_LABEL: Final = "pdb.kubernetes.io/deprecated-v1beta1-empty-selector-match"
"""Key with which policy/v1 says "no pods" and policy/v1beta1 "all pods", for which the other has the empty selector."""

ZONE: Final = "topology.kubernetes.io/zone"
HOSTNAME: Final = "kubernetes.io/hostname"


def _typed(obj: Object, api_version: str, definition: str) -> Object:
    """The object under another apiVersion and in the form that version is written in."""
    result = {**obj, "apiVersion": api_version}
    check.check(result, types.object_type(definition))
    return result


def _renaming(api_version: str, definition: str) -> Converter:
    """A converter for versions that have the same fields."""
    return lambda obj: _typed(copy_object(obj), api_version, definition)


# -- what is kept in an annotation ------------------------------------------------------------------------------------

_Path = tuple[str | int, ...]
_ABSENT: Final[Any] = object()


def lossless(down: Converter, up: Converter, definition: str) -> tuple[Converter, Converter]:
    """Return both converters so that up(down(obj)) is obj again. ``definition`` is the present version's."""
    kind = types.object_type

    def down_keeping(obj: Object) -> Object:
        old = down(obj)
        wanted = copy_object(obj)
        check.check(wanted, kind(definition))
        lost = list(_differences(up(old), wanted, ()))
        if lost:
            noted = [_noted(*each) for each in lost]
            old["metadata"].setdefault("annotations", {})[KEPT] = go_json(noted)
        return old

    def up_restoring(obj: Object) -> Object:
        text = (obj["metadata"].get("annotations") or {}).get(KEPT)
        if text is None:
            return up(obj)
        new = up(_without_note(obj))
        restored: Object = copy_object(new)
        for entry in _read(text):
            _restore(restored, entry)
        try:
            check.check(restored, kind(definition))
        except check.TypeMismatch:
            return new  # the client's own doing
        return restored

    return down_keeping, up_restoring


def _differences(seen: Any, wanted: Any, path: _Path) -> Iterator[tuple[_Path, Any, Any]]:
    if seen.__class__ is dict and wanted.__class__ is dict:
        for name in {**seen, **wanted}:
            yield from _differences(seen.get(name, _ABSENT), wanted.get(name, _ABSENT), (*path, name))
    elif seen.__class__ is list and wanted.__class__ is list and len(seen) == len(wanted):
        for index, (one, other) in enumerate(zip(seen, wanted, strict=True)):
            yield from _differences(one, other, (*path, index))
    elif seen != wanted:
        yield path, seen, wanted


def _noted(path: _Path, seen: Any, wanted: Any) -> Object:
    note: Object = {"at": list(path)}
    for name, value in (("as", seen), ("is", wanted)):
        if value is not _ABSENT:
            note[name] = value
    return note


def _without_note(obj: Object) -> Object:
    notes = {name: value for name, value in obj["metadata"]["annotations"].items() if name != KEPT}
    metadata = {**obj["metadata"], "annotations": notes}
    if not notes:
        del metadata["annotations"]
    return {**obj, "metadata": metadata}


def _read(text: str) -> Iterator[Object]:
    """The entries of the annotation that can be meant; clients may write anything into it."""
    try:
        found = orjson.loads(text)
    except orjson.JSONDecodeError:
        return
    for entry in found if isinstance(found, list) else ():
        path = entry.get("at") if isinstance(entry, dict) else None
        if isinstance(path, list) and path and _may_be_kept(path):
            yield entry


def _may_be_kept(path: list[Any]) -> bool:
    """Whether a path is one of the object's own fields: what names it and what the server writes is not for clients."""
    return path[:2] == ["metadata", "annotations"] or path[0] not in ("apiVersion", "kind", "metadata")


def _restore(obj: Object, entry: Object) -> None:
    """Put back what was lost, if what came of it is as it was then."""
    *parents, last = entry["at"]
    place: Any = obj
    for name in parents:
        place = _member(place, name)
    seen = _member(place, last)
    if place is _ABSENT or seen != entry.get("as", _ABSENT):
        return
    if place.__class__ is dict and isinstance(last, str):
        if "is" in entry:
            place[last] = entry["is"]
        else:
            place.pop(last, None)
    elif place.__class__ is list and seen is not _ABSENT and "is" in entry:
        place[last] = entry["is"]


def _member(place: Any, name: Any) -> Any:
    if place.__class__ is dict and isinstance(name, str):
        return place.get(name, _ABSENT)
    if place.__class__ is list and name.__class__ is int and 0 <= name < len(place):
        return place[name]
    return _ABSENT


# -- autoscaling ------------------------------------------------------------------------------------------------------

V2: Final = "io.k8s.api.autoscaling.v2.HorizontalPodAutoscaler"
V2BETA1: Final = "io.k8s.api.autoscaling.v2beta1.HorizontalPodAutoscaler"
V2BETA2: Final = "io.k8s.api.autoscaling.v2beta2.HorizontalPodAutoscaler"

_PREFIX: Final = "autoscaling.alpha.kubernetes.io/"
TOLERANCES: Final = (("scaleDown", _PREFIX + "scale-down-tolerance"), ("scaleUp", _PREFIX + "scale-up-tolerance"))
_ROUND_TRIP: Final = (
    conversions.METRICS,
    conversions.BEHAVIOR,
    conversions.CURRENT_METRICS,
    conversions.CONDITIONS,
    *(name for _, name in TOLERANCES),
)


def _taken_notes(obj: Object) -> dict[str, str]:
    """Take the annotations out that only conversions write, and return them."""
    metadata = obj["metadata"]
    given = metadata.get("annotations") or {}
    taken = {name: given.pop(name) for name in _ROUND_TRIP if name in given}
    if not given:
        metadata.pop("annotations", None)
    return taken


def _to_v2beta2(obj: Object) -> Object:
    obj = copy_object(obj)
    _taken_notes(obj)
    behavior = obj["spec"].get("behavior") or {}
    for direction, name in TOLERANCES:
        tolerance = (behavior.get(direction) or {}).pop("tolerance", None)
        if tolerance is not None:
            obj["metadata"].setdefault("annotations", {})[name] = tolerance
    return _typed(obj, "autoscaling/v2beta2", V2BETA2)


def _from_v2beta2(obj: Object) -> Object:
    obj = copy_object(obj)
    taken = _taken_notes(obj)
    for direction, name in TOLERANCES:
        try:
            tolerance = values.quantity_text(taken[name]) if name in taken else None
        except values.DecodeError:
            continue  # the client's own doing
        if tolerance is not None:
            behavior = obj["spec"].setdefault("behavior", {})
            behavior.setdefault(direction, {})["tolerance"] = tolerance
    return _typed(obj, "autoscaling/v2", V2)


def _to_v2beta1(obj: Object) -> Object:
    obj = copy_object(obj)
    _taken_notes(obj)
    behavior = obj["spec"].pop("behavior", None)
    if behavior is not None:
        note = go_json(conversions.behavior_to_note(behavior))
        obj["metadata"].setdefault("annotations", {})[conversions.BEHAVIOR] = note
    _convert_metrics(obj, lambda metric, status: _old_metric(metric, status=status))
    return _typed(obj, "autoscaling/v2beta1", V2BETA1)


def _from_v2beta1(obj: Object) -> Object:
    obj = copy_object(obj)
    behavior = conversions.behavior_from_annotation(_taken_notes(obj).get(conversions.BEHAVIOR))
    if behavior is not None:
        obj["spec"]["behavior"] = behavior
    _convert_metrics(obj, lambda metric, status: _new_metric(metric, status=status))
    return _typed(obj, "autoscaling/v2", V2)


def _convert_metrics(obj: Object, convert: Callable[[Object, bool], Object]) -> None:
    for part, name, status in (("spec", "metrics", False), ("status", "currentMetrics", True)):
        holder = obj.get(part) or {}
        if holder.get(name):
            holder[name] = [convert(metric, status) for metric in holder[name]]


def _old_metric(metric: Object, *, status: bool) -> Object:
    found: Object = {"type": metric.get("type", "")}
    for source, pairs in METRIC_FIELDS.items():
        if metric.get(source) is None:
            continue
        made = found[source] = {}
        for name, path in pairs:
            value: Any = metric[source]
            for part in (path.replace("target.", "current.") if status else path).split("."):
                value = value.get(part) if isinstance(value, dict) else None
            if value is not None:
                made[status_name(name) if status else name] = value
    return found


def _new_metric(metric: Object, *, status: bool) -> Object:
    found: Object = {"type": metric.get("type", "")}
    for source, pairs in METRIC_FIELDS.items():
        given = metric.get(source)
        if given is None:
            continue
        made = found[source] = {}
        for name, path in pairs:
            value = given.get(status_name(name) if status else name)
            if value is None or _is_only_written(source, name, value, given, status=status):
                continue
            *parents, last = (path.replace("target.", "current.") if status else path).split(".")
            place = made
            for part in parents:
                place = place.setdefault(part, {})
            place[last] = value
        if not status:
            target = made.setdefault("target", {})
            target["type"] = _target_type(source, target)
    return found


_AVERAGES: Final = ("averageValue", "currentAverageValue", "targetAverageValue")


def _is_only_written(source: str, name: str, value: Any, given: Object, *, status: bool) -> bool:
    """Whether a total of zero stands there because the field always does: beside an average it means nothing."""
    always = source == "object" or (status and source == "external")
    return value == "0" and name == "targetValue" and always and any(average in given for average in _AVERAGES)


def _target_type(source: str, target: Object) -> str:
    if source == "pods":
        return "AverageValue"
    if source in ("resource", "containerResource"):
        return "Utilization" if target.get("averageUtilization") is not None else "AverageValue"
    if source == "external":
        return "Value" if target.get("value") is not None else "AverageValue"
    return "AverageValue" if target.get("averageValue") is not None else "Value"


# -- disruption budgets -----------------------------------------------------------------------------------------------


def _says(selector: Any, operator: str) -> bool:
    return bool(selector == _saying(operator))


def _saying(operator: str) -> Object:
    return {"matchExpressions": [{"key": PDB_LABEL, "operator": operator}]}


def strip_pdb_label(spec: Object) -> None:
    """Take the key that says "all" or "none" out of a selector that says something besides."""
    selector = spec.get("selector")
    expressions = (selector or {}).get("matchExpressions")
    if not selector or not expressions or _says(selector, "Exists"):
        return
    left = [each for each in expressions if each.get("key") != PDB_LABEL]
    if left:
        selector["matchExpressions"] = left
    else:
        del selector["matchExpressions"]


def _budget(obj: Object, api_version: str, definition: str, *, empty: str, other: str) -> Object:
    """The budget in the other version. An empty selector becomes ``empty``, and what that version says with ``other``
    becomes the empty one."""
    obj = copy_object(obj)
    spec = obj["spec"]
    selector = spec.get("selector")
    if selector == {}:
        spec["selector"] = _saying(empty)
    elif _says(selector, other):
        spec["selector"] = {}
    else:
        strip_pdb_label(spec)
    return _typed(obj, api_version, definition)


PDB_V1: Final = "io.k8s.api.policy.v1.PodDisruptionBudget"
PDB_V1BETA1: Final = "io.k8s.api.policy.v1beta1.PodDisruptionBudget"


def _budget_to_v1beta1(obj: Object) -> Object:
    return _budget(obj, "policy/v1beta1", PDB_V1BETA1, empty="DoesNotExist", other="Exists")


def _budget_to_v1(obj: Object) -> Object:
    return _budget(obj, "policy/v1", PDB_V1, empty="Exists", other="DoesNotExist")


# -- endpoint slices --------------------------------------------------------------------------------------------------

SLICE_V1: Final = "io.k8s.api.discovery.v1.EndpointSlice"
SLICE_V1BETA1: Final = "io.k8s.api.discovery.v1beta1.EndpointSlice"


def _slice_to_v1beta1(obj: Object) -> Object:
    obj = copy_object(obj)
    for endpoint in obj.get("endpoints") or ():
        topology = endpoint.pop("deprecatedTopology", None) or {}
        zone, node = endpoint.pop("zone", None), endpoint.get("nodeName")
        if zone is not None:
            topology[ZONE] = zone
        if node is not None and not topology.get(HOSTNAME):
            topology[HOSTNAME] = node
        if topology:
            endpoint["topology"] = topology
    return _typed(obj, "discovery.k8s.io/v1beta1", SLICE_V1BETA1)


def _slice_to_v1(obj: Object) -> Object:
    obj = copy_object(obj)
    for endpoint in obj.get("endpoints") or ():
        topology = endpoint.pop("topology", None) or {}
        if ZONE in topology:
            endpoint["zone"] = topology.pop(ZONE)
        if HOSTNAME in topology and endpoint.setdefault("nodeName", topology[HOSTNAME]) == topology[HOSTNAME]:
            del topology[HOSTNAME]
        if topology:
            endpoint["deprecatedTopology"] = topology
    return _typed(obj, "discovery.k8s.io/v1", SLICE_V1)


# -- the table --------------------------------------------------------------------------------------------------------

_PAIRS: Final[tuple[tuple[str, str, str, str, Converter, Converter], ...]] = (
    # kind, present version, version of the past, present definition, to the past, from the past
    ("HorizontalPodAutoscaler", "autoscaling/v2", "autoscaling/v2beta1", V2, _to_v2beta1, _from_v2beta1),
    ("HorizontalPodAutoscaler", "autoscaling/v2", "autoscaling/v2beta2", V2, _to_v2beta2, _from_v2beta2),
    ("PodDisruptionBudget", "policy/v1", "policy/v1beta1", PDB_V1, _budget_to_v1beta1, _budget_to_v1),
    ("EndpointSlice", "discovery.k8s.io/v1", "discovery.k8s.io/v1beta1", SLICE_V1, _slice_to_v1beta1, _slice_to_v1),
)


def _table() -> Iterator[tuple[tuple[str, str, str], Converter]]:
    for kind, present, past, definition, down, up in _PAIRS:
        down, up = lossless(down, up, definition)
        yield (kind, present, past), down
        yield (kind, past, present), up
    for kind, group in (("CronJob", "batch"), ("Eviction", "policy")):
        for here, there in (("v1", "v1beta1"), ("v1beta1", "v1")):
            converter = _renaming(f"{group}/{there}", f"io.k8s.api.{group}.{there}.{kind}")
            yield (kind, f"{group}/{here}", f"{group}/{there}"), converter


CONVERTERS: Final[Mapping[tuple[str, str, str], Converter]] = dict(_table())
"""(kind, from, to) -> converter, as in conversions.py."""
