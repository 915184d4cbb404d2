"""Structural schemas: each value has a type outside of allOf, anyOf, oneOf and not, which only restrict values.

``structural`` checks a schema that has a structural form (hub.unsupported). The causes are sorted by their text,
as kube-apiserver sorts them.

Source: apiextensions-apiserver ``pkg/apiserver/schema/validation.go`` and ``complete.go``.
"""

from __future__ import annotations

from typing import Any, Final

from kubechronicle.api.builtin.apiextensions.where import SchemaPatterns, Where
from kubechronicle.api.errors.field_errors import BoundedCauses, Cause, forbidden, invalid_value, required
from kubechronicle.api.values.objects import Object

ROOT: Final = "at the root"
ITEM: Final = "for specified array items"
FIELD: Final = "for specified object fields"

_PRESERVE: Final = "x-kubernetes-preserve-unknown-fields"
_EMBEDDED: Final = "x-kubernetes-embedded-resource"
_INT_OR_STRING: Final = "x-kubernetes-int-or-string"
_INT_OR_STRING_TYPES: Final = [{"type": "integer"}, {"type": "string"}]
_METADATA_MAY_HAVE: Final = ("type", "default", "properties", "nullable")

_NESTED_MUST_BE_EMPTY: Final = (
    ("type", "empty"),
    ("default", "undefined"),
    ("title", "empty"),
    ("description", "empty"),
    ("nullable", "false"),
    (_PRESERVE, "false"),
    (_EMBEDDED, "false"),
    (_INT_OR_STRING, "false"),
    ("x-kubernetes-list-map-keys", "empty"),
    ("x-kubernetes-list-type", "undefined"),
    ("x-kubernetes-map-type", "undefined"),
    ("x-kubernetes-validations", "empty"),
)
"""Keywords that allOf, anyOf, oneOf and not may not have, and the word for it."""

_POINTERS: Final = ("default", "x-kubernetes-list-type", "x-kubernetes-map-type")


def structural(schema: Object, where: Where, patterns: SchemaPatterns | None = None) -> list[Cause]:
    """Return the problems that keep a schema from being structural. ``patterns``: shared by a definition's schemas."""
    check = _StructuralCheck(SchemaPatterns() if patterns is None else patterns)
    check.invariants(schema, ROOT, where)
    check.complete(schema, schema, where, where)
    return sorted(check.causes.found, key=str)


def is_structural(schema: Object, patterns: SchemaPatterns | None = None) -> bool:
    """Return whether a schema without unsupported keywords is structural."""
    return not structural(schema, Where.of(""), patterns)


def _values(schema: Object) -> Any:
    """Return the schema of additional properties; a bool or None if there is none."""
    return schema.get("additionalProperties")


def _items(schema: Object) -> Object | None:
    items = schema.get("items")
    return items if isinstance(items, dict) else None


