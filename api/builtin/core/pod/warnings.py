"""Warnings about pods and pod templates: fields that are accepted but have no effect or a surprising one.

``field`` is the path of the pod object: "" for a pod, "spec.template" for most templates. Warnings are in Kubernetes'
order. A rejected object gets none.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from kubechronicle.api.builtin.common.network_values import ip_warnings
from kubechronicle.api.builtin.common.resource_amounts import fractional_warnings
from kubechronicle.api.builtin.core.pod.validation import APP_ARMOR, SECCOMP, SECCOMP_POD, app_armor_field
from kubechronicle.api.builtin.core.pod.validation_security import containers_of
from kubechronicle.api.builtin.core.pod.warnings_volumes import volume_warnings
from kubechronicle.api.errors.field_errors import go_quote
from kubechronicle.api.strategy.strategy import MOST_WARNINGS
from kubechronicle.api.values import names
from kubechronicle.api.values.objects import Object

NULL_SELECTOR: Final = "a null labelSelector results in matching no pod"
POD_NAME: Final = "this is used in the Pod's hostname"
OWNER_NAME: Final = "this is used in Pod names and hostnames"
_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"
_OLD_LABELS: Final[Mapping[str, str]] = {
    "beta.kubernetes.io/arch": 'deprecated since v1.14; use "kubernetes.io/arch" instead',
    "beta.kubernetes.io/os": 'deprecated since v1.14; use "kubernetes.io/os" instead',
    "failure-domain.beta.kubernetes.io/region": 'deprecated since v1.17; use "topology.kubernetes.io/region" instead',
    "failure-domain.beta.kubernetes.io/zone": 'deprecated since v1.17; use "topology.kubernetes.io/zone" instead',
    "beta.kubernetes.io/instance-type": 'deprecated since v1.17; use "node.kubernetes.io/instance-type" instead',
    "app.kubernetes.io/created-by": "deprecated since v1.9",
    "scheduler.alpha.kubernetes.io/preferAvoidPods": "deprecated since v1.22; use Taints and Tolerations instead",
    "node-role.kubernetes.io/master": 'use "node-role.kubernetes.io/control-plane" instead',
}
"""Deprecated node label -> the replacement to recommend."""
_OLD_ANNOTATIONS: Final[Mapping[str, str]] = {
    "scheduler.alpha.kubernetes.io/critical-pod": (
        'non-functional in v1.16+; use the "priorityClassName" field instead'
    ),
    "security.alpha.kubernetes.io/sysctls": 'non-functional in v1.11+; use the "sysctls" field instead',
    "security.alpha.kubernetes.io/unsafe-sysctls": 'non-functional in v1.11+; use the "sysctls" field instead',
}
_NO_SECCOMP_ANNOTATION: Final = 'non-functional in v1.27+; use the "seccompProfile" field instead'
_NO_APP_ARMOR_ANNOTATION: Final = 'deprecated since v1.30; use the "appArmorProfile" field instead'
_NEGATIVE_PERIOD: Final = "must be >= 0; negative values are invalid and will be treated as 1"


def name_warnings(metadata: Object, used: str) -> list[str]:
    """Return a warning if a name that becomes part of a host name is not a DNS label."""
    problems = names.dns_label(metadata.get("name", ""))
    if not problems:
        return []
    message = f"{used}, which can result in surprising behavior; a DNS label is recommended: [{' '.join(problems)}]"
    return [f"metadata.name: {message}"]


def spec_warnings(metadata: Object | None, spec: Object, field: str) -> list[str]:
    """Return all warnings about a pod's metadata and spec."""
    annotations: Mapping[str, str] = (metadata or {}).get("annotations") or {}
    outer = f"{field}.metadata.annotations" if field else "metadata.annotations"
    path = f"{field}.spec" if field else "spec"
    warnings: list[str] = []
    for label in spec.get("nodeSelector") or ():
        if label in _OLD_LABELS:
            warnings.append(f"{path}.nodeSelector[{label}]: {_OLD_LABELS[label]}")
    affinity = spec.get("affinity")
    if affinity:
        warnings += _node_affinity(affinity.get("nodeAffinity") or {}, f"{path}.affinity.nodeAffinity")
    if spec.get("topologySpreadConstraints"):
        warnings += _spread(spec["topologySpreadConstraints"], f"{path}.topologySpreadConstraints")
    if annotations:
        warnings += [f"{outer}[{key}]: {text}" for key, text in _OLD_ANNOTATIONS.items() if key in annotations]
    if spec.get("volumes"):
        warnings += volume_warnings(spec["volumes"], f"{path}.volumes")
    warnings += _aliases_and_secrets(spec, path)
    warnings += fractional_warnings(spec.get("overhead"), f"{path}.overhead", "memory", "ephemeral-storage")
    profiled = (spec.get("securityContext") or {}).get("seccompProfile") is not None
    if annotations and SECCOMP_POD in annotations and not profiled:
        warnings.append(f"{outer}[{SECCOMP_POD}]: {_NO_SECCOMP_ANNOTATION}")
    containers = list(containers_of(spec, path))
    for container, container_path in containers:
        if annotations:
            warnings += _profiles(container, annotations, outer, spec)
        warnings += _resources(container.get("resources"), f"{container_path}.resources")
        if len(container.get("env") or ()) > 1:
            warnings += _environment(container["env"], f"{container_path}.env")
    ports = [
        (port, f"{container_path}.ports[{index}]")
        for container, container_path in containers
        for index, port in enumerate(container.get("ports") or ())
    ]
    if ports:
        warnings += _ports(ports)
    period = spec.get("terminationGracePeriodSeconds")
    if period is not None and period < 0:
        warnings.append(f"{path}.terminationGracePeriodSeconds: {_NEGATIVE_PERIOD}")
    if affinity:
        for member in ("podAffinity", "podAntiAffinity"):
            warnings += _pod_affinity(affinity.get(member) or {}, f"{path}.affinity.{member}")
    for index, server in enumerate((spec.get("dnsConfig") or {}).get("nameservers") or ()):
        warnings += ip_warnings(server, f"{path}.dnsConfig.nameservers[{index}]")
    for index, alias in enumerate(spec.get("hostAliases") or ()):
        warnings += ip_warnings(alias.get("ip", ""), f"{path}.hostAliases[{index}].ip")
    return warnings


