"""LeaseCandidate: an instance of a component that may become the holder of a Lease (KEP-4355).

Source: Kubernetes' ``registry/coordination/leasecandidate``, ``apis/coordination`` and
``pkg/printers/internalversion``.
"""

from __future__ import annotations

from typing import Any, Final

from kubechronicle.api.builtin.common.cell_text import Since
from kubechronicle.api.builtin.common.checks import immutable
from kubechronicle.api.builtin.common.kind import BuiltinKind
from kubechronicle.api.builtin.common.printer import AGE, NAME, Column, Printer, age_of, at, field_column, name_of
from kubechronicle.api.builtin.coordination.lease import OLDEST, coordinated_strategy
from kubechronicle.api.cel.library.semver import Version, VersionError, parse
from kubechronicle.api.errors.field_errors import Cause, invalid_value, required
from kubechronicle.api.strategy.strategy import Check, Strategy
from kubechronicle.api.values.names import config_key
from kubechronicle.api.values.objects import Object, ReadOnlyObject

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


def _cells(obj: ReadOnlyObject, since: Since) -> list[Any]:
    shown = [at(obj, "spec", name, default="") for name in ("leaseName", "binaryVersion", "emulationVersion")]
    return [name_of(obj), *shown, age_of(obj, since)]


KIND: Final = BuiltinKind(
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
        _cells,
    ),
)
