"""ServiceCIDR: ranges of addresses for Services.

Source: Kubernetes' ``registry/networking/servicecidr``, ``apis/networking`` and ``pkg/printers/internalversion``.
"""

from __future__ import annotations

from typing import Any, Final

from kubechronicle.api.builtin.common.cell_text import Since
from kubechronicle.api.builtin.common.checks import dual_stack, immutable
from kubechronicle.api.builtin.common.kind import BuiltinKind, only_status
from kubechronicle.api.builtin.common.network_values import parse_range, strict_cidr
from kubechronicle.api.builtin.common.printer import AGE, NAME, Printer, age_of, at, field_column, name_of
from kubechronicle.api.errors.field_errors import Cause, invalid_value, required
from kubechronicle.api.strategy.strategy import Check, Strategy
from kubechronicle.api.values.objects import Object, ReadOnlyObject


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


def _cells(obj: ReadOnlyObject, since: Since) -> list[Any]:
    return [name_of(obj), ",".join(at(obj, "spec", "cidrs", default=())), age_of(obj, since)]


KIND: Final = BuiltinKind(
    resource="servicecidrs.networking.k8s.io",
    strategy=Strategy(
        update_checks=(Check.METADATA_CHANGE, Check.CHANGE),
        validate=validate_service_cidr,
        validate_update=validate_service_cidr_update,
        without_gates={"ServiceCIDRStatusFieldWiping": {"status": False}},
        subresources=only_status(),
    ),
    printer=Printer((NAME, field_column("CIDRs", "networking.v1.ServiceCIDRSpec.cidrs"), AGE), _cells),
)
