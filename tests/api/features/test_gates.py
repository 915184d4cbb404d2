"""Feature gates: states by version, AllAlpha and AllBeta, locks, dependencies, and refusals."""

from __future__ import annotations

import re

import pytest

from kubechronicle.api.features.gates import (
    ALL,
    DEFAULT,
    EffectiveVersion,
    FeatureGates,
    Release,
    effective_version,
    gates_of,
    parse,
)
from kubechronicle.ops.development.differential import reference

DATA = [Release(1, 36), Release(1, 37)]


def test_defaults_are_those_of_the_emulated_version() -> None:
    states = {}
    for minor in range(34, 38):
        gates = FeatureGates(effective_version([f"1.{minor}"], []))
        spec = gates.spec("MutatingAdmissionPolicy")
        states[minor] = (spec.stage, gates.enabled("MutatingAdmissionPolicy"))
    assert states == {34: ("BETA", False), 35: ("BETA", False), 36: ("", True), 37: ("", True)}


def test_gates_of_a_later_version_are_off_and_not_shown() -> None:
    gates = FeatureGates(effective_version(["1.34"], []))
    assert not gates.enabled("ShardedListAndWatch")
    assert "ShardedListAndWatch" not in {name for name, _, _ in gates.shown()}
    message = (
        "cannot set feature gate ShardedListAndWatch to true, feature is PreAlpha at emulated version 1.34, "
        "min compatibility version 1.34"
    )
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        FeatureGates(effective_version(["1.34"], []), {"ShardedListAndWatch": True})


def test_a_state_may_need_a_compatibility_version() -> None:
    newest = {"binary": Release(1, 37), "emulation": Release(1, 37)}
    for compatibility, on in ((Release(1, 36), False), (Release(1, 37), True)):
        gates = FeatureGates(EffectiveVersion(**newest, compatibility=compatibility))
        assert gates.enabled("DRAFractionalCapacityRange") is on


def test_all_gates_of_a_stage() -> None:
    needs = {name for gate in gates_of(DATA[0]).values() if gate.at(DEFAULT).stage == "BETA" for name in gate.needs}
    alpha = FeatureGates(given={"AllAlpha": True, "AllBeta": True, "DefaultPodSysctls": False})
    assert {name for name, stage, on in alpha.shown() if stage in ("ALPHA", "BETA") and not on} == {"DefaultPodSysctls"}
    assert not alpha.enabled("KMSv1")  # deprecated
    assert needs  # so that switching all beta gates off meets dependencies
    beta = FeatureGates(given={"AllBeta": False})
    assert {name for name, stage, on in beta.shown() if stage == "BETA" and on} == set()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"Foo": True}, "unrecognized feature gate: Foo"),
        ({"HostnameOverride": False}, "cannot set feature gate HostnameOverride to false, feature is locked to true"),
        (
            {"WorkloadWithJob": True},
            "WorkloadWithJob is enabled, but depends on features that are disabled: [GenericWorkload]",
        ),
        (
            {"HostnameOverride": False, "GitRepoVolumeDriver": True},
            "[cannot set feature gate HostnameOverride to false, feature is locked to true, "
            "cannot set feature gate GitRepoVolumeDriver to true, feature is locked to false]",
        ),
    ],
)
def test_refused_choices(given: dict[str, bool], message: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        FeatureGates(given=given)


def test_texts() -> None:
    assert parse((("kube:WatchList", "T"), ("kube:KMSv1", "0"))) == {"WatchList": True, "KMSv1": False}
    for pairs, message in (
        ((("WatchList", "yes"),), 'invalid value of WatchList=yes, err: strconv.ParseBool: parsing "yes": '),
        ((("WatchList", ""),), "missing bool value for WatchList"),
        ((("wardle:A", "true"),), "component not registered: wardle"),
        ((("kube:A", "true"), ("B", "true")), "set kube feature gates with default empty prefix or kube: prefix"),
    ):
        with pytest.raises(ValueError, match=f"^{re.escape(message)}"):
            parse(pairs)


@pytest.mark.parametrize("release", DATA, ids=str)
def test_the_data(release: Release) -> None:
    gates = gates_of(release)
    assert len(gates) > 200
    assert ALL.keys() <= gates.keys()
    for gate in gates.values():
        assert set(gate.needs) <= gates.keys(), gate
        assert list(gate.specs) == sorted(gate.specs, key=lambda spec: spec.version), gate
    FeatureGates(EffectiveVersion(binary=release, emulation=release, compatibility=release.before(1)))


def test_the_data_are_those_of_the_program() -> None:
    program = reference.CACHE / "kube-apiserver"
    if not program.is_file():
        pytest.skip("kube-apiserver has not been built; `make differential` does that")
    help_text = reference.output_of(program, "--help")
    listed = set(re.findall(r"kube:(\w+)=true\|false \((\w+) - default=(\w+)\)", help_text))
    shown = {(name, stage, str(on).lower()) for name, stage, on in FeatureGates().shown()}
    assert len(listed) > 100
    assert listed == {each for each in shown if each[1] in ("ALPHA", "BETA")}