# -- placement --------------------------------------------------------------------------------------------------------


def node_term_warnings(term: Object, field: str, *, values: bool = False) -> list[str]:
    """Return warnings about a node selector term: old labels and, with ``values``, values that no label can have."""
    warnings: list[str] = []
    for index, expression in enumerate(term.get("matchExpressions") or ()):
        path, key = f"{field}.matchExpressions[{index}]", expression.get("key", "")
        if key in _OLD_LABELS:
            warnings.append(f"{path}.key: {key} is {_OLD_LABELS[key]}")
        for position, value in enumerate(expression.get("values") or () if values else ()):
            warnings += [f"{path}.values[{position}]: {value} is invalid, {text}" for text in names.label_value(value)]
    return warnings


def _node_affinity(affinity: Object, field: str) -> list[str]:
    warnings: list[str] = []
    for index, term in enumerate((affinity.get(_REQUIRED) or {}).get("nodeSelectorTerms") or ()):
        warnings += node_term_warnings(term, f"{field}.{_REQUIRED}.nodeSelectorTerms[{index}]")
    for index, term in enumerate(affinity.get(_PREFERRED) or ()):
        warnings += node_term_warnings(
            term.get("preference") or {}, f"{field}.{_PREFERRED}[{index}].preference", values=True
        )
    return warnings


def _spread(constraints: Sequence[Object], field: str) -> list[str]:
    warnings: list[str] = []
    for index, constraint in enumerate(constraints):
        key = constraint.get("topologyKey", "")
        if key in _OLD_LABELS:
            warnings.append(f"{field}[{index}].topologyKey: {key} is {_OLD_LABELS[key]}")
        if constraint.get("labelSelector") is None:
            warnings.append(f"{field}[{index}].labelSelector: {NULL_SELECTOR}")
    return warnings


def _pod_affinity(affinity: Object, field: str) -> list[str]:
    return [
        f"{field}.{_REQUIRED}[{index}].labelSelector: {NULL_SELECTOR}"
        for index, term in enumerate(affinity.get(_REQUIRED) or ())
        if term.get("labelSelector") is None
    ] + [
        f"{field}.{_PREFERRED}[{index}].podAffinityTerm.labelSelector: {NULL_SELECTOR}"
        for index, term in enumerate(affinity.get(_PREFERRED) or ())
        if (term.get("podAffinityTerm") or {}).get("labelSelector") is None
    ]


# -- duplicates -------------------------------------------------------------------------------------------------------


def _duplicates(items: Sequence[Object], field: str, member: str) -> list[str]:
    warnings: list[str] = []
    seen: set[str] = set()
    for index, item in enumerate(items):
        value = item.get(member, "")
        if value in seen:
            warnings.append(f"{field}[{index}].{member}: duplicate {member} {go_quote(value)}")
        seen.add(value)
    return warnings


def _aliases_and_secrets(spec: Object, field: str) -> list[str]:
    aliases, secrets = spec.get("hostAliases"), spec.get("imagePullSecrets")
    warnings = _duplicates(aliases, f"{field}.hostAliases", "ip") if aliases else []
    if secrets:
        warnings += _duplicates(secrets, f"{field}.imagePullSecrets", "name")
        warnings += [
            f'{field}.imagePullSecrets[{index}].name: invalid empty name ""'
            for index, secret in enumerate(secrets)
            if not secret.get("name")
        ]
    return warnings


def _environment(variables: Sequence[Object], field: str) -> list[str]:
    warnings: list[str] = []
    seen: set[str] = set()
    for index, variable in enumerate(variables):
        name, value = variable.get("name", ""), variable.get("value", "")
        if name not in seen:
            seen.add(name)
            continue
        reference = f"$({name})"  # a value that contains the previous one hides nothing
        if variable.get("valueFrom") is not None or value == reference or reference not in value:
            hidden = f"hides previous definition of {go_quote(name)}, which may be dropped when using apply"
            warnings.append(f"{field}[{index}]: {hidden}")
    return warnings


