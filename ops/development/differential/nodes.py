"""Walks over an object along its schema, and generated values of a schema's type."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from random import Random
from typing import Any

from kubechronicle.ops.development.differential.catalogue import Catalogue

QUANTITIES = ("1", "100m", "1Gi", "500M", "0", "2k", "1.5")
STRINGS = (
    "a",
    "x-1",
    "example.com/a",
    "b",
    "10.0.0.1",
    "1.2.3.4/24",
    "/tmp",
    "True",
    "Always",
    "kube-system",
    "v1",
    "80",
)
TIMES = ("2024-01-02T03:04:05Z", "2031-01-01T00:00:00Z")
DEEPEST = 6


@dataclass(frozen=True, slots=True)
class Node:
    """One place in an object: its container, its key there, and the schema of its value."""

    parent: Any
    key: Any
    schema: Mapping[str, Any]
    path: tuple[Any, ...]

    @property
    def value(self) -> Any:
        return self.parent[self.key]

    def set(self, value: Any) -> None:
        self.parent[self.key] = value

    def remove(self) -> None:
        del self.parent[self.key]


def walk(catalogue: Catalogue, schema: Mapping[str, Any], value: Any, path: tuple[Any, ...] = ()) -> Iterator[Node]:
    """Yield every node below a value, outer ones first."""
    schema = catalogue.resolve(schema)
    if isinstance(value, dict):
        properties = schema.get("properties", {})
        extra = schema.get("additionalProperties")
        for key in list(value):
            below = catalogue.resolve(properties.get(key) or (extra if isinstance(extra, dict) else {}))
            yield Node(value, key, below, (*path, key))
            if key in value:
                yield from walk(catalogue, below, value[key], (*path, key))
    elif isinstance(value, list):
        below = catalogue.resolve(schema.get("items") or {})
        for index in range(len(value)):
            yield Node(value, index, below, (*path, index))
            if index < len(value):
                yield from walk(catalogue, below, value[index], (*path, index))


def is_quantity(schema: Mapping[str, Any]) -> bool:
    return "fixed-point representation" in str(schema.get("description", ""))[:60]


def make(catalogue: Catalogue, rng: Random, schema: Mapping[str, Any], name: str = "", depth: int = 0) -> Any:
    """Generate a value of a schema's type: required fields, and a few of the optional ones."""
    schema = catalogue.resolve(schema)
    if schema.get("enum"):
        return rng.choice(schema["enum"])
    if is_quantity(schema):
        return rng.choice(QUANTITIES)
    if schema.get("oneOf") or schema.get("format") == "int-or-string":
        return rng.choice([1, 80, "50%", "http"])
    kind = schema.get("type")
    if kind == "string":
        return text(rng, schema, name)
    if kind == "integer":
        return rng.choice([0, 1, 1, 2, 5, 30, 80, 600, 1000, 65535])
    if kind == "number":
        return rng.choice([0, 1, 1.5])
    if kind == "boolean":
        return rng.random() < 0.6
    if kind == "array":
        count = 0 if depth > DEEPEST else rng.choice([1, 1, 2])
        return [make(catalogue, rng, schema.get("items") or {}, name, depth + 1) for _ in range(count)]
    if "properties" in schema:
        return whole(catalogue, rng, schema, depth)
    if isinstance(schema.get("additionalProperties"), dict):
        return {
            key: make(catalogue, rng, schema["additionalProperties"], key, depth + 1)
            for key in rng.sample(["a", "b", "cpu", "memory", "example.com/x"], 2)
        }
    return {"a": 1} if rng.random() < 0.5 else {"b": {"c": ["d"]}}


def whole(catalogue: Catalogue, rng: Random, schema: Mapping[str, Any], depth: int) -> dict[str, Any]:
    share = (0.5, 0.4, 0.3, 0.25, 0.2, 0.1, 0.05)[min(depth, 6)]
    made = {}
    for key, below in schema["properties"].items():
        if key in ("apiVersion", "kind") and depth == 0:
            continue
        if key in schema.get("required", ()) or rng.random() < share:
            made[key] = make(catalogue, rng, below, key, depth + 1)
    return made


def text(rng: Random, schema: Mapping[str, Any], name: str) -> str:
    if schema.get("format") == "date-time":
        return rng.choice(TIMES)
    if schema.get("format") == "byte":
        return rng.choice(["YQ==", "", "aGVsbG8="])
    if name.lower().endswith("name") or name in ("namespace", "serviceAccount"):
        return rng.choice(["a", "b", "web", "x-1", "x-1"])
    if name.lower().endswith("ip"):
        return rng.choice(["10.1.2.3", "1.2.3.4", "fd00::1", "10.96.0.1"])
    if name.endswith(("cidr", "CIDR")):
        return rng.choice(["10.1.0.0/16", "fd00::/64"])
    return rng.choice(STRINGS)
