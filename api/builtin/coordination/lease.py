"""Lease: the holder of a lock, with the time of its last renewal.

Source: Kubernetes' ``registry/coordination/lease``, ``apis/coordination`` and ``pkg/printers/internalversion``.
"""

from __future__ import annotations

from typing import Any, Final

from kubechronicle.api.builtin.common.cell_text import Since
from kubechronicle.api.builtin.common.checks import qualified_name
from kubechronicle.api.builtin.common.kind import BuiltinKind
from kubechronicle.api.builtin.common.printer import AGE, NAME, Printer, age_of, at, field_column, name_of
from kubechronicle.api.errors.field_errors import Cause, forbidden, invalid_value, not_supported
from kubechronicle.api.strategy.gated_fields import GatedField
from kubechronicle.api.strategy.strategy import Check, Strategy
from kubechronicle.api.values.objects import Object, ReadOnlyObject

OLDEST: Final = "OldestEmulationVersion"
"""Kubernetes' own strategy of coordinated election: the candidate of the oldest version becomes the holder."""


def coordinated_strategy(strategy: str) -> list[Cause]:
    """Check the name of a strategy: Kubernetes' own, or one with a domain."""
    field = "spec.strategy.strategy"  # Kubernetes' path
    if "/" in strategy:
        return qualified_name(strategy, field)
    return [] if strategy == OLDEST else [not_supported(field, strategy, (OLDEST,))]


def validate_lease(obj: Object) -> list[Cause]:
    """Check that the duration is positive and the number of transitions is not negative; and the strategy."""
    spec = obj.get("spec") or {}
    causes: list[Cause] = []
    duration = spec.get("leaseDurationSeconds")
    if duration is not None and duration <= 0:
        causes.append(invalid_value("spec.leaseDurationSeconds", duration, "must be greater than 0"))
    transitions = spec.get("leaseTransitions")
    if transitions is not None and transitions < 0:
        causes.append(invalid_value("spec.leaseTransitions", transitions, "must be greater than or equal to 0"))
    strategy = spec.get("strategy")
    if strategy is not None:
        causes += coordinated_strategy(strategy)
    if spec.get("preferredHolder") and not strategy:
        causes.append(forbidden("spec.preferredHolder", "may only be specified if `strategy` is defined"))
    return causes


def _cells(obj: ReadOnlyObject, since: Since) -> list[Any]:
    return [name_of(obj), at(obj, "spec", "holderIdentity", default=""), age_of(obj, since)]


KIND: Final = BuiltinKind(
    resource="leases.coordination.k8s.io",
    strategy=Strategy(
        update_checks=(Check.METADATA_CHANGE, Check.OBJECT, Check.CHANGE),
        status=False,
        kube_finalizers=False,
        create_on_update=True,
        unconditional_update=False,
        validate=validate_lease,
    ),
    gated_fields={
        "": (
            GatedField(gate="CoordinatedLeaderElection", fields=("spec.strategy",)),
            GatedField(gate="CoordinatedLeaderElection", fields=("spec.preferredHolder",)),
        ),
    },
    printer=Printer((NAME, field_column("Holder", "coordination.v1.LeaseSpec.holderIdentity"), AGE), _cells),
)
