"""Patches as clients write them: from one object to another, or odd ones on purpose."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from random import Random
from typing import Any

from kubechronicle.ops.development.differential.catalogue import Catalogue
from kubechronicle.ops.development.differential.nodes import walk

ODD_VALUES: tuple[Any, ...] = (None, 1, "a", True, [], {}, ["a"], {"a": "b"}, -1, "")
IMPORTANT = ("metadata", "apiVersion", "kind")


def merge_patch(old: Any, new: Any) -> Any:
    """Return the JSON merge patch from one object to another."""
    if not isinstance(old, dict) or not isinstance(new, dict):
        return copy.deepcopy(new)
    patch: dict[str, Any] = {key: None for key in old if key not in new}
    for key, value in new.items():
        if key not in old:
            patch[key] = copy.deepcopy(value)
        elif old[key] != value:
            patch[key] = merge_patch(old[key], value)
    return patch


def strategic_patch(rng: Random, catalogue: Catalogue, schema: Mapping[str, Any], old: Any, new: Any) -> Any:
    """Return a strategic merge patch, with directives now and then; it is not always the exact difference."""
    schema = catalogue.resolve(schema)
    if not isinstance(old, dict) or not isinstance(new, dict):
        return copy.deepcopy(new)
    patch: dict[str, Any] = {key: None for key in old if key not in new}
    properties = schema.get("properties", {})
    for key, value in new.items():
        below = properties.get(key, {})
        if old.get(key) == value and rng.random() > 0.08:
            continue
        if isinstance(value, list) and isinstance(old.get(key), list):
            patch.update(patched_list(rng, catalogue, below, key, old[key], value))
        elif isinstance(value, dict) and isinstance(old.get(key), dict):
            patch[key] = strategic_patch(rng, catalogue, below, old[key], value)
            if "retainKeys" in str(below.get("x-kubernetes-patch-strategy")) and rng.random() < 0.5:
                patch[key]["$retainKeys"] = sorted(value)
            if rng.random() < 0.05:
                patch[key]["$patch"] = rng.choice(["replace", "merge", "delete", "x"])
        else:
            patch[key] = copy.deepcopy(value)
    return patch


def patched_list(
    rng: Random, catalogue: Catalogue, below: Mapping[str, Any], key: str, old: list[Any], new: list[Any]
) -> dict[str, Any]:
    merge_key = below.get("x-kubernetes-patch-merge-key")
    items = catalogue.resolve(below).get("items") or below.get("items") or {}
    if merge_key and all(isinstance(item, dict) for item in (*old, *new)):
        known = {str(item.get(merge_key)): item for item in old}
        patch: list[Any] = []
        for item in new:
            before = known.get(str(item.get(merge_key)))
            if before is None:
                patch.append(copy.deepcopy(item))
            elif before != item or rng.random() < 0.2:
                change = strategic_patch(rng, catalogue, items, before, item)
                patch.append({**change, merge_key: item.get(merge_key)})
        kept = {str(item.get(merge_key)) for item in new}
        patch += [
            {"$patch": "delete", merge_key: item.get(merge_key)} for name, item in known.items() if name not in kept
        ]
        if rng.random() < 0.05:
            patch.append({"$patch": rng.choice(["replace", "delete", "x"])})
        made: dict[str, Any] = {key: patch}
        if rng.random() < 0.3:
            made[f"$setElementOrder/{key}"] = [{merge_key: item.get(merge_key)} for item in new]
        return made
    if "merge" in str(below.get("x-kubernetes-patch-strategy")) and rng.random() < 0.5:
        gone = [item for item in old if item not in new]
        made = {key: [item for item in new if item not in old]}
        if gone:
            made[f"$deleteFromPrimitiveList/{key}"] = gone
        if rng.random() < 0.3:
            made[f"$setElementOrder/{key}"] = new
        return made
    return {key: copy.deepcopy(new)}


def pointer(path: tuple[Any, ...]) -> str:
    return "".join("/" + str(part).replace("~", "~0").replace("/", "~1") for part in path)


def json_patch(
    rng: Random, catalogue: Catalogue, schema: Mapping[str, Any], old: dict[str, Any], new: dict[str, Any]
) -> Any:
    """Return one to four operations on places of an object, some of them odd."""
    # A copied revision or uid would differ by server, wherever it goes.
    nodes = [node for node in walk(catalogue, schema, old) if "${" not in str(node.value)]
    fresh = list(walk(catalogue, schema, new))
    operations: list[Any] = []
    for _ in range(rng.choice([1, 1, 2, 3, 4])):
        node = rng.choice(nodes) if nodes else None
        path = pointer(node.path) if node else "/metadata/labels"
        if rng.random() < 0.15:
            path = odd_pointer(rng, path)
        value = rng.choice(ODD_VALUES) if rng.random() < 0.25 or not node else copy.deepcopy(node.value)
        if fresh and rng.random() < 0.4:
            other = rng.choice(fresh)
            path, value = pointer(other.path), copy.deepcopy(other.value)
        kind = rng.choice(["test", "add", "add", "replace", "replace", "remove", "copy", "move", "odd"])
        if kind in ("copy", "move"):
            origin = pointer(rng.choice(nodes).path) if nodes else "/metadata"
            operations.append(
                {"op": kind, "from": origin if rng.random() < 0.9 else odd_pointer(rng, origin), "path": path}
            )
        elif kind == "remove":
            operations.append({"op": "remove", "path": path})
        elif kind == "odd":
            operations.append(
                rng.choice(
                    [
                        {"op": "nope", "path": path},
                        {"path": path, "value": 1},
                        {"op": "add", "path": path},
                        {"op": "replace"},
                        {"op": "test", "path": path},
                        {"op": "remove"},
                        {"op": "copy", "path": path},
                        {},
                        {"op": "add", "path": path, "value": value, "x": 1},
                    ]
                )
            )
        else:
            operations.append({"op": kind, "path": path, "value": value})
    return operations


def odd_pointer(rng: Random, path: str) -> str:
    return rng.choice(
        [
            path + "/-",
            path + "/0",
            path + "/x",
            path + "/-1",
            path + "/01",
            path[1:],
            "",
            "/",
            path + "/",
            path.rsplit("/", 1)[0] + "/new",
            path.replace("/0", "/5"),
            path + "/a/b",
            "/metadata/labels/a~1b",
            "/metadata/annotations/x~0y",
            "/status",
            "/metadata/name",
        ]
    )


def projection(rng: Random, document: dict[str, Any], share: float) -> dict[str, Any]:
    """Return part of an object, as one of several appliers owns it."""
    kept: dict[str, Any] = {}
    for key, value in document.items():
        if key in ("apiVersion", "kind"):
            kept[key] = value
        elif key == "metadata":
            kept[key] = (
                {
                    name: value[name]
                    for name in value
                    if name in ("name", "namespace", "generateName") or rng.random() < share
                }
                if isinstance(value, dict)
                else value
            )
        elif key == "spec" and isinstance(value, dict):
            kept[key] = {
                name: one
                for name, one in value.items()
                if rng.random() < share or name in ("selector", "template", "containers")
            }
        elif rng.random() < share:
            kept[key] = value
    return copy.deepcopy(kept)
