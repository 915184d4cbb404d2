"""The report of ``make kinds``: every stable kind of the served minor has a resource."""

from __future__ import annotations

from kubechronicle.api import kinds
from kubechronicle.api.kinds import reading
from kubechronicle.ops.development.kinds import report


def test_every_stable_kind_is_served() -> None:
    assert list(report.unserved(kinds.SERVED, stable=True)) == []


def test_kinds_of_the_next_minor_are_named() -> None:
    found = list(report.unserved("1.37"))
    assert "storagemigration.k8s.io/v1 StorageVersionMigration" in found or kinds.SERVED == "1.37"
    assert not any(line.endswith(("Options", "List")) for line in found)


def test_gates_that_a_minor_has_no_more_are_named() -> None:
    assert report.gone_gates(kinds.SERVED) == []
    assert "EvictionRequestAPI" in report.gone_gates("1.36")  # it came later, which shows the same


def test_exceptions_are_needed() -> None:
    release = reading.release()
    groups = {package.group for package in release.group_versions.values()}
    assert groups >= report.NEVER_RESOURCES.keys()
    assert {declared.full_name for declared in release.kinds.values()} >= report.NO_RESOURCES.keys()
