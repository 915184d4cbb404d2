"""Request options."""

from __future__ import annotations

from kubechronicle.api.meta.options import parse_delete_options


def test_a_deletion_never_ignores_errors_of_the_store() -> None:
    """The feature gate of kube-apiserver is off, so the option has no effect and conflicts with no other."""
    name = "ignoreStoreReadErrorWithClusterBreakingPotential"
    plain = parse_delete_options({"gracePeriodSeconds": ["3"]})
    assert parse_delete_options({"gracePeriodSeconds": ["3"], name: ["true"]}) == plain
    assert parse_delete_options({}, {"gracePeriodSeconds": 3, name: True}) == plain
