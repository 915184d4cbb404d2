"""ExtendedResourceToleration and PodTolerationRestriction
(plugin/pkg/admission/{extendedresourcetoleration,podtolerationrestriction} of kube-apiserver). Disabled by default."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from kubechronicle.actors.admission.chain import CREATE, AdmissionPlugin, Attributes, State
from kubechronicle.api.builtin.common.resource_amounts import is_extended
from kubechronicle.api.builtin.core.pod.defaults import qos_class
from kubechronicle.api.codecs import json as json_codec
from kubechronicle.api.codecs.errors import CodecError
from kubechronicle.api.errors import status

Toleration = Mapping[str, Any]
DEFAULTS: Final = "scheduler.alpha.kubernetes.io/defaultTolerations"
WHITELIST: Final = "scheduler.alpha.kubernetes.io/tolerationsWhitelist"
MEMORY_PRESSURE: Final[Toleration] = {
    "key": "node.kubernetes.io/memory-pressure",
    "operator": "Exists",
    "effect": "NoSchedule",
}
_TEXTS: Final = ("key", "operator", "value", "effect")
_GO_TYPES: Final[Mapping[str, tuple[type, str]]] = {
    "key": (str, "string"),
    "operator": (str, "v1.TolerationOperator"),
    "value": (str, "string"),
    "effect": (str, "v1.TaintEffect"),
    "tolerationSeconds": (int, "int64"),
}


class ExtendedResourceToleration(AdmissionPlugin):
    """Lets a pod tolerate the taints named like the extended resources that it requests."""

    name = "ExtendedResourceToleration"
    resources = frozenset({"pods"})

    def admit(self, attributes: Attributes, state: State) -> None:
        pod = attributes.object
        if pod is None or attributes.subresource:
            return
        spec = pod.setdefault("spec", {})
        wanted = {
            name
            for container in (*(spec.get("containers") or ()), *(spec.get("initContainers") or ()))
            for name in (container.get("resources") or {}).get("requests") or ()
            if is_extended(name)
        }
        for name in sorted(wanted):
            _add_or_replace(spec, {"key": name, "operator": "Exists", "effect": "NoSchedule"})


def _add_or_replace(spec: dict[str, Any], toleration: Toleration) -> None:
    held = spec.get("tolerations") or []
    matching = [_key(each) == _key(toleration) for each in held]
    kept = [dict(toleration) if match else each for each, match in zip(held, matching, strict=True)]
    spec["tolerations"] = kept if any(matching) else [*kept, dict(toleration)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Tolerations:
    """The cluster's default tolerations of pods, and those that pods may have (none given: all)."""

    default: tuple[Toleration, ...] = ()
    whitelist: tuple[Toleration, ...] = ()


class PodTolerationRestriction(AdmissionPlugin):
    """Adds the default tolerations of a namespace or the cluster, and checks all against their whitelist."""

    name = "PodTolerationRestriction"
    resources = frozenset({"pods"})

    def __init__(self, cluster: Tolerations | None = None) -> None:
        self._cluster = cluster or Tolerations()

    def admit(self, attributes: Attributes, state: State) -> None:
        pod = attributes.object
        if pod is None or attributes.subresource:
            return
        spec = pod.setdefault("spec", {})
        extra: list[Toleration] = []
        if attributes.operation == CREATE:
            of_namespace = _of_namespace(attributes.namespace, DEFAULTS, state)
            extra = list(self._cluster.default if of_namespace is None else of_namespace)
        if qos_class(spec) != "BestEffort":
            extra.append(MEMORY_PRESSURE)
        if extra:
            spec["tolerations"] = [dict(each) for each in merged(spec.get("tolerations") or (), extra)]
        self.validate(attributes, state)

    def validate(self, attributes: Attributes, state: State) -> None:
        """Reject tolerations that no entry of the whitelist covers. The error is no Status in kube-apiserver: 500."""
        if attributes.object is None or attributes.subresource:
            return
        tolerations = (attributes.object.get("spec") or {}).get("tolerations")
        if not tolerations:
            return
        whitelist: Sequence[Toleration] | None = _of_namespace(attributes.namespace, WHITELIST, state)
        scope = "namespace"
        if whitelist is None:
            whitelist, scope = self._cluster.whitelist, "cluster"
        if whitelist and not all(any(covers(each, one) for each in whitelist) for one in tolerations):
            raise status.unknown(
                f"pod tolerations (possibly merged with namespace default tolerations) conflict with its {scope} "
                "whitelist"
            )


def merged(first: Sequence[Toleration], second: Sequence[Toleration]) -> list[Toleration]:
    """Return the tolerations of both without those that another covers."""
    everything = [*first, *second]
    found: list[Toleration] = []
    for index, one in enumerate(everything):
        if any(covers(each, one) for each in found):
            continue
        if any(not _equal(each, one) and covers(each, one) for each in everything[index + 1 :]):
            continue
        found.append(one)
    return found


def covers(wide: Toleration, narrow: Toleration) -> bool:
    """Return whether ``wide`` tolerates every taint that ``narrow`` tolerates, and for as long."""
    if _equal(wide, narrow):
        return True
    key, operator, value, effect = _key(wide)
    if narrow.get("key", "") != key and (key or operator != "Exists"):
        return False
    if effect not in ("", narrow.get("effect", "")):
        return False
    seconds = wide.get("tolerationSeconds")
    if effect == "NoExecute" and seconds is not None:
        of_narrow = narrow.get("tolerationSeconds")
        if of_narrow is None or of_narrow > seconds:
            return False
    if operator in ("", "Equal"):
        return narrow.get("operator") == "Equal" and narrow.get("value", "") == value
    return operator == "Exists"


def _equal(one: Toleration, other: Toleration) -> bool:
    return _key(one) == _key(other) and one.get("tolerationSeconds") == other.get("tolerationSeconds")


def _key(toleration: Toleration) -> tuple[str, str, str, str]:
    key, operator, value, effect = (toleration.get(name) or "" for name in _TEXTS)
    return key, operator, value, effect


def _of_namespace(namespace: str, annotation: str, state: State) -> list[Toleration] | None:
    """Return the tolerations in an annotation of the namespace; None if it has none."""
    entry = state.peek("namespaces", "", namespace)
    if entry is None:
        raise status.not_found("namespaces", namespace)
    text = (entry.object()["metadata"].get("annotations") or {}).get(annotation)
    if text is None:
        return None
    if not text:
        return []
    try:
        value, _ = json_codec.decode_value(text.encode())
    except CodecError as error:
        raise status.unknown(str(error)) from None
    if value is None:
        return None
    if problem := _problem(value):
        raise status.unknown(f"json: cannot unmarshal {problem}")
    return [each or {} for each in value]


def _problem(value: Any) -> str:
    """Return the rest of the error of Go's decoder for the first value of a wrong type, "" if there is none."""
    if not isinstance(value, list):
        return f"{json_codec.go_kind(value)} into Go value of type []v1.Toleration"
    for each in value:
        if each is None:
            continue
        if not isinstance(each, dict):
            return f"{json_codec.go_kind(each)} into Go value of type v1.Toleration"
        for name, item in each.items():
            wanted = _GO_TYPES.get(name)
            if wanted is not None and item is not None and type(item) is not wanted[0]:
                return f"{json_codec.go_kind(item)} into Go struct field Toleration.{name} of type {wanted[1]}"
    return ""
