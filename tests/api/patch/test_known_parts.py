"""The field sets of parts that were applied before: the same as if they were read again."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

from kubechronicle.api.custom.types import object_type
from kubechronicle.api.patch import known_parts, typed_values

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
            assert known_parts.read(config, kind) == typed_values.read(config, kind)


def test_a_known_part_costs_no_walk() -> None:
    kind = object_type(SCHEMA)
    assert known_parts.read(configuration(), kind)
    with patch.object(typed_values, "read", wraps=typed_values.read) as read:
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
            assert known_parts.read(config, kind) == typed_values.read(config, kind)


def test_an_invalid_part_is_never_known() -> None:
    kind = object_type(SCHEMA)
    config = configuration()
    config["spec"]["items"] += [{"name": "n1"}]
    assert known_parts.read(config, kind) is known_parts.read(config, kind) is None


def test_values_that_have_no_text_are_read() -> None:
    kind = object_type(SCHEMA)
    config = configuration(size=2**70)
    assert known_parts.read(config, kind) == typed_values.read(config, kind)


def test_an_object_made_by_an_apply_fits_without_a_walk() -> None:
    kind = object_type(SCHEMA)
    before, made = configuration(), configuration(size=7)
    config = configuration(size=8)
    known_parts.note_fitting(made, before, kind)
    with patch.object(typed_values, "fits", wraps=typed_values.fits) as fits:
        assert known_parts.misfits(made, kind, config) == []
    assert not any("spec" in call.args[0] for call in fits.call_args_list)


def test_only_the_noted_contents_are_known_to_fit() -> None:
    kind = object_type(SCHEMA)
    made = configuration(size=9)
    known_parts.note_fitting(made, {}, kind)
    for wrong in (configuration(size="9"), configuration(items=[{"value": "v" * 2000}])):
        assert known_parts.misfits(wrong, kind, configuration()) == typed_values.misfits(wrong, kind) != []
    assert known_parts.misfits(configuration(size=9), object_type(SCHEMA), configuration()) == []


def test_a_part_that_an_apply_leaves_is_not_noted_again() -> None:
    live = configuration(size=10)
    kind = object_type(SCHEMA)
    known_parts.note_fitting({**live}, live, kind)
    with patch.object(typed_values, "fits", wraps=typed_values.fits) as fits:
        known_parts.misfits(live, kind, configuration())
    assert any("spec" in call.args[0] for call in fits.call_args_list)