def _ports(ports: Sequence[tuple[Object, str]]) -> list[str]:
    warnings: list[str] = []
    alike: dict[tuple[int, str], _SamePort] = {}
    named: dict[str, str] = {}
    same_names: list[str] = []
    for port, field in ports:
        address, outside = port.get("hostIP", ""), port.get("hostPort", 0)
        if address and not outside:
            warnings.append(f"{field}: hostIP set without hostPort: {_printed(port)}")
        if len(warnings) < MOST_WARNINGS:  # of n ports, n² pairs may overlap
            others = alike.setdefault((port.get("containerPort", 0), port.get("protocol", "")), _SamePort())
            warnings += [f"{field}: {text}" for text in others.add(address, outside, field)]
        name = port.get("name", "")
        if name and (first := named.setdefault(name, field)) != field:
            used = f"services and probes that select ports by name will use {first}"
            same_names.append(f"{field}: duplicate port name {go_quote(name)} with {first}, {used}")
    return warnings + same_names


class _SamePort:
    """The definitions of one container port, as (number, field), by host port and host address."""

    def __init__(self) -> None:
        self._count = 0
        self._by_host: dict[int, dict[str, list[tuple[int, str]]]] = {}

    def add(self, address: str, outside: int, field: str) -> list[str]:
        """Add a definition. Return warnings about the earlier ones that it clashes with."""
        clashes: list[tuple[int, str]] = []
        for there, definitions in self._clashing(address, outside):
            kind = _clash((address, outside), there)
            clashes += [(number, f"{kind} with {other}") for number, other in definitions]
        self._by_host.setdefault(outside, {}).setdefault(address, []).append((self._count, field))
        self._count += 1
        return [text for _, text in sorted(clashes)]

    def _clashing(self, address: str, outside: int) -> Iterator[tuple[tuple[str, int], list[tuple[int, str]]]]:
        for port in self._by_host if not outside else (0, outside):
            known = self._by_host.get(port, {})
            for there in known if not (address and outside and port) else ("", address):
                if there in known:
                    yield (there, port), known[there]


def _clash(one: tuple[str, int], other: tuple[str, int]) -> str:
    if one == other:
        return "duplicate port definition"
    return "overlapping port definition" if not (one[1] and other[1]) else "dangerously ambiguous port definition"


def _printed(port: Object) -> str:
    """Return a port as Go prints the struct."""
    parts = (
        ("Name", port.get("name", "")),
        ("HostPort", port.get("hostPort", 0)),
        ("ContainerPort", port.get("containerPort", 0)),
        ("Protocol", port.get("protocol", "")),
        ("HostIP", port.get("hostIP", "")),
    )
    return f"{{{' '.join(f'{name}:{value}' for name, value in parts)}}}"


# -- containers -------------------------------------------------------------------------------------------------------


def _profiles(container: Object, annotations: Mapping[str, str], field: str, spec: Object) -> list[str]:
    """Return warnings about profile annotations; those of AppArmor still work."""
    warnings: list[str] = []
    context, name = container.get("securityContext") or {}, container.get("name", "")
    if f"{SECCOMP}{name}" in annotations and context.get("seccompProfile") is None:
        warnings.append(f"{field}[{SECCOMP}{name}]: {_NO_SECCOMP_ANNOTATION}")
    if f"{APP_ARMOR}{name}" not in annotations or context.get("appArmorProfile") is not None:
        return warnings
    whole = (spec.get("securityContext") or {}).get("appArmorProfile")
    if whole is None or whole != app_armor_field(annotations[f"{APP_ARMOR}{name}"]):
        warnings.append(f"{field}[{APP_ARMOR}{name}]: {_NO_APP_ARMOR_ANNOTATION}")
    return warnings


def _resources(resources: Object | None, field: str) -> list[str]:
    if not resources:
        return []
    limits, requests = resources.get("limits"), resources.get("requests")
    return [
        text
        for resource in ("memory", "ephemeral-storage")
        for amounts, member in ((limits, "limits"), (requests, "requests"))
        for text in fractional_warnings(amounts, f"{field}.{member}", resource)
    ]


def pod_warnings(new: Object, old: Object | None) -> list[str]:
    """Return warnings about a new pod."""
    if old is not None:
        return []
    return name_warnings(new["metadata"], POD_NAME) + spec_warnings(new["metadata"], new.get("spec") or {}, "")


def pod_status_warnings(new: Object, old: Object | None) -> list[str]:
    """Return warnings about addresses not in canonical form."""
    warnings: list[str] = []
    for member in ("podIPs", "hostIPs"):
        for index, held in enumerate((new.get("status") or {}).get(member) or ()):
            warnings += ip_warnings(held.get("ip", ""), f"status.{member}[{index}].ip")
    return warnings
