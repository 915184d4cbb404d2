"""IPAddress: an address of a Service, which nobody else gets.

Source: Kubernetes' ``registry/networking/ipaddress``, ``apis/networking`` and ``pkg/printers/internalversion``.

ServiceCIDR: ranges of addresses for Services.

Source: Kubernetes' ``registry/networking/servicecidr``, ``apis/networking`` and ``pkg/printers/internalversion``.
"""

from __future__ import annotations

from typing import Any, Final

from kubechronicle.api.builtin.common.cell_text import Since
from kubechronicle.api.builtin.common.checks import dns_subdomain, dual_stack, immutable, wrong
from kubechronicle.api.builtin.common.kind import BuiltinKind, only_status
from kubechronicle.api.builtin.common.network_values import canonical_ip, parse_range, strict_cidr
from kubechronicle.api.builtin.common.printer import AGE, NAME, Printer, age_of, at, field_column, name_of
from kubechronicle.api.errors.field_errors import Cause, invalid_value, required
from kubechronicle.api.strategy.strategy import Check, Strategy
from kubechronicle.api.values import names
from kubechronicle.api.values.objects import Object, ReadOnlyObject


def ip_address_name(name: str, prefix: bool) -> list[str]:
    """Check the name of an IPAddress: a canonical address, also before it is generated."""
    return canonical_ip(name)


def validate_ip_address(obj: Object) -> list[Cause]:
    """Check the names of the parent of an IPAddress."""
    reference, field = obj["spec"].get("parentRef") or {}, "spec.parentRef"
    causes = dns_subdomain(reference["group"], f"{field}.group") if reference.get("group") else []
    for member in ("resource", "name", "namespace"):
        value = reference.get(member, "")
        if value:
            causes += wrong(f"{field}.{member}", value, names.path_segment(value))
    return causes


def _cells(obj: ReadOnlyObject, since: Since) -> list[Any]:
    parent = at(obj, "spec", "parentRef")
    text = "<none>"
    if parent is not None:
        resource = ".".join(filter(None, (parent.get("resource"), parent.get("group")))).lower()
        text = "/".join(filter(None, (resource, parent.get("namespace"), parent.get("name"))))
    # Kubernetes adds the age, although the table has no column for it.
    return [name_of(obj), text, age_of(obj, since)]


IPADDRESS: Final = BuiltinKind(
    resource="ipaddresses.networking.k8s.io",
    strategy=Strategy(
        update_checks=(Check.METADATA, Check.OBJECT, Check.METADATA_CHANGE, Check.CHANGE),
        status=False,
        check_name=ip_address_name,
        extends_names=False,
        validate=validate_ip_address,
    ),
    printer=Printer((NAME, field_column("ParentRef", "networking.v1.IPAddressSpec.parentRef")), _cells),
)


def validate_service_cidr(obj: Object) -> list[Cause]:
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


def validate_service_cidr_update(new: Object, old: Object) -> list[Cause]:
    """Reject a changed range; a second one may be added."""
    after, before = new["spec"].get("cidrs") or [], old["spec"].get("cidrs") or []
    grown = len(before) == 1 and len(after) == 2
    if len(before) != len(after) and not grown:
        return immutable("spec.cidrs", new["spec"].get("cidrs"), before)
    causes: list[Cause] = []
    for index, (value, held) in enumerate(zip(after, before, strict=False)):
        causes += immutable(f"spec.cidrs[{index}]", value, held)
    return causes + validate_service_cidr(new) if grown else causes


def _servicecidr_cells(obj: ReadOnlyObject, since: Since) -> list[Any]:
    return [name_of(obj), ",".join(at(obj, "spec", "cidrs", default=())), age_of(obj, since)]


SERVICECIDR: Final = BuiltinKind(
    resource="servicecidrs.networking.k8s.io",
    strategy=Strategy(
        update_checks=(Check.METADATA_CHANGE, Check.CHANGE),
        validate=validate_service_cidr,
        validate_update=validate_service_cidr_update,
        without_gates={"ServiceCIDRStatusFieldWiping": {"status": False}},
        subresources=only_status(),
    ),
    printer=Printer((NAME, field_column("CIDRs", "networking.v1.ServiceCIDRSpec.cidrs"), AGE), _servicecidr_cells),
)

KINDS: Final = (
    IPADDRESS,
    SERVICECIDR,
)
