"""RuntimeClass: apply the overhead, node selector and tolerations of a pod's runtime class
(plugin/pkg/admission/runtimeclass of kube-apiserver)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from kubechronicle.actors.admission.chain import (
    CREATE,
    AdmissionPlugin,
    AdmissionState,
    Attributes,
    forbidden,
    name_problem,
)
from kubechronicle.actors.evaluation import judge_large, note_growth
from kubechronicle.actors.large_work import LARGE
from kubechronicle.api.errors import status
from kubechronicle.api.errors.field_errors import go_quote
from kubechronicle.api.meta.encoding import repeatedly
from kubechronicle.api.values.objects import Object
from kubechronicle.api.values.quantity import value_of
from kubechronicle.eventlog.entries import Entry

RUNTIME_CLASSES: Final = "runtimeclasses.node.k8s.io"
NO_MATCH: Final = "pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead"
NO_OVERHEAD: Final = "pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead"


class RuntimeClass(AdmissionPlugin):
    name = "RuntimeClass"
    resources = frozenset({"pods"})
    operations = frozenset({CREATE})

    def admit(self, attributes: Attributes, state: AdmissionState) -> None:
        pod = attributes.object
        if pod is None or attributes.subresource:
            return
        spec = pod.setdefault("spec", {})
        entry = _class_of(attributes, spec, state)
        if entry is None:
            return
        if len(entry.json) > LARGE:
            key = (self.name, entry.revision)
            members = judge_large(key, spec, lambda: repeatedly(_additions(attributes, spec, entry)))()
            note_growth(len(entry.json))
        else:
            members = _additions(attributes, spec, entry)
        spec.update(members)

    def validate(self, attributes: Attributes, state: AdmissionState) -> None:
        pod = attributes.object
        if pod is None or attributes.subresource:
            return
        spec = pod.get("spec") or {}
        entry = _class_of(attributes, spec, state)
        overhead = None if entry is None else entry.object().get("overhead")
        if overhead is not None:
            if not _equal(overhead.get("podFixed"), spec.get("overhead")):
                raise forbidden(attributes, NO_MATCH)
        elif spec.get("overhead") is not None:
            raise forbidden(attributes, NO_OVERHEAD)


def _class_of(attributes: Attributes, spec: Object, state: AdmissionState) -> Entry | None:
    """Return the pod's runtime class, or None if it names none."""
    name = spec.get("runtimeClassName")
    if name is None:
        return None
    entry = state.peek(RUNTIME_CLASSES, "", name)
    if entry is None:
        problem = name_problem(name)
        if problem:
            raise status.unknown(problem)
        raise forbidden(attributes, f"pod rejected: RuntimeClass {go_quote(name)} not found")
    return entry


def _additions(attributes: Attributes, spec: Object, entry: Entry) -> Object:
    """Return the new members of a pod's spec. StatusError 403: they contradict its own."""
    runtime_class = entry.object()
    members: Object = {}
    overhead = (runtime_class.get("overhead") or {}).get("podFixed")
    if runtime_class.get("overhead") is not None:
        if spec.get("overhead") is not None and not _equal(overhead, spec["overhead"]):
            raise forbidden(attributes, NO_MATCH)
        if overhead:
            members["overhead"] = overhead
    if runtime_class.get("scheduling") is not None:
        _schedule(attributes, spec, runtime_class["scheduling"], members)
    return members


def _equal(one: Mapping[str, str] | None, other: Mapping[str, str] | None) -> bool:
    left = {name: value_of(text) for name, text in (one or {}).items()}
    return left == {name: value_of(text) for name, text in (other or {}).items()}


def _schedule(attributes: Attributes, spec: Object, scheduling: Object, members: Object) -> None:
    selector = dict(spec.get("nodeSelector") or {})
    for key, value in (scheduling.get("nodeSelector") or {}).items():
        if selector.setdefault(key, value) != value:
            why = (
                f"conflict: runtimeClass.scheduling.nodeSelector[{key}] = {value}; "
                f"pod.spec.nodeSelector[{key}] = {selector[key]}"
            )
            raise forbidden(attributes, why)
    if selector:
        members["nodeSelector"] = selector
    merged = merge_tolerations(spec.get("tolerations") or [], scheduling.get("tolerations") or [])
    if merged:
        members["tolerations"] = merged


def merge_tolerations(first: Sequence[Toleration], second: Sequence[Toleration]) -> list[Toleration]:
    """Return both lists in order, without tolerations that another one covers. Of equal ones the first remains.

    Source: kube-apiserver's ``pkg/util/tolerations`` (MergeTolerations). Its time is quadratic, here it is not.
    """
    every = [*first, *second]
    later = Tolerated()
    covered = []
    for one in reversed(every):
        covered.append(later.covers(one))
        later.add(one)
    merged: list[Toleration] = []
    kept = Tolerated()
    for one, by_later in zip(every, reversed(covered), strict=True):
        if not by_later and one not in kept and not kept.covers(one):
            merged.append(one)
            kept.add(one)
    return merged


Toleration = Mapping[str, Any]
Identity = tuple[str, str, str, str, int | None]


def _identity(toleration: Toleration) -> Identity:
    key, operator, value, effect = (toleration.get(name) or "" for name in ("key", "operator", "value", "effect"))
    return key, operator, value, effect, toleration.get("tolerationSeconds")


class Tolerated:
    """Tolerations by the key, effect and value that a covered one must have, each with its seconds.

    Of each place the two longest are known, as a toleration is not covered by an equal one.
    """

    def __init__(self, tolerations: Iterable[Toleration] = ()) -> None:
        self._longest: dict[tuple[str, str, str | None], list[tuple[float, Identity]]] = {}
        self._all: set[Identity] = set()
        for one in tolerations:
            self.add(one)

    def __contains__(self, toleration: Toleration) -> bool:
        return _identity(toleration) in self._all

    def add(self, one: Toleration) -> None:
        identity = _identity(one)
        self._all.add(identity)
        key, operator, own, effect, seconds = identity
        if operator not in ("", "Equal", "Exists"):
            return
        known = self._longest.setdefault((key, effect, None if operator == "Exists" else own), [])
        entry = (_seconds(seconds) if effect == "NoExecute" else math.inf, identity)
        if entry not in known:
            known.append(entry)
            known.sort(key=lambda each: -each[0])
            del known[2:]

    def covers(self, narrow: Toleration) -> bool:
        """Return True if another toleration tolerates every taint that this one tolerates, and for as long."""
        own = _identity(narrow)
        key, operator, value, effect, given = own
        places: list[tuple[str, str, str | None]] = [(each, wide, None) for each in {key, ""} for wide in {effect, ""}]
        if operator == "Equal":
            places += [(key, wide, value) for wide in {effect, ""}]
        seconds = _seconds(given)
        return any(
            identity != own and most >= seconds for place in places for most, identity in self._longest.get(place, ())
        )


def _seconds(seconds: int | None) -> float:
    return math.inf if seconds is None else float(seconds)
