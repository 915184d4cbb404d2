"""Stages in kwok's format (Stage, kwok.x-k8s.io/v1alpha1): steps in the life of simulated nodes, pods and others.

    spec.resourceRef    the kind: {apiGroup: v1, kind: Pod}
    spec.selector       the objects that are to take the step: labels, annotations, queries of jq with an operator
    spec.weight         the chance among several steps
    spec.delay          milliseconds, jitter, or a query for a time or duration
    spec.next           status template, patches, finalizers, an event, deletion

A field that this version does not know is refused, as it would be left out silently otherwise.

Queries of jq, as far as Stages of kwok use them.

    .metadata.deletionTimestamp
    .status.conditions.[] | select( .type == "Ready" ) | .status
    .metadata.annotations["example.com/delay"]

A query has fields, ``[]``, ``select`` with == or !=, and pipes. It yields the values that are there: a missing field
and null yield nothing.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from kubechronicle.api.simulation.templates import Template
from kubechronicle.api.values import durations
from kubechronicle.api.values.objects import Object, ReadOnlyObject
from kubechronicle.api.values.printable import compact_json

Query = Callable[[Any], list[Any]]
"""Returns the values that are there."""
_Step = Callable[[Iterable[Any]], Iterator[Any]]

_PART: Final = re.compile(
    r"""\s*(?:\.?\[\s*(?P<all>)\]|\.?\[\s*(?P<key>"(?:[^"\\]|\\.)*"|\d+)\s*\]|\.(?P<quoted>"(?:[^"\\]|\\.)*")"""
    r"""|\.(?P<name>[A-Za-z_]\w*))""",
    re.X,
)
_SELECT: Final = re.compile(r"\s*select\s*\(\s*(.*?)\s*(==|!=)\s*(\"(?:[^\"\\]|\\.)*\"|-?\d+|true|false|null)\s*\)\s*$")
_PIPE: Final = re.compile(r"""\|(?=(?:[^"]*"[^"]*")*[^"]*$)""")


def query(text: str) -> Query:
    """Return the function of a query. ValueError."""
    steps = [step for stage in _PIPE.split(text) for step in _steps(stage)]

    def run(value: Any) -> list[Any]:
        values: Iterable[Any] = (value,)
        for step in steps:
            values = step(values)
        return [each for each in values if each is not None]

    return run


def _steps(text: str) -> list[_Step]:
    if text.strip() == ".":
        return []
    selected = _SELECT.match(text)
    if selected is not None:
        return [_select(query(selected[1]), json.loads(selected[3]), equal=selected[2] == "==")]
    steps, place, text = [], 0, text.rstrip()
    while place < len(text):
        found = _PART.match(text, place)
        if found is None:
            raise ValueError(f"the query {text.strip()!r} is not understood at {text[place:].strip()!r}")
        named = found["key"] or found["quoted"]
        steps.append(_items if found["all"] is not None else _field(json.loads(named) if named else found["name"]))
        place = found.end()
    if not steps:
        raise ValueError("a query is empty")
    return steps


def _field(key: str | int) -> _Step:
    def walk(values: Iterable[Any]) -> Iterator[Any]:
        for value in values:
            if isinstance(value, Mapping):
                yield value.get(str(key))
            elif isinstance(value, list) and isinstance(key, int) and key < len(value):
                yield value[key]

    return walk


def _items(values: Iterable[Any]) -> Iterator[Any]:
    for value in values:
        if isinstance(value, list):
            yield from value
        elif isinstance(value, Mapping):
            yield from value.values()


def _select(condition: Query, wanted: Any, *, equal: bool) -> _Step:
    def keep(values: Iterable[Any]) -> Iterator[Any]:
        return (value for value in values if ((condition(value) or [None])[0] == wanted) == equal)

    return keep


API_VERSION: Final = "kwok.x-k8s.io/v1alpha1"
KIND: Final = "Stage"
PATCH_TYPES: Final = {
    "json": "application/json-patch+json",
    "merge": "application/merge-patch+json",
    "strategic": "application/strategic-merge-patch+json",
}
TEMPLATE_FUNCTIONS: Final = (
    "Quote", "Now", "StartTime", "Version", "YAML", "NodeConditions", "NodeIP", "NodeName", "NodePort", "NodeIPs",
    "PodIP", "PodIPs", "NodeIPWith", "NodeIPsWith", "PodIPWith", "PodIPsWith", "list", "dict", "default", "add", "sub",
    "lower", "upper", "join", "hasKey", "get", "quote", "toString", "toJson", "trimPrefix", "trimSuffix", "contains",
)  # fmt: skip
"""The functions of kwok, and the usual ones of sprig."""
_SPEC: Final = {"resourceRef", "selector", "weight", "delay", "next", "immediateNextStage"}
_NEXT: Final = {"statusTemplate", "statusSubresource", "patches", "finalizers", "event", "delete", "statusPatchAs"}
_WHOLE_SECONDS: Final = re.compile(r"\d+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Patch:
    """``root``: the field that the template writes; "": the whole object. ``content_type``: "" chooses by the kind."""

    template: Template
    root: str
    subresource: str
    content_type: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Delay:
    """Milliseconds. ``until``: a query for a time, or a duration, that counts instead, if the object has it."""

    shortest: int = 0
    longest: int | None = None
    until: Query | None = None
    latest: Query | None = None

    def seconds(self, obj: ReadOnlyObject, now: datetime, chance: float) -> float:
        """Return the seconds from ``now``. ``chance``: from 0 to 1, the place between shortest and longest."""
        least = _asked(self.until, obj, now, self.shortest / 1000)
        most = _asked(self.latest, obj, now, least if self.longest is None else self.longest / 1000)
        return max(0.0, least + max(0.0, most - least) * chance)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """``conditions``: each tells whether it holds for an object."""

    name: str
    api_version: str
    kind: str
    conditions: tuple[Callable[[ReadOnlyObject], bool], ...]
    weight: int
    delay: Delay
    patches: tuple[Patch, ...]
    added_finalizers: tuple[str, ...]
    removed_finalizers: tuple[str, ...]
    removes_all_finalizers: bool
    event: Mapping[str, str] | None
    delete: bool
    immediate: bool

    def matches(self, obj: ReadOnlyObject) -> bool:
        """Tell whether an object of the kind is to take the step."""
        return all(condition(obj) for condition in self.conditions)


def chosen(stages: Sequence[Stage], obj: ReadOnlyObject, chance: float) -> Stage | None:
    """Return the step that an object takes next: one of those that match, by their weights.

    ``chance``: from 0 to 1. Steps of weight 0 take part only if all have it.
    """
    found = [stage for stage in stages if stage.matches(obj)]
    total = sum(stage.weight for stage in found)
    if not total:
        return found[int(chance * len(found)) % len(found)] if found else None
    place = chance * total
    for stage in found:
        place -= stage.weight
        if place < 0:
            return stage
    return next(stage for stage in reversed(found) if stage.weight)


# -- reading -----------------------------------------------------------------------------------------------------------


def stages_of(documents: Sequence[Any]) -> list[Stage]:
    """Return the Stages among the documents of a file. ValueError names the stage and the field."""
    stages = []
    for number, document in enumerate(documents, 1):
        if document is None:
            continue
        if not isinstance(document, dict) or (document.get("apiVersion"), document.get("kind")) != (API_VERSION, KIND):
            raise ValueError(f"document {number} is no {KIND} of {API_VERSION}")
        name = str((document.get("metadata") or {}).get("name") or "")
        try:
            stages.append(_stage(name, document.get("spec") or {}))
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise ValueError(f"{KIND} {name or number}: {error}") from None
    return stages


def _stage(name: str, spec: Object) -> Stage:
    if not name:
        raise ValueError("metadata.name: is missing")
    following = spec.get("next") or {}
    _refuse_others("spec", spec, _SPEC)
    _refuse_others("spec.next", following, _NEXT)
    reference = spec.get("resourceRef") or {}
    if not reference.get("kind"):
        raise ValueError("spec.resourceRef.kind: is missing")
    finalizers = following.get("finalizers") or {}
    return Stage(
        name=name,
        api_version=str(reference.get("apiGroup") or "v1"),
        kind=str(reference["kind"]),
        conditions=tuple(_conditions(spec.get("selector") or {})),
        weight=int(spec.get("weight") or 0),
        delay=_delay(spec.get("delay") or {}),
        patches=tuple(_patches(following)),
        added_finalizers=tuple(each["value"] for each in finalizers.get("add") or ()),
        removed_finalizers=tuple(each["value"] for each in finalizers.get("remove") or ()),
        removes_all_finalizers=bool(finalizers.get("empty")),
        event=following.get("event"),
        delete=bool(following.get("delete")),
        immediate=bool(spec.get("immediateNextStage")),
    )


def _refuse_others(path: str, given: Object, known: set[str]) -> None:
    for field in given:
        if field not in known:
            raise ValueError(f"{path}.{field}: is not supported")


def _conditions(selector: Object) -> list[Callable[[ReadOnlyObject], bool]]:
    _refuse_others("spec.selector", selector, {"matchLabels", "matchAnnotations", "matchExpressions"})
    conditions = [
        _has(place, key, str(value))
        for field, place in (("matchLabels", "labels"), ("matchAnnotations", "annotations"))
        for key, value in (selector.get(field) or {}).items()
    ]
    return [*conditions, *(_expression(each) for each in selector.get("matchExpressions") or ())]


def _has(place: str, key: str, value: str) -> Callable[[ReadOnlyObject], bool]:
    return lambda obj: (obj["metadata"].get(place) or {}).get(key) == value


def _expression(given: Object) -> Callable[[ReadOnlyObject], bool]:
    found, operator = query(str(given["key"])), given.get("operator")
    wanted = {str(each) for each in given.get("values") or ()}
    if operator == "Exists":
        return lambda obj: bool(found(obj))
    if operator == "DoesNotExist":
        return lambda obj: not found(obj)
    if operator == "In":
        return lambda obj: any(_text(each) in wanted for each in found(obj))
    if operator == "NotIn":
        return lambda obj: not any(_text(each) in wanted for each in found(obj))
    raise ValueError(f"spec.selector.matchExpressions: the operator {operator!r} is not supported")


def _text(value: Any) -> str:
    return value if isinstance(value, str) else compact_json(value)


def _delay(given: Object) -> Delay:
    known = {"durationMilliseconds", "jitterDurationMilliseconds", "durationFrom", "jitterDurationFrom"}
    _refuse_others("spec.delay", given, known)
    longest = given.get("jitterDurationMilliseconds")
    return Delay(
        shortest=int(given.get("durationMilliseconds") or 0),
        longest=None if longest is None else int(longest),
        until=_source(given.get("durationFrom")),
        latest=_source(given.get("jitterDurationFrom")),
    )


def _source(given: Object | None) -> Query | None:
    return None if given is None else query(str(given["expressionFrom"]))


def _asked(source: Query | None, obj: ReadOnlyObject, now: datetime, otherwise: float) -> float:
    """Return the seconds until the time, or of the duration, that an object names."""
    for value in source(obj) if source is not None else ():
        text = str(value)
        if _WHOLE_SECONDS.fullmatch(text):
            return float(text)
        try:
            return durations.parse(text) / 1e9
        except ValueError:
            pass
        try:
            time = datetime.fromisoformat(text)
        except ValueError:
            continue
        return (time.astimezone(UTC) - now).total_seconds()
    return otherwise


def _patches(following: Object) -> list[Patch]:
    patches = []
    if following.get("statusTemplate"):
        patches.append(
            Patch(
                template=Template(following["statusTemplate"], TEMPLATE_FUNCTIONS),
                root="status",
                subresource=str(following.get("statusSubresource") or "status"),
                content_type="",
            )
        )
    for each in following.get("patches") or ():
        _refuse_others("spec.next.patches", each, {"subresource", "root", "template", "type"})
        kind = each.get("type") or ""
        if kind and kind not in PATCH_TYPES:
            raise ValueError(f"spec.next.patches.type: {kind!r} is not supported")
        patches.append(
            Patch(
                template=Template(each["template"], TEMPLATE_FUNCTIONS),
                root=str(each.get("root") or ""),
                subresource=str(each.get("subresource") or ""),
                content_type=PATCH_TYPES.get(kind, ""),
            )
        )
    return patches


# -- the functions of templates ----------------------------------------------------------------------------------------


def functions(now: str, version: str) -> dict[str, Callable[..., Any]]:
    """Return the functions that need neither addresses nor a node. ``now``: the time as objects have it."""
    return {
        "Quote": lambda value: json.dumps(_text(value), ensure_ascii=False),
        "quote": lambda value: json.dumps(_text(value), ensure_ascii=False),
        "Now": lambda: now,
        "StartTime": lambda: now,
        "Version": lambda: version,
        "YAML": lambda value, *_: compact_json(value),  # JSON is YAML, whatever the indentation
        "toJson": compact_json,
        "NodeConditions": node_conditions,
        "list": lambda *values: list(values),
        "dict": lambda *pairs: dict(zip(pairs[::2], pairs[1::2], strict=True)),
        "default": lambda otherwise, value=None: value or otherwise,
        "add": lambda *values: sum(values),
        "sub": lambda one, other: one - other,
        "lower": lambda text: str(text).lower(),
        "upper": lambda text: str(text).upper(),
        "join": lambda separator, values: separator.join(map(_text, values or ())),
        "hasKey": lambda held, key: key in (held or {}),
        "get": lambda held, key: (held or {}).get(key, ""),
        "toString": _text,
        "trimPrefix": lambda prefix, text: str(text).removeprefix(prefix),
        "trimSuffix": lambda suffix, text: str(text).removesuffix(suffix),
        "contains": lambda part, text: part in str(text),
    }


def node_conditions() -> list[Object]:
    """Return the conditions of a node that is well, as a kubelet reports them."""
    well = [
        ("Ready", "True", "KubeletReady", "kubelet is posting ready status"),
        ("MemoryPressure", "False", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
        ("DiskPressure", "False", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
        ("PIDPressure", "False", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
        ("NetworkUnavailable", "False", "RouteCreated", "RouteController created a route"),
    ]
    return [dict(zip(("type", "status", "reason", "message"), each, strict=True)) for each in well]
