"""Validation of networking.k8s.io: Ingresses and their classes, NetworkPolicies, IPAddresses and ServiceCIDRs."""

from __future__ import annotations

from typing import Any, Final

from kubechronicle.api import names
from kubechronicle.api.builtin.checks import (
    CIDR_MESSAGE,
    IP_MESSAGE,
    cidr,
    dns_label,
    dns_subdomain,
    dual_stack,
    immutable,
    label_selector,
    one_of_if_set,
    parse_cidr,
    parse_ip,
    port_number,
    wrong,
)
from kubechronicle.api.builtin.go_shapes import shape
from kubechronicle.api.field_errors import Cause, forbidden, invalid_value, not_supported, required, too_long

Object = dict[str, Any]

# -- ingresses --------------------------------------------------------------------------------------------------------

PATH_TYPES: Final = ("Exact", "ImplementationSpecific", "Prefix")
INGRESS_CLASS: Final = "kubernetes.io/ingress.class"
_BAD_SEQUENCES: Final = ("//", "/./", "/../", "%2f", "%2F")
_BAD_ENDINGS: Final = ("/..", "/.")


def ingress(obj: Object) -> list[Cause]:
    """Hosts, paths and what stands behind them."""
    spec = obj["spec"]
    causes: list[Cause] = []
    rules, backend = spec.get("rules") or (), spec.get("defaultBackend")
    if not rules and backend is None:
        causes.append(invalid_value("spec", None, "either `defaultBackend` or `rules` must be specified"))
    if backend is not None:
        causes += _backend(backend, "spec.defaultBackend")
    for index, rule in enumerate(rules):
        causes += _rule(rule, f"spec.rules[{index}]")
    for index, tls in enumerate(spec.get("tls") or ()):
        field = f"spec.tls[{index}]"
        for position, host in enumerate(tls.get("hosts") or ()):
            causes += _host(host, f"{field}.hosts[{position}]")
        if tls.get("secretName"):
            causes += dns_subdomain(tls["secretName"], f"{field}.secretName")
    if spec.get("ingressClassName") is not None:
        causes += dns_subdomain(spec["ingressClassName"], "spec.ingressClassName")
    return causes


def new_ingress(obj: Object) -> list[Cause]:
    """The rules of an ingress that is created: the old way to name its class agrees with the new one."""
    causes = ingress(obj)
    noted = (obj["metadata"].get("annotations") or {}).get(INGRESS_CLASS)
    wanted = obj["spec"].get("ingressClassName")
    if noted is not None and wanted is not None and noted != wanted:
        detail = "must match `ingressClassName` when both are specified"
        causes.append(invalid_value(f"annotations.{INGRESS_CLASS}", noted, detail))
    return causes


def ingress_update(new: Object, old: Object) -> list[Cause]:
    """An ingress may change as a whole."""
    return ingress(new)


def _host(host: str, field: str) -> list[Cause]:
    return wrong(field, host, names.wildcard_subdomain(host) if "*" in host else names.dns_subdomain(host))


def _rule(rule: Object, field: str) -> list[Cause]:
    causes: list[Cause] = []
    host = rule.get("host", "")
    if host:
        if parse_ip(host) is not None:
            causes.append(invalid_value(f"{field}.host", host, "must be a DNS name, not an IP address"))
        causes += _host(host, f"{field}.host")
    http = rule.get("http")
    if http is None:
        return causes
    paths = http.get("paths") or ()
    if not paths:
        causes.append(required(f"{field}.http.paths"))
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


def ingress_class(obj: Object) -> list[Cause]:
    """The controller of a class and its parameters."""
    spec = obj["spec"]
    controller = spec.get("controller", "")
    causes = [] if controller else [required("spec.controller")]
    if controller:
        if len(controller.encode()) > MAX_CONTROLLER:
            causes.append(too_long("spec.controller", MAX_CONTROLLER))
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
    """A domain, a slash and a path."""
    domain, slash, path = value.partition("/")
    if not slash or not domain or not path:
        return [invalid_value(field, value, 'must be a domain-prefixed path (such as "acme.io/foo")')]
    causes = dns_subdomain(domain, field)
    return causes


def ingress_class_update(new: Object, old: Object) -> list[Cause]:
    """The controller stays."""
    return immutable("spec.controller", new["spec"].get("controller", ""), old["spec"].get("controller", ""))


# -- policies ---------------------------------------------------------------------------------------------------------

POLICY_TYPES: Final = ("Ingress", "Egress")


