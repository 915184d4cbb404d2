"""IngressClass: the controller of Ingresses, and its parameters.

Source: Kubernetes' ``registry/networking/ingressclass``, ``apis/networking`` and ``pkg/printers/internalversion``.
"""

from __future__ import annotations

import re
from typing import Any, Final

from kubechronicle.api.builtin.common.cell_text import Since
from kubechronicle.api.builtin.common.checks import dns_label, dns_subdomain, immutable
from kubechronicle.api.builtin.common.kind import BuiltinKind
from kubechronicle.api.builtin.common.printer import AGE, NAME, Column, Printer, age_of, at, name_of
from kubechronicle.api.builtin.networking.ingress import typed_reference
from kubechronicle.api.errors.field_errors import Cause, forbidden, invalid_value, not_supported, required, too_long
from kubechronicle.api.strategy.strategy import Strategy
from kubechronicle.api.values import names
from kubechronicle.api.values.objects import Object, ReadOnlyObject

MAX_CONTROLLER: Final = 250
_HTTP_PATH: Final = r"[A-Za-z0-9/\-._~%!$&'()*+,;=:]+"


def validate_ingress_class(obj: Object) -> list[Cause]:
    """Check the controller and the parameters of an IngressClass."""
    spec = obj["spec"]
    controller = spec.get("controller", "")
    causes = [too_long("spec.controller", MAX_CONTROLLER)] if len(controller.encode()) > MAX_CONTROLLER else []
    causes += domain_prefixed_path(controller, "spec.controller")
    parameters, field = spec.get("parameters"), "spec.parameters"
    if parameters is None:
        return causes
    causes += typed_reference(parameters, field, required_by_tags=True)
    scope, namespace = parameters.get("scope"), parameters.get("namespace")
    if scope is None:
        causes.append(required(f"{field}.scope"))
    elif scope == "Namespace":
        if namespace is None:
            causes.append(required(f"{field}.namespace", "`parameters.scope` is set to 'Namespace'"))
        else:
            causes += dns_label(namespace, f"{field}.namespace")
    elif scope != "Cluster":
        causes.append(not_supported(f"{field}.scope", scope, ("Cluster", "Namespace")))
    elif namespace is not None:
        causes.append(forbidden(f"{field}.namespace", "`parameters.scope` is set to 'Cluster'"))
    return causes


def domain_prefixed_path(value: str, field: str) -> list[Cause]:
    """Check that a value is a domain, a slash and a path."""
    if not value:
        return [required(field)]
    domain, slash, path = value.partition("/")
    if not slash or not domain or not path:
        return [invalid_value(field, value, 'must be a domain-prefixed path (such as "acme.io/foo")')]
    causes = dns_subdomain(domain, field)
    if not re.fullmatch(_HTTP_PATH, path):
        causes.append(invalid_value(field, path, names.regex_message("Invalid path", _HTTP_PATH)))
    return causes


def validate_ingress_class_update(new: Object, old: Object) -> list[Cause]:
    """Reject a changed controller."""
    return immutable("spec.controller", new["spec"].get("controller", ""), old["spec"].get("controller", ""))


def _cells(obj: ReadOnlyObject, since: Since) -> list[Any]:
    parameters = at(obj, "spec", "parameters")
    text = "<none>"
    if parameters is not None:
        group = parameters.get("apiGroup")
        text = f"{parameters.get('kind', '')}{f'.{group}' if group else ''}/{parameters.get('name', '')}"
    return [name_of(obj), at(obj, "spec", "controller", default=""), text, age_of(obj, since)]


KIND: Final = BuiltinKind(
    resource="ingressclasses.networking.k8s.io",
    strategy=Strategy(
        status=False,
        generation=True,
        validate=validate_ingress_class,
        validate_update=validate_ingress_class_update,
    ),
    default_values={"networking.v1.IngressClassParametersReference": {"scope": "Cluster"}},
    printer=Printer(
        (
            NAME,
            Column("Controller", text="Controller that is responsible for handling this class"),
            Column("Parameters", text="A reference to a resource with additional parameters"),
            AGE,
        ),
        _cells,
    ),
)
