"""Default values in a schema: they have no unknown fields, and are valid.

A default within the metadata of a resource is judged within a whole object, because kube-apiserver checks metadata by
its own rules. Defaults below additionalProperties are not checked.

Source: apiextensions-apiserver ``pkg/apiserver/schema/defaulting/validation.go`` and ``surroundingobject.go``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from kubechronicle.api.builtin.apiextensions.hub import every, has_default
from kubechronicle.api.builtin.apiextensions.where import Where
from kubechronicle.api.custom.numbers import as_decoded
from kubechronicle.api.errors.field_errors import BoundedCauses, Cause, aggregate, invalid_value
from kubechronicle.api.meta.encoding import copy_object
from kubechronicle.api.schema.equality import encoded
from kubechronicle.api.values.objects import Object

if TYPE_CHECKING:
    from kubechronicle.api.builtin.apiextensions.validation_rules import RuleCheck
    from kubechronicle.api.custom.schema.structure import SchemaNode

_META_FIELDS: Final = ("apiVersion", "kind", "metadata")
_EMBEDDED: Final = "x-kubernetes-embedded-resource"

Surround = Callable[[Any], Any]
"""Returns the whole object in which a value stands."""


def defaults(schema: Object, where: Where, rules: RuleCheck, *, pruned: bool) -> list[Cause]:
    """Return the problems of the defaults of a structural schema. ``pruned``: unknown fields are a problem."""
    if not has_default(schema):
        return []
    check = _DefaultsCheck(rules, pruned=pruned)
    root = {**schema, _EMBEDDED: True}
    check.below(root, where, _Place(root), None)
    return check.causes.found


def has_unpruned_default(schema: Object) -> bool:
    """Return whether a default of a structural schema has unknown fields."""
    from kubechronicle.api.custom.schema.structure import SchemaNode

    pending = [SchemaNode({**schema, _EMBEDDED: True})]
    while pending:
        node = pending.pop()
        if node.has_default and _unknown_fields(node):
            return True
        pending += node.properties.values()
        pending += [each for each in (node.items, node.additional) if each is not None]
    return False


def _unknown_fields(node: SchemaNode) -> list[str]:
    from kubechronicle.api.custom.schema.defaults import prune_value

    return prune_value(copy_object(node.default), node)


def drop_unknown_metadata(new: Object) -> None:
    """Remove unknown fields of the metadata of embedded resources from defaults, in place.

    In kube-apiserver this is a side effect of their validation.
    """
    for version in new["spec"].get("versions") or ():
        schema = (version.get("schema") or {}).get("openAPIV3Schema")
        if schema is None or not has_default(schema) or not any(each.get(_EMBEDDED) for each in every(schema)):
            continue
        from kubechronicle.api.custom.schema.embedded import coerce_embedded
        from kubechronicle.api.custom.schema.structure import SchemaNode

        pending = [SchemaNode({**schema, _EMBEDDED: True})]
        while pending:
            node = pending.pop()
            if node.deep_embedded and isinstance(node.default, dict | list):
                coerce_embedded(node.default, node, drop_malformed=False)  # type: ignore[arg-type]  # lists, too
            if node.items is not None:
                pending.append(node.items)
            # Defaults of metadata were checked in a copy.
            pending += [field for name, field in node.properties.items() if not node.embedded or name != "metadata"]


class _Place:
    """The enclosing resource of a schema: its schema, and the whole object around a value, if it is in the metadata."""

    __slots__ = ("_node", "schema", "surround")

    def __init__(self, schema: Object, surround: Surround | None = None, resource: _Place | None = None) -> None:
        self.schema = schema
        self.surround = surround
        self._node: SchemaNode | _Place | None = resource

    @property
    def node(self) -> SchemaNode:
        """The structure of the resource's schema, built once."""
        if isinstance(self._node, _Place):
            return self._node.node
        if self._node is None:
            self._node = _node(self.schema)
        return self._node

    def field(self, name: str) -> _Place:
        """Return the place of a field of the resource, or of a value in its metadata."""
        above = self.surround
        if above is None:
            return _Place(self.schema, lambda value: {name: value}, self) if name in _META_FIELDS else self
        return _Place(self.schema, lambda value: above({name: value}), self)

    def items(self) -> _Place:
        """Return the place of the items of a list."""
        above = self.surround
        return self if above is None else _Place(self.schema, lambda value: above([value]), self)


