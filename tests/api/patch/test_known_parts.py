"""The field sets of parts that were applied before: the same as if they were read again."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

from kubechronicle.api.custom.types import object_type
from kubechronicle.api.patch import known_parts, typed_readers

TEXT = {"type": "string"}
SPEC = {
    "type": "object",
    "properties": {
        "size": {"type": "number"},
        "items": {
            "type": "array",
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["name"],
            "items": {"type": "object", "properties": {"name": TEXT, "value": TEXT}},
        },
        "texts": {"type": "object", "additionalProperties": TEXT},
    },
}
SCHEMA = {"type": "object", "properties": {"spec": SPEC, "other": SPEC}}


def configuration(**spec: Any) -> dict[str, Any]:
    items = [{"name": f"n{n}", "value": "v" * 20} for n in range(60)]
    return {"apiVersion": "g/v1", "kind": "K", "metadata": {"name": "a"}, "spec": {"items": items, **spec}}


def test_known_parts_have_the_field_set_of_a_walk() -> None:
    kind = object_type(SCHEMA)
    for config in (configuration(), configuration(size=1), configuration(size=True), configuration(unknown=1)):
        for _ in range(2):
            assert known_parts.read(config, kind) == typed_readers.read(config, kind)


def test_a_known_part_costs_no_walk() -> None:
    kind = object_type(SCHEMA)
    assert known_parts.read(configuration(), kind)
    with patch.object(typed_readers, "read", wraps=typed_readers.read) as read:
        named = known_parts.read({**configuration(), "other": {"texts": {"a": "b"}}}, kind)
    walked = [name for call in read.call_args_list for name in call.args[0]]
    assert walked == ["apiVersion", "kind", "metadata", "other"]
    assert [*(named or ())][3:] == ["f:spec", "f:other"]


def test_a_part_belongs_to_its_field_and_its_schema() -> None:
    spec = configuration()["spec"]
    changed = {**SCHEMA, "properties": {"spec": {"type": "object", "additionalProperties": TEXT}, "other": SPEC}}
    for schema in (SCHEMA, changed):
        kind = object_type(schema)
        for name in ("spec", "other"):
            config = {**configuration(), name: spec}
            assert known_parts.read(config, kind) == typed_readers.read(config, kind)


def test_an_invalid_part_is_never_known() -> None:
    kind = object_type(SCHEMA)
    config = configuration()
    config["spec"]["items"] += [{"name": "n1"}]
    assert known_parts.read(config, kind) is known_parts.read(config, kind) is None


def test_values_that_have_no_text_are_read() -> None:
    kind = object_type(SCHEMA)
    config = configuration(size=2**70)
    assert known_parts.read(config, kind) == typed_readers.read(config, kind)
