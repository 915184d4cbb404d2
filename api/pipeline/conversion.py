"""Conversion between the versions of a resource: a registry of pure functions.

The kinds' files (builtin/kinds.py) have the rules, from and to the stored version; other conversions go through that
version. Versions of a kind without rules have the same fields, and differ by name. An object already in the wanted
version is returned as it is; otherwise the result shares no mutable parts with it.

Invariant: a round trip returns the same object; annotations keep the fields that a version lacks.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final

from kubechronicle.api.custom import numbers
from kubechronicle.api.custom.schema.compiled import CompiledSchema
from kubechronicle.api.custom.schema.known_contents import Contents
from kubechronicle.api.custom.version import CustomVersion
from kubechronicle.api.errors import status
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


# -- custom versions ---------------------------------------------------------------------------------------------------
#
# Custom objects in the versions of their definition: as stored, and as requests see them.
#
# ``convert_custom`` is the one function through which the conversion of a custom object goes. Around it stand the steps
# of kube-apiserver's codec (apiextensions-apiserver ``pkg/apiserver/customresource_handler.go``):
#
#     read        stored → cleaned and defaulted by the schema of its own version → converted → cleaned in the new one
#     to_stored   of a request → converted to the stored version → cleaned and defaulted in that
#
# So fields that a schema no longer has, or defaults that it gained, show in each read; a write stores them.


ConvertByWebhook = Callable[[CustomVersion, Object, str], Object]
"""(definition, object, API version) -> the object in this version. Raises StatusError, or an exception to retry on."""


def _without_webhooks(custom: CustomVersion, obj: Object, api_version: str) -> Object:
    raise status.internal_error(f"no webhook can convert {custom.plural}.{custom.group} to {api_version} here")


_by_webhook: Final[ContextVar[ConvertByWebhook]] = ContextVar("by_webhook", default=_without_webhooks)


@contextmanager
def converting_by(convert: ConvertByWebhook) -> Iterator[None]:
    """Let ``convert`` do the conversions of webhooks, in this task and its threads, until the end of the block."""
    token = _by_webhook.set(convert)
    try:
        yield
    finally:
        _by_webhook.reset(token)


def convert_custom(custom: CustomVersion, obj: Object, api_version: str) -> Object:
    """Return an object in another version of its definition; it shares parts with ``obj``, which is consumed.

    Strategy None changes the apiVersion alone. Strategy Webhook has the function of ``converting_by`` do it, which
    raises if the webhook's answer is not there yet. LookupError if the definition does not have the version.
    """
    if obj["apiVersion"] == api_version:
        return obj
    group, _, name = api_version.rpartition("/")
    if group != custom.group or name not in custom.versions:
        raise LookupError(f"request to convert CR to an invalid group/version: {api_version}")
    if custom.conversion.get("strategy") == "Webhook":
        return _by_webhook.get()(custom, obj, api_version)
    return {**obj, "apiVersion": api_version}


def read(rt: ResourceType, obj: Object) -> Object:
    """Return a stored object as requests in the type's version see it. ``obj`` is consumed."""
    obj = as_stored(rt, obj)
    if obj["apiVersion"] == rt.api_version:
        return obj
    return as_served(rt, convert_custom(rt.custom, obj, rt.api_version))


def as_stored(rt: ResourceType, obj: Object) -> Object:
    """Return a stored object, cleaned and defaulted by the present schema of its own version. ``obj`` is consumed."""
    own = rt.custom.versions.get(obj["apiVersion"].rpartition("/")[2])
    if own is not None:
        own.schema.settle(obj, drop_malformed=True)
    obj["metadata"].setdefault("generation", 1)
    return obj


def as_served(rt: ResourceType, obj: Object) -> Object:
    """Return a converted object, cleaned by the schema of the type's version. ``obj`` is consumed."""
    rt.custom.schema.clean(obj, drop_malformed=True)
    return obj


def to_stored(rt: ResourceType, obj: Object) -> Object:
    """Return an object of a request in the stored form. ``obj`` is consumed."""
    custom: CustomVersion = rt.custom
    obj = convert_custom(custom, obj, rt.storage_api_version)
    custom.storage.schema.settle(obj, drop_malformed=True)  # kube-apiserver sets the defaults in each read
    return numbers.as_written(obj)


def of_settled(rt: ResourceType, obj: Object, contents: Contents) -> Object:
    """Return an object in the stored form, of which only the metadata may lack that form. ``obj`` is consumed.

    ``contents``: of the object. Metadata in their form hold no floats, so only the contents are searched for them.
    """
    schema: CompiledSchema = rt.custom.storage.schema
    schema.coerce(obj, drop_malformed=True)
    if schema.is_known_to_conform(contents):
        return obj
    if contents.text is not None and not numbers.has_whole_floats(contents.text):
        return obj
    return numbers.as_written(obj)
