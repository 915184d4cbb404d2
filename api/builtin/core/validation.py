"""Validation of ConfigMaps, Secrets, Namespaces, Endpoints and ReplicationControllers.

Each function returns the causes of an object or a change. Metadata has been checked before. Source: Kubernetes'
``apis/core/validation``.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Final

from kubechronicle.api.builtin.common.checks import (
    PROTOCOLS,
    dns_label,
    dns_subdomain,
    immutable,
    non_special_ip,
    not_negative,
    one_of,
    port_number,
    qualified_name,
    sorted_labels,
    wrong,
)
from kubechronicle.api.builtin.common.network_values import legacy_ip
from kubechronicle.api.builtin.core.pod.options import USUAL, PodOptions
from kubechronicle.api.builtin.core.podtemplate.validation import pod_template
from kubechronicle.api.builtin.core.podtemplate.workloads import MISMATCH, long_running
from kubechronicle.api.codecs.errors import DecodeError
from kubechronicle.api.codecs.json import decode_value
from kubechronicle.api.errors.field_errors import Cause, forbidden, invalid_value, required, too_long
from kubechronicle.api.schema.values import json_word
from kubechronicle.api.values import names
from kubechronicle.api.values.objects import Object

MAX_SECRET: Final = 1024 * 1024
"""Largest total size of a ConfigMap's or Secret's values, in bytes."""

IMMUTABLE_SET: Final = "field is immutable when `immutable` is set"


def _sealed_update(new: Object, old: Object, *fields: str) -> list[Cause]:
    """Reject changes of the data and of the mark of a ConfigMap or Secret marked ``immutable``."""
    if not old.get("immutable"):
        return []
    causes = [] if new.get("immutable") else [forbidden("immutable", IMMUTABLE_SET)]
    return causes + [forbidden(field, IMMUTABLE_SET) for field in fields if new.get(field) != old.get(field)]


def _base64_length(text: str) -> int:
    return len(text) * 3 // 4 - text[-2:].count("=")


def config_map(obj: Object) -> list[Cause]:
    """Check keys and total size, and that no key is in both maps."""
    causes: list[Cause] = []
    data, binary = obj.get("data") or {}, obj.get("binaryData") or {}
    size = 0
    for key, value in data.items():
        if problems := names.config_key(key):
            causes += [invalid_value(f"data[{key}]", key, problem) for problem in problems]
        if key in binary:
            causes.append(invalid_value(f"data[{key}]", key, "duplicate of key present in binaryData"))
        size += len(value) if value.isascii() else len(value.encode())
    for key, value in binary.items():
        causes += [invalid_value(f"binaryData[{key}]", key, problem) for problem in names.config_key(key)]
        size += _base64_length(value)
    if size > MAX_SECRET:
        causes.append(too_long("[]", MAX_SECRET))
    return causes


def config_map_update(new: Object, old: Object) -> list[Cause]:
    """Reject changes of an immutable ConfigMap."""
    return _sealed_update(new, old, "data", "binaryData")


_SECRET_KEYS: Final[Mapping[str, tuple[str, ...]]] = {
    "kubernetes.io/dockercfg": (".dockercfg",),
    "kubernetes.io/dockerconfigjson": (".dockerconfigjson",),
    "kubernetes.io/ssh-auth": ("ssh-privatekey",),
    "kubernetes.io/tls": ("tls.crt", "tls.key"),
}
"""Type of a Secret -> required keys."""

_DOCKER: Final = ("kubernetes.io/dockercfg", "kubernetes.io/dockerconfigjson")


def _docker_problem(encoded: str) -> str:
    """Return the problem of a registry configuration in Go's words, or ""."""
    try:
        value, _ = decode_value(base64.b64decode(encoded))
    except DecodeError as error:
        return str(error)
    if value is None or isinstance(value, dict):
        return ""
    return f"json: cannot unmarshal {json_word(value)} into Go value of type map[string]interface {{}}"


def secret(obj: Object) -> list[Cause]:
    """Check keys, total size, and the keys that the type requires."""
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
    if kind == "kubernetes.io/ssh-auth" and data.get("ssh-privatekey") == "":
        causes.append(required("data[ssh-privatekey]"))
    if kind in _DOCKER and _SECRET_KEYS[kind][0] in data:
        problem = _docker_problem(data[_SECRET_KEYS[kind][0]])
        if problem:
            causes.append(invalid_value(f"data[{_SECRET_KEYS[kind][0]}]", "<secret contents redacted>", problem))
    if kind == "kubernetes.io/service-account-token":
        field = "metadata.annotations[kubernetes.io/service-account.name]"
        if not (obj["metadata"].get("annotations") or {}).get("kubernetes.io/service-account.name"):
            causes.append(required(field))
    elif kind == "kubernetes.io/basic-auth" and not {"username", "password"} & data.keys():
        causes.append(required("data[username]"))
        causes.append(required("data[password]"))
    return causes


