"""The generator of api/kinds: what becomes of comments and tags, and that the files are those it writes."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from kubechronicle.ops.development.kinds import modules, writing

KINDS = Path(writing.__file__).resolve().parents[3] / "api/kinds"
PATH = "k8s.io/api/shop/v1"


def field(name: str, json: str, kind: str, *doc: str, **more: Any) -> dict[str, Any]:
    tag = {"protobuf": "bytes,1,opt", "patch": "", "mergeKey": "", "embedded": False}
    return {"name": name, "json": json, "type": kind, "doc": list(doc), **tag, **more}


def kind(name: str, form: str, *doc: str, fields: tuple[dict[str, Any], ...] = (), **more: Any) -> dict[str, Any]:
    plain = {"earlier": [], "methods": [], "answers": {}, "alias": False}
    return {"name": name, "is": form, "doc": list(doc), "fields": list(fields), **plain, **more}


def package(*types: dict[str, Any], **more: Any) -> dict[str, Any]:
    plain = {
        "doc": ["+k8s:openapi-gen=true"],
        "group": "shop.example.com",
        "options": True,
        "module": "k8s.io/api@v0.0.1",
    }
    return {"path": PATH, "types": list(types), "kinds": [], "constants": [], **plain, **more}


def written(*types: dict[str, Any], **more: Any) -> str:
    """Return the types of the file, without its head."""
    return writing.files([package(*types, **more)], "v1.0.0")["shop.v1.txt"].split("\n\n", 1)[1]


def test_a_struct_is_written_line_by_line() -> None:
    found = written(
        kind(
            "Order",
            "struct",
            "Order is an order.",
            fields=(
                field("Count", "count,omitempty", "*int32", "+optional", "+default=1", "+k8s:minimum=0"),
                field("APIKey", "apiKey", "string", "+required", protobuf="bytes,3,opt"),
                field("Lines", "lines", f"[]{PATH}.Line", "+listType=map", "+listMapKey=id", "+listMapKey=unit"),
                field("Hidden", "-", "string"),
            ),
            answers={"APILifecycleIntroduced": "1 30", "APILifecycleReplacement": "shop v2 Order"},
        ),
        kind("Line", "struct", fields=(field("ID", "id", "string", protobuf=""),)),
        kinds=["Order"],
    )
    assert found == (
        "Line struct\n  id - string ! go=ID\n\n"
        "Order struct kind introduced=1.30 replacement=shop/v2/Order\n"
        "  count 1 *int32 ? default=1\n    +k8s:minimum=0\n"
        "  apiKey 3 string ! go=APIKey\n"
        "  lines 1 []Line ! list=map:id,unit\n"
    )


def test_an_enum_has_the_constants_of_its_type_and_a_reference_its_value() -> None:
    constants = [
        {"name": "ColourRed", "type": f"{PATH}.Colour", "value": "Red", "doc": ["ColourRed is warm."]},
        {
            "name": "ColourBlue",
            "type": f"{PATH}.Colour",
            "value": "Blue",
            "doc": ["+k8s:ifEnabled(X)=+k8s:enumExclude"],
        },
    ]
    types = (
        kind("Colour", "string", "Colour is a colour.", "+enum"),
        kind("Paint", "struct", fields=(field("Colour", "colour", f"{PATH}.Colour", "+default=ref(ColourRed)"),)),
    )
    made = writing.files([package(*types, constants=constants)], "v1.0.0")
    assert 'Colour string enum\n  "Blue"\n    +k8s:ifEnabled(X)=+k8s:enumExclude\n  "Red"\n' in made["shop.v1.txt"]
    assert 'colour 1 Colour ! default="Red"' in made["shop.v1.txt"]
    assert 'Colour."Red" is warm.\n' in made["descriptions/shop.v1.txt"]


def test_a_kind_without_a_tag_is_inlined_and_a_type_that_decodes_itself_is_not() -> None:
    found = written(
        kind("Base", "struct", fields=(field("Name", "name", "string"),)),
        kind("Order", "struct", fields=(field("Base", "", f"{PATH}.Base", embedded=True, protobuf=""),)),
        kind("Stamp", "struct", fields=(field("Base", "", f"{PATH}.Base", embedded=True),), methods=["UnmarshalJSON"]),
    )
    assert "Order struct\n  . - Base\n" in found
    assert "Stamp" not in found


def test_a_package_without_types_is_an_error() -> None:
    moved = kind("Order", "k8s.io/shop-api/v1.Order", alias=True)
    with pytest.raises(writing.NoTypesError, match="declares no types"):
        written(moved)


@pytest.mark.parametrize(
    ("name", "expected"),
    [("FSType", "fsType"), ("IQN", "iqn"), ("HostPath", "hostPath"), ("TTY", "tty"), ("HostPID", "hostPID")],
)
def test_a_go_name_becomes_a_json_name(name: str, expected: str) -> None:
    assert writing.lower_first(name) == expected


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (["One line", "goes on.", "+optional"], "One line goes on."),
        (["First.", "", "Second.", "TODO: more"], "First.\n\nSecond."),
        (["Example:", "  a: b", "  c: d", "End."], "Example:\n  a: b\n  c: d\nEnd."),
        (["Shown.", "---", "Hidden."], "Shown."),
    ],
)
def test_a_description_is_that_of_the_published_document(lines: list[str], expected: str) -> None:
    assert writing.description(lines) == expected


@pytest.mark.parametrize("release", ["v1.36.3", "v1.37.2"])
def test_the_files_are_those_that_the_generator_writes(release: str) -> None:
    try:
        made = writing.files(modules.packages(release), release)
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"no Go, or no modules: {error}")
    folder = KINDS / release[1:].rpartition(".")[0]
    assert {str(file.relative_to(folder)): file.read_text() for file in folder.rglob("*.txt")} == made