class _DefaultsCheck:
    def __init__(self, rules: RuleCheck, *, pruned: bool) -> None:
        self.causes = BoundedCauses()
        self._rules = rules
        self._pruned = pruned

    def below(self, schema: Object, where: Where, place: _Place, node: SchemaNode | None) -> None:
        """Check the default of a schema and those within it. ``node``: the structure of the schema, if it was built."""
        if self.causes.full:
            return
        resource = bool(schema.get(_EMBEDDED))
        if resource:
            place = _Place(schema)
        value: Any = schema.get("default")
        if value is not None:
            at = where.child("default")
            if node is None and isinstance(value, dict | list):
                node = _node(schema)  # for the defaults within it, too
            if place.surround is not None:
                self._in_metadata(schema, at, place, place.surround)
            else:
                self._plain(schema, at, node)
        items = schema.get("items")
        if isinstance(items, dict):
            self.below(items, where.child("items"), place.items(), None if node is None else node.items)
        at, nodes = where.child("properties"), {} if node is None else node.properties
        for name, field in (schema.get("properties") or {}).items():
            inner = place.field(name) if resource or place.surround is not None else place
            self.below(field, at.key(name), inner, nodes.get(name))

    def _in_metadata(self, schema: Object, where: Where, place: _Place, surround: Surround) -> None:
        from kubechronicle.api.custom.schema import embedded

        value: Any = as_decoded(schema["default"])
        whole = {"kind": "Validation", "apiVersion": "validation/v1", **surround(copy_object(value))}
        try:
            embedded.coerce_embedded(whole, place.node, drop_malformed=False)
            found = embedded.validate_embedded(whole, place.node)
            problem = aggregate(found) if found else ""
        except embedded.MalformedError as error:
            problem = str(error)
        if problem:
            shown = encoded(value)
            self.causes.add(invalid_value(where, shown, f"must result in valid metadata: {problem}"))
        else:
            self._valid(schema, where)

    def _plain(self, schema: Object, where: Where, node: SchemaNode | None) -> None:
        found: list[Cause] = []
        value: Any = as_decoded(schema["default"])
        if node is not None and isinstance(schema["default"], dict | list):
            if self._pruned and _unknown_fields(node):
                self.causes.add(invalid_value(where, encoded(value), "must not have unknown fields"))
            found = _embedded_problems(value, node)
        if found:
            self.causes.extend(_moved(cause, where) for cause in found)
        else:
            self._valid(schema, where)

    def _valid(self, schema: Object, where: Where) -> None:
        """Check a default by the keywords and the rules of its schema."""
        from kubechronicle.api.custom.schema import keywords
        from kubechronicle.api.custom.schema.failures import Failures
        from kubechronicle.api.custom.schema.tables import apply

        value: Any = as_decoded(schema["default"])
        failures = Failures(str(where))
        apply(keywords.structural_table(schema), value, None, failures)
        if failures:
            self.causes.extend(failures.causes())
        else:
            self.causes.extend(self._rules.default(schema, value, where, resource=bool(schema.get(_EMBEDDED))))


def _node(schema: Object) -> SchemaNode:
    from kubechronicle.api.custom.schema.structure import SchemaNode

    return SchemaNode(schema)


def _embedded_problems(value: Any, node: SchemaNode) -> list[Cause]:
    """Return the problems of embedded resources within a default."""
    if not node.deep_embedded:
        return []
    from kubechronicle.api.custom.schema import embedded

    found = embedded.validate_embedded(value, node)
    try:
        embedded.coerce_embedded(copy_object(value), node, drop_malformed=False)
    except embedded.MalformedError as error:
        return [cause for cause in found if str(cause) == str(error)][:1]
    return found


def _moved(cause: Cause, where: Where) -> Cause:
    """Return a cause of a part of a value, for the value's place."""
    dot = "" if cause.field.startswith("[") else "."
    return Cause(cause.reason, cause.message, f"{where}{dot}{cause.field}")
