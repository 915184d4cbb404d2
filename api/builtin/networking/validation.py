"""Validation of Ingresses and their classes, NetworkPolicies, IPAddresses and ServiceCIDRs."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from typing import Final

from kubechronicle.api.builtin.common.checks import (
    dns_label,
    dns_subdomain,
    dual_stack,
    immutable,
    label_selector,
    one_of_if_set,
    parse_ip,
    port_number,
    wrong,
)
from kubechronicle.api.builtin.common.go_shapes import shape
from kubechronicle.api.builtin.common.network_values import (
    canonical_ip,
    cidr_warnings,
    legacy_cidr,
    parse_range,
    strict_cidr,
)
from kubechronicle.api.builtin.core.service.validation import balancer_status
from kubechronicle.api.errors.field_errors import Cause, forbidden, invalid_value, not_supported, required, too_long
from kubechronicle.api.values import names
from kubechronicle.api.values.objects import Object

# -- ingresses --------------------------------------------------------------------------------------------------------

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


def new_ingress(obj: Object) -> list[Cause]:
    """Check a new Ingress; its class annotation must match its class field."""
    causes = _ingress(obj)
    noted = (obj["metadata"].get("annotations") or {}).get(INGRESS_CLASS)
    wanted = obj["spec"].get("ingressClassName")
    if noted is not None and wanted is not None and noted != wanted:
        detail = "must match `ingressClassName` when both are specified"
        causes.append(invalid_value(f"annotations.{INGRESS_CLASS}", noted, detail))
    return causes


def ingress_update(new: Object, old: Object) -> list[Cause]:
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
        return _reference(resource, f"{field}.resource")
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


def _reference(reference: Object, field: str) -> list[Cause]:
    causes: list[Cause] = []
    if reference.get("apiGroup") is not None:
        causes += dns_subdomain(reference["apiGroup"], f"{field}.apiGroup")
    for member in ("kind", "name"):
        value, path = reference.get(member, ""), f"{field}.{member}"
        causes += wrong(path, value, names.path_segment(value)) if value else [required(path)]
    return causes


MAX_CONTROLLER: Final = 250
_HTTP_PATH: Final = r"[A-Za-z0-9/\-._~%!$&'()*+,;=:]+"


def ingress_class(obj: Object) -> list[Cause]:
    """Check the controller and the parameters of an IngressClass."""
    spec = obj["spec"]
    controller = spec.get("controller", "")
    causes = [too_long("spec.controller", MAX_CONTROLLER)] if len(controller.encode()) > MAX_CONTROLLER else []
    causes += domain_prefixed_path(controller, "spec.controller")
    parameters, field = spec.get("parameters"), "spec.parameters"
    if parameters is None:
        return causes
    causes += _reference(parameters, field)
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


def ingress_class_update(new: Object, old: Object) -> list[Cause]:
    """Reject a changed controller."""
    return immutable("spec.controller", new["spec"].get("controller", ""), old["spec"].get("controller", ""))


# -- policies ---------------------------------------------------------------------------------------------------------

POLICY_TYPES: Final = ("Ingress", "Egress")


def network_policy(obj: Object) -> list[Cause]:
    """Check the pod selector, peers and ports of a NetworkPolicy."""
    return _policy(obj, frozenset())


def network_policy_update(new: Object, old: Object) -> list[Cause]:
    """Check a changed NetworkPolicy; CIDRs of the old one stay valid."""
    held = {text for block, _ in _ip_blocks(old) for text in (block.get("cidr", ""), *(block.get("except") or ()))}
    return _policy(new, held)


def _ip_blocks(obj: Object) -> Iterator[tuple[Object, str]]:
    for direction, peers in (("ingress", "from"), ("egress", "to")):
        for index, rule in enumerate(obj["spec"].get(direction) or ()):
            for position, peer in enumerate(rule.get(peers) or ()):
                if peer.get("ipBlock") is not None:
                    yield peer["ipBlock"], f"spec.{direction}[{index}].{peers}[{position}].ipBlock"


def network_policy_warnings(new: Object, old: Object | None) -> list[str]:
    """Return warnings about CIDRs that are ambiguous or not in canonical form."""
    warnings: list[str] = []
    for block, field in _ip_blocks(new):
        warnings += cidr_warnings(block.get("cidr", ""), f"{field}.cidr")
        for index, text in enumerate(block.get("except") or ()):
            warnings += cidr_warnings(text, f"{field}.except[{index}]")
    return warnings


def _policy(obj: Object, held: Collection[str]) -> list[Cause]:
    spec = obj["spec"]
    causes = label_selector(spec.get("podSelector"), "spec.podSelector")
    for direction, peers in (("ingress", "from"), ("egress", "to")):
        for index, rule in enumerate(spec.get(direction) or ()):
            field = f"spec.{direction}[{index}]"
            for position, port in enumerate(rule.get("ports") or ()):
                causes += _policy_port(port, f"{field}.ports[{position}]")
            for position, peer in enumerate(rule.get(peers) or ()):
                causes += _peer(peer, f"{field}.{peers}[{position}]", held)
    types = spec.get("policyTypes") or []
    if len(types) > len(POLICY_TYPES):
        return [*causes, invalid_value("spec.policyTypes", types, "may not specify more than two policyTypes")]
    for index, kind in enumerate(types):
        causes += one_of_if_set(kind, POLICY_TYPES, f"spec.policyTypes[{index}]")
    return causes


def _policy_port(port: Object, field: str) -> list[Cause]:
    causes = one_of_if_set(port.get("protocol"), ("TCP", "UDP", "SCTP"), f"{field}.protocol")
    number, end = port.get("port"), port.get("endPort")
    if isinstance(number, int):
        causes += port_number(number, f"{field}.port")
        if end is not None:
            if end < number:
                # Kubernetes shows the port here, not endPort.
                causes.append(invalid_value(f"{field}.endPort", number, "must be greater than or equal to `port`"))
            causes += port_number(end, f"{field}.endPort")
        return causes
    if end is not None:
        why = "not specified" if number is None else "non-numeric"
        causes.append(invalid_value(f"{field}.endPort", end, f"may not be specified when `port` is {why}"))
    return causes if number is None else causes + wrong(f"{field}.port", number, names.port_name(number))


def _peer(peer: Object, field: str, held: Collection[str]) -> list[Cause]:
    causes: list[Cause] = []
    given = [name for name in ("podSelector", "namespaceSelector", "ipBlock") if peer.get(name) is not None]
    for name in given:
        if name == "ipBlock":
            causes += _ip_block(peer[name], f"{field}.ipBlock", held)
        else:
            causes += label_selector(peer[name], f"{field}.{name}")
    if not given:
        causes.append(required(field, "must specify a peer"))
    elif len(given) > 1 and "ipBlock" in given:
        causes.append(forbidden(field, "may not specify both ipBlock and another peer"))
    return causes


def _ip_block(block: Object, field: str, held: Collection[str]) -> list[Cause]:
    text = block.get("cidr", "")
    if not text:
        return [required(f"{field}.cidr")]
    causes, network = legacy_cidr(text, f"{field}.cidr", held), parse_range(text)
    if network is None:
        return causes
    for index, value in enumerate(block.get("except") or ()):
        path, inner = f"{field}.except[{index}]", parse_range(value)
        causes += legacy_cidr(value, path, held)
        if inner is None:
            continue
        within = inner.version == network.version and inner.network_address in network
        if not within or network.prefixlen >= inner.prefixlen:
            causes.append(invalid_value(path, value, "must be a strict subset of `cidr`"))
    return causes


# -- addresses --------------------------------------------------------------------------------------------------------


def ip_address_name(name: str, prefix: bool) -> list[str]:
    """Check the name of an IPAddress: a canonical address, also before it is generated."""
    return canonical_ip(name)


def ip_address(obj: Object) -> list[Cause]:
    """Check that an IPAddress has a parent."""
    causes: list[Cause] = []
    reference, field = obj["spec"].get("parentRef"), "spec.parentRef"
    if reference is None:
        return [*causes, required(field)]
    if reference.get("group"):
        causes += dns_subdomain(reference["group"], f"{field}.group")
    for member in ("resource", "name", "namespace"):
        value, path = reference.get(member, ""), f"{field}.{member}"
        if value:
            causes += wrong(path, value, names.path_segment(value))
        elif member != "namespace":
            causes.append(required(path))
    return causes


def ip_address_update(new: Object, old: Object) -> list[Cause]:
    """Reject a changed parent."""
    after, before = new["spec"].get("parentRef"), old["spec"].get("parentRef")
    return [] if after == before else immutable("spec.parentRef", shape(after, "ParentReference"), before)


def service_cidr(obj: Object) -> list[Cause]:
    """Check the ranges of a ServiceCIDR: one, or one per address family."""
    ranges, field = obj["spec"].get("cidrs") or [], "spec.cidrs"
    if not ranges:
        return [required(field, "at least one CIDR required")]
    if len(ranges) > 2:
        return [invalid_value(field, {"CIDRs": ranges}, "may only hold up to 2 values")]
    causes = [cause for index, value in enumerate(ranges) for cause in strict_cidr(value, f"{field}[{index}]")]
    known = [network for network in map(parse_range, ranges) if network is not None]
    if len(known) == 2 and not dual_stack(known):
        detail = "may specify no more than one IP for each IP family, i.e 192.168.0.0/24 and 2001:db8::/64"
        causes.append(invalid_value(field, ranges, detail))
    return causes


def service_cidr_update(new: Object, old: Object) -> list[Cause]:
    """Reject a changed range; a second one may be added."""
    after, before = new["spec"].get("cidrs") or [], old["spec"].get("cidrs") or []
    grown = len(before) == 1 and len(after) == 2
    if len(before) != len(after) and not grown:
        return immutable("spec.cidrs", new["spec"].get("cidrs"), before)
    causes: list[Cause] = []
    for index, (value, held) in enumerate(zip(after, before, strict=False)):
        causes += immutable(f"spec.cidrs[{index}]", value, held)
    return causes + service_cidr(new) if grown else causes


# -- ingress status ---------------------------------------------------------------------------------------------------


def ingress_status(new: Object, old: Object) -> list[Cause]:
    """Check the load balancer addresses of an Ingress."""
    return balancer_status(new, old, modes=False)
