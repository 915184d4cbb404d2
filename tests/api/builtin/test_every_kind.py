"""Every built-in kind goes through the whole pipeline: an object is stored or rejected by a StatusError."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from kubechronicle.api.errors.status import StatusError
from kubechronicle.api.meta.encoding import copy_object, encode_stored
from kubechronicle.api.meta.options import DeleteOptions
from kubechronicle.api.pipeline import deleting, patches, pipeline
from kubechronicle.api.pipeline.pipeline import Outcome, WriteContext
from kubechronicle.api.registry.registry import ResourceType, builtin_registry
from kubechronicle.api.schema import check, types

NOW = "2026-01-01T00:00:00Z"
STORED = [rt for rt in builtin_registry() if rt.stored]
DEPTH = 5


def random_value(kind: types.Type, chance: random.Random, depth: int = 0) -> Any:
    """Return a random value of a type: well typed, but without meaning."""
    if isinstance(kind, types.ObjectType):
        names = list(kind.fields)
        if depth >= DEPTH:
            names = []
        chosen = chance.sample(names, min(len(names), chance.randint(1, 6)))
        return {name: random_value(kind.fields[name].type, chance, depth + 1) for name in chosen}
    if isinstance(kind, types.ListType):
        return [random_value(kind.item, chance, depth + 1) for _ in range(chance.randint(0, 2))]
    if isinstance(kind, types.MapType):
        return {key: random_value(kind.value, chance, depth + 1) for key in chance.sample(["a", "b c", "cpu"], 2)}
    if isinstance(kind, types.Scalar):
        return chance.choice(SCALARS[kind.kind])
    return chance.choice([{}, {"x": 1}, None])


SCALARS: dict[str, list[Any]] = {
    "string": ["", "a", "B_c", "-1", "None", "RollingUpdate", "ClientIP", "1Gi", "@daily", "* * * * 9"],
    "boolean": [True, False],
    "int32": [-1, 0, 1, 70000],
    "int64": [-1, 0, 2**40],
    "number": [0, 1.5],
    "bytes": ["", "eA=="],
    "time": ["2026-01-01T00:00:00Z", None],
    "microtime": ["2026-01-01T00:00:00.000000Z", None],
    "quantity": ["1", "-1", "1.5Gi", 3],
    "intorstring": [0, -1, "150%", "x", "http"],
}


def context(rt: ResourceType, name: str = "", **more: Any) -> WriteContext:
    namespace = "n" if rt.namespaced else ""
    return WriteContext(now=NOW, uid="u", name_suffix="bcdfg", manager="m", namespace=namespace, name=name, **more)


def create(rt: ResourceType, obj: dict[str, Any]) -> dict[str, Any]:
    ctx = context(rt)
    decoded, _ = pipeline.decode_object(rt, obj, ctx, create=True)
    prepared = pipeline.prepare_create(rt, decoded, ctx)
    stored: dict[str, Any] = json.loads(encode_stored(prepared.object))
    stored["metadata"]["resourceVersion"] = "5"
    return stored


@pytest.mark.parametrize("rt", STORED, ids=repr)
def test_any_well_typed_object_is_stored_or_rejected(rt: ResourceType) -> None:
    chance = random.Random(rt.resource)
    kind = types.object_type(rt.definition)
    rejections: list[StatusError] = []
    for round_ in range(60):
        obj = random_value(kind, chance) if round_ else {}
        obj = {name: value for name, value in obj.items() if name not in ("apiVersion", "kind")}
        obj["metadata"] = {"name": "a"}
        try:
            stored = create(rt, obj)
        except StatusError as rejection:
            rejections.append(rejection)
            continue
        rejections += exercise(rt, stored, chance)
    assert {rejection.code for rejection in rejections} <= {400, 422, 500}


def exercise(rt: ResourceType, stored: dict[str, Any], chance: random.Random) -> list[StatusError]:
    """Patch, replace and delete a stored object; return the rejections."""
    rejections: list[StatusError] = []
    ctx = context(rt, "a")
    shown = pipeline.to_request_version(rt, stored)
    again = json.loads(json.dumps(shown))
    assert check.check(again, types.object_type(rt.definition)) == []
    assert again == shown
    same, _ = pipeline.decode_object(rt, again, ctx, create=False)
    assert pipeline.prepare_update(rt, stored, same, ctx).outcome is Outcome.UNCHANGED
    for subresource in ("", *(name for name in rt.subresources if name == "status")):
        inner = context(rt, "a", subresource=subresource)
        part = random_value(types.object_type(rt.definition), chance)
        part = {name: value for name, value in part.items() if name not in ("apiVersion", "kind", "metadata")}
        body = json.dumps({"metadata": {"labels": {"x": "y"}}, **part}).encode()
        for content_type in ("application/merge-patch+json", "application/strategic-merge-patch+json"):
            try:
                new, _ = patches.apply_patch(rt, copy_object(stored), content_type, body, inner)
                pipeline.prepare_update(rt, stored, new, inner)
            except StatusError as rejection:
                rejections.append(rejection)
    deleting.prepare_delete(rt, stored, DeleteOptions(propagation_policy="Foreground"), ctx)
    return rejections
