"""Feature gates: those of v1.36 are known, one is built, others warn, and locked or unknown ones are refused."""

from __future__ import annotations

import re

import pytest

from kubechronicle.ops.development.differential import reference
from kubechronicle.ops.settings import feature_gates
from kubechronicle.ops.settings.feature_gates import LOCKED_OFF, LOCKED_ON, OFF, ON, enabled

BUILT = "ManifestBasedAdmissionControlConfig"


def test_values() -> None:
    assert enabled(((BUILT, "true"),)) == (frozenset({BUILT}), [])
    assert enabled(((f"kube:{BUILT}", "T"), (BUILT, "false"))) == (frozenset(), [])
    assert enabled((("WatchList", "true"), ("SidecarContainers", "1"))) == (frozenset(), [])
    on, warnings = enabled((("HPAScaleToZero", "true"), ("WatchList", "false")))
    assert on == frozenset()
    assert warnings == [
        "--feature-gates: HPAScaleToZero has no switch here; the feature is off, as v1.36 has it",
        "--feature-gates: WatchList has no switch here; the feature is on, as v1.36 has it",
    ]


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("Foo", "true", "unrecognized feature gate: Foo"),
        ("WatchList", "yes", 'invalid value of WatchList=yes, err: strconv.ParseBool: parsing "yes": invalid syntax'),
        ("SidecarContainers", "false", "cannot set feature gate SidecarContainers to false, feature is locked to true"),
    ],
)
def test_refused_gates(name: str, value: str, message: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        enabled(((name, value),))


def test_stages_are_those_of_the_metric() -> None:
    assert feature_gates.stage("ManifestBasedAdmissionControlConfig") == "ALPHA"
    assert feature_gates.stage("SELinuxMount") == feature_gates.stage("WatchList") == "BETA"
    assert feature_gates.stage("DynamicResourceAllocation") == feature_gates.stage("MutatingAdmissionPolicy") == ""
    assert feature_gates.stage("KMSv1") == feature_gates.stage("StorageNamespaceIndex") == "DEPRECATED"


def test_the_table() -> None:
    groups = (ON, OFF, LOCKED_ON, LOCKED_OFF)
    assert sum(map(len, groups)) == len(frozenset().union(*groups))
    assert feature_gates.BUILT <= OFF
    program = reference.CACHE / "kube-apiserver"
    if not program.is_file():
        pytest.skip("kube-apiserver has not been built; `make differential` does that")
    listed = re.findall(r"kube:(\w+)=true\|false \(\w+ - default=(\w+)\)", reference.output_of(program, "--help"))
    wrong = [
        name for name, default in listed if name not in (ON | LOCKED_ON if default == "true" else OFF | LOCKED_OFF)
    ]
    assert len(listed) > 100
    assert wrong == []
