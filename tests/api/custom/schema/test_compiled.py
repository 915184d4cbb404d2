"""The steps of a compiled schema: clean, default, validate."""

from __future__ import annotations

from typing import Any

import pytest

from kubechronicle.api.custom.schema.compiled import CompiledSchema, compile_schema
from kubechronicle.api.custom.schema.embedded import MalformedError


def of_spec(**properties: Any) -> CompiledSchema:
    """Return the schema of a kind with these properties of the spec."""
    spec = {"type": "object", "properties": properties}
    return compile_schema({"type": "object", "properties": {"spec": spec}})


def obj(**spec: Any) -> dict[str, Any]:
    return {"apiVersion": "example.com/v1", "kind": "Sample", "metadata": {"name": "one"}, "spec": spec}


def test_a_body_is_cleaned_and_gets_its_defaults() -> None:
    schema = of_spec(replicas={"type": "integer", "default": 1}, name={"type": "string"})
    given = obj(replicas=None, name=None, other=1)
    given["metadata"]["other"] = 1
    given["else"] = {}
    assert schema.clean(given) == ["metadata.other", "else", "spec.other"]
    schema.default(given)
    assert given == obj(replicas=1)


def test_ill_typed_metadata_is_refused_or_dropped() -> None:
    schema = of_spec()
    given = obj()
    given["metadata"]["labels"] = "x"
    problem = "json: cannot unmarshal string into Go struct field ObjectMeta.labels of type map[string]string"
    with pytest.raises(MalformedError) as raised:
        schema.clean(given)
    assert str(raised.value) == problem
    given["metadata"]["labels"] = "x"
    assert schema.clean(given, drop_malformed=True) == []
    assert given["metadata"] == {"name": "one"}


def test_causes_name_field_reason_and_text() -> None:
    schema = of_spec(replicas={"type": "integer"}, name={"type": "string", "enum": ["a", "b"]})
    causes = schema.validate(obj(replicas="string", name="x"))
    assert sorted((cause.reason, str(cause)) for cause in causes) == [
        ("FieldValueNotSupported", 'spec.name: Unsupported value: "x": supported values: "a", "b"'),
        (
            "FieldValueTypeInvalid",
            'spec.replicas: Invalid value: "string": spec.replicas in body must be of type integer: "string"',
        ),
    ]
