"""Conversion between the versions of a resource: a registry of pure functions.

The kinds' files (builtin/kinds.py) have the rules, from and to the stored version; other conversions go through that
version. Versions of a kind without rules have the same fields, and differ by name. An object already in the wanted
version is returned as it is; otherwise the result shares no mutable parts with it.

Invariant: a round trip returns the same object; annotations keep the fields that a version lacks.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from kubechronicle.api.managed_fields import managers
from kubechronicle.api.registry.registry import ResourceType, known_registry
from kubechronicle.api.schema import types
from kubechronicle.api.schema.empties import put_back
from kubechronicle.api.schema.equality import holds_json, same_json
from kubechronicle.api.strategy.strategy import Strategy
from kubechronicle.api.strategy.write_context import WriteContext
from kubechronicle.api.values.objects import Object

# -- comparison --------------------------------------------------------------------------------------------------------
#
# Comparison of the new object of a write with the stored one: whether anything counts as changed.


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


# -- conversion --------------------------------------------------------------------------------------------------------

Converter = Callable[[Object], Object]


@functools.cache
def _ways() -> Mapping[tuple[str, str, str], tuple[Converter, ...]]:
    """Return (kind, from, to) -> the converters to apply, one or two."""
    from kubechronicle.api.builtin.kinds import CONVERTERS

    single = {**dict(_renamings()), **CONVERTERS}
    found = {
        (kind, start, end): (first, second)
        for (kind, start, between), first in single.items()
        for (other, middle, end), second in single.items()
        if (kind, between) == (other, middle) and start != end
    }
    return found | {names: (converter,) for names, converter in single.items()}


def _renamings() -> Iterator[tuple[tuple[str, str, str], Converter]]:
    """Yield the ways between each version and the stored one, as if they had the same fields."""
    from kubechronicle.api.builtin.common.version_conversion import renaming

    registry = known_registry()
    for rt in registry:
        stored = registry.storage(rt.resource)
        if stored is not None and rt is not stored and rt.definition:
            for start, end in ((rt, stored), (stored, rt)):
                yield (rt.kind, start.api_version, end.api_version), renaming(end.api_version, end.definition)


def can_convert(kind: str, current: str, wanted: str) -> bool:
    """Return True if objects of a kind can be converted between two versions."""
    return current == wanted or (kind, current, wanted) in _ways()


def convert(obj: Object, api_version: str) -> Object:
    """Return the object in another version of its kind. LookupError if there is no such conversion."""
    current = obj["apiVersion"]
    if current == api_version:
        return obj
    way = _ways().get((obj["kind"], current, api_version))
    if way is None:
        raise LookupError(f"{obj['kind']} cannot be converted from {current} to {api_version}")
    for converter in way:
        obj = converter(obj)
    return obj
