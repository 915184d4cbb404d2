"""Default values in a schema: they have no unknown fields, and are valid.

A default within the metadata of a resource is judged within a whole object, because kube-apiserver checks metadata by
its own rules. Defaults below additionalProperties are not checked.

Source: apiextensions-apiserver ``pkg/apiserver/schema/defaulting/validation.go`` and ``surroundingobject.go``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from kubechronicle.api.builtin.apiextensions.subschemas import every, has_default
from kubechronicle.api.builtin.apiextensions.where import Causes, Where
from kubechronicle.api.errors.field_errors import Cause, aggregate, invalid_value
from kubechronicle.api.meta.encoding import copy_object
from kubechronicle.api.schema.free_fields import encoded
from kubechronicle.api.values.objects import Object

if TYPE_CHECKING:
    from kubechronicle.api.builtin.apiextensions.rule_check import RuleCheck
    from kubechronicle.api.custom.schema.structure import Node

_META_FIELDS: Final = ("apiVersion", "kind", "metadata")
_EMBEDDED: Final = "x-kubernetes-embedded-resource"

Surround = Callable[[Any], Any]
"""Returns the whole object in which a value stands."""


def defaults(schema: Object, where: Where, rules: RuleCheck, *, pruned: bool) -> list[Cause]:
    """Return the problems of the defaults of a structural schema. ``pruned``: unknown fields are a problem."""
    if not has_default(schema):
        return []
    from kubechronicle.api.custom.schema.structure import Node

    root = Node({**schema, _EMBEDDED: True})
    check = _Check(rules, pruned=pruned)
    check.below(root, where, root, lambda value: value, in_metadata=False)
    return check.causes.found


def has_unpruned_default(schema: Object) -> bool:
    """Return whether a default of a structural schema has unknown fields."""
    from kubechronicle.api.custom.schema.structure import Node

    pending = [Node({**schema, _EMBEDDED: True})]
    while pending:
        node = pending.pop()
        if node.has_default and _unknown_fields(node):
            return True
        pending += node.properties.values()
        pending += [each for each in (node.items, node.additional) if each is not None]
    return False


def _unknown_fields(node: Node) -> list[str]:
    from kubechronicle.api.custom.schema.pruning import prune_value

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
        from kubechronicle.api.custom.schema.structure import Node

        pending = [Node({**schema, _EMBEDDED: True})]
        while pending:
            node = pending.pop()
            if node.deep_embedded and isinstance(node.default, dict | list):
                coerce_embedded(node.default, node, drop_malformed=False)  # type: ignore[arg-type]  # lists, too
            if node.items is not None:
                pending.append(node.items)
            # Defaults of metadata were checked in a copy.
            pending += [field for name, field in node.properties.items() if not node.embedded or name != "metadata"]


class _Check:
    def __init__(self, rules: RuleCheck, *, pruned: bool) -> None:
        self.causes = Causes()
        self._rules = rules
        self._pruned = pruned

    def below(self, node: Node, where: Where, root: Node, surround: Surround, *, in_metadata: bool) -> None:
        """Check the default of a schema and those within it. ``root``: the schema of the enclosing resource."""
        if self.causes.full:
            return
        if node.embedded:
            in_metadata, root, surround = False, node, _identity
        if node.has_default:
            at = where.child("default")
            if in_metadata:
                self._in_metadata(node, at, root, surround)
            else:
                self._plain(node, at)
        if node.items is not None and _matters(node.items):
            self.below(node.items, where.child("items"), root, _listed(surround), in_metadata=in_metadata)
        at = where.child("properties")
        for name, field in node.properties.items():
            if _matters(field):
                inside = in_metadata or (node.embedded and name in _META_FIELDS)
                self.below(field, at.key(name), root, _named(surround, name), in_metadata=inside)

    def _in_metadata(self, node: Node, where: Where, root: Node, surround: Surround) -> None:
        from kubechronicle.api.custom.schema import embedded

        whole = {"kind": "Validation", "apiVersion": "validation/v1", **surround(copy_object(node.default))}
        try:
            embedded.coerce_embedded(whole, root, drop_malformed=False)
            found = embedded.validate_embedded(whole, root)
            problem = aggregate(found) if found else ""
        except embedded.MalformedError as error:
            problem = str(error)
        if problem:
            shown = encoded(node.default)
            self.causes.add(invalid_value(where, shown, f"must result in valid metadata: {problem}"))
        else:
            self._valid(node, where)

    def _plain(self, node: Node, where: Where) -> None:
        from kubechronicle.api.custom.schema import embedded

        if self._pruned and _unknown_fields(node):
            self.causes.add(invalid_value(where, encoded(node.default), "must not have unknown fields"))
        value: Any = node.default
        found: list[Cause] = []
        is_container = isinstance(node.default, dict | list)
        if node.deep_embedded and is_container:
            found = embedded.validate_embedded(value, node)
            try:
                embedded.coerce_embedded(copy_object(value), node, drop_malformed=False)
            except embedded.MalformedError as error:
                found = [cause for cause in found if str(cause) == str(error)][:1]
        if found:
            self.causes.extend(_moved(cause, where) for cause in found)
        else:
            self._valid(node, where)

    def _valid(self, node: Node, where: Where) -> None:
        """Check a default by the keywords and the rules of its schema."""
        from kubechronicle.api.custom.schema import keywords
        from kubechronicle.api.custom.schema.failures import Failures
        from kubechronicle.api.custom.schema.tables import apply

        failures = Failures(str(where))
        apply(keywords.table(node.schema), node.default, None, failures)
        if failures:
            self.causes.extend(failures.causes())
        else:
            self.causes.extend(self._rules.default(node.schema, node.default, where, resource=node.embedded))


def _matters(node: Node) -> bool:
    """Return whether a schema or one within it has a default."""
    return node.has_default or node.deep_defaults


def _identity(value: Any) -> Any:
    return value


def _named(surround: Surround, name: str) -> Surround:
    return lambda value: surround({name: value})


def _listed(surround: Surround) -> Surround:
    return lambda value: surround([value])


def _moved(cause: Cause, where: Where) -> Cause:
    """Return a cause of a part of a value, for the value's place."""
    dot = "" if cause.field.startswith("[") else "."
    return Cause(cause.reason, cause.message, f"{where}{dot}{cause.field}")
