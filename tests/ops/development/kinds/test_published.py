"""The schemas that follow from api/kinds are those of the documents that Kubernetes publishes with a release.

The published documents lack enums: they are written with the feature gate of enums off.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kubechronicle.api.openapi.schemas import SchemaWriter
from kubechronicle.ops.development.kinds import modules

ENUM = "Possible enum values:"
OF_EVERY_GROUP = ("DeleteOptions", "WatchEvent")
"""Kinds of which a document lists the groups that it needs."""


def published(release: str) -> dict[str, Any]:
    """Return all published schemas of a release, by definition."""
    try:
        folder = modules.folder(modules.KUBERNETES, release)
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"no Go, or no modules: {error}")
    found: dict[str, Any] = {}
    for path in sorted(Path(folder, "api/openapi-spec/v3").glob("*.json")):
        found |= json.loads(path.read_bytes()).get("components", {}).get("schemas", {})
    return found


def without_enums(schema: Any) -> Any:
    if isinstance(schema, list):
        return [without_enums(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    made = {name: without_enums(each) for name, each in schema.items() if name != "enum" or not isinstance(each, list)}
    if ENUM in str(made.get("description", "")):
        made["description"] = made["description"].partition(ENUM)[0].rstrip()
    return {name: each for name, each in made.items() if (name, each) != ("description", "")}


def descriptions(schema: Any) -> Iterator[str]:
    """Yield all descriptions in a schema."""
    parts = schema.items() if isinstance(schema, dict) else enumerate(schema) if isinstance(schema, list) else ()
    for name, each in parts:
        if name == "description" and isinstance(each, str):
            yield each
        yield from descriptions(each)


@pytest.mark.parametrize("release", ["v1.36.3", "v1.37.2"])
def test_descriptions_list_the_values_of_enums_as_a_server_does(release: str) -> None:
    definitions = published(release)
    generated = Path(modules.folder(modules.KUBERNETES, release), "pkg/generated/openapi/zz_generated.openapi.go")
    texts = re.findall(r'Description: ("(?:[^"\\]|\\.)*")', generated.read_text())
    expected = {text for each in texts if ENUM in each and ENUM in (text := json.loads(each))}
    writer = SchemaWriter(v3=True, served=(), minor=release[1:].rpartition(".")[0])
    made = {each for name in definitions for each in descriptions(writer.write(name, set())) if ENUM in each}
    assert len(made) > 80
    assert made <= expected


@pytest.mark.parametrize(("release", "number"), [("v1.36.3", 771), ("v1.37.2", 862)])
def test_all_schemas_are_as_published(release: str, number: int) -> None:
    expected = published(release)
    writer = SchemaWriter(v3=True, served=(), minor=release[1:].rpartition(".")[0])
    assert len(expected) == number
    for definition, schema in expected.items():
        made = without_enums(writer.write(definition, set()))
        schema = without_enums(schema)
        if definition.endswith(OF_EVERY_GROUP):
            assert made.pop("x-kubernetes-group-version-kind"), definition
            schema.pop("x-kubernetes-group-version-kind")
        assert made == schema, definition
