"""Warnings about Endpoints, ServiceAccounts and Secrets."""

from __future__ import annotations

from typing import Final

from kubechronicle.api.builtin.common.network_values import ip_warnings
from kubechronicle.api.values.key_pairs import pair_problem
from kubechronicle.api.values.objects import Object

_MANAGED_BY: Final = "endpoints.kubernetes.io/managed-by"
_ENDPOINTS_CONTROLLER: Final = "endpoint-controller"
_MOUNTABLE: Final = "kubernetes.io/enforce-mountable-secrets"
_OLD_MOUNTABLE: Final = (
    f"metadata.annotations[{_MOUNTABLE}]: deprecated in v1.32+; "
    "prefer separate namespaces to isolate access to mounted secrets"
)


def endpoints_warnings(new: Object, old: Object | None) -> list[str]:
    """Return warnings about addresses not in canonical form, except in the endpoints controller's objects."""
    if (new["metadata"].get("labels") or {}).get(_MANAGED_BY) == _ENDPOINTS_CONTROLLER:
        return []
    warnings: list[str] = []
    for index, subset in enumerate(new.get("subsets") or ()):
        for member in ("addresses", "notReadyAddresses"):
            for position, address in enumerate(subset.get(member) or ()):
                warnings += ip_warnings(address.get("ip", ""), f"subsets[{index}].{member}[{position}].ip")
    return warnings


def service_account_warnings(new: Object, old: Object | None) -> list[str]:
    """Return a warning about the deprecated mountable secrets annotation if it is new."""
    before = (old["metadata"].get("annotations") or {}) if old is not None else {}
    noted = _MOUNTABLE in (new["metadata"].get("annotations") or ()) and _MOUNTABLE not in before
    return [_OLD_MOUNTABLE] if noted else []


def secret_warnings(new: Object, old: Object | None) -> list[str]:
    """Return a warning if a server cannot use the certificate and the key of a TLS Secret together."""
    if new.get("type") != "kubernetes.io/tls":
        return []
    data = new.get("data") or {}
    problem = pair_problem(data.get("tls.crt", ""), data.get("tls.key", ""))
    return [problem] if problem else []
