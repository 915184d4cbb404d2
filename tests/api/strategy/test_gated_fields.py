"""Fields that feature gates switch: the table names gates and published fields, and a write loses disabled fields."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest

from kubechronicle.api.builtin.gated_fields import TABLE
from kubechronicle.api.builtin.strategies import KindRules, default_rules
from kubechronicle.api.features.gates import FeatureGates, gates_of
from kubechronicle.api.features.versions import OLDEST, PROGRAM, EffectiveVersion, effective_version
from kubechronicle.api.registry.registry import known_registry
from kubechronicle.api.schema import types
from kubechronicle.api.strategy.gated_fields import DisabledFields, GatedField

FIELDS = [(resource, sub, field) for (resource, sub), fields in TABLE.items() for field in fields]
OLDEST_VERSION = effective_version([str(PROGRAM.before(OLDEST))], [])


@pytest.mark.parametrize(("resource", "sub", "field"), FIELDS, ids=lambda each: getattr(each, "gate", each) or "-")
def test_the_table_names_published_fields(resource: str, sub: str, field: GatedField) -> None:
    rt = known_registry().storage(resource)
    assert rt is not None
    assert not sub or sub in rt.subresources
    for text in (*field.fields, *field.used_by):
        for path in expanded(f"{field.base}.{text}".strip(".")):
            kind: types.Type = types.object_type(rt.definition)
            for name in path:
                while not isinstance(kind, types.ObjectType):
                    kind = kind.item if isinstance(kind, types.ListType) else kind.value  # type: ignore[attr-defined]
                assert name in kind.fields, (text, name)
                kind = kind.fields[name].type


def expanded(text: str) -> list[list[str]]:
    """Return the names of the fields on each path that a text stands for."""
    paths: list[list[str]] = [[]]
    for part in text.replace("!", "").replace("[]", "").replace("{}", "").split("."):
        paths = [[*path, name] for path in paths for name in part.strip("()").split("|")]
    return paths


def test_each_gate_can_be_off() -> None:
    """A gate that is locked to on in every version is no gate of a field."""
    for _, _, field in FIELDS:
        for name in (field.gate, *field.gates):
            gate = gates_of(PROGRAM)[name]
            emulated = [effective_version([str(PROGRAM.before(minors))], []) for minors in range(OLDEST + 1)]
            assert any(not (spec.locked and spec.default) for spec in map(gate.at, emulated)), name


def pod(**spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": "a"}, "spec": {"containers": [{"name": "c"}], **spec}}


def dropped(rules: KindRules, new: dict[str, Any], old: dict[str, Any] | None = None) -> dict[str, Any]:
    rules.drop("pods", "", new, old)
    spec: dict[str, Any] = new["spec"]
    return spec


def test_a_creation_loses_the_fields_of_gates_that_are_off() -> None:
    spec = dropped(default_rules(), pod(schedulingGroup={"podGroupName": "g"}, hostnameOverride="h"))
    assert spec == {"containers": [{"name": "c"}], "hostnameOverride": "h"}
    rules = KindRules(FeatureGates(given={"GenericWorkload": True, "HostnameOverride": False}))
    spec = dropped(rules, pod(schedulingGroup={"podGroupName": "g"}, hostnameOverride="h"))
    assert spec == {"containers": [{"name": "c"}], "schedulingGroup": {"podGroupName": "g"}}


def test_an_update_keeps_what_the_old_object_uses() -> None:
    old = pod(schedulingGroup={"podGroupName": "g"})
    assert "schedulingGroup" in dropped(default_rules(), deepcopy(old), old)
    assert "schedulingGroup" not in dropped(default_rules(), deepcopy(old), pod())


def test_an_empty_part_goes_with_its_last_field() -> None:
    stopped = {"stopSignal": "SIGTERM"}
    hook = {"preStop": {"exec": {"command": ["x"]}}}
    spec = dropped(default_rules(), pod(containers=[{"lifecycle": stopped}, {"lifecycle": {**stopped, **hook}}]))
    assert spec["containers"] == [{}, {"lifecycle": hook}]


def test_image_volumes_go_with_their_mounts_under_an_older_version() -> None:
    given = pod(
        volumes=[{"name": "i", "image": {"reference": "r"}}, {"name": "e", "emptyDir": {}}],
        containers=[{"name": "c", "volumeMounts": [{"name": "i"}, {"name": "e"}]}],
    )
    older = KindRules(FeatureGates(OLDEST_VERSION))
    assert "image" in dropped(default_rules(), deepcopy(given))["volumes"][0]
    assert dropped(older, deepcopy(given), given) == given["spec"]
    assert dropped(older, given) == {
        "volumes": [{"name": "e", "emptyDir": {}}],
        "containers": [{"name": "c", "volumeMounts": [{"name": "e"}]}],
    }


def test_values_that_older_versions_have_stay() -> None:
    older = KindRules(FeatureGates(OLDEST_VERSION))
    spec = dropped(older, pod(initContainers=[{"restartPolicy": "Always"}, {"restartPolicy": "Never"}]))
    assert spec["initContainers"] == [{"restartPolicy": "Always"}, {}]
    masked = KindRules(FeatureGates(OLDEST_VERSION, {"ProcMountType": False, "UserNamespacesSupport": False}))
    spec = dropped(masked, pod(containers=[{"securityContext": {"procMount": "Unmasked"}}]))
    assert spec["containers"] == [{"securityContext": {"procMount": "Default"}}]


def test_a_template_loses_the_fields_of_its_pods() -> None:
    job = {"spec": {"template": {"spec": pod(schedulingGroup={})["spec"]}, "managedBy": "x"}}
    default_rules().drop("jobs.batch", "", job, None)
    assert job == {"spec": {"template": {"spec": pod()["spec"]}, "managedBy": "x"}}


def test_several_gates_must_be_on() -> None:
    field = GatedField(gate="WatchList", gates=("HPAScaleToZero",), fields=("a.b",))
    for given, left in (({}, {}), ({"HPAScaleToZero": True}, {"b": 1}), ({"WatchList": False}, {})):
        obj = {"a": {"b": 1}}
        DisabledFields(FeatureGates(given=given), {("x", ""): (field,)}).drop("x", "", obj, None)
        assert obj == {"a": left}


def test_only_a_creation_loses_some_fields() -> None:
    field = GatedField(gate="HPAScaleToZero", fields=("a",), on_create=True)
    disabled = DisabledFields(FeatureGates(), {("x", ""): (field,)})
    new, changed = {"a": 1}, {"a": 1}
    disabled.drop("x", "", new, None)
    disabled.drop("x", "", changed, {})
    assert (new, changed) == ({}, {"a": 1})


def test_every_version_has_rules() -> None:
    for minors in range(OLDEST + 1):
        release = PROGRAM.before(minors)
        versions = EffectiveVersion(binary=PROGRAM, emulation=release, compatibility=release)
        assert KindRules(FeatureGates(versions)).of("pods").graceful