def network_policy(obj: Object) -> list[Cause]:
    """Whom a policy is about, and who may reach whom at which ports."""
    spec = obj["spec"]
    causes = label_selector(spec.get("podSelector"), "spec.podSelector")
    for direction, peers in (("ingress", "from"), ("egress", "to")):
        for index, rule in enumerate(spec.get(direction) or ()):
            field = f"spec.{direction}[{index}]"
            for position, port in enumerate(rule.get("ports") or ()):
                causes += _policy_port(port, f"{field}.ports[{position}]")
            for position, peer in enumerate(rule.get(peers) or ()):
                causes += _peer(peer, f"{field}.{peers}[{position}]")
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
                # Kubernetes shows the port here, not its end.
                causes.append(invalid_value(f"{field}.endPort", number, "must be greater than or equal to `port`"))
            causes += port_number(end, f"{field}.endPort")
        return causes
    if end is not None:
        why = "not specified" if number is None else "non-numeric"
        causes.append(invalid_value(f"{field}.endPort", end, f"may not be specified when `port` is {why}"))
    return causes if number is None else causes + wrong(f"{field}.port", number, names.port_name(number))


def _peer(peer: Object, field: str) -> list[Cause]:
    causes: list[Cause] = []
    given = [name for name in ("podSelector", "namespaceSelector", "ipBlock") if peer.get(name) is not None]
    for name in given:
        if name == "ipBlock":
            causes += _ip_block(peer[name], f"{field}.ipBlock")
        else:
            causes += label_selector(peer[name], f"{field}.{name}")
    if not given:
        causes.append(required(field, "must specify a peer"))
    elif len(given) > 1 and "ipBlock" in given:
        causes.append(forbidden(field, "may not specify both ipBlock and another peer"))
    return causes


def _ip_block(block: Object, field: str) -> list[Cause]:
    text = block.get("cidr", "")
    if not text:
        return [required(f"{field}.cidr")]
    causes = cidr(text, f"{field}.cidr")
    network = parse_cidr(text)
    if network is None:
        return causes
    for index, value in enumerate(block.get("except") or ()):
        path, inner = f"{field}.except[{index}]", parse_cidr(value)
        if inner is None:
            causes.append(invalid_value(path, value, CIDR_MESSAGE))
        elif inner.network_address not in network or network.prefixlen >= inner.prefixlen:
            causes.append(invalid_value(path, value, "must be a strict subset of `cidr`"))
    return causes


# -- addresses --------------------------------------------------------------------------------------------------------


def ip_address(obj: Object) -> list[Cause]:
    """An address, by its name, belongs to something."""
    name = obj["metadata"].get("name", "")
    address = parse_ip(name)
    causes: list[Cause] = []
    if address is None:
        causes.append(invalid_value("metadata.name", name, IP_MESSAGE))
    elif str(address) != name:
        causes.append(invalid_value("metadata.name", name, f'must be in canonical form ("{address}")'))
    reference, field = obj["spec"].get("parentRef"), "spec.parentRef"
    if reference is None:
        return [*causes, required(field)]
    for member in ("resource", "name"):
        value, path = reference.get(member, ""), f"{field}.{member}"
        causes += wrong(path, value, names.path_segment(value)) if value else [required(path)]
    if reference.get("group"):
        causes += dns_subdomain(reference["group"], f"{field}.group")
    if reference.get("namespace"):
        causes += wrong(f"{field}.namespace", reference["namespace"], names.path_segment(reference["namespace"]))
    return causes


def ip_address_update(new: Object, old: Object) -> list[Cause]:
    """What an address belongs to stays."""
    after, before = new["spec"].get("parentRef"), old["spec"].get("parentRef")
    return [] if after == before else immutable("spec.parentRef", shape(after, "ParentReference"), before)


def service_cidr(obj: Object) -> list[Cause]:
    """Ranges services take addresses from: one, or one of each family."""
    ranges, field = obj["spec"].get("cidrs") or [], "spec.cidrs"
    if not ranges:
        return [required(field, "at least one CIDR required")]
    causes: list[Cause] = []
    if len(ranges) > 2:
        causes.append(invalid_value(field, ranges, "may only hold up to 2 values"))
    parsed = [parse_cidr(value) for value in ranges]
    known = [network for network in parsed if network is not None]
    if len(ranges) == 2 and len(known) == 2 and not dual_stack(known):
        detail = "may specify no more than one IP for each IP family, i.e 192.168.0.0/24 and 2001:db8::/64"
        causes.append(invalid_value(field, ranges, detail))
    for index, (value, network) in enumerate(zip(ranges, parsed, strict=True)):
        if network is None:
            causes.append(invalid_value(f"{field}[{index}]", value, CIDR_MESSAGE))
        elif str(network) != value:
            causes.append(invalid_value(f"{field}[{index}]", value, f'must be in canonical form ("{network}")'))
    return causes


def service_cidr_update(new: Object, old: Object) -> list[Cause]:
    """A range stays; a second may be added."""
    after, before = new["spec"].get("cidrs") or [], old["spec"].get("cidrs") or []
    if len(before) == 1 and len(after) == 2:
        return [] if after[0] == before[0] else immutable("spec.cidrs[0]", after[0], before[0])
    return immutable("spec.cidrs", after, before)
