"""The emulated version and the feature gates from settings: one line for each refusal, and warnings."""

from __future__ import annotations

import logging
import re

import pytest

from kubechronicle.ops.errors import OperatorError
from kubechronicle.ops.settings.feature_gates import feature_gates, warn_of_gates
from kubechronicle.ops.settings.settings import load

SAME = "cannot be set to true if the emulation version is the same as the binary version"


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({"emulated-version": "x"}, '--emulated-version: could not parse "x" as version'),
        ({"emulated-version": "1.33"}, "--emulated-version: emulation version 1.33 is not between [1.34, 1.37.0]"),
        (
            {"min-compatibility-version": "1.38"},
            "--min-compatibility-version: minCompatibilityVersion version 1.38 is not between [1.34, 1.37]",
        ),
        ({"min-compatibility-version": "1"}, '--min-compatibility-version: illegal version string "1"'),
        ({"emulation-forward-compatible": True}, f"--emulation-forward-compatible: {SAME}"),
        (
            {"runtime-config-emulation-forward-compatible": True},
            f"--runtime-config-emulation-forward-compatible: {SAME}",
        ),
        ({"feature-gates": "Foo=true"}, "--feature-gates: unrecognized feature gate: Foo"),
        ({"feature-gates": "WatchList"}, "--feature-gates: missing bool value for WatchList"),
    ],
)
def test_refusals(flags: dict[str, object], message: str) -> None:
    with pytest.raises(OperatorError, match=f"^{re.escape(message)}$"):
        feature_gates(load(flags, environment={}))


def test_gates_of_an_emulated_version() -> None:
    gates = feature_gates(load({"emulated-version": "kube=1.34", "feature-gates": "HPAScaleToZero=true"}))
    assert str(gates.versions.compatibility) == "1.34"
    assert gates.enabled("HPAScaleToZero")
    assert not gates.enabled("MutatingAdmissionPolicy")


def test_gates_that_change_nothing_here(caplog: pytest.LogCaptureFixture) -> None:
    settings = load({"feature-gates": "AllAlpha=false,EventedPLEG=true,ManifestBasedAdmissionControlConfig=true"})
    with caplog.at_level(logging.WARNING):
        warn_of_gates(settings, feature_gates(settings))
    assert [record.getMessage() for record in caplog.records] == ["--feature-gates: EventedPLEG changes nothing here"]
