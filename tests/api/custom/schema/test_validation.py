"""Validation by keywords: the causes are those that kube-apiserver v1.36.3 answered for the same schemas and values."""

from __future__ import annotations

from typing import Any

import pytest

from kubechronicle.api.custom.schema.compiled import compile_schema
from kubechronicle.api.errors.field_errors import MOST_CAUSES

INT: dict[str, Any] = {"type": "integer"}
TEXT: dict[str, Any] = {"type": "string"}


def causes(schema: dict[str, Any], value: Any) -> list[str]:
    """Return the sorted causes of a value of the field f."""
    compiled = compile_schema({"type": "object", "properties": {"f": schema}})
    return sorted(map(str, compiled.validate({"f": value})))


def wrong(wanted: str, given: str) -> list[str]:
    return [f'f: Invalid value: "{given}": f in body must be of type {wanted}: "{given}"']


@pytest.mark.parametrize(
    ("schema", "value", "expected"),
    [
        (INT, "string", wrong("integer", "string")),
        (INT, True, wrong("integer", "boolean")),
        (INT, 1.0, []),
        (
            INT,
            1.5,
            [
                '<nil>: Invalid value: "": Checked value must be of type integer (default format) in f',
                *wrong("integer", "number"),
            ],
        ),
        (TEXT, None, wrong("string", "null")),
        (TEXT | {"nullable": True}, None, []),
        ({"type": "number"}, 1, []),
        ({"x-kubernetes-int-or-string": True}, 1.5, wrong("integer,string", "number")),
        ({"x-kubernetes-int-or-string": True}, "5%", []),
        (TEXT | {"format": "date"}, "x", wrong("date", "x")),
        (TEXT | {"format": "date"}, [], []),
        (TEXT | {"format": "nonsense"}, "x", []),
        (
            INT | {"format": "int32"},
            2**31,
            ['<nil>: Invalid value: "": Checked value must be of type integer with format int32 in f'],
        ),
    ],
)
def test_types(schema: dict[str, Any], value: Any, expected: list[str]) -> None:
    assert causes(schema, value) == expected


@pytest.mark.parametrize(
    ("schema", "value", "cause"),
    [
        (TEXT | {"maxLength": 2}, "éab", "Too long: may not be more than 2 bytes"),
        (TEXT | {"minLength": 2}, "é", 'Invalid value: "é": f in body should be at least 2 chars long'),
        (TEXT | {"pattern": "^a"}, "b", "Invalid value: \"b\": f in body should match '^a'"),
        (TEXT | {"enum": ["a", "b"]}, "x", 'Unsupported value: "x": supported values: "a", "b"'),
        (
            TEXT | {"enum": ["a", None], "nullable": True},
            None,
            'Unsupported value: null: supported values: "a", "null"',
        ),
        (INT | {"minimum": 2}, 1, "Invalid value: 1: f in body should be greater than or equal to 2"),
        (INT | {"maximum": 2, "exclusiveMaximum": True}, 2, "Invalid value: 2: f in body should be less than 2"),
        (INT | {"multipleOf": 2}, 3, "Invalid value: 3: f in body should be a multiple of 2"),
        ({"type": "number", "maximum": 1}, 1e7, "Invalid value: 1e+07: f in body should be less than or equal to 1"),
        ({"type": "array", "maxItems": 1}, [1, 2], "Too many: 2: must have at most 1 item"),
        ({"type": "array", "minItems": 1}, [], "Invalid value: 0: f in body should have at least 1 items"),
        ({"type": "object", "maxProperties": 0}, {"a": 1}, "Too many: 1: must have at most 0 items"),
        ({"type": "object", "minProperties": 1}, {}, "Invalid value: 0: f in body should have at least 1 properties"),
    ],
)
def test_limits(schema: dict[str, Any], value: Any, cause: str) -> None:
    assert causes(schema, value) == [f"f: {cause}"]


def test_a_missing_field_is_named() -> None:
    assert causes({"type": "object", "required": ["a"]}, {}) == ["f.a: Required value"]


