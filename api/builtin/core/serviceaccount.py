"""ServiceAccount: an identity for pods.

Source: Kubernetes' ``registry/core/serviceaccount``, ``apis/core`` and ``pkg/printers/internalversion``.
"""

from __future__ import annotations

from typing import Final

from kubechronicle.api.builtin.common.kind import BuiltinKind
from kubechronicle.api.builtin.common.printer import AGE, NAME, Printer, aged
from kubechronicle.api.strategy.strategy import Strategy
from kubechronicle.api.values.objects import Object


def keep_names_of_secrets(new: Object) -> None:
    """Reduce the references of a service account to the names of its secrets."""
    if new.get("secrets"):
        new["secrets"] = [{"name": each["name"]} if each.get("name") else {} for each in new["secrets"]]


_MOUNTABLE: Final = "kubernetes.io/enforce-mountable-secrets"
_OLD_MOUNTABLE: Final = (
    f"metadata.annotations[{_MOUNTABLE}]: deprecated in v1.32+; "
    "prefer separate namespaces to isolate access to mounted secrets"
)


def service_account_warnings(new: Object, old: Object | None) -> list[str]:
    """Return a warning about the deprecated mountable secrets annotation if it is new."""
    before = (old["metadata"].get("annotations") or {}) if old is not None else {}
    noted = _MOUNTABLE in (new["metadata"].get("annotations") or ()) and _MOUNTABLE not in before
    return [_OLD_MOUNTABLE] if noted else []


KIND: Final = BuiltinKind(
    resource="serviceaccounts",
    strategy=Strategy(
        status=False,
        returns_deleted=True,
        prepare_create=keep_names_of_secrets,
        prepare_update=lambda new, old: keep_names_of_secrets(new),
        warnings=service_account_warnings,
    ),
    printer=Printer((NAME, AGE), aged),
)
