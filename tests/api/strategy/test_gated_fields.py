"""Fields that feature gates switch: the table names gates and published fields, and a write loses disabled fields."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from copy import deepcopy
from typing import Any

import pytest

from kubechronicle.api.builtin.kinds import GATED_FIELDS, KindRules, default_rules
from kubechronicle.api.features.gates import (
    OLDEST,
    PROGRAM,
    EffectiveVersion,
    FeatureGates,
    Release,
    effective_version,
    gates_of,
)
from kubechronicle.api.kinds.reading import Declared, release
from kubechronicle.api.registry.groups import HISTORY
from kubechronicle.api.registry.registry import known_registry
from kubechronicle.api.strategy.gated_fields import DisabledFields, GatedField

RELEASES_OF_TYPES = ("1.36", "1.37")
FIELDS = [(resource, field) for (resource, _), fields in GATED_FIELDS.items() for field in fields]
OLDEST_VERSION = effective_version([str(PROGRAM.before(OLDEST))], [])
UNDROPPED = {
    ("ContainerStopSignals", "status.*Statuses.stopSignal"),
    ("CRDObservedGenerationTracking", "status.observedGeneration"),
    ("CRDObservedGenerationTracking", "status.conditions.observedGeneration"),
    ("DRADeviceTaints", "status.allocation.devices.results.tolerations"),
    ("DynamicResourceAllocation", "spec.resources.claims"),
    ("DynamicResourceAllocation", "status.resources.claims"),
    ("DynamicResourceAllocation", "status.*Statuses.resources.claims"),
    ("InPlacePodVerticalScaling", "status.resize"),
    ("VolumeAttributesClass", "spec.source.inlineVolumeSpec.volumeAttributesClassName"),
}
"""(gate, path) of fields with a gate that kube-apiserver does not drop, apart from those of templates of claims."""
Published = dict[str, list[tuple[tuple[str, ...], tuple[str, ...]]]]
"""Resource -> the names on the path to each field, and the field's gates."""


def published(minor: str) -> Published:
    """Return the fields of each stored kind in a release; types within themselves once."""
    facts = release(minor)

    def walk(declared: Declared, path: tuple[str, ...], seen: frozenset[str]) -> Iterator[Any]:
        for each in declared.fields:
            here = (*path, each.name) if each.name else path
            yield here, tuple(tag.partition("=")[2] for tag in each.tags if tag.startswith("+featureGate="))
            kind = each.type
            while kind.of is not None:
                kind = kind.of
            if "." in kind.name and kind.name not in seen:
                yield from walk(facts.declared(kind.name), here, seen | {kind.name})

    found = {}
    for rt in known_registry().stored():
        if rt.definition and rt.group != HISTORY:
            with suppress(KeyError):  # an older release lacks the kind
                declared = facts.defined(rt.definition)
                found[rt.resource] = list(walk(declared, (), frozenset((declared.full_name,))))
    return found


def expanded(field: GatedField) -> Iterator[tuple[str, ...]]:
    """Yield the names on the path to each of the fields."""
    for text in (*field.fields, *field.used_by):
        paths: list[tuple[str, ...]] = [()]
        plain = f"{field.base}.{text}".strip(".").replace("!", "").replace("[]", "").replace("{}", "")
        for part in plain.split("."):
            paths = [(*path, name) for path in paths for name in part.strip("()").split("|")]
        yield from paths


@pytest.fixture(scope="module")
def fields_of() -> dict[str, Published]:
    return {minor: published(minor) for minor in RELEASES_OF_TYPES}


def test_the_table_names_published_fields(fields_of: dict[str, Published]) -> None:
    for resource, field in FIELDS:
        known = {path for fields in fields_of.values() for path, _ in fields.get(resource, ())}
        if field.parts is not None:  # paths begin at parts of any depth
            known = {path[-1:] for path in known}
        assert [path for path in expanded(field) if path not in known] == [], (resource, field.gate)


@pytest.mark.parametrize("minor", RELEASES_OF_TYPES)
def test_every_field_with_a_gate_is_in_the_table(fields_of: dict[str, Published], minor: str) -> None:
    tabled = {(resource, field.gate, path) for resource, field in FIELDS for path in expanded(field)}
    of_parts = {(resource, field.gate, path) for resource, field in FIELDS if field.parts for path in expanded(field)}
    missing = {
        (gate, resource, ".".join(path))
        for resource, fields in fields_of[minor].items()
        for path, gates in fields
        for gate in gates
        if can_be_off(gate, minor)
        and not any((resource, gate, path[:count]) in tabled for count in range(1, len(path) + 1))
        and (resource, gate, path[-1:]) not in of_parts
        and (gate, re.sub(r"\b\w+Statuses\b", "*Statuses", ".".join(path)).split("template.")[-1]) not in UNDROPPED
        and not {"volumeClaimTemplate", "volumeClaimTemplates"} & {*path}
    }
    assert missing == set()


def can_be_off(name: str, minor: str) -> bool:
    """Tell whether a gate is not locked to on in every version that a release emulates."""
    binary = Release(*map(int, minor.split(".")))
    gate = gates_of(binary).get(name)
    if gate is None:
        return False
    older = [binary.before(minors) for minors in range(OLDEST + 1)]
    at = [gate.at(EffectiveVersion(binary=binary, emulation=each, compatibility=each)) for each in older]
    return any(not (spec.locked and spec.default) for spec in at)


def test_each_gate_can_be_off() -> None:
    """A gate that is locked to on in every version is no gate of a field."""
    for _, field in FIELDS:
        for name in (field.gate, *field.gates):
            assert any(can_be_off(name, minor) for minor in RELEASES_OF_TYPES), name


def pod(**spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": "a"}, "spec": {"containers": [{"name": "c"}], **spec}}


def dropped(rules: KindRules, new: dict[str, Any], old: dict[str, Any] | None = None) -> dict[str, Any]:
    rules.drop("pods", "", new, old)
    spec: dict[str, Any] = new["spec"]
    return spec


def test_a_creation_loses_the_fields_of_gates_that_are_off() -> None:
    image = [{"name": "i", "image": {"reference": "r"}}]
    spec = dropped(default_rules(), pod(schedulingGroup={"podGroupName": "g"}, volumes=image))
    assert spec == {"containers": [{"name": "c"}], "volumes": image}
    rules = KindRules(FeatureGates(OLDEST_VERSION, {"ImageVolume": False}))
    assert dropped(rules, pod(volumes=image)) == {"containers": [{"name": "c"}]}


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
    field = GatedField(gate="WatchList", gates=("DefaultPodSysctls",), fields=("a.b",))
    for given, left in (({}, {}), ({"DefaultPodSysctls": True}, {"b": 1}), ({"WatchList": False}, {})):
        obj = {"a": {"b": 1}}
        DisabledFields(FeatureGates(given=given), {("x", ""): (field,)}).drop("x", "", obj, None)
        assert obj == {"a": left}


def test_only_a_creation_loses_some_fields() -> None:
    field = GatedField(gate="DefaultPodSysctls", fields=("a",), on_create=True)
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
