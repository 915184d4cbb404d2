"""IPAddress: an address of a Service, which nobody else gets.

Source: Kubernetes' ``registry/networking/ipaddress``, ``apis/networking`` and ``pkg/printers/internalversion``.
"""

from __future__ import annotations

from typing import Any, Final

from kubechronicle.api.builtin.common.cell_text import Since
from kubechronicle.api.builtin.common.checks import dns_subdomain, immutable, wrong
from kubechronicle.api.builtin.common.go_shapes import record
from kubechronicle.api.builtin.common.kind import BuiltinKind
from kubechronicle.api.builtin.common.network_values import canonical_ip
from kubechronicle.api.builtin.common.printer import NAME, Printer, age_of, at, field_column, name_of
from kubechronicle.api.errors.field_errors import Cause, required
from kubechronicle.api.strategy.strategy import Check, Strategy
from kubechronicle.api.values import names
from kubechronicle.api.values.objects import Object, ReadOnlyObject


def ip_address_name(name: str, prefix: bool) -> list[str]:
    """Check the name of an IPAddress: a canonical address, also before it is generated."""
    return canonical_ip(name)


def validate_ip_address(obj: Object) -> list[Cause]:
    """Check that an IPAddress has a parent."""
    causes: list[Cause] = []
    reference, field = obj["spec"].get("parentRef"), "spec.parentRef"
    if reference is None:
        return [*causes, required(field)]
    if reference.get("group"):
        causes += dns_subdomain(reference["group"], f"{field}.group")
    for member in ("resource", "name", "namespace"):
        value, path = reference.get(member, ""), f"{field}.{member}"
        if value:
            causes += wrong(path, value, names.path_segment(value))
        elif member != "namespace":
            causes.append(required(path))
    return causes


def validate_ip_address_update(new: Object, old: Object) -> list[Cause]:
    """Reject a changed parent."""
    after, before = new["spec"].get("parentRef"), old["spec"].get("parentRef")
    return [] if after == before else immutable("spec.parentRef", record(after, "ParentReference"), before)


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
        validate_update=validate_ip_address_update,
    ),
    printer=Printer((NAME, field_column("ParentRef", "networking.v1.IPAddressSpec.parentRef")), _cells),
)
