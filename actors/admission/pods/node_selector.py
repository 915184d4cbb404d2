"""PodNodeSelector: give pods the node selector of their namespace or cluster, and reject selectors beyond a whitelist
(plugin/pkg/admission/podnodeselector of kube-apiserver). Disabled by default."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from kubechronicle.actors.admission.chain import CREATE, AdmissionPlugin, Attributes, State
from kubechronicle.api.errors import status
from kubechronicle.api.errors.field_errors import invalid_value
from kubechronicle.api.values import names

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

    def admit(self, attributes: Attributes, state: State) -> None:
        pod = attributes.object
        if pod is None or attributes.subresource:
            return
        wanted = self._wanted(attributes, state)
        spec = pod.setdefault("spec", {})
        merged = {**wanted, **(spec.get("nodeSelector") or {})}
        if merged:
            spec["nodeSelector"] = merged
        self._check(attributes, wanted)

    def validate(self, attributes: Attributes, state: State) -> None:
        if attributes.object is not None and not attributes.subresource:
            self._check(attributes, self._wanted(attributes, state))

    def _wanted(self, attributes: Attributes, state: State) -> Mapping[str, str]:
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
