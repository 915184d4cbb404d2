"""The fieldPath of a rule."""

from __future__ import annotations

import pytest

from kubechronicle.api.custom.rule import FieldPathError, field_path

SCHEMA = {
    "type": "object",
    "properties": {
        "spec": {"type": "object", "properties": {"a.b": {"type": "string"}, "it's": {"type": "string"}}},
        "labels": {"type": "object", "additionalProperties": {"type": "string"}},
        "list": {"type": "array", "items": {"type": "string"}},
    },
}


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("", ""),
        (".spec", "spec"),
        ("['spec']", "spec"),
        (".spec['a.b']", "spec.a.b"),
        (".spec['it\\'s']", "spec.it's"),
        (".labels['app']", "labels[app]"),
        (".labels.app", "labels[app]"),
    ],
)
def test_paths(text: str, path: str) -> None:
    assert field_path(text, SCHEMA)[0] == path


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("spec", "expected [ or . but got: spec"),
        (".nothing", "does not refer to a valid field"),
        (".list[0]", "expected single quoted string but got 0"),
        (".list.x", "does not refer to a valid field"),
        (".", "unexpected end of JSON path"),
        ("['spec'", "unexpected end of JSON path"),
        ("['spec'.", "expected ] but got ."),
        ("['\\q']", "invalid string literal: invalid escape char \\q"),
    ],
)
def test_refused_paths(text: str, why: str) -> None:
    with pytest.raises(FieldPathError) as error:
        field_path(text, SCHEMA)
    assert str(error.value) == why


def test_brackets_may_be_refused() -> None:
    with pytest.raises(FieldPathError, match="array notation is not allowed"):
        field_path("['spec']", SCHEMA, brackets=False)
