"""Request options."""

from __future__ import annotations

import pytest

from kubechronicle.api.errors.status import StatusError
from kubechronicle.api.meta.list_options import parse_list_options
from kubechronicle.api.meta.options import parse_delete_options, parse_get_options


def test_a_deletion_never_ignores_errors_of_the_store() -> None:
    """The feature gate of kube-apiserver is off, so the option has no effect and conflicts with no other."""
    name = "ignoreStoreReadErrorWithClusterBreakingPotential"
    plain = parse_delete_options({"gracePeriodSeconds": ["3"]})
    assert parse_delete_options({"gracePeriodSeconds": ["3"], name: ["true"]}) == plain
    assert parse_delete_options({}, {"gracePeriodSeconds": 3, name: True}) == plain


def test_a_watch_without_the_gate_watch_list() -> None:
    options = parse_list_options({"watch": ["true"]}, watch_list=False)
    assert options.send_initial_events is None
    query = {"watch": ["true"], "sendInitialEvents": ["true"], "resourceVersionMatch": ["NotOlderThan"]}
    with pytest.raises(StatusError, match="sendInitialEvents is forbidden for watch unless the WatchList feature gate"):
        parse_list_options(query, watch_list=False)


def test_a_get_may_not_export() -> None:
    for value in ("true", "1", ""):
        with pytest.raises(StatusError, match="no longer supported"):
            parse_get_options({"export": [value]})
    for value in ("false", "0"):
        parse_get_options({"export": [value]})
