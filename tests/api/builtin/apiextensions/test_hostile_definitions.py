"""Hostile definitions: bounded causes, bounded messages, and no work that grows faster than the definition."""

from __future__ import annotations

from typing import Any

import pytest

from kubechronicle.api.builtin.apiextensions import where
from kubechronicle.api.builtin.apiextensions.printed import MOST_SCHEMAS, versions
from kubechronicle.api.builtin.apiextensions.validation_openapi import OpenApiDemands, check
from kubechronicle.api.builtin.apiextensions.validation_structural import structural
from kubechronicle.api.builtin.apiextensions.where import SchemaPatterns, Where
from kubechronicle.api.errors.field_errors import MOST_CAUSE_TEXT, MOST_CAUSES, BoundedCauses, required
from kubechronicle.api.values.objects import Object

AT = Where.of("schema")


def nested(depth: int, name: str, leaf: Object) -> Object:
    for _ in range(depth):
        leaf = {"type": "object", "properties": {name: leaf}}
    return leaf


def wide(count: int, field: Object) -> Object:
    return {"type": "object", "properties": {f"p{number}": field for number in range(count)}}


@pytest.mark.parametrize("problems", [check, structural])
def test_causes_are_bounded(problems: Any) -> None:
    schema = wide(3000, {"type": "array", "items": [], "uniqueItems": True})
    found = check(schema, AT, OpenApiDemands(), None) if problems is check else structural(schema, AT)
    assert len(found) == MOST_CAUSES


def test_long_paths_end_the_list_of_causes() -> None:
    schema = nested(100, "k" * 20_000, wide(100, {"type": "foo"}))
    assert len(check(schema, AT, OpenApiDemands(), None)) == 1


def test_a_full_list_takes_no_more() -> None:
    causes = BoundedCauses()
    where = AT.child("x" * (MOST_CAUSE_TEXT // 2))
    causes.extend(required(where) for _ in range(10))
    assert len(causes) == 2
    assert causes.full


def test_deep_schemas_fit_on_the_stack() -> None:
    schema = nested(120, "a", {"type": "string", "pattern": "("})
    found = structural(schema, AT)
    assert [cause.field for cause in found] == ["schema" + ".properties[a]" * 120 + ".pattern"]
    chain: Object = {"required": ["x"]}
    for _ in range(240):
        chain = {"not": chain}
    assert structural({"type": "object", **chain}, AT) == []
    assert check({"type": "object", **chain}, AT, OpenApiDemands(), None) == []


def test_patterns_beyond_the_bound_are_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(where, "MOST_INSTRUCTIONS", 10_000)
    patterns = SchemaPatterns()
    fine = 0
    while not patterns.problem(f"[a-z]{{1,1000}}{fine}"):
        fine += 1
    assert 0 < fine < 10
    assert patterns.problem("a") == "error parsing regexp: expression too large: ``"
    assert SchemaPatterns().problem("a" * 200_000) == "error parsing regexp: expression too large: ``"


def test_a_print_of_versions_is_bounded() -> None:
    version = {"name": "v1", "schema": {"openAPIV3Schema": wide(5000, {"type": "string"})}}
    printed = versions([version, version])
    assert printed is not None
    fields = printed[0]["Schema"]["OpenAPIV3Schema"]["Properties"].values()
    assert sum(each is not None for each in fields) == MOST_SCHEMAS - 1
    assert printed[1]["Schema"] == {"OpenAPIV3Schema": None}
