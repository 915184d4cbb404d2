"""APIService: a group version and the server that answers for it.

Source: kube-aggregator's ``registry/apiservice`` and ``apis/apiregistration``.
"""

from __future__ import annotations

import base64
from typing import Any, Final

from kubechronicle.api.builtin.common.cell_text import Since, condition
from kubechronicle.api.builtin.common.checks import dns_subdomain, wrong
from kubechronicle.api.builtin.common.kind import BuiltinKind, only_status
from kubechronicle.api.builtin.common.printer import AGE, NAME, Column, Printer, age_of, at, name_of
from kubechronicle.api.errors.field_errors import Cause, invalid_value, not_supported, required
from kubechronicle.api.strategy.strategy import Strategy
from kubechronicle.api.values import names
from kubechronicle.api.values.objects import Object, ReadOnlyObject


def default_api_service(obj: Object) -> None:
    """Set the port of the service to 443."""
    reference = obj["spec"].get("service")
    if reference is not None and reference.get("port") is None:
        reference["port"] = 443


def prepare_new_api_service(new: Object) -> None:
    """Clear the status; mark an APIService without a service (served by this server) as available."""
    new["status"] = {}
    if (new.get("spec") or {}).get("service") is None:
        new["status"]["conditions"] = [
            {
                "type": "Available",
                "status": "True",
                "lastTransitionTime": new["metadata"]["creationTimestamp"],
                "reason": "Local",
                "message": "Local APIServices are always available",
            }
        ]


def validate_api_service(obj: Object) -> list[Cause]:
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


def _cells(obj: ReadOnlyObject, since: Since) -> list[Any]:
    service = at(obj, "spec", "service")
    available = condition(at(obj, "status", "conditions"), "Available")
    word = "Unknown"
    if available is not None:
        word, reason = available.get("status") or "", available.get("reason") or ""
        if word != "True" and reason:
            word = f"{word} ({reason})"
    local = service is None
    return [
        name_of(obj),
        "Local" if local else f"{service.get('namespace', '')}/{service.get('name', '')}",
        word,
        age_of(obj, since),
    ]


KIND: Final = BuiltinKind(
    resource="apiservices.apiregistration.k8s.io",
    strategy=Strategy(
        repeats_causes=True,
        unconditional_update=False,
        subresources=only_status(api_service_status),
        kube_finalizers=False,
        names="segment",
        prepare_create=prepare_new_api_service,
        validate=validate_api_service,
    ),
    default_values={"apiregistration.v1.ServiceReference": {"port": 443}},
    default_functions={"apiregistration.v1.APIService": default_api_service},
    printer=Printer(
        (
            NAME,
            Column("Service", text="The reference to the service that hosts this API endpoint."),
            Column("Available", text="Whether this service is available."),
            AGE,
        ),
        _cells,
    ),
)
