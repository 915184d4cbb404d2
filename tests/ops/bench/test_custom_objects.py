"""Tests of the benchmark's custom resource: its size is the one that the report names."""

from __future__ import annotations

import json

import pytest

from kubechronicle.api.custom.rules import CustomRules
from kubechronicle.api.custom.schema.compiled import compile_schema
from kubechronicle.ops.bench import custom_objects
from kubechronicle.ops.bench.cases import CASES

SCHEMA = custom_objects.definition()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]


def test_the_schema_has_sixty_fields_and_three_rules() -> None:
    assert custom_objects.fields(SCHEMA) == 60
    assert len(SCHEMA["properties"]["spec"]["x-kubernetes-validations"]) == 3


@pytest.mark.parametrize("kilobytes", [1, 4, 20])
def test_objects_have_their_size_and_are_valid(kilobytes: int) -> None:
    obj = json.loads(custom_objects.template(kilobytes))
    assert 0.9 * 1024 * kilobytes < len(custom_objects.template(kilobytes)) < 1.2 * 1024 * kilobytes
    schema = compile_schema(SCHEMA)
    assert schema.clean(obj) == []
    schema.default(obj)
    assert schema.validate(obj) == []
    assert CustomRules(SCHEMA).validate(obj, obj) == ([], [])


@pytest.mark.parametrize("label", [True, False])
def test_turns_change_what_they_say(label: bool) -> None:
    text = custom_objects.changing(20, label=label)
    one, other = (json.loads(text.replace("@count@", count)) for count in ("000001", "000002"))
    assert 18 * 1024 < len(text) < 24 * 1024
    assert (one["metadata"] == other["metadata"], one["spec"] == other["spec"]) == (not label, label)
    assert (text.count("@count@") == 1) == label
    assert label or text.count("@count@") > 200
    schema = compile_schema(SCHEMA)
    schema.default(one)
    assert schema.validate(one) == []


def test_the_cases_of_a_size_have_a_namespace_of_their_own() -> None:
    spaces = {case.namespace for case in CASES if case.name.startswith("custom-1k")}
    assert "bench-custom-1k-1000" in spaces
    assert not spaces & {case.namespace for case in CASES if not case.name.startswith("custom-1k")}
