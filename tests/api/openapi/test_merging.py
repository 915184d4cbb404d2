"""Merging OpenAPI v2 documents of other servers."""

from __future__ import annotations

from typing import Any

from kubechronicle.api.openapi.merging import KINDS, filtered, merged

A = {"$ref": "#/definitions/A"}


def document(paths: Any, **definitions: Any) -> dict[str, Any]:
    return {"paths": paths, "definitions": definitions}


def test_definitions_of_dropped_paths_are_dropped_and_unused_ones_stay() -> None:
    source = document(
        {"/x/1": {"get": A}, "/y/1": {"get": {"$ref": "#/definitions/C"}}},
        A={"b": {"$ref": "#/definitions/B"}},
        B={},
        C={},
        D={},
    )
    found = filtered(source, lambda path: path.startswith("/x/"))
    assert set(found["paths"]) == {"/x/1"}
    assert set(found["definitions"]) == {"A", "B", "D"}


def test_a_conflict_is_renamed_and_the_name_used_again() -> None:
    base = document({"/a": A}, A={"type": "string"})
    once = merged(base, document({"/b": A}, A={"type": "integer"}))
    assert once["paths"] == {"/a": A, "/b": {"$ref": "#/definitions/A_v2"}}
    again = merged(once, document({"/c": A}, A={"type": "integer"}))
    assert again["paths"]["/c"] == {"$ref": "#/definitions/A_v2"}
    assert set(again["definitions"]) == {"A", "A_v2"}
    third = merged(again, document({"/d": A, "/e": {"$ref": "#/definitions/A_v3"}}, A={"type": "array"}, A_v3={}))
    assert third["paths"]["/d"] == {"$ref": "#/definitions/A_v4"}
    assert base == document({"/a": A}, A={"type": "string"})


def test_equal_definitions_get_the_kinds_of_both() -> None:
    one, two = ({"group": "", "version": "v1", "kind": kind} for kind in "AB")
    found = merged(document({"/a": A}, A={KINDS: [two]}), document({"/b": A}, A={KINDS: [one, two]}))
    assert found["definitions"] == {"A": {KINDS: [one, two]}}


def test_present_paths_stay_with_what_they_use() -> None:
    base = document({"/a": {"get": 1}})
    assert merged(base, document({"/a": A}, A={})) == base
    assert merged(base, document({"/a": A, "/b": {}}, A={}))["definitions"] == {}


def test_parameters_are_renamed() -> None:
    reference = {"parameters": [{"$ref": "#/parameters/p"}]}
    found = merged(
        {"paths": {}, "parameters": {"p": {"in": "query"}}},
        {"paths": {"/b": reference}, "parameters": {"p": {"in": "path"}}},
    )
    assert found["paths"]["/b"] == {"parameters": [{"$ref": "#/parameters/p_v2"}]}
    assert set(found["parameters"]) == {"p", "p_v2"}
