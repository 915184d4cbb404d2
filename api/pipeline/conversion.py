"""Conversion between the versions of a resource: a registry of pure functions.

The kinds' files (builtin/kinds.py) have the rules, from and to the stored version; other conversions go through that
version. Versions of a kind without rules have the same fields, and differ by name. An object already in the wanted
version is returned as it is; otherwise the result shares no mutable parts with it.

Invariant: a round trip returns the same object; annotations keep the fields that a version lacks.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final

from kubechronicle.api.custom import numbers
from kubechronicle.api.custom.schema.compiled import CompiledSchema
from kubechronicle.api.custom.schema.known_contents import Contents
from kubechronicle.api.custom.version import CustomVersion
from kubechronicle.api.errors import status
from kubechronicle.api.managed_fields import managers
from kubechronicle.api.meta.encoding import copy_object
from kubechronicle.api.registry.registry import ResourceType, known_registry
from kubechronicle.api.schema import types
from kubechronicle.api.schema.empties import put_back
from kubechronicle.api.schema.equality import holds_json, same_json
from kubechronicle.api.schema.types import (
    LIST,
    ONE,
    ObjectType,
    defaults,
    objects_below,
    pointers,
    short_name,
)
from kubechronicle.api.strategy.strategy import Strategy, WriteContext
from kubechronicle.api.values import quantity
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


# -- defaulting --------------------------------------------------------------------------------------------------------
#
# The walk that fills in defaults, driven by declared defaults (api/kinds) and the tables of builtin/kinds.py.
#
# Defaults belong to definitions, not to kinds: the defaults of a Container apply in Pods, Deployments and PodTemplates.
# A plan per definition lists the defaulted parts of its subtree, so that the walk visits only these. Parents come
# before their children, as in Kubernetes' generated code.
#
# Invariant: defaulting a defaulted object changes nothing.


class _Plan:
    """The plan for objects of one definition: values to fill in, ``run`` to call, ``below`` to descend to.

    ``values``: constants that replace an absent field and an empty string.
    ``pointers``: constants that replace an absent field only, because the Go field is a pointer.
    ``shared``: lists and maps, which are copied.
    ``rounded``: maps of amounts, which are rounded after ``run``.
    """

    __slots__ = ("below", "pointers", "rounded", "run", "shared", "values")

    def __init__(
        self,
        values: Mapping[str, Any],
        pointers: Collection[str],
        run: Callable[[Object], None] | None,
        rounded: Sequence[str],
    ) -> None:
        plain = [(name, value) for name, value in values.items() if not isinstance(value, dict | list)]
        self.values = [(name, value) for name, value in plain if name not in pointers]
        self.pointers = [(name, value) for name, value in plain if name in pointers]
        self.shared = [(name, value) for name, value in values.items() if isinstance(value, dict | list)]
        self.run = run
        self.rounded = rounded
        self.below: list[tuple[str, str, _Plan]] = []

    @property
    def is_empty(self) -> bool:
        """True if it fills in nothing."""
        return not (self.values or self.pointers or self.shared or self.run or self.rounded or self.below)


def apply(obj: Object, kind: ObjectType) -> None:
    """Fill in the defaults of an object of this kind, in place."""
    plan = _plan_of(kind.definition)
    if plan is not None:
        _apply(obj, plan)


def _apply(obj: Object, plan: _Plan) -> None:
    for name, value in plan.values:
        held = obj.get(name)
        if held is None or held == "":
            obj[name] = value
    for name, value in plan.pointers:
        if obj.get(name) is None:
            obj[name] = value
    for name, value in plan.shared:
        if obj.get(name) is None:
            obj[name] = copy_object(value)
    if plan.run is not None:
        plan.run(obj)
    for name in plan.rounded:
        amounts = obj.get(name)
        if amounts:
            _round(amounts)
    for name, shape, below in plan.below:
        value = obj.get(name)
        if not value and value != {}:
            continue
        if shape is ONE:
            _apply(value, below)
        else:
            for item in value if shape is LIST else value.values():
                _apply(item, below)


def _round(amounts: Object) -> None:
    for name, amount in amounts.items():
        # Canonical amounts below a thousandth end so; others are seldom.
        if not amount.isdigit() and (amount.endswith(("n", "u")) or "." in amount or "-" in amount):
            amounts[name] = quantity.in_thousandths(amount)


@functools.cache
def _plan_of(definition: str) -> _Plan | None:
    """Return the plan of a definition, None if its subtree has no defaults."""
    # Imported with the first object: commands read configuration files, and not the rules of all kinds.
    from kubechronicle.api.builtin.kinds import DEFAULT_FUNCTIONS, DEFAULT_VALUES, RESOURCE_LISTS

    kind = ObjectType(definition)
    name = short_name(definition)
    values = {**defaults(definition), **DEFAULT_VALUES.get(name, {})}
    plan = _Plan(values, pointers(definition), DEFAULT_FUNCTIONS.get(name), RESOURCE_LISTS.get(name, ()))
    for field in kind.fields.values():
        target, shape = objects_below(field.type)
        below = None if target is None or _contains_itself(target.definition) else _plan_of(target.definition)
        if below is not None:
            plan.below.append((field.name, shape, below))
    return None if plan.is_empty else plan


@functools.cache
def _contains_itself(definition: str) -> bool:
    """Tell whether objects of a definition have such objects below them. These types have no defaults."""
    seen: set[str] = set()
    pending = [definition]
    while pending:
        for field in ObjectType(pending.pop()).fields.values():
            target, _ = objects_below(field.type)
            if target is not None and target.definition not in seen:
                seen.add(target.definition)
                pending.append(target.definition)
    return definition in seen