def test_an_integer_matches_an_enumeration_after_conversion() -> None:
    """Go converts the value to the allowed one's type: 97 becomes "a"."""
    schema = {"x-kubernetes-int-or-string": True, "enum": ["a", 5]}
    assert causes(schema, 97) == []
    assert causes(schema, 6) == ['f: Unsupported value: 6: supported values: "a", "5"']


def test_the_alternative_with_the_most_positive_checks_explains_a_failure() -> None:
    schema = TEXT | {"anyOf": [{"maxLength": 1}, {"type": "string", "pattern": "x"}]}
    assert causes(schema, "abc") == [
        '<nil>: Invalid value: "": "f" must validate at least one schema (anyOf)',
        "f: Invalid value: \"abc\": f in body should match 'x'",
    ]


@pytest.mark.parametrize(
    ("schema", "value", "problem"),
    [
        ({"oneOf": [{"minimum": 1}, {"maximum": 3}]}, 2, "one and only one schema (oneOf). Found 2 valid alternatives"),
        ({"allOf": [{"minimum": 1}, {"multipleOf": 1}]}, 0, "all the schemas (allOf)"),
        ({"allOf": [{"minimum": 1}]}, 0, "all the schemas (allOf). None validated"),
    ],
)
def test_combinations(schema: dict[str, Any], value: Any, problem: str) -> None:
    assert f'<nil>: Invalid value: "": "f" must validate {problem}' in causes(INT | schema, value)


def test_a_forbidden_schema_that_holds_is_a_failure() -> None:
    assert causes(INT | {"not": {"minimum": 1}}, 2) == [
        '<nil>: Invalid value: "": "f" must not validate the schema (not)'
    ]


def test_paths_of_other_fields_of_the_root_begin_with_a_dot_in_the_text_only() -> None:
    compiled = compile_schema({"type": "object", "additionalProperties": INT})
    assert list(map(str, compiled.validate({"a": "x"}))) == [
        'a: Invalid value: "string": .a in body must be of type integer: "string"'
    ]


@pytest.mark.parametrize(
    ("items", "expected"),
    [
        ([1, 2, 1, 1], ["f[2]: Duplicate value: 1"]),
        ([1, 1.0, True], []),
        ([{"a": 1}, {"a": 1.0}], ['f[1]: Duplicate value: {"a":1}']),
    ],
)
def test_items_of_a_set_are_unique(items: list[Any], expected: list[str]) -> None:
    schema = {"type": "array", "x-kubernetes-list-type": "set", "items": {"x-kubernetes-preserve-unknown-fields": True}}
    assert causes(schema, items) == expected


def test_keys_of_a_map_are_unique() -> None:
    schema: dict[str, Any] = {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"]}
    schema["items"] = {"type": "object", "properties": {"k": TEXT}}
    assert causes(schema, [{"k": "a"}, {"k": "a", "b": 1}, {}, {}]) == [
        'f[1]: Duplicate value: {"k":"a"}',
        "f[3]: Duplicate value: {}",
    ]


def test_embedded_resources_have_a_type_and_valid_metadata() -> None:
    schema = {"type": "object", "x-kubernetes-embedded-resource": True}
    assert causes(schema, {"apiVersion": "a/b/c", "metadata": {"name": "a/b"}}) == [
        'f.apiVersion: Invalid value: "a/b/c": unexpected GroupVersion string: a/b/c',
        "f.kind: Required value",
        "f.metadata.name: Invalid value: \"a/b\": may not contain '/'",
    ]


def test_causes_are_bounded() -> None:
    schema = {"type": "array", "items": {"type": "string", "anyOf": [{"maxLength": 1}] * 50}}
    assert len(causes(schema, ["abc"] * 5000)) == MOST_CAUSES


def test_a_long_key_is_repeated_in_few_paths() -> None:
    schema = {"type": "object", "additionalProperties": {"type": "array", "items": INT}}
    assert len(causes(schema, {"k" * 1_000_000: ["x"] * 10_000})) == 2


def test_a_schema_as_deep_as_the_codec_allows_is_applied() -> None:
    schema: dict[str, Any] = INT
    value: Any = "x"
    for _ in range(230):
        schema, value = {"type": "array", "items": schema}, [value]
    assert len(causes(schema, value)) == 1
