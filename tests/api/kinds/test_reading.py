"""The facts about types: how they are read, and that every name in them leads to a type."""

from __future__ import annotations

from pathlib import Path

import pytest

from kubechronicle.api import kinds
from kubechronicle.api.kinds import reading
from kubechronicle.api.kinds.reading import LIST, MAP, POINTER, GoType

MINORS = sorted(path.name for path in Path(kinds.__file__).parent.glob("1.*"))


def test_the_served_minor_has_facts() -> None:
    assert kinds.SERVED in MINORS


def test_a_field_is_read_with_its_marks() -> None:
    ports = reading.release("1.36").declared("core.v1.Container").members["ports"][0]
    assert (ports.number, ports.type) == (6, GoType(LIST, of=GoType("", "core.v1.ContainerPort")))
    assert ports.marks == {"?": "", "list": "map:containerPort,protocol", "patch": "merge:containerPort"}
    protocol = reading.release("1.36").declared("core.v1.ContainerPort").members["protocol"][0]
    assert (protocol.default, protocol.required, protocol.omitempty) == ("TCP", False, True)
    assert protocol.go_name == "Protocol"
    assert reading.release("1.36").declared("core.v1.ContainerPort").members["hostIP"][0].go_name == "HostIP"


def test_an_enum_has_its_values_with_descriptions() -> None:
    protocol = reading.release("1.36").declared("core.v1.Protocol")
    assert protocol.values == ("SCTP", "TCP", "UDP")
    assert protocol.description('"TCP"') == "is the TCP protocol."
    assert "enum" in protocol.marks


def test_members_of_inlined_structs_are_those_of_the_struct() -> None:
    volume = reading.release("1.36").declared("core.v1.Volume")
    field, way = volume.members["emptyDir"]
    assert (field.number, [each.full_name for each in way]) == (2, ["core.v1.VolumeSource"])
    assert next(iter(volume.members)) == "name"


def test_the_life_of_a_version_is_told() -> None:
    marks = reading.release("1.36").declared("batch.v1beta1.CronJob").marks
    assert (marks["introduced"], marks["deprecated"], marks["removed"]) == ("1.8", "1.21", "1.25")
    assert marks["replacement"] == "batch/v1/CronJob"


def test_conditional_tags_stand_with_their_field() -> None:
    kind = reading.release("1.37").declared("core.v1.ReplicationControllerSpec").members["replicas"][0]
    assert '+k8s:beta(since: "1.37")=+k8s:minimum=0' in kind.tags


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("*int32", GoType(POINTER, of=GoType("", "int32"))),
        (
            "map[ResourceName]resource.Quantity",
            GoType(MAP, of=GoType("", "resource.Quantity"), key="core.v1.ResourceName"),
        ),
        ("[]byte", GoType(LIST, of=GoType("", "uint8"))),
        ("[]*meta.v1.Time", GoType(LIST, of=GoType(POINTER, of=GoType("", "meta.v1.Time")))),
    ],
)
def test_go_types_are_read(text: str, expected: GoType) -> None:
    assert reading.go_type(text, "core.v1") == expected


def test_descriptions_have_their_lines_and_backslashes() -> None:
    pod = reading.release("1.36").declared("core.v1.PodSpec")
    assert "\n" in pod.description("os")
    assert "\\n" not in pod.description("os")
    assert pod.description("nothing") == ""


@pytest.mark.parametrize("minor", MINORS)
def test_every_name_leads_to_a_type(minor: str) -> None:
    release = reading.release(minor)
    for declared in release.types():
        assert release.defined(declared.definition) is declared
        named = [field.type.named for field in declared.fields]
        if not declared.is_struct:
            named.append(declared.behind.named)
        for name in named:
            assert name in reading.BASIC or release.declared(name), (declared.full_name, name)


@pytest.mark.parametrize("minor", MINORS)
def test_internal_types_have_the_names_of_the_api(minor: str) -> None:
    release = reading.release(minor)
    for package in release.internal.values():
        for declared in package.types.values():
            for field in declared.fields:
                assert field.type.named in reading.BASIC or release.declared(field.type.named), declared.full_name
    attribute = release.declared("internal.resource.DeviceAttribute")
    assert {field.go_name: field.name for field in attribute.fields}["IntValue"] == "int"
    assert "internal.core" not in release.packages


@pytest.mark.parametrize("minor", MINORS)
def test_numbers_of_a_message_are_unique(minor: str) -> None:
    for declared in reading.release(minor).types():
        numbers = [field.number for field in declared.fields if field.number]
        assert len(numbers) == len(set(numbers)), declared.full_name
