"""Validation of APIServices."""

from __future__ import annotations

import base64

from kubechronicle.api.builtin.common.checks import dns_subdomain, wrong
from kubechronicle.api.errors.field_errors import Cause, invalid_value, not_supported, required
from kubechronicle.api.values import names
from kubechronicle.api.values.objects import Object


def api_service(obj: Object) -> list[Cause]:
    """Check the name, group, version, priorities and service of an APIService."""
    spec, metadata = obj["spec"], obj["metadata"]
    group, version = spec.get("group", ""), spec.get("version", "")
    causes: list[Cause] = []
    wanted = f"{version}.{group}"
    for member in ("generateName", "name"):
        name = metadata.get(member, "")
        if name and name != wanted:
            detail = f'must be `spec.version+"."+spec.group`: "{wanted}"'
            causes.append(invalid_value(f"metadata.{member}", name, detail))
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
            shown = f"{len(base64.b64decode(bundle))} bytes"
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
    """Check that the status of each condition is True, False or Unknown."""
    return [
        not_supported(f"status.conditions[{index}].status", condition.get("status", ""), ("True", "False", "Unknown"))
        for index, condition in enumerate((new.get("status") or {}).get("conditions") or ())
        if condition.get("status", "") not in ("True", "False", "Unknown")
    ]
