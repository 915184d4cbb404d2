"""DefaultIngressClass: set the default class of an Ingress that names none, not even by the old annotation
(plugin/pkg/admission/network of kube-apiserver)."""

from __future__ import annotations

from typing import Final

from kubechronicle.actors.admission.chain import CREATE, AdmissionPlugin, Attributes, State
from kubechronicle.actors.admission.defaults import newest_default

INGRESS_CLASSES: Final = "ingressclasses.networking.k8s.io"
DEFAULT_ANNOTATION: Final = "ingressclass.kubernetes.io/is-default-class"
OLD_ANNOTATION: Final = "kubernetes.io/ingress.class"


class DefaultIngressClass(AdmissionPlugin):
    name = "DefaultIngressClass"
    resources = frozenset({"ingresses.networking.k8s.io"})
    operations = frozenset({CREATE})

    def admit(self, attributes: Attributes, state: State) -> None:
        ingress = attributes.object
        if ingress is None or attributes.subresource:
            return
        spec = ingress.setdefault("spec", {})
        if "ingressClassName" in spec or OLD_ANNOTATION in (ingress["metadata"].get("annotations") or {}):
            return
        name = newest_default(state.entries(INGRESS_CLASSES, ""), (DEFAULT_ANNOTATION,))
        if name:
            spec["ingressClassName"] = name
