"""Contents that a schema need not walk through again."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

import orjson
import pytest

from kubechronicle.api.custom.schema.compiled import CompiledSchema, compile_schema
from kubechronicle.api.custom.schema.known_contents import MAX_KNOWN, KnownContents, digest_of

TEXT = {"type": "string"}
SPEC = {
    "type": "object",
    "properties": {
        "a": TEXT,
        "size": {"type": "integer", "default": 3},
        "deep": {"type": "object", "default": {"x": "y"}, "properties": {"x": TEXT, "z": {**TEXT, "default": "w"}}},
    },
}


def schema_of(spec: Any = SPEC, **more: Any) -> CompiledSchema:
    return compile_schema({"type": "object", "properties": {"spec": spec, **more}})


def walks(schema: CompiledSchema, obj: dict[str, Any]) -> bool:
    """Settle a stored object. Return whether that took a walk."""
    with patch.object(CompiledSchema, "default", autospec=True, side_effect=CompiledSchema.default) as default:
        schema.settle(obj, drop_malformed=True)
    return bool(default.called)


def test_a_settled_object_is_known() -> None:
    schema = schema_of()
    obj: dict[str, Any] = {"metadata": {"name": "a"}, "spec": {"a": "b", "other": 1}}
    assert schema.settle(obj) == ["spec.other"]
    settled = orjson.dumps(obj)
    assert obj["spec"] == {"a": "b", "size": 3, "deep": {"x": "y", "z": "w"}}
    assert not walks(schema, obj)
    assert orjson.dumps(obj) == settled
    obj["metadata"] = {"name": "b", "uid": "u"}
    assert not walks(schema, obj)


@pytest.mark.parametrize("spec", [{"a": "c"}, {"a": "b", "other": 1}, {"a": "b", "size": None}, {}])
def test_changed_contents_are_walked_through(spec: dict[str, Any]) -> None:
    schema = schema_of()
    schema.settle({"metadata": {}, "spec": {"a": "b"}})
    obj: dict[str, Any] = {"metadata": {}, "spec": spec}
    assert walks(schema, obj)
    assert obj["spec"]["size"] == 3
    assert "other" not in obj["spec"]


def test_the_metadata_of_known_contents_is_checked() -> None:
    schema = schema_of()
    schema.settle({"metadata": {}, "spec": {}})
    obj: dict[str, Any] = {"metadata": {"foo": 1}, "spec": {"size": 3, "deep": {"x": "y", "z": "w"}}}
    assert not walks(schema, obj)
    obj["metadata"] = {"foo": 1}
    assert schema.settle(obj) == ["metadata.foo"]
    assert obj["metadata"] == {}


@pytest.mark.parametrize(
    "schema",
    [
        schema_of({"type": "object", "default": {"a": None}, "properties": {"a": TEXT}}),
        schema_of({"type": "object", "x-kubernetes-embedded-resource": True}),
        schema_of(metadata={"type": "object", "properties": {"name": {**TEXT, "default": "a"}}}),
    ],
)
def test_schemas_whose_result_may_change_again_know_nothing(schema: CompiledSchema) -> None:
    obj: dict[str, Any] = {"metadata": {}, "spec": {"apiVersion": "v1", "kind": "A"}}
    schema.settle(obj)
    assert walks(schema, obj)


def test_digests_tell_1_from_1_0() -> None:
    one, other = digest_of({"a": 1}), digest_of({"a": 1.0})
    assert one is not None
    assert other is not None
    assert one != other
    assert digest_of({"a": 2**70}) is None


def test_old_contents_are_forgotten() -> None:
    known = KnownContents()
    for number in range(2 * MAX_KNOWN + 1):
        known.add(b"%d" % number)
    assert b"0" not in known
    assert b"%d" % MAX_KNOWN in known
    assert None not in known
