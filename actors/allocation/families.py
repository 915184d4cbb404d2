"""IP families of a Service. Pure; after Kubernetes' ``registry/core/service/storage`` (order of checks, messages) and
KEP-563.

    default                    SingleStack, the cluster's first family
    PreferDualStack            both families if the cluster has both
    headless, no selector      RequireDualStack on any cluster: its endpoints are not known
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from kubechronicle.api.builtin.common.checks import parse_ip
from kubechronicle.api.builtin.common.network_values import staying_valid
from kubechronicle.api.builtin.core.service import needs_address
from kubechronicle.api.builtin.core.service_validation import cluster_ips
from kubechronicle.api.errors import status
from kubechronicle.api.errors.field_errors import Cause, invalid_value
from kubechronicle.api.schema.named_texts import print_by_type
from kubechronicle.api.schema.types import object_type
from kubechronicle.api.values.objects import Object

NONE: Final = "None"
SINGLE, PREFER, REQUIRE = "SingleStack", "PreferDualStack", "RequireDualStack"
WITH_ADDRESS: Final = ("ClusterIP", "NodePort", "LoadBalancer")


def is_headless(spec: Object) -> bool:
    return bool((spec.get("clusterIPs") or [""])[0] == NONE)


def invalid(name: str, causes: Sequence[Cause]) -> status.StatusError:
    print_by_type(causes, object_type("io.k8s.api.core.v1.Service"))
    return status.invalid("", "Service", name, causes)


def stays_dual_if_possible(spec: Object, held: Object | None) -> bool:
    """Return True for a PreferDualStack Service whose update leaves type, addresses and families unchanged.

    It stays as it is, even if the cluster's families have changed.
    """
    return (
        held is not None
        and spec.get("type") == held.get("type")
        and spec.get("type") in WITH_ADDRESS
        and spec.get("ipFamilyPolicy") == PREFER
        and held.get("ipFamilyPolicy") in (PREFER, None)
        and _same(spec, held, "clusterIPs")
        and _same(spec, held, "ipFamilies")
    )


def complete_families(
    name: str, spec: Object, held: Object | None, configured: Sequence[str], *, strict: bool = True
) -> None:
    """Fill in ipFamilyPolicy and ipFamilies. StatusError 422.

    ``configured``: the families of the cluster, the default first.
    """
    if not needs_address(spec) or stays_dual_if_possible(spec, held):
        return
    unselective = spec.get("clusterIP") == NONE and not spec.get("selector")
    if spec.get("ipFamilyPolicy") is None:
        old_policy = (held or {}).get("ipFamilyPolicy")
        spec["ipFamilyPolicy"] = old_policy or (REQUIRE if unselective else SINGLE)
    causes = cluster_ips(spec, staying_valid((held or {}).get("clusterIPs") or (), strict=strict))
    if not causes:
        causes = _reductions(spec, held) if held is not None else []
        causes += _too_many(spec)
        causes += _infer_families(spec, configured)
    if causes:
        raise invalid(name, causes)
    families = spec.get("ipFamilies") or []
    if unselective:
        families = families or [configured[0]]
        spec["ipFamilies"] = families if spec["ipFamilyPolicy"] == SINGLE else _both(families)
        return
    causes = _not_configured(spec, families, configured)
    if causes:
        raise invalid(name, causes)
    families = families or [configured[0]]
    dual = spec["ipFamilyPolicy"] != SINGLE and len(configured) == 2
    spec["ipFamilies"] = _both(families) if dual else families


def _same(spec: Object, held: Object, name: str) -> bool:
    return (spec.get(name) or []) == (held.get(name) or [])


def _both(families: list[str]) -> list[str]:
    if len(families) != 1:
        return families
    return [*families, "IPv6" if families[0] == "IPv4" else "IPv4"]


def _reductions(spec: Object, held: Object) -> list[Cause]:
    """Drop the second address and family for SingleStack; reject leaving them out under another policy."""
    if spec.get("ipFamilyPolicy") == SINGLE:
        for name in ("clusterIPs", "ipFamilies"):
            if _same(spec, held, name) and len(spec.get(name) or ()) > 1:
                spec[name] = spec[name][:1]
        return []
    causes = []
    for name, noun in (("clusterIPs", "cluster IP"), ("ipFamilies", "IP family")):
        if 0 < len(spec.get(name) or ()) < len(held.get(name) or ()):
            detail = f"must be 'SingleStack' to release the secondary {noun}"
            causes.append(invalid_value("spec.ipFamilyPolicy", spec.get("ipFamilyPolicy"), detail))
    return causes


def _too_many(spec: Object) -> list[Cause]:
    if spec.get("ipFamilyPolicy") != SINGLE:
        return []
    causes = []
    for name, noun in (("clusterIPs", "cluster IPs"), ("ipFamilies", "IP families")):
        if len(spec.get(name) or ()) == 2:
            detail = f"must be 'RequireDualStack' or 'PreferDualStack' when multiple {noun} are specified"
            causes.append(invalid_value("spec.ipFamilyPolicy", SINGLE, detail))
    return causes


def _infer_families(spec: Object, configured: Sequence[str]) -> list[Cause]:
    """Complete ipFamilies from the addresses."""
    addresses, causes = spec.get("clusterIPs") or [], []
    families = list(spec.get("ipFamilies") or [])
    for index, text in enumerate(addresses):
        if text == NONE:
            break
        if index < len(families):
            continue
        address = parse_ip(text)
        family = f"IPv{address.version}" if address is not None else ""
        if family in configured:
            families.append(family)
        else:
            detail = f"{family} is not configured on this cluster"
            causes.append(invalid_value(f"spec.clusterIPs[{index}]", addresses, detail))
    if families:
        spec["ipFamilies"] = families
    return causes


def _not_configured(spec: Object, families: Sequence[str], configured: Sequence[str]) -> list[Cause]:
    causes = []
    if spec["ipFamilyPolicy"] == REQUIRE and len(configured) < 2:
        detail = "this cluster is not configured for dual-stack services"
        causes.append(invalid_value("spec.ipFamilyPolicy", REQUIRE, detail))
    return causes + [
        invalid_value(f"spec.ipFamilies[{index}]", family, "not configured on this cluster")
        for index, family in enumerate(families)
        if family not in configured
    ]
