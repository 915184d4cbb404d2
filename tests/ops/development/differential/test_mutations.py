"""Mutations: each one changes an object along its schema, and the seed alone decides how."""

from __future__ import annotations

import copy
import json
from random import Random
from typing import Any

import pytest

from kubechronicle.ops.development.differential.catalogue import Catalogue, Resource
from kubechronicle.ops.development.differential.mutations import MUTATIONS, Mutation, Place, mutate
from kubechronicle.ops.development.differential.nodes import make, walk

QUANTITY = {"description": "Quantity is a fixed-point representation of a number.", "oneOf": [{"type": "string"}]}
SCHEMAS: dict[str, Any] = {
    "Quantity": QUANTITY,
    "Widget": {
        "type": "object",
        "properties": {
            "spec": {"$ref": "#/components/schemas/Spec"},
            "metadata": {"type": "object", "properties": {"name": {"type": "string"}}},
            "status": {"type": "object", "properties": {"count": {"type": "integer"}}},
        },
    },
    "Spec": {
        "type": "object",
        "required": ["mode"],
        "properties": {
            "mode": {"type": "string", "enum": ["Big", "Small"]},
            "replicas": {"type": "integer", "format": "int32"},
            "timeout": {"type": "string"},
            "port": {"format": "int-or-string", "oneOf": [{"type": "integer"}, {"type": "string"}]},
            "size": {"allOf": [{"$ref": "#/components/schemas/Quantity"}]},
            "paused": {"type": "boolean"},
            "hard": {"type": "object", "additionalProperties": {"$ref": "#/components/schemas/Quantity"}},
            "items": {"type": "array", "items": {"type": "object", "properties": {"name": {"type": "string"}}}},
            "extra": {"type": "string"},
        },
    },
}
CATALOGUE = Catalogue([], SCHEMAS)
WIDGET = Resource("example.com", "v1", "widgets", "Widget", True, frozenset({"get", "create"}), "Widget")
OBJECT: dict[str, Any] = {
    "apiVersion": "example.com/v1",
    "kind": "Widget",
    "metadata": {"name": "a"},
    "spec": {
        "mode": "Big", "replicas": 2, "timeout": "1h", "port": "http", "size": "1Gi", "paused": True,
        "hard": {"cpu": "1"}, "items": [{"name": "x"}, {"name": "y"}],
    },
}  # fmt: skip


def place(seed: int) -> Place:
    return Place(Random(seed), CATALOGUE, WIDGET, copy.deepcopy(OBJECT))


@pytest.mark.parametrize(("name", "mutation"), [(name, mutation) for name, _, mutation in MUTATIONS])
def test_every_mutation_changes_an_object_that_json_can_carry(name: str, mutation: Mutation) -> None:
    changed = 0
    for seed in range(20):
        here = place(seed)
        assert mutation(here)
        json.dumps(here.document)
        changed += here.document != OBJECT
    assert changed, name


def test_the_seed_decides() -> None:
    first, second, other = place(1), place(1), place(2)
    assert mutate(first, 3) == mutate(second, 3)
    assert first.document == second.document
    mutate(other, 3)
    assert other.document != first.document


def test_values_follow_the_schema() -> None:
    nodes = {node.path: node.schema for node in walk(CATALOGUE, SCHEMAS["Widget"], OBJECT)}
    assert nodes["spec", "hard", "cpu"] is QUANTITY
    assert nodes["spec", "items", 0, "name"] == {"type": "string"}
    made = make(CATALOGUE, Random(1), SCHEMAS["Spec"])
    assert made["mode"] in ("Big", "Small")
