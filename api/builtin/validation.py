"""Validation of the core kinds: functions from an object (or a change) to what is wrong with it.

Each states the rules of one kind; metadata has been checked already. Grown by area: what is not here is not checked.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from kubechronicle.api import names, quantity
from kubechronicle.api.field_errors import (
    Cause,
    duplicate,
    forbidden,
    invalid_value,
    not_supported,
    required,
    too_long,
)
from kubechronicle.api.metadata import IMMUTABLE

Object = dict[str, Any]

MAX_SECRET: Final = 1024 * 1024
"""Bytes of all values of a ConfigMap or Secret."""

IMMUTABLE_SET: Final = "field is immutable when `immutable` is set"


def immutable(field: str, new: Any, old: Any) -> list[Cause]:
    """Return the cause for a field that has changed and must not."""
    return [] if new == old else [invalid_value(field, new, IMMUTABLE)]


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


# -- pods -------------------------------------------------------------------------------------------------------------

RESTART_POLICIES: Final = ("Always", "Never", "OnFailure")
PULL_POLICIES: Final = ("Always", "IfNotPresent", "Never")
DNS_POLICIES: Final = ("ClusterFirst", "ClusterFirstWithHostNet", "Default", "None")


def pod(obj: Object) -> list[Cause]:
    """The rules of a pod's spec."""
    return pod_spec(obj["spec"], "spec")


def pod_spec(spec: Object, field: str) -> list[Cause]:
    """The rules every pod and pod template obeys."""
    causes: list[Cause] = []
    volumes = {volume.get("name", "") for volume in spec.get("volumes") or ()}
    if not spec.get("containers"):
        causes.append(required(f"{field}.containers"))
    seen: set[str] = set()
    for group in ("containers", "initContainers"):
        for index, container in enumerate(spec.get(group) or ()):
            causes += _container(container, f"{field}.{group}[{index}]", seen, volumes)
    policy = spec.get("restartPolicy", "")
    if policy not in RESTART_POLICIES:
        causes.append(not_supported(f"{field}.restartPolicy", policy, RESTART_POLICIES))
    policy = spec.get("dnsPolicy", "")
    if policy not in DNS_POLICIES:
        causes.append(not_supported(f"{field}.dnsPolicy", policy, DNS_POLICIES))
    return causes


def _container(container: Object, field: str, seen: set[str], volumes: set[str]) -> list[Cause]:
    causes: list[Cause] = []
    name = container.get("name", "")
    if not name:
        causes.append(required(f"{field}.name"))
    else:
        causes += [invalid_value(f"{field}.name", name, problem) for problem in names.dns_label(name)]
        if name in seen:
            causes.append(duplicate(f"{field}.name", name))
        seen.add(name)
    image = container.get("image", "")
    if not image:
        causes.append(required(f"{field}.image"))
    elif image != image.strip():
        causes.append(invalid_value(f"{field}.image", image, "must not have leading or trailing whitespace"))
    causes += _ports(container.get("ports") or (), f"{field}.ports")
    causes += _environment(container.get("env") or (), f"{field}.env")
    for index, mount in enumerate(container.get("volumeMounts") or ()):
        causes += _mount(mount, f"{field}.volumeMounts[{index}]", volumes)
    policy = container.get("imagePullPolicy", "")
    if policy not in PULL_POLICIES:
        causes.append(not_supported(f"{field}.imagePullPolicy", policy, PULL_POLICIES))
    return causes + _resources(container.get("resources") or {}, f"{field}.resources")


def _ports(ports: Sequence[Object], field: str) -> list[Cause]:
    causes: list[Cause] = []
    seen: set[str] = set()
    for index, port in enumerate(ports):
        path = f"{field}[{index}]"
        name = port.get("name")
        if name:
            problems = names.port_name(name)
            causes += [invalid_value(f"{path}.name", name, problem) for problem in problems]
            if not problems and name in seen:
                causes.append(duplicate(f"{path}.name", name))
            seen.add(name)
        number = port.get("containerPort", 0)
        if not number:
            causes.append(required(f"{path}.containerPort"))
        else:
            causes += [invalid_value(f"{path}.containerPort", number, text) for text in names.port_number(number)]
        host = port.get("hostPort", 0)
        if host:
            causes += [invalid_value(f"{path}.hostPort", host, text) for text in names.port_number(host)]
        if port.get("protocol") not in ("TCP", "UDP", "SCTP"):
            causes.append(not_supported(f"{path}.protocol", port.get("protocol", ""), ("SCTP", "TCP", "UDP")))
    return causes