def secret_update(new: Object, old: Object) -> list[Cause]:
    """Reject a changed type, and changes of an immutable Secret."""
    return immutable("type", new.get("type", ""), old.get("type", "")) + _sealed_update(new, old, "data")


# -- namespaces -------------------------------------------------------------------------------------------------------

_STANDARD_FINALIZERS: Final = ("kubernetes", "orphan", "foregroundDeletion")


def _finalizer(name: str, field: str) -> list[Cause]:
    causes = wrong(field, name, names.qualified_name(name))
    if "/" not in name and name not in _STANDARD_FINALIZERS:
        detail = "name is neither a standard finalizer name nor is it fully qualified"
        causes.append(invalid_value(field, name, detail))
    return causes


def namespace(obj: Object) -> list[Cause]:
    """Check the names of a namespace's finalizers."""
    finalizers = obj["spec"].get("finalizers") or ()
    return [cause for name in finalizers for cause in _finalizer(name, "spec.finalizers")]


def namespace_finalize(new: Object, old: Object) -> list[Cause]:
    """Check finalizers in the finalize subresource; the causes name the index."""
    causes: list[Cause] = []
    for index, name in enumerate(new["spec"].get("finalizers") or ()):
        causes += _finalizer(name, f"spec.finalizers[{index}]")
    return causes


def namespace_status(new: Object, old: Object) -> list[Cause]:
    """Check that the phase is Terminating for a deleted namespace, and Active otherwise."""
    deleted, phase = bool(new["metadata"].get("deletionTimestamp")), (new.get("status") or {}).get("phase", "")
    wanted, words = ("Terminating", "not empty") if deleted else ("Active", "empty")
    if phase == wanted:
        return []
    return [invalid_value("status.Phase", phase, f"may only be '{wanted}' if `deletionTimestamp` is {words}")]


# -- endpoints --------------------------------------------------------------------------------------------------------


def endpoints(obj: Object) -> list[Cause]:
    """Check that each subset has addresses, and that several ports have names."""
    causes: list[Cause] = []
    for index, subset in enumerate(obj.get("subsets") or ()):
        field = f"subsets[{index}]"
        if not subset.get("addresses") and not subset.get("notReadyAddresses"):
            causes.append(required(field, "must specify `addresses` or `notReadyAddresses`"))
        for group in ("addresses", "notReadyAddresses"):
            for position, address in enumerate(subset.get(group) or ()):
                causes += _address(address, f"{field}.{group}[{position}]")
        ports = subset.get("ports") or ()
        for position, port in enumerate(ports):
            causes += _port(port, f"{field}.ports[{position}]", many=len(ports) > 1)
    return causes


def endpoints_update(new: Object, old: Object) -> list[Cause]:
    """Check changed subsets; unchanged ones stay valid."""
    if new.get("subsets") == old.get("subsets"):
        return []
    return endpoints(new)


def _address(address: Object, field: str) -> list[Cause]:
    causes = legacy_ip(address.get("ip", ""), f"{field}.ip")
    if address.get("hostname"):
        causes += dns_label(address["hostname"], f"{field}.hostname")
    if address.get("nodeName") is not None:
        causes += dns_subdomain(address["nodeName"], f"{field}.nodeName")
    return causes + non_special_ip(address.get("ip", ""), f"{field}.ip")


def _port(port: Object, field: str, *, many: bool) -> list[Cause]:
    name = port.get("name", "")
    causes = dns_label(name, f"{field}.name") if name else [required(f"{field}.name")] if many else []
    causes += port_number(port.get("port", 0), f"{field}.port")
    causes += one_of(port.get("protocol", ""), PROTOCOLS, f"{field}.protocol")
    if port.get("appProtocol") is not None:
        causes += qualified_name(port["appProtocol"], f"{field}.appProtocol")
    return causes


# -- replication controllers ------------------------------------------------------------------------------------------


def replication_controller(obj: Object, options: PodOptions = USUAL) -> list[Cause]:
    """Check the selector and template of a ReplicationController."""
    spec = obj["spec"]
    causes = not_negative(spec, "spec", "minReadySeconds")
    selector = spec.get("selector") or {}
    if not selector:
        causes.append(required("spec.selector"))
    causes += not_negative(spec, "spec", "replicas")
    template = spec.get("template")
    if template is None:
        return [*causes, required("spec.template")]
    labels = (template.get("metadata") or {}).get("labels")
    if selector and any((labels or {}).get(key) != value for key, value in selector.items()):
        causes.append(invalid_value("spec.template.metadata.labels", sorted_labels(labels), MISMATCH))
    causes += pod_template(template, "spec.template", options)
    return causes + long_running(template, "spec.template", "ReplicationController")