class _StructuralCheck:
    def __init__(self, patterns: SchemaPatterns) -> None:
        self.causes = BoundedCauses()
        self._patterns = patterns

    def invariants(self, schema: Object, level: str, where: Where) -> None:
        """Check a schema outside of allOf, anyOf, oneOf and not, and those below it."""
        if self.causes.full:
            return
        items, values, fields = _items(schema), _values(schema), schema.get("properties") or {}
        if items is not None:
            self.invariants(items, ITEM, where.child("items"))
        elif schema.get("type") == "array":
            self.causes.add(required(where.child("items"), "must be specified"))
        below = where.child("properties")
        for name, field in fields.items():
            self.invariants(field, FIELD, below.key(name))
        if isinstance(values, dict):
            self.invariants(values, FIELD, where.child("additionalProperties"))
        self._restrictions(
            schema,
            where,
            skip_any=schema.get("anyOf") == _INT_OR_STRING_TYPES,
            skip_first_all=bool(schema.get("allOf")) and schema["allOf"][0].get("anyOf") == _INT_OR_STRING_TYPES,
        )
        self._own(schema, level, where)

    def _own(self, schema: Object, level: str, where: Where) -> None:
        add, kind = self.causes.add, schema.get("type", "")
        embedded, preserves = bool(schema.get(_EMBEDDED)), bool(schema.get(_PRESERVE))
        fields, values = schema.get("properties") or {}, _values(schema)
        if values is not None and level is ROOT:
            add(forbidden(where.child("additionalProperties"), "must not be used at the root"))
        if schema.get(_INT_OR_STRING):
            for name, given in ((_PRESERVE, preserves), (_EMBEDDED, embedded)):
                if given:
                    add(invalid_value(where.child(name), True, f"must be false if {_INT_OR_STRING} is true"))
        if embedded and kind != "object":
            detail = f"must be object if {_EMBEDDED} is true"
            at = where.child("type")
            add(invalid_value(at, kind, detail) if kind else required(at, detail))
        elif not kind and not schema.get(_INT_OR_STRING) and not preserves:
            add(required(where.child("type"), f"must not be empty {level}"))
        if embedded and values is not None:
            add(forbidden(where.child("additionalProperties"), f"must not be used if {_EMBEDDED} is set"))
        if level is ROOT and kind and kind != "object":
            add(invalid_value(where.child("type"), kind, "must be object at the root"))
        self._resource(schema, level, where)
        if embedded and not preserves and not fields:
            detail = f"must not be empty if {_EMBEDDED} is true without {_PRESERVE}"
            add(required(where.child("properties"), detail))

    def _resource(self, schema: Object, level: str, where: Where) -> None:
        """Check kind, apiVersion and metadata of the root and of an embedded resource."""
        fields = schema.get("properties") or {}
        resource = level is ROOT or bool(schema.get(_EMBEDDED))
        below = where.child("properties")
        for name, wanted in (("kind", "string"), ("apiVersion", "string"), ("metadata", "object")):
            field = fields.get(name)
            if field is not None and resource and field.get("type", "") != wanted:
                at = below.key(name).child("type")
                self.causes.add(invalid_value(at, field.get("type", ""), f"must be {wanted}"))
        metadata = fields.get("metadata")
        if metadata is not None and level is ROOT and not _plain_metadata(metadata):
            detail = "must not specify anything other than name and generateName, but metadata is implicitly specified"
            self.causes.add(forbidden(below.key("metadata"), detail))

    def _restrictions(
        self, schema: Object, where: Where, *, skip_any: bool = False, skip_first_all: bool = False
    ) -> None:
        """Check allOf, anyOf, oneOf, not and the pattern of a schema."""
        if not skip_any:
            self._nested_list(schema, "anyOf", where)
        for index, each in enumerate(schema.get("allOf") or ()):
            self._nested(each, where.child("allOf").index(index), skip_any=skip_first_all and index == 0)
        self._nested_list(schema, "oneOf", where)
        if schema.get("not") is not None:
            self._nested(schema["not"], where.child("not"))
        pattern = schema.get("pattern")
        if pattern and (problem := self._patterns.problem(pattern)):
            detail = f"must be a valid regular expression, but isn't: {problem}"
            self.causes.add(invalid_value(where.child("pattern"), pattern, detail))

    def _nested_list(self, schema: Object, name: str, where: Where) -> None:
        for index, each in enumerate(schema.get(name) or ()):
            self._nested(each, where.child(name).index(index))

    def _nested(self, schema: Object, where: Where, *, skip_any: bool = False) -> None:
        """Check a schema within allOf, anyOf, oneOf or not, and those below it."""
        if self.causes.full:
            return
        self._restrictions(schema, where, skip_any=skip_any)
        if (items := _items(schema)) is not None:
            self._nested(items, where.child("items"))
        fields, below = schema.get("properties") or {}, where.child("properties")
        for name, field in fields.items():
            self._nested(field, below.key(name))
        for name, word in _NESTED_MUST_BE_EMPTY:
            value = schema.get(name)
            if value or (name in _POINTERS and value is not None):
                self.causes.add(forbidden(where.child(name), f"must be {word} to be structural"))
        if _values(schema) not in (None, False):
            self.causes.add(forbidden(where.child("additionalProperties"), "must be undefined to be structural"))
        if "metadata" in fields:
            self.causes.add(forbidden(below.key("metadata"), "must not be specified in a nested context"))

    # -- completeness --------------------------------------------------------------------------------------------------

    def complete(self, given: Object, schema: Object, at: Where, where: Where) -> None:
        """Check that a restricted value of ``schema`` at the path ``at`` is specified there.

        ``given``: the schema at the path ``where`` with the restrictions in allOf, anyOf, oneOf and not.
        """
        if given.get("not") is not None:
            self._complete_nested(given["not"], schema, at, where.child("not"))
        for name in ("allOf", "anyOf", "oneOf"):
            for index, each in enumerate(given.get(name) or ()):
                self._complete_nested(each, schema, at, where.child(name).index(index))

    def _complete_nested(self, given: Object, schema: Object, at: Where, where: Where) -> None:
        if self.causes.full:
            return
        self.complete(given, schema, at, where)
        items, fields = _items(given), given.get("properties") or {}
        if items is not None:
            known = _items(schema)
            below, here = at.child("items"), where.child("items")
            if known is None:
                self.causes.add(required(below, f"because it is defined in {here}"))
            else:
                self._complete_nested(items, known, below, here)
        specified = schema.get("properties") or {}
        for name, field in fields.items():
            below, here = at.child("properties").key(name), where.child("properties").key(name)
            if name in specified:
                self._complete_nested(field, specified[name], below, here)
            else:
                self.causes.add(required(below, f"because it is defined in {here}"))


def _plain_metadata(metadata: Object) -> bool:
    """Return whether the root's metadata has nothing but a type, a default, and the fields name and generateName."""
    if not set(metadata.get("properties") or ()) <= {"name", "generateName"} or metadata.get("nullable"):
        return False
    return all(name in _METADATA_MAY_HAVE for name in metadata)
