"""RuntimeClass: apply the overhead, node selector and tolerations of a pod's runtime class
(plugin/pkg/admission/runtimeclass of kube-apiserver)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from kubechronicle.actors.admission.chain import CREATE, AdmissionPlugin, Attributes, State, forbidden
from kubechronicle.api.errors.field_errors import go_quote
from kubechronicle.api.values.objects import Object
from kubechronicle.api.values.quantity import value_of

RUNTIME_CLASSES: Final = "runtimeclasses.node.k8s.io"
NO_MATCH: Final = "pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead"
NO_OVERHEAD: Final = "pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead"


class RuntimeClass(AdmissionPlugin):
    name = "RuntimeClass"
    resources = frozenset({"pods"})
    operations = frozenset({CREATE})

    def admit(self, attributes: Attributes, state: State) -> None:
        pod = attributes.object
        if pod is None or attributes.subresource:
            return
        spec = pod.setdefault("spec", {})
        runtime_class = _class_of(attributes, spec, state)
        if runtime_class is None:
            return
        overhead = (runtime_class.get("overhead") or {}).get("podFixed")
        if runtime_class.get("overhead") is not None:
            if spec.get("overhead") is not None and not _equal(overhead, spec["overhead"]):
                raise forbidden(attributes, NO_MATCH)
            if overhead:
                spec["overhead"] = overhead
        if runtime_class.get("scheduling") is not None:
            _schedule(attributes, spec, runtime_class["scheduling"])

    def validate(self, attributes: Attributes, state: State) -> None:
        pod = attributes.object
        if pod is None or attributes.subresource:
            return
        spec = pod.get("spec") or {}
        runtime_class = _class_of(attributes, spec, state)
        if runtime_class is not None and runtime_class.get("overhead") is not None:
            if not _equal(runtime_class["overhead"].get("podFixed"), spec.get("overhead")):
                raise forbidden(attributes, NO_MATCH)
        elif spec.get("overhead") is not None:
            raise forbidden(attributes, NO_OVERHEAD)


def _class_of(attributes: Attributes, spec: Object, state: State) -> Object | None:
    """Return the pod's runtime class, or None if it names none."""
    name = spec.get("runtimeClassName")
    if name is None:
        return None
    entry = state.peek(RUNTIME_CLASSES, "", name)
    if entry is None:
        raise forbidden(attributes, f"pod rejected: RuntimeClass {go_quote(name)} not found")
    return entry.object()


def _equal(one: Mapping[str, str] | None, other: Mapping[str, str] | None) -> bool:
    left = {name: value_of(text) for name, text in (one or {}).items()}
    return left == {name: value_of(text) for name, text in (other or {}).items()}


def _schedule(attributes: Attributes, spec: Object, scheduling: Object) -> None:
    selector = dict(spec.get("nodeSelector") or {})
    for key, value in (scheduling.get("nodeSelector") or {}).items():
        if selector.setdefault(key, value) != value:
            why = (
                f"conflict: runtimeClass.scheduling.nodeSelector[{key}] = {value}; "
                f"pod.spec.nodeSelector[{key}] = {selector[key]}"
            )
            raise forbidden(attributes, why)
    if selector:
        spec["nodeSelector"] = selector
    merged = merge_tolerations(spec.get("tolerations") or [], scheduling.get("tolerations") or [])
    if merged:
        spec["tolerations"] = merged


def merge_tolerations(first: list[Object], second: list[Object]) -> list[Object]:
    """Return both lists in order, without tolerations that another one covers. Of equal ones the first remains."""
    every = [*first, *second]
    merged: list[Object] = []
    for place, one in enumerate(every):
        if any(_covers(kept, one) for kept in merged):
            continue
        if any(later != one and _covers(later, one) for later in every[place + 1 :]):
            continue
        merged.append(one)
    return merged


def _covers(wide: Object, narrow: Object) -> bool:
    """Return True if ``wide`` tolerates every taint that ``narrow`` tolerates."""
    if wide == narrow:
        return True
    operator = wide.get("operator", "")
    if narrow.get("key", "") != wide.get("key", "") and (wide.get("key", "") or operator != "Exists"):
        return False
    effect = wide.get("effect", "")
    if effect and narrow.get("effect", "") != effect:
        return False
    if effect == "NoExecute" and wide.get("tolerationSeconds") is not None:
        seconds = narrow.get("tolerationSeconds")
        if seconds is None or seconds > wide["tolerationSeconds"]:
            return False
    if operator in ("", "Equal"):
        return bool(narrow.get("operator", "") == "Equal" and narrow.get("value", "") == wide.get("value", ""))
    return bool(operator == "Exists")
