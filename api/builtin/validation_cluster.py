"""Validation of what governs a cluster: priority and runtime classes, aggregated APIs."""

from __future__ import annotations

from typing import Final

from kubechronicle.api.builtin.checks import (
    dns_label,
    dns_subdomain,
    immutable,
    wrong,
)
from kubechronicle.api.builtin.go_shapes import shape
from kubechronicle.api.builtin.validation_pod_spec import preemption_policy
from kubechronicle.api.builtin.validation_resources import requirements
from kubechronicle.api.builtin.validation_scheduling import tolerations
from kubechronicle.api.errors.field_errors import (
    Cause,
    duplicate,
    forbidden,
    invalid_value,
    not_supported,
    required,
)
from kubechronicle.api.meta.metadata import validate_labels
from kubechronicle.api.values import names
from kubechronicle.api.values.objects import Object

# -- priorities -------------------------------------------------------------------------------------------------------

MAX_USER_PRIORITY: Final = 1000000000
SYSTEM_PRIORITIES: Final = {"system-node-critical": 2000001000, "system-cluster-critical": 2000000000}


def priority_class(obj: Object) -> list[Cause]:
    """Names and numbers of the system's own classes are kept for them."""
    name, value = obj["metadata"].get("name", ""), obj.get("value", 0)
    causes: list[Cause] = []
    if name.startswith("system-"):
        known = SYSTEM_PRIORITIES.get(name)
        problem = ""
        if known is None:
            problem = f"{name} is not a known system priority class"
        elif value != known:
            problem = f"value of {name} PriorityClass must be {known}"
        elif obj.get("globalDefault"):
            problem = f"globalDefault of {name} PriorityClass must be false"
        if problem:
            detail = "priority class names with 'system-' prefix are reserved for system use only. error: " + problem
            causes.append(forbidden("metadata.name", detail))
    elif value > MAX_USER_PRIORITY:
        detail = f"maximum allowed value of a user defined priority is {MAX_USER_PRIORITY}"
        causes.append(forbidden("value", detail))
    return causes + preemption_policy(obj.get("preemptionPolicy"), "preemptionPolicy")


def priority_class_update(new: Object, old: Object) -> list[Cause]:
    """What a priority class stands for never changes."""
    causes: list[Cause] = []
    if new.get("value", 0) != old.get("value", 0):
        causes.append(forbidden("value", "may not be changed in an update."))
    return causes + immutable("preemptionPolicy", new.get("preemptionPolicy"), old.get("preemptionPolicy"))


def _key_of(toleration: Object) -> tuple[str, ...]:
    return tuple(toleration.get(name, "") for name in ("key", "operator", "value", "effect"))


def runtime_class(obj: Object) -> list[Cause]:
    """Who runs pods of a class, what that costs, and where it can be done."""
    handler = obj.get("handler", "")
    causes = dns_label(handler, "handler") if handler else [required("handler")]
    overhead = (obj.get("overhead") or {}).get("podFixed")
    if overhead:
        causes += requirements({"limits": overhead}, "overhead")
    scheduling = obj.get("scheduling")
    if scheduling:
        causes += validate_labels(scheduling.get("nodeSelector") or {}, "scheduling.nodeSelector")
        given = scheduling.get("tolerations") or []
        causes += tolerations(given, "scheduling.tolerations")
        keys = [_key_of(toleration) for toleration in given]
        for index, toleration in enumerate(given):
            if keys[index] in keys[:index]:
                causes.append(duplicate(f"scheduling.tolerations[{index}]", shape(toleration, "Toleration")))
    return causes


def runtime_class_update(new: Object, old: Object) -> list[Cause]:
    """Who runs pods of a class stays."""
    return immutable("handler", new.get("handler", ""), old.get("handler", ""))


# -- aggregation ------------------------------------------------------------------------------------------------------


def api_service(obj: Object) -> list[Cause]:
    """An aggregated API: a version of a group, and the service behind it."""
    spec, name = obj["spec"], obj["metadata"].get("name", "")
    group, version = spec.get("group", ""), spec.get("version", "")
    causes: list[Cause] = []
    wanted = f"{version}.{group}"
    if name != wanted:
        detail = f'must be `spec.version+"."+spec.group`: "{wanted}"'
        causes.append(invalid_value("metadata.name", name, detail))
    if group:
        causes += dns_subdomain(group, "spec.group")
    elif version != "v1":
        causes.append(required("spec.group", "only v1 may have an empty group and it better be legacy kube"))
    causes += wrong("spec.version", version, names.dns_1035_label(version))
    for member, most in (("groupPriorityMinimum", 20000), ("versionPriority", 1000)):
        value = spec.get(member, 0)
        if not 0 < value <= most:
            causes.append(invalid_value(f"spec.{member}", value, f"must be positive and less than {most}"))
    service, bundle, insecure = spec.get("service"), spec.get("caBundle"), spec.get("insecureSkipTLSVerify")
    if service is None:
        if bundle:
            shown = f"{len(bundle) * 3 // 4} bytes"
            causes.append(invalid_value("spec.caBundle", shown, "local APIServices may not have a caBundle"))
        if insecure:
            detail = "local APIServices may not have insecureSkipTLSVerify"
            causes.append(invalid_value("spec.insecureSkipTLSVerify", True, detail))
        return causes
    causes += [required(f"spec.service.{member}") for member in ("namespace", "name") if not service.get(member)]
    port = service.get("port", 0)
    problems = names.port_number(port)
    if problems:
        causes.append(invalid_value("spec.service.port", port, f"port is not valid: {', '.join(problems)}"))
    if insecure and bundle:
        detail = "may not be true if caBundle is present"
        causes.append(invalid_value("spec.insecureSkipTLSVerify", True, detail))
    return causes


def api_service_status(new: Object, old: Object) -> list[Cause]:
    """A condition holds, does not, or it is not known."""
    return [
        not_supported(f"status.conditions[{index}].status", condition.get("status", ""), ("True", "False", "Unknown"))
        for index, condition in enumerate((new.get("status") or {}).get("conditions") or ())
        if condition.get("status", "") not in ("True", "False", "Unknown")
    ]
