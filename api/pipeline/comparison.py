"""Comparison of the new object of a write with the stored one: whether anything counts as changed."""

from __future__ import annotations

from typing import Any

from kubechronicle.api.managed_fields import managers
from kubechronicle.api.registry.registry import ResourceType, known_registry
from kubechronicle.api.schema import types
from kubechronicle.api.schema.empties import put_back
from kubechronicle.api.schema.equality import holds_json, same_json
from kubechronicle.api.strategy.strategy import Strategy
from kubechronicle.api.strategy.write_context import WriteContext
from kubechronicle.api.values.objects import Object


def storage_kind(rt: ResourceType) -> types.ObjectType:
    """Return the type of a resource's stored objects."""
    if rt.is_storage_version:
        return types.object_type(rt.definition)
    stored = known_registry().storage(rt.resource) or rt
    return types.object_type(stored.definition)


def unchanged(rt: ResourceType, one: Any, other: Any) -> bool:
    """Return whether objects of a resource, or their parts, are equal."""
    if not rt.definition or holds_json(storage_kind(rt)):
        return same_json(one, other)
    return bool(one == other)


def changes_generation(rt: ResourceType, strategy: Strategy, new: Object, old: Object, ctx: WriteContext) -> bool:
    """Return whether a field that counts in the generation has changed."""
    restored = put_back(new, ctx.empties if strategy.generation_counts_empties else ())
    changed = not all(unchanged(rt, new.get(name), old.get(name)) for name in strategy.generation_fields)
    restored.undo()
    return changed


def keep_times(rt: ResourceType, old: Object, new: Object) -> None:
    """Keep the stored managedFields if newer times in them are the only change."""
    meta, held = new["metadata"], old["metadata"]
    entries = meta.get("managedFields", ())
    stored = held.get("managedFields", ())
    if entries != stored and managers.equal_but_times(entries, stored):
        same = {**new, "metadata": {**meta, "managedFields": stored}}
        if unchanged(rt, same, old):
            meta["managedFields"] = stored
