"""Lease: the holder of a lock, with the time of its last renewal.

Source: Kubernetes' ``registry/coordination/lease``, ``apis/coordination`` and ``pkg/printers/internalversion``.

LeaseCandidate: an instance of a component that may become the holder of a Lease (KEP-4355).

Source: Kubernetes' ``registry/coordination/leasecandidate``, ``apis/coordination`` and
``pkg/printers/internalversion``.
"""

from __future__ import annotations

from typing import Any, Final

from kubechronicle.api.builtin.common.cell_text import Since
from kubechronicle.api.builtin.common.checks import immutable, qualified_name
from kubechronicle.api.builtin.common.kind import BuiltinKind
from kubechronicle.api.builtin.common.printer import AGE, NAME, Column, Printer, age_of, at, field_column, name_of
from kubechronicle.api.cel.library.semver import Version, VersionError, parse
from kubechronicle.api.errors.field_errors import Cause, forbidden, invalid_value, not_supported, required
from kubechronicle.api.strategy.gated_fields import GatedField
from kubechronicle.api.strategy.strategy import Check, Strategy
from kubechronicle.api.values.names import config_key
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


LEASE: Final = BuiltinKind(
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


_NONE: Final = Version(0, 0, 0)


def _version(text: str, field: str, causes: list[Cause]) -> Version:
    """Return the version of a text, 0.0.0 if it has none, which is a problem unless the text is empty."""
    try:
        return parse(text) if text else _NONE
    except VersionError:
        causes.append(invalid_value(field, text, "must be a valid semantic version"))
        return _NONE


def validate_candidate(obj: Object) -> list[Cause]:
    """Check the versions and the strategy of a candidate."""
    spec = obj.get("spec") or {}
    causes = [] if spec.get("leaseName") else [required("spec.leaseName")]
    emulated, own = spec.get("emulationVersion", ""), spec.get("binaryVersion", "")
    emulation = _version(emulated, "spec.emulationVersion", causes)
    if not own:
        causes.append(required("spec.binaryVersion"))
    binary = _version(own, "spec.binaryVersion", causes)
    if own and emulated and binary.compare(emulation) < 0:
        causes.append(invalid_value("spec.binaryVersion", own, "must be greater than or equal to `emulationVersion`"))
    strategy = spec.get("strategy", "")
    if not strategy:
        return [*causes, required("spec.strategy")]
    if strategy == OLDEST and emulation == _NONE:
        text = f"must be specified when `strategy` is '{OLDEST}'"
        causes.append(required("spec.emulationVersion", text))
    return causes + coordinated_strategy(strategy)


def _same_lease(new: Object, old: Object) -> list[Cause]:
    names = [(each.get("spec") or {}).get("leaseName", "") for each in (new, old)]
    return immutable("spec.leaseName", *names)


def _name(name: str, prefix: bool) -> list[str]:
    return config_key(name)


def _leasecandidate_cells(obj: ReadOnlyObject, since: Since) -> list[Any]:
    shown = [at(obj, "spec", name, default="") for name in ("leaseName", "binaryVersion", "emulationVersion")]
    return [name_of(obj), *shown, age_of(obj, since)]


LEASECANDIDATE: Final = BuiltinKind(
    resource="leasecandidates.coordination.k8s.io",
    strategy=Strategy(
        check_name=_name,
        update_checks=(Check.METADATA_CHANGE, Check.OBJECT, Check.CHANGE),
        status=False,
        kube_finalizers=False,
        create_on_update=True,
        unconditional_update=False,
        validate=validate_candidate,
        validate_update=_same_lease,
    ),
    printer=Printer(
        (
            NAME,
            field_column("LeaseName", "coordination.v1alpha2.LeaseCandidateSpec.leaseName"),
            Column("BinaryVersion"),
            Column("EmulationVersion"),
            AGE,
        ),
        _leasecandidate_cells,
    ),
)

KINDS: Final = (
    LEASE,
    LEASECANDIDATE,
)
