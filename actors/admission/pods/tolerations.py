"""ExtendedResourceToleration and PodTolerationRestriction
(plugin/pkg/admission/{extendedresourcetoleration,podtolerationrestriction} of kube-apiserver). Disabled by default."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

from kubechronicle.actors.admission.chain import CREATE, AdmissionPlugin, AdmissionState, Attributes
from kubechronicle.actors.admission.runtime_class import Tolerated, Toleration, merge_tolerations
from kubechronicle.actors.evaluation import note_growth
from kubechronicle.api.builtin.common.resource_amounts import is_extended
from kubechronicle.api.builtin.core.pod.defaults import qos_class
from kubechronicle.api.codecs import json as json_codec
from kubechronicle.api.codecs.errors import CodecError
from kubechronicle.api.errors import status
from kubechronicle.api.errors.field_errors import invalid_value
from kubechronicle.api.values import names

# -- node selector -----------------------------------------------------------------------------------------------------
#
# PodNodeSelector: give pods the node selector of their namespace or cluster, and reject selectors beyond a whitelist
# (plugin/pkg/admission/podnodeselector of kube-apiserver). Disabled by default.

ANNOTATION: Final = "scheduler.alpha.kubernetes.io/node-selector"
CLUSTER_DEFAULT: Final = "clusterDefaultNodeSelector"
_NONE: Final[Mapping[str, str]] = MappingProxyType({})


class PodNodeSelector(AdmissionPlugin):
    """Selectors are texts such as "zone=a,disk=ssd".

    ``selectors``: the whitelist of each namespace, and the default for namespaces without the annotation under
    ``clusterDefaultNodeSelector``.
    """

    name = "PodNodeSelector"
    resources = frozenset({"pods"})
    operations = frozenset({CREATE})

    def __init__(self, selectors: Mapping[str, str] = _NONE) -> None:
        self._selectors = selectors

    def admit(self, attributes: Attributes, state: AdmissionState) -> None:
        pod = attributes.object
        if pod is None or attributes.subresource:
            return
        wanted = self._wanted(attributes, state)
        spec = pod.setdefault("spec", {})
        merged = {**wanted, **(spec.get("nodeSelector") or {})}
        if merged:
            spec["nodeSelector"] = merged
        self._check(attributes, wanted)

    def validate(self, attributes: Attributes, state: AdmissionState) -> None:
        if attributes.object is not None and not attributes.subresource:
            self._check(attributes, self._wanted(attributes, state))

    def _wanted(self, attributes: Attributes, state: AdmissionState) -> Mapping[str, str]:
        """Return the selector of the namespace, else the cluster's. StatusError: the pod's selector conflicts."""
        namespace = state.peek("namespaces", "", attributes.namespace)
        if namespace is None:
            raise status.internal_error(f"namespace {attributes.namespace} does not exist")
        text = (namespace.object()["metadata"].get("annotations") or {}).get(ANNOTATION)
        wanted = _parsed(self._selectors.get(CLUSTER_DEFAULT, "") if text is None else text)
        held = _selector(attributes)
        if any(key in held and held[key] != value for key, value in wanted.items()):
            raise _forbidden(attributes, "pod node label selector conflicts with its namespace node label selector")
        return wanted

    def _check(self, attributes: Attributes, wanted: Mapping[str, str]) -> None:
        whitelist = _parsed(self._selectors.get(attributes.namespace, ""))
        if whitelist and any(whitelist.get(key) != value for key, value in _selector(attributes).items()):
            raise _forbidden(attributes, "pod node label selector labels conflict with its namespace whitelist")


def _selector(attributes: Attributes) -> Mapping[str, str]:
    found: Mapping[str, str] = ((attributes.object or {}).get("spec") or {}).get("nodeSelector") or {}
    return found


def _forbidden(attributes: Attributes, why: str) -> status.StatusError:
    name = ((attributes.object or {}).get("metadata") or {}).get("name", "")
    return status.forbidden(attributes.rt, name, why)


def _parsed(text: str) -> dict[str, str]:
    """Return the labels of a selector. StatusError 500, as kube-apiserver answers: the text is no selector."""
    found: dict[str, str] = {}
    for term in text.split(",") if text else ():
        parts = term.split("=")
        if len(parts) != 2:
            raise status.unknown(f"invalid selector: [{' '.join(parts)}]")
        key, value = parts[0].strip(), parts[1].strip()
        if problems := names.qualified_name(key):
            raise status.unknown(str(invalid_value("<nil>", key, "; ".join(problems))))
        if problems := names.label_value(value):
            raise status.unknown(str(invalid_value(f"[{key}]", value, "; ".join(problems))))
        found[key] = value
    return found


# -- tolerations -------------------------------------------------------------------------------------------------------

DEFAULTS: Final = "scheduler.alpha.kubernetes.io/defaultTolerations"
WHITELIST: Final = "scheduler.alpha.kubernetes.io/tolerationsWhitelist"
MEMORY_PRESSURE: Final[Toleration] = {
    "key": "node.kubernetes.io/memory-pressure",
    "operator": "Exists",
    "effect": "NoSchedule",
}
GROWTH: Final = 64
"""Bytes of a usual toleration."""
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

    def admit(self, attributes: Attributes, state: AdmissionState) -> None:
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
        if not wanted:
            return
        added = {name: {"key": name, "operator": "Exists", "effect": "NoSchedule"} for name in sorted(wanted)}
        held = spec.get("tolerations") or ()
        kept = [added.get(each.get("key", ""), each) if _tolerates(each) else each for each in held]
        present = {each.get("key", "") for each in held if _tolerates(each)}
        missing = [each for name, each in added.items() if name not in present]
        spec["tolerations"] = [dict(each) for each in (*kept, *missing)]


def _tolerates(toleration: Toleration) -> bool:
    """Tell whether a toleration is like those that ExtendedResourceToleration adds, whatever its key and seconds."""
    others = [toleration.get(name) or "" for name in ("operator", "value", "effect")]
    return others == ["Exists", "", "NoSchedule"]


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

    def admit(self, attributes: Attributes, state: AdmissionState) -> None:
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
            spec["tolerations"] = [dict(each) for each in merge_tolerations(spec.get("tolerations") or (), extra)]
            note_growth(GROWTH * len(extra))
        self.validate(attributes, state)

    def validate(self, attributes: Attributes, state: AdmissionState) -> None:
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
        listed = Tolerated(whitelist)
        if whitelist and not all(one in listed or listed.covers(one) for one in tolerations):
            raise status.unknown(
                f"pod tolerations (possibly merged with namespace default tolerations) conflict with its {scope} "
                "whitelist"
            )


def _of_namespace(namespace: str, annotation: str, state: AdmissionState) -> list[Toleration] | None:
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
