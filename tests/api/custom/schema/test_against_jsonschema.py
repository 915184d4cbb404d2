"""Generated schemas and values: the verdict is that of the library jsonschema, for keywords with the same meaning."""

from __future__ import annotations

import random
from typing import Any

import jsonschema  # type: ignore[import-untyped]
import pytest

from kubechronicle.api.custom.schema.compiled import compile_schema

TEXTS = ("", "a", "b", "ab", "abc", "é")
NUMBERS = (0, 1, 2, 3, -3, 2.5, 10)


def some(pick: random.Random, **keywords: Any) -> dict[str, Any]:
    """Return some of the keywords."""
    return {name: value for name, value in keywords.items() if pick.random() < 0.3}


def schema_of(pick: random.Random, depth: int) -> dict[str, Any]:
    kinds = ["string", "integer", "number", "boolean"] + ["object", "array"] * (2 * bool(depth))
    kind = pick.choice(kinds)
    schema: dict[str, Any] = {"type": kind}
    if kind == "string":
        pattern, length = pick.choice(("^a", "b$", "[a-c]+")), pick.randrange(4)
        schema |= some(pick, minLength=length, maxLength=length, pattern=pattern, enum=pick.sample(TEXTS, 2))
    elif kind in ("integer", "number"):
        schema |= some(
            pick, minimum=pick.choice((0, 1, 2)), maximum=pick.choice((1, 2, 5)), multipleOf=pick.choice((1, 2))
        )
    elif kind == "array":
        schema |= {"items": schema_of(pick, depth - 1)} | some(pick, minItems=1, maxItems=2)
    elif kind == "object":
        schema["properties"] = {name: schema_of(pick, depth - 1) for name in "ab"}
        schema |= some(pick, required=["a"], minProperties=1, maxProperties=1)
    if depth:
        for name in ("allOf", "anyOf", "oneOf"):
            schema |= some(pick, **{name: [schema_of(pick, 0) for _ in range(2)]}) if pick.random() < 0.3 else {}
        schema |= some(pick, **{"not": schema_of(pick, 0)}) if pick.random() < 0.3 else {}
    return schema


def value_of(pick: random.Random, schema: dict[str, Any]) -> Any:
    kind = schema["type"] if pick.random() < 0.9 else pick.choice(("string", "integer", "object", "array"))
    if kind == "array":
        return [value_of(pick, schema.get("items", {"type": "string"})) for _ in range(pick.randrange(4))]
    if kind == "object":
        properties = schema.get("properties", {})
        return {name: value_of(pick, properties[name]) for name in properties if pick.random() < 0.7}
    return pick.choice(TEXTS if kind == "string" else (True, False) if kind == "boolean" else NUMBERS)


@pytest.mark.parametrize("seed", range(300))
def test_verdicts_are_those_of_jsonschema(seed: int) -> None:
    pick = random.Random(seed)
    schema = schema_of(pick, 3)
    compiled = compile_schema({"type": "object", "properties": {"f": schema}})
    oracle = jsonschema.Draft202012Validator(schema)
    for _ in range(10):
        value = value_of(pick, schema)
        assert (not compiled.validate({"f": value})) == oracle.is_valid(value), (schema, value)
