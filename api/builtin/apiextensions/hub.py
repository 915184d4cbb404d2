"""The internal form of a definition's spec, which kube-apiserver validates, and the schemas within it.

Schemas, subresources, columns and selectable fields that are the same in all versions move to the top, and the versions
lose them. So a definition with one version has its schema's problems at ``spec.validation``, not ``spec.versions[0]``.

Source: apiextensions-apiserver ``pkg/apis/apiextensions/v1/conversion.go``, and ``SchemaHas`` in
``pkg/apis/apiextensions/validation``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from kubechronicle.api.schema.equality import same_json
from kubechronicle.api.values.objects import Object

# -- the schemas within a schema --------------------------------------------------------------------------------------

_LISTS: Final = frozenset(("allOf", "anyOf", "oneOf", "items"))
_MAPS: Final = frozenset(("properties", "patternProperties", "definitions", "dependencies"))
_SINGLE: Final = frozenset(("items", "not", "additionalProperties", "additionalItems"))

UNSUPPORTED: Final = ("id", "$schema", "$ref", "patternProperties", "dependencies", "additionalItems", "definitions")
"""Keywords that no structural schema has."""

_EXTENSIONS: Final = (
    "x-kubernetes-embedded-resource",
    "x-kubernetes-int-or-string",
    "x-kubernetes-list-map-keys",
    "x-kubernetes-validations",
)


def _below(schema: Object) -> list[Object]:
    found: list[Object] = []
    for name, value in schema.items():
        if value.__class__ is dict:
            if name in _MAPS:
                found += [each for each in value.values() if each.__class__ is dict]
            elif name in _SINGLE:
                found.append(value)
        elif value.__class__ is list and name in _LISTS:
            found += value
    return found


def every(schema: Object | None) -> Iterator[Object]:
    """Yield a schema and all schemas within it, parents first."""
    pending = [] if schema is None else [schema]
    while pending:
        schema = pending.pop()
        yield schema
        pending += reversed(_below(schema))


def has_default(schema: Object) -> bool:
    """Return whether a schema or one within it has a default."""
    return any(each.get("default") is not None for each in every(schema))


def has_extensions(schema: Object) -> bool:
    """Return whether a schema or one within it has an extension of Kubernetes that requires structural schemas."""
    return any(
        each.get("x-kubernetes-preserve-unknown-fields") is not None
        or each.get("x-kubernetes-list-type") is not None
        or any(each.get(name) for name in _EXTENSIONS)
        for each in every(schema)
    )


def unsupported(schema: Object) -> str:
    """Return the reason why a schema has no structural form at all, empty if it has one."""
    for each in every(schema):
        for name in UNSUPPORTED:
            if each.get(name) or (name == "additionalItems" and each.get(name) is not None):
                return f"OpenAPIV3Schema '{name.removeprefix('$') if name == '$schema' else name}' is not supported"
        if each.get("x-kubernetes-preserve-unknown-fields") is False:
            return "internal error: 'x-kubernetes-preserve-unknown-fields' must be true or undefined"
        if isinstance(each.get("items"), list) and each["items"]:
            return "OpenAPIV3Schema 'items' must be a schema, but is an array"
    return ""


# -- the internal form ------------------------------------------------------------------------------------------------

SHARED: Final = ("schema", "subresources", "additionalPrinterColumns", "selectableFields")


@dataclass(frozen=True, slots=True, kw_only=True)
class Hub:
    """A spec whose versions lack the fields that are the same in all of them, and have moved to ``shared``."""

    spec: Object
    versions: Sequence[Object]
    shared: Mapping[str, Any]

    @property
    def preserves_unknown(self) -> bool:
        """True if unknown fields are kept, as in definitions of v1beta1."""
        return bool(self.spec.get("preserveUnknownFields"))

    def schemas(self) -> Iterator[Object]:
        """Yield each openAPIV3Schema: the shared one, or those of the versions."""
        for holder in (self.shared, *self.versions):
            schema = openapi_of(holder)
            if schema is not None:
                yield schema

    def schemas_by_version(self) -> dict[str, Any]:
        """Return the ``schema`` of each version by its name; of several versions with one name, that of the first."""
        own = any(version.get("schema") is not None for version in self.versions)
        found: dict[str, Any] = {}
        for version in self.versions:
            found.setdefault(version.get("name", ""), (version if own else self.shared).get("schema"))
        return found


def openapi_of(holder: Mapping[str, Any]) -> Object | None:
    """Return ``schema.openAPIV3Schema`` of a version or of the shared fields, None if there is none."""
    schema = holder.get("schema")
    found: Object | None = None if schema is None else schema.get("openAPIV3Schema")
    return found


def hub(spec: Object) -> Hub:
    """Return the internal form of a spec. The spec stays unchanged."""
    versions: Sequence[Object] = spec.get("versions") or ()
    if not versions:
        return Hub(spec=spec, versions=(), shared={})
    first = versions[0]
    same = [name for name in SHARED if all(_same(each.get(name), first.get(name)) for each in versions[1:])]
    rest = [{name: value for name, value in version.items() if name not in same} for version in versions]
    shared = {name: first[name] for name in same if first.get(name) is not None}
    return Hub(spec=spec, versions=rest, shared=shared)


def _same(one: Any, other: Any) -> bool:
    """Return whether two fields are equal. An empty list is none."""
    return same_json(None if one == [] else one, None if other == [] else other)
