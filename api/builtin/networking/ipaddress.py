"""IPAddress: an address of a Service, which nobody else gets.

Source: Kubernetes' ``registry/networking/ipaddress``, ``apis/networking`` and ``pkg/printers/internalversion``.
"""

from __future__ import annotations

from typing import Any, Final

from kubechronicle.api.builtin.common.cell_text import Since
from kubechronicle.api.builtin.common.checks import dns_subdomain, wrong
from kubechronicle.api.builtin.common.kind import BuiltinKind
from kubechronicle.api.builtin.common.network_values import canonical_ip
from kubechronicle.api.builtin.common.printer import NAME, Printer, age_of, at, field_column, name_of
from kubechronicle.api.errors.field_errors import Cause
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


KIND: Final = BuiltinKind(
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