_ENV_SOURCES: Final = ("fieldRef", "resourceFieldRef", "configMapKeyRef", "secretKeyRef", "fileKeyRef")


def _environment(variables: Sequence[Object], field: str) -> list[Cause]:
    causes: list[Cause] = []
    for index, variable in enumerate(variables):
        path = f"{field}[{index}]"
        name = variable.get("name", "")
        if not name:
            causes.append(required(f"{path}.name"))
        else:
            causes += [invalid_value(f"{path}.name", name, problem) for problem in names.env_var_name(name)]
        source = variable.get("valueFrom")
        if source is None:
            continue
        given = [each for each in _ENV_SOURCES if source.get(each) is not None]
        detail = ""
        if not given:
            detail = "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef` or `secretKeyRef`"
        elif variable.get("value"):
            detail = "may not be specified when `value` is not empty"
        elif len(given) > 1:
            detail = "may not have more than one field specified at a time"
        if detail:
            causes.append(invalid_value(f"{path}.valueFrom", "", detail))
    return causes


def _mount(mount: Object, field: str, volumes: set[str]) -> list[Cause]:
    causes: list[Cause] = []
    name = mount.get("name", "")
    if not name:
        causes.append(required(f"{field}.name"))
    elif name not in volumes:
        from kubechronicle.api.field_errors import not_found

        causes.append(not_found(f"{field}.name", name))
    if not mount.get("mountPath"):
        causes.append(required(f"{field}.mountPath"))
    return causes


def _resources(resources: Object, field: str) -> list[Cause]:
    causes: list[Cause] = []
    limits = resources.get("limits") or {}
    for part in ("limits", "requests"):
        for name, amount in (resources.get(part) or {}).items():
            path = f"{field}.{part}[{name}]"
            value = quantity.value_of(amount)
            if value < 0:
                causes.append(invalid_value(path, amount, "must be greater than or equal to 0"))
            elif part == "requests" and name in limits and value > quantity.value_of(limits[name]):
                detail = f"must be less than or equal to {name} limit of {limits[name]}"
                causes.append(invalid_value(f"{field}.requests", amount, detail))
    return causes


_CHANGEABLE_SPEC: Final = ("activeDeadlineSeconds", "tolerations", "terminationGracePeriodSeconds", "schedulingGates")

POD_UPDATE: Final = (
    "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,"
    "`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),"
    "`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"
)


def pod_update(new: Object, old: Object) -> list[Cause]:
    """Of a pod's spec only images, the deadline, more tolerations and fewer gates may change."""
    causes: list[Cause] = []
    for group in ("containers", "initContainers"):
        for index, container in enumerate(new["spec"].get(group) or ()):
            if not container.get("image"):
                causes.append(required(f"spec.{group}[{index}].image"))
    missing = [each for each in old["spec"].get("tolerations") or () if each not in new["spec"].get("tolerations", ())]
    if missing:
        detail = "existing toleration can not be modified except its tolerationSeconds"
        if not _only_seconds_changed(new, old):
            causes.append(forbidden("spec.tolerations", detail))
    if causes:
        return causes
    if _frozen_spec(new["spec"]) != _frozen_spec(old["spec"]):
        causes.append(forbidden("spec", POD_UPDATE))
    return causes


def _only_seconds_changed(new: Object, old: Object) -> bool:
    def stripped(spec: Object) -> list[Object]:
        return [
            {name: value for name, value in each.items() if name != "tolerationSeconds"}
            for each in spec.get("tolerations") or ()
        ]

    after = stripped(new["spec"])
    return all(each in after for each in stripped(old["spec"]))


def _frozen_spec(spec: Object) -> Object:
    frozen = {name: value for name, value in spec.items() if name not in _CHANGEABLE_SPEC}
    for group in ("containers", "initContainers"):
        if group in frozen:
            frozen[group] = [{**container, "image": ""} for container in frozen[group]]
    return frozen


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
