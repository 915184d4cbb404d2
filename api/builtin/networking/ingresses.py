"""Ingress: rules that lead requests from outside to Services.

Source: Kubernetes' ``registry/networking/ingress``, ``apis/networking`` and ``pkg/printers/internalversion``.

IngressClass: the controller of Ingresses, and its parameters.

Source: Kubernetes' ``registry/networking/ingressclass``, ``apis/networking`` and ``pkg/printers/internalversion``.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from types import MappingProxyType
from typing import Any, Final

from kubechronicle.api.builtin.common.cell_text import Since
from kubechronicle.api.builtin.common.checks import dns_label, dns_subdomain, immutable, parse_ip, port_number, wrong
from kubechronicle.api.builtin.common.kind import BuiltinKind
from kubechronicle.api.builtin.common.printer import AGE, NAME, Column, Printer, age_of, at, name_of
from kubechronicle.api.builtin.core.service import ingress_points
from kubechronicle.api.builtin.core.service_validation import balancer_status, balancer_status_warnings
from kubechronicle.api.errors.field_errors import Cause, forbidden, invalid_value, not_supported, required, too_long
from kubechronicle.api.strategy.strategy import Check, Strategy, status_update
from kubechronicle.api.values import names
from kubechronicle.api.values.objects import Object, ReadOnlyObject

# -- validation -------------------------------------------------------------------------------------------------------

PATH_TYPES: Final = ("Exact", "ImplementationSpecific", "Prefix")
INGRESS_CLASS: Final = "kubernetes.io/ingress.class"
_BAD_SEQUENCES: Final = ("//", "/./", "/../", "%2f", "%2F")
_BAD_ENDINGS: Final = ("/..", "/.")


def _ingress(obj: Object, *, secrets: bool = True, wildcards: bool = True) -> list[Cause]:
    """Check hosts, paths and backends.

    ``secrets``: check the names of TLS secrets. ``wildcards``: check the paths of hosts with a wildcard.
    """
    spec = obj["spec"]
    causes: list[Cause] = []
    rules, backend = spec.get("rules") or (), spec.get("defaultBackend")
    if not rules and backend is None:
        causes.append(invalid_value("spec", spec.get("rules"), "either `defaultBackend` or `rules` must be specified"))
    if backend is not None:
        causes += _backend(backend, "spec.defaultBackend")
    for index, rule in enumerate(rules):
        host, field = rule.get("host", ""), f"spec.rules[{index}]"
        if host and parse_ip(host) is not None:
            causes.append(invalid_value(f"{field}.host", host, "must be a DNS name, not an IP address"))
        causes += _host(host, f"{field}.host") if host else []
        if wildcards or "*" not in host:
            causes += _rule(rule, field)
    for index, tls in enumerate(spec.get("tls") or ()):
        field = f"spec.tls[{index}]"
        for position, host in enumerate(tls.get("hosts") or ()):
            causes += _host(host, f"{field}.hosts[{position}]")
        if secrets and tls.get("secretName"):
            causes += dns_subdomain(tls["secretName"], f"{field}.secretName")
    if spec.get("ingressClassName") is not None:
        causes += dns_subdomain(spec["ingressClassName"], "spec.ingressClassName")
    return causes


def validate_new_ingress(obj: Object) -> list[Cause]:
    """Check a new Ingress; its class annotation must match its class field."""
    causes = _ingress(obj)
    noted = (obj["metadata"].get("annotations") or {}).get(INGRESS_CLASS)
    wanted = obj["spec"].get("ingressClassName")
    if noted is not None and wanted is not None and noted != wanted:
        detail = "must match `ingressClassName` when both are specified"
        causes.append(invalid_value(f"annotations.{INGRESS_CLASS}", noted, detail))
    return causes


def validate_ingress_update(new: Object, old: Object) -> list[Cause]:
    """Check a changed Ingress; errors in secret names or wildcard rules stay valid if the old one has them."""
    held = old["spec"]
    wildcards = [rule for rule in held.get("rules") or () if "*" in rule.get("host", "")]
    return _ingress(
        new,
        secrets=not any(dns_subdomain(tls["secretName"], "") for tls in held.get("tls") or () if tls.get("secretName")),
        wildcards=not any(_rule(rule, "") for rule in wildcards),
    )


def ingress_warnings(new: Object, old: Object | None) -> list[str]:
    """Return a warning about the deprecated class annotation."""
    noted = (new["metadata"].get("annotations") or {}).get(INGRESS_CLASS)
    if old is not None or noted is None or new["spec"].get("ingressClassName") is not None:
        return []
    return [f"annotation \"{INGRESS_CLASS}\" is deprecated, please use 'spec.ingressClassName' instead"]


def _host(host: str, field: str) -> list[Cause]:
    return wrong(field, host, names.wildcard_subdomain(host) if "*" in host else names.dns_subdomain(host))


def _rule(rule: Object, field: str) -> list[Cause]:
    http = rule.get("http")
    if http is None:
        return []
    paths = http.get("paths") or ()
    causes = [] if paths else [required(f"{field}.http.paths")]
    for index, path in enumerate(paths):
        causes += _path(path, f"{field}.http.paths[{index}]")
    return causes


def _path(path: Object, field: str) -> list[Cause]:
    kind, text = path.get("pathType"), path.get("path", "")
    if kind is None:
        return [required(f"{field}.pathType", "pathType must be specified")]
    causes: list[Cause] = []
    if kind not in PATH_TYPES:
        causes.append(not_supported(f"{field}.pathType", kind, PATH_TYPES))
    elif (text or kind != "ImplementationSpecific") and not text.startswith("/"):
        causes.append(invalid_value(f"{field}.path", text, "must be an absolute path"))
    if kind in ("Exact", "Prefix"):
        problems = [f"must not contain '{part}'" for part in _BAD_SEQUENCES if part in text]
        problems += [f"cannot end with '{part}'" for part in _BAD_ENDINGS if text.endswith(part)]
        causes += wrong(f"{field}.path", text, problems)
    return causes + _backend(path.get("backend") or {}, f"{field}.backend")


def _backend(backend: Object, field: str) -> list[Cause]:
    resource, service = backend.get("resource"), backend.get("service")
    if resource is not None and service is not None:
        return [invalid_value(field, "", "cannot set both resource and service backends")]
    if resource is not None:
        return typed_reference(resource, f"{field}.resource")
    if service is None:
        return [invalid_value(field, "", "resource or service backend is required")]
    name, port = service.get("name", ""), service.get("port") or {}
    causes = dns_label(name, f"{field}.service.name") if name else [required(f"{field}.service.name")]
    if port.get("name") and port.get("number", 0):
        causes.append(invalid_value(field, "", "cannot set both port name & port number"))
    elif port.get("name"):
        causes += wrong(f"{field}.service.port.name", port["name"], names.port_name(port["name"]))
    elif port.get("number", 0):
        causes += port_number(port["number"], f"{field}.service.port.number")
    else:
        causes.append(required(field, "port name or number is required"))
    return causes


def typed_reference(reference: Object, field: str, *, required_by_tags: bool = False) -> list[Cause]:
    causes: list[Cause] = []
    if reference.get("apiGroup") is not None:
        causes += dns_subdomain(reference["apiGroup"], f"{field}.apiGroup")
    for member in ("kind", "name"):
        value, path = reference.get(member, ""), f"{field}.{member}"
        if value:
            causes += wrong(path, value, names.path_segment(value))
        elif not required_by_tags:
            causes.append(required(path))
    return causes


def validate_ingress_status(new: Object, old: Object, *, strict: bool = True) -> list[Cause]:
    """Check the load balancer addresses of an Ingress."""
    return balancer_status(new, old, strict=strict, modes=False)


# -- table columns ----------------------------------------------------------------------------------------------------

LIST_SHOWN: Final = 3


def _hosts(rules: Sequence[ReadOnlyObject]) -> str:
    shown = [rule["host"] for rule in rules if rule.get("host")][:LIST_SHOWN]
    if not shown:
        return "*"
    more = len(rules) - LIST_SHOWN
    # As in Kubernetes, rules without a host are counted as more only if three hosts are shown.
    return ",".join(shown) + (f" + {more} more..." if more > 0 and len(shown) == LIST_SHOWN else "")


def _cells(obj: ReadOnlyObject, since: Since) -> list[Any]:
    spec = obj.get("spec") or {}
    return [
        name_of(obj),
        spec.get("ingressClassName") or "<none>",
        _hosts(spec.get("rules") or ()),
        ingress_points(obj.get("status")),
        "80, 443" if spec.get("tls") else "80",
        age_of(obj, since),
    ]


# -- the kind ---------------------------------------------------------------------------------------------------------

INGRESS: Final = BuiltinKind(
    resource="ingresses.networking.k8s.io",
    strategy=Strategy(
        update_checks=(Check.METADATA_CHANGE, Check.METADATA, Check.CHANGE),
        generation=True,
        validate=validate_new_ingress,
        validate_update=validate_ingress_update,
        warnings=ingress_warnings,
        subresources=MappingProxyType(
            {
                "status": status_update(
                    "spec",
                    validate_update=validate_ingress_status,
                    warnings=balancer_status_warnings,
                )
            }
        ),
    ),
    printer=Printer(
        (
            NAME,
            Column(
                "Class",
                text="The name of the IngressClass resource that should be used for additional configuration",
            ),
            Column("Hosts", text="Hosts that incoming requests are matched against before the ingress rule"),
            Column("Address", text="Address is a list containing ingress points for the load-balancer"),
            Column("Ports", text="Ports of TLS configurations that open"),
            AGE,
        ),
        _cells,
    ),
)


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


def _ingressclass_cells(obj: ReadOnlyObject, since: Since) -> list[Any]:
    parameters = at(obj, "spec", "parameters")
    text = "<none>"
    if parameters is not None:
        group = parameters.get("apiGroup")
        text = f"{parameters.get('kind', '')}{f'.{group}' if group else ''}/{parameters.get('name', '')}"
    return [name_of(obj), at(obj, "spec", "controller", default=""), text, age_of(obj, since)]


INGRESSCLASS: Final = BuiltinKind(
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
        _ingressclass_cells,
    ),
)

KINDS: Final = (
    INGRESS,
    INGRESSCLASS,
)
