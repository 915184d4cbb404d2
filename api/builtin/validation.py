"""Validation of the core kinds: functions from an object (or a change) to what is wrong with it.

Each states the rules of one kind; metadata has been checked already. Grown by area: what is not here is not checked.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from kubechronicle.api import names
from kubechronicle.api.builtin.checks import immutable
from kubechronicle.api.field_errors import (
    Cause,
    duplicate,
    forbidden,
    invalid_value,
    not_supported,
    required,
    too_long,
)

Object = dict[str, Any]

MAX_SECRET: Final = 1024 * 1024
"""Bytes of all values of a ConfigMap or Secret."""

IMMUTABLE_SET: Final = "field is immutable when `immutable` is set"


def _sealed_update(new: Object, old: Object, *fields: str) -> list[Cause]:
    """Rules of ConfigMaps and Secrets marked ``immutable``: neither that mark nor the data may change."""
    if not old.get("immutable"):
        return []
    causes = [] if new.get("immutable") else [forbidden("immutable", IMMUTABLE_SET)]
    return causes + [forbidden(field, IMMUTABLE_SET) for field in fields if new.get(field) != old.get(field)]


def _base64_length(text: str) -> int:
    return len(text) * 3 // 4 - text[-2:].count("=")


def config_map(obj: Object) -> list[Cause]:
    """Keys are file names, none stands in both maps, and the whole is limited."""
    causes: list[Cause] = []
    data, binary = obj.get("data") or {}, obj.get("binaryData") or {}
    size = 0
    for key, value in data.items():
        causes += [invalid_value(f"data[{key}]", key, problem) for problem in names.config_key(key)]
        if key in binary:
            causes.append(invalid_value(f"data[{key}]", key, "duplicate of key present in binaryData"))
        size += len(value) if value.isascii() else len(value.encode())
    for key, value in binary.items():
        causes += [invalid_value(f"binaryData[{key}]", key, problem) for problem in names.config_key(key)]
        size += _base64_length(value)
    if size > MAX_SECRET:
        causes.append(too_long("", MAX_SECRET))
    return causes


def config_map_update(new: Object, old: Object) -> list[Cause]:
    """An immutable ConfigMap stays as it is."""
    return _sealed_update(new, old, "data", "binaryData")


_SECRET_KEYS: Final[Mapping[str, tuple[str, ...]]] = {
    "kubernetes.io/dockercfg": (".dockercfg",),
    "kubernetes.io/dockerconfigjson": (".dockerconfigjson",),
    "kubernetes.io/ssh-auth": ("ssh-privatekey",),
    "kubernetes.io/tls": ("tls.crt", "tls.key"),
}
"""Keys that secrets of a type must have."""


def secret(obj: Object) -> list[Cause]:
    """Keys are file names, the whole is limited, and typed secrets have what their type needs."""
    causes: list[Cause] = []
    data = obj.get("data") or {}
    size = 0
    for key, value in data.items():
        causes += [invalid_value(f"data[{key}]", key, problem) for problem in names.config_key(key)]
        size += _base64_length(value)
    if size > MAX_SECRET:
        causes.append(too_long("data", MAX_SECRET))
    kind = obj.get("type", "")
    causes += [required(f"data[{key}]") for key in _SECRET_KEYS.get(kind, ()) if key not in data]
    if kind == "kubernetes.io/service-account-token":
        field = "metadata.annotations[kubernetes.io/service-account.name]"
        if not (obj["metadata"].get("annotations") or {}).get("kubernetes.io/service-account.name"):
            causes.append(required(field))
    elif kind == "kubernetes.io/basic-auth" and not {"username", "password"} & data.keys():
        causes.append(required("data[username]"))
        causes.append(required("data[password]"))
    return causes


def secret_update(new: Object, old: Object) -> list[Cause]:
    """The type never changes; an immutable Secret stays as it is."""
    return immutable("type", new.get("type", ""), old.get("type", "")) + _sealed_update(new, old, "data")


# -- services ---------------------------------------------------------------------------------------------------------

SERVICE_TYPES: Final = ("ClusterIP", "ExternalName", "LoadBalancer", "NodePort")


def service(obj: Object) -> list[Cause]:
    """Ports, type and affinity of a service."""
    spec = obj["spec"]
    causes: list[Cause] = []
    kind = spec.get("type", "")
    if kind not in SERVICE_TYPES:
        causes.append(not_supported("spec.type", kind, SERVICE_TYPES))
    headless = spec.get("clusterIP") == "None"
    ports = spec.get("ports") or ()
    if not ports and not headless and kind != "ExternalName":
        causes.append(required("spec.ports"))
    seen_names: set[str] = set()
    for index, port in enumerate(ports):
        causes += _service_port(port, f"spec.ports[{index}]", many=len(ports) > 1, seen=seen_names)
    affinity = spec.get("sessionAffinity", "")
    if affinity not in ("ClientIP", "None"):
        causes.append(not_supported("spec.sessionAffinity", affinity, ("ClientIP", "None")))
    return causes


def _service_port(port: Object, field: str, *, many: bool, seen: set[str]) -> list[Cause]:
    causes: list[Cause] = []
    name = port.get("name", "")
    if not name:
        if many:
            causes.append(required(f"{field}.name"))
    else:
        causes += [invalid_value(f"{field}.name", name, problem) for problem in names.dns_label(name)]
        if name in seen:
            causes.append(duplicate(f"{field}.name", name))
        seen.add(name)
    number = port.get("port", 0)
    causes += [invalid_value(f"{field}.port", number, text) for text in names.port_number(number)]
    if port.get("protocol") not in ("TCP", "UDP", "SCTP"):
        causes.append(not_supported(f"{field}.protocol", port.get("protocol", ""), ("SCTP", "TCP", "UDP")))
    target = port.get("targetPort", 0)
    problems = names.port_number(target) if isinstance(target, int) else names.port_name(target)
    causes += [invalid_value(f"{field}.targetPort", target, text) for text in problems]
    return causes


def service_update(new: Object, old: Object) -> list[Cause]:
    """An address, once given, stays while the type has one."""
    spec, held = new["spec"], old["spec"]
    if "ExternalName" in (spec.get("type"), held.get("type")) or not held.get("clusterIP"):
        return []
    causes: list[Cause] = []
    if spec.get("clusterIP") != held.get("clusterIP"):
        causes.append(invalid_value("spec.clusterIPs[0]", spec.get("clusterIPs"), "may not change once set"))
    return causes


# -- others -----------------------------------------------------------------------------------------------------------


def event(obj: Object) -> list[Cause]:
    """An event stands in the namespace of what it is about."""
    namespace = obj["metadata"].get("namespace", "")
    involved = (obj.get("involvedObject") or {}).get("namespace", "")
    if involved and involved != namespace:
        return [invalid_value("involvedObject.namespace", involved, "does not match event.namespace")]
    if not involved and namespace not in ("", "default", "kube-system"):
        return [invalid_value("involvedObject.namespace", involved, "does not match event.namespace")]
    return []


def lease(obj: Object) -> list[Cause]:
    """Durations are positive, transitions counted."""
    spec = obj.get("spec") or {}
    causes: list[Cause] = []
    duration = spec.get("leaseDurationSeconds")
    if duration is not None and duration <= 0:
        causes.append(invalid_value("spec.leaseDurationSeconds", duration, "must be greater than 0"))
    transitions = spec.get("leaseTransitions")
    if transitions is not None and transitions < 0:
        causes.append(invalid_value("spec.leaseTransitions", transitions, "must be greater than or equal to 0"))
    return causes


def priority_class_update(new: Object, old: Object) -> list[Cause]:
    """What a priority class stands for never changes."""
    causes: list[Cause] = []
    if new.get("value", 0) != old.get("value", 0):
        causes.append(forbidden("value", "may not be changed in an update."))
    return causes + immutable("preemptionPolicy", new.get("preemptionPolicy"), old.get("preemptionPolicy"))


def role_ref_update(new: Object, old: Object) -> list[Cause]:
    """A binding is bound to its role for good."""
    if new.get("roleRef") == old.get("roleRef"):
        return []
    return [invalid_value("roleRef", new.get("roleRef"), "cannot change roleRef")]
