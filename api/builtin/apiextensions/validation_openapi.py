"""The keywords of a definition's schema: which are supported, and which agree with each other.

``check`` walks the whole schema once. Causes of expressions come after all others, and a schema's rules are compiled
only if neither it nor a schema within it has another problem.

Source: ``ValidateCustomResourceDefinitionOpenAPISchema`` in apiextensions-apiserver
``pkg/apis/apiextensions/validation``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from kubechronicle.api.builtin.apiextensions.validation_rules import RULES, RuleCheck, Site, rule_forms
from kubechronicle.api.builtin.apiextensions.where import Where
from kubechronicle.api.errors.field_errors import (
    BoundedCauses,
    Cause,
    forbidden,
    invalid_value,
    not_supported,
    required,
)
from kubechronicle.api.values.objects import Object

TYPES: Final = ("array", "boolean", "integer", "number", "object", "string")
META_FIELDS: Final = ("apiVersion", "kind", "metadata")

_LIST_TYPE: Final = "x-kubernetes-list-type"
_MAP_TYPE: Final = "x-kubernetes-map-type"
_KEYS: Final = "x-kubernetes-list-map-keys"
_EMBEDDED: Final = "x-kubernetes-embedded-resource"
_PRESERVE: Final = "x-kubernetes-preserve-unknown-fields"
_LIST_TYPES: Final = ("atomic", "set", "map")
_MAP_TYPES: Final = ("atomic", "granular")


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenApiDemands:
    """Rules that an update enforces only if the old definition met them."""

    valid_types: bool = True
    atomic_sets: bool = True
    map_keys: bool = True


@dataclass(frozen=True, slots=True)
class _Scope:
    """The decisions of enclosing schemas. ``no_defaults``: the reason why defaults are forbidden here."""

    no_defaults: str = ""
    in_metadata: bool = False
    uncorrelatable: Where | None = None

    def within(self, where: Where) -> _Scope:
        return self if self.uncorrelatable is not None else replace(self, uncorrelatable=where)


def check(schema: Object, where: Where, demands: OpenApiDemands, rules: RuleCheck | None) -> list[Cause]:
    """Return the problems of a schema. ``rules``: None if the rules of an invalid schema are not compiled."""
    walk = _Walk(demands, rules)
    site = None if rules is None else Site(schema, None)
    walk.schema(schema, where, _Scope(), site, root=True)
    return walk.causes.found + walk.of_rules.found


class _Walk:
    def __init__(self, demands: OpenApiDemands, rules: RuleCheck | None) -> None:
        self.causes = BoundedCauses()
        self.of_rules = BoundedCauses()
        self._demands = demands
        self._rules = rules

    def schema(self, schema: Object, where: Where, scope: _Scope, site: Site | None, *, root: bool = False) -> None:
        """Check a schema and all within it. ``site``: None where rules are not compiled."""
        if self.causes.full:
            return
        before = len(self.causes)
        self._keywords(schema, where, scope)
        if schema.get("uniqueItems"):
            detail = "uniqueItems cannot be set to true since the runtime complexity becomes quadratic"
            self.causes.add(forbidden(where.child("uniqueItems"), detail))
        self._values(schema, where, scope, site)
        self._properties(schema, where, scope, site, root=root)
        self._branches(schema, where, scope)
        self._items(schema, where, scope, site)
        for name, below in (schema.get("dependencies") or {}).items():
            if isinstance(below, dict):
                self.schema(below, where.child("dependencies").key(name), scope, None)
        self.causes.extend(_extensions(schema, where, self._demands))
        self.causes.extend(_list_map(schema, where))
        if self._demands.map_keys:
            self.causes.extend(map_keys(schema, where))
        if schema.get(RULES):
            self.causes.extend(rule_forms(schema, where))
            if len(self.causes) == before and site is not None and self._rules is not None:
                self.of_rules.extend(self._rules.site(site, where, scope.uncorrelatable))

    def _keywords(self, schema: Object, where: Where, scope: _Scope) -> None:
        kind = schema.get("type", "")
        if self._demands.valid_types and kind and kind not in TYPES:
            self.causes.add(not_supported(where.child("type"), kind, TYPES))
        if scope.no_defaults and schema.get("default") is not None:
            self.causes.add(forbidden(where.child("default"), f"must not be set {scope.no_defaults}"))
        for name in ("id", "additionalItems", "patternProperties", "definitions", "dependencies", "$ref"):
            value = schema.get(name)
            if value or (name in ("additionalItems", "dependencies", "$ref") and value is not None):
                self.causes.add(forbidden(where.child(name), f"{name} is not supported"))
        if kind == "null":
            detail = "type cannot be set to null, use nullable as an alternative"
            self.causes.add(forbidden(where.child("type"), detail))
        if isinstance(schema.get("items"), list) and schema["items"]:
            self.causes.add(forbidden(where.child("items"), "items must be a schema object and not an array"))
        if scope.in_metadata and schema.get(_EMBEDDED):
            self.causes.add(forbidden(where.child(_EMBEDDED), "must not be used inside of resource meta"))

    def _values(self, schema: Object, where: Where, scope: _Scope, site: Site | None) -> None:
        values = schema.get("additionalProperties")
        if values is None:
            return
        at = where.child("additionalProperties")
        if schema.get("properties") and values is not True:
            self.causes.add(forbidden(at, "additionalProperties and properties are mutual exclusive"))
        if isinstance(values, dict):
            if scope.in_metadata:
                scope = replace(scope, no_defaults="inside additionalProperties applying to object metadata")
            below = None if site is None else Site(values, site)
            self.schema(values, at, scope, below)

    def _properties(self, schema: Object, where: Where, scope: _Scope, site: Site | None, *, root: bool) -> None:
        fields = schema.get("properties")
        if not fields:
            return
        if schema.get(_MAP_TYPE) not in (None, *_MAP_TYPES):
            scope = scope.within(where)
        at, resource = where.child("properties"), root or schema.get(_EMBEDDED)
        for name, field in fields.items():
            inner = scope
            if resource and name in META_FIELDS:
                inner = replace(scope, in_metadata=True)
                if root:
                    inner = replace(inner, no_defaults=f"in top-level {name}")
            here = at.key(name)
            below = None if site is None else Site(field, site)
            self.schema(field, here, inner, below)

    def _branches(self, schema: Object, where: Where, scope: _Scope) -> None:
        if schema.get("not") is not None:
            self.schema(schema["not"], where.child("not"), scope, None)
        for name in ("allOf", "oneOf", "anyOf"):
            for index, each in enumerate(schema.get(name) or ()):
                self.schema(each, where.child(name).index(index), scope, None)
        for name, each in (schema.get("definitions") or {}).items():
            self.schema(each, where.child("definitions").key(name), scope, None)

    def _items(self, schema: Object, where: Where, scope: _Scope, site: Site | None) -> None:
        items = schema.get("items")
        if items is None:
            return
        if schema.get(_LIST_TYPE) != "map":
            scope = scope.within(where)
        at = where.child("items")
        for below, here in [(items, at)] if isinstance(items, dict) else _indexed(items, at):
            self.schema(below, here, scope, None if site is None else Site(below, site))


def _indexed(items: Sequence[Object], where: Where) -> list[tuple[Object, Where]]:
    return [(each, where.index(index)) for index, each in enumerate(items)]


def _item(schema: Object) -> Object | None:
    items = schema.get("items")
    return items if isinstance(items, dict) else None


def _extensions(schema: Object, where: Where, demands: OpenApiDemands) -> Iterator[Cause]:
    if schema.get(_PRESERVE) is False:
        yield invalid_value(where.child(_PRESERVE), False, "must be true or undefined")
    map_type, list_type, kind = schema.get(_MAP_TYPE), schema.get(_LIST_TYPE), schema.get("type", "")
    if map_type is not None:
        if kind != "object":
            yield _wrong_type(where, kind, f"must be object if {_MAP_TYPE} is specified")
        if map_type not in _MAP_TYPES:
            yield not_supported(where.child(_MAP_TYPE), map_type, _MAP_TYPES)
    keys = schema.get(_KEYS)
    if list_type is not None:
        if kind != "array":
            yield _wrong_type(where, kind, f"must be array if {_LIST_TYPE} is specified")
        elif demands.atomic_sets:
            yield from _atomic_set(schema, where)
        if list_type not in _LIST_TYPES:
            yield not_supported(where.child(_LIST_TYPE), list_type, _LIST_TYPES)
    if keys and list_type != "map":
        detail, at = f"must be map if {_KEYS} is non-empty", where.child(_LIST_TYPE)
        yield required(at, detail) if list_type is None else invalid_value(at, list_type, detail)


def _wrong_type(where: Where, kind: str, detail: str) -> Cause:
    at = where.child("type")
    return invalid_value(at, kind, detail) if kind else required(at, detail)


def atomic_set_problem(schema: Object) -> str:
    """Return the extension that keeps the items of a list of type set from being atomic, empty if they are."""
    item = _item(schema)
    if schema.get(_LIST_TYPE) != "set" or item is None:
        return ""
    if item.get("type") == "array" and item.get(_LIST_TYPE) not in (None, "atomic"):
        return _LIST_TYPE
    return _MAP_TYPE if item.get("type") == "object" and item.get(_MAP_TYPE) != "atomic" else ""


def _atomic_set(schema: Object, where: Where) -> Iterator[Cause]:
    name = atomic_set_problem(schema)
    if not name:
        return
    # kube-apiserver shows the list type in both cases.
    at, shown = where.child("items").child(name), schema["items"].get(_LIST_TYPE)
    yield invalid_value(at, shown, f"must be atomic as item of a list with {_LIST_TYPE}=set")


def _list_map(schema: Object, where: Where) -> Iterator[Cause]:
    """Check the keys and the items of a list of type map."""
    if schema.get(_LIST_TYPE) != "map":
        return
    keys, items, at = schema.get(_KEYS) or (), schema.get("items"), where.child("items")
    if not keys:
        yield required(where.child(_KEYS), f"must not be empty if {_LIST_TYPE} is map")
    if items is None:
        yield required(at, f"must have a schema if {_LIST_TYPE} is map")
    elif not isinstance(items, dict):
        shown = {"Schema": None, "JSONSchemas": _printed(items)}
        yield invalid_value(at, shown, f"must only have a single schema if {_LIST_TYPE} is map")
    elif items.get("type", "") != "object":
        detail = f"must be object if parent array's {_LIST_TYPE} is map"
        yield invalid_value(at.child("type"), items.get("type", ""), detail)
    else:
        yield from _map_key_names(items, keys, where)


def _printed(items: Sequence[Object]) -> list[Any]:
    from kubechronicle.api.builtin.apiextensions import printed

    return list(map(printed.schema, items))


def _map_key_names(items: Object, keys: Sequence[str], where: Where) -> Iterator[Cause]:
    fields, seen = items.get("properties") or {}, set[str]()
    for key in keys:
        field = fields.get(key)
        if field is None:
            detail = "entries must all be names of item properties"
            yield invalid_value(where.child(_KEYS), keys, detail)
        elif field.get("type") in ("array", "object"):
            at = where.child("items").child("properties").key(key).child("type")
            detail = f"must be a scalar type if parent array's {_LIST_TYPE} is map"
            yield invalid_value(at, items["type"], detail)  # the items' type, as kube-apiserver shows
        if key in seen:
            yield invalid_value(where.child(_KEYS), keys, "must not contain duplicate entries")
        seen.add(key)


def map_keys(schema: Object, where: Where) -> Iterator[Cause]:
    """Check that items of a set or map are not nullable, and that the keys of a map are always there."""
    items, list_type = _item(schema), schema.get(_LIST_TYPE)
    if items is None or list_type not in ("set", "map"):
        return
    at = where.child("items")
    if items.get("nullable"):
        yield forbidden(at.child("nullable"), f"cannot be nullable when {_LIST_TYPE} is {list_type}")
    if list_type == "set":
        return
    fields, needed = items.get("properties") or {}, set(items.get("required") or ())
    for key in schema.get(_KEYS) or ():
        field = fields.get(key)
        if field is None:
            continue
        here, reason = at.child("properties").key(key), f"this property is in {_KEYS}, so it"
        if key not in needed and field.get("default") is None:
            detail = f"{reason} must have a default or be a required property"
            yield required(here.child("default"), detail)
        if field.get("nullable"):
            yield forbidden(here.child("nullable"), f"{reason} cannot be nullable")
