"""The schema of a version, and the rules that an update may still break, because the old definition broke them already.

The schema's root, structure, defaults and keywords are checked in kube-apiserver's order. Source:
``validateCustomResourceDefinitionValidation`` and ``ValidateCustomResourceDefinitionUpdate`` in apiextensions-apiserver
``pkg/apis/apiextensions/validation``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from kubechronicle.api.builtin.apiextensions import validation_openapi
from kubechronicle.api.builtin.apiextensions import validation_openapi as openapi
from kubechronicle.api.builtin.apiextensions.hub import Hub, every, has_default, openapi_of, unsupported
from kubechronicle.api.builtin.apiextensions.printed import SCHEMA_MEMBERS
from kubechronicle.api.builtin.apiextensions.printed import schema as printed_schema
from kubechronicle.api.builtin.apiextensions.validation_defaults import defaults, has_unpruned_default
from kubechronicle.api.builtin.apiextensions.validation_rules import RuleCheck
from kubechronicle.api.builtin.apiextensions.validation_structural import is_structural, structural
from kubechronicle.api.builtin.apiextensions.validation_versions import MAX_SELECTABLE, bundle_problem, knows_review
from kubechronicle.api.builtin.apiextensions.where import SchemaPatterns, Where
from kubechronicle.api.errors.field_errors import Cause, forbidden, invalid_value
from kubechronicle.api.schema.equality import same_json
from kubechronicle.api.values.objects import Object, ReadOnlyObject

# -- what an update may still break -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Demands:
    """The rules to enforce. The defaults are those of a creation.

    ``schemas``: each version has a schema. ``structural``: schemas are structural. ``pruned``: defaults have no unknown
    fields. ``openapi``: of single keywords. ``known_review``: the webhook knows a version of ConversionReview.
    ``any_bundle``: an invalid caBundle is accepted. ``many_fields``: versions that may keep more selectable fields than
    allowed; "" is the place of fields that all versions share. ``unchanged``: versions with the schema of before.
    """

    schemas: bool = True
    structural: bool = True
    pruned: bool = True
    openapi: openapi.OpenApiDemands = field(default_factory=openapi.OpenApiDemands)
    known_review: bool = True
    any_bundle: bool = True
    many_fields: frozenset[str] = frozenset()
    unchanged: frozenset[str] = frozenset()


def condition_is_true(obj: ReadOnlyObject, kind: str) -> bool:
    """Return whether a condition of a definition has the status True."""
    conditions = (obj.get("status") or {}).get("conditions") or ()
    return any(each.get("type") == kind and each.get("status") == "True" for each in conditions)


def demands_of(new: Hub, old: Hub, old_object: ReadOnlyObject) -> Demands:
    """Return the rules for an update."""
    schemas = list(old.schemas())
    patterns = SchemaPatterns()
    conversion = old.spec.get("conversion") or {}
    reviews = (conversion.get("webhook") or {}).get("conversionReviewVersions") or ()
    return Demands(
        schemas=openapi_of(old.shared) is not None or all(openapi_of(each) is not None for each in old.versions),
        structural=all(not unsupported(each) and is_structural(each, patterns) for each in schemas),
        pruned=not any(_has_unpruned(each, patterns) for each in schemas),
        openapi=_openapi(schemas),
        known_review=not reviews or knows_review(reviews),
        any_bundle=_any_bundle(conversion, established=condition_is_true(old_object, "Established")),
        many_fields=_many_fields(new, old),
        unchanged=_unchanged(new, old),
    )


def _has_unpruned(schema: Object, patterns: SchemaPatterns) -> bool:
    if not has_default(schema) or unsupported(schema) or not is_structural(schema, patterns):
        return False
    return has_unpruned_default(schema)


def _openapi(schemas: list[Object]) -> openapi.OpenApiDemands:
    valid_types = atomic_sets = map_keys = True
    nowhere = Where.of("")
    for schema in schemas:
        for each in every(schema):
            valid_types = valid_types and each.get("type", "") in ("", *openapi.TYPES)
            atomic_sets = atomic_sets and not openapi.atomic_set_problem(each)
            map_keys = map_keys and next(openapi.map_keys(each, nowhere), None) is None
    return openapi.OpenApiDemands(valid_types=valid_types, atomic_sets=atomic_sets, map_keys=map_keys)


def _any_bundle(conversion: Mapping[str, Any], *, established: bool) -> bool:
    if not established:
        return True
    bundle = ((conversion.get("webhook") or {}).get("clientConfig") or {}).get("caBundle") or ""
    return bool(bundle and bundle_problem(bundle))


def _many_fields(new: Hub, old: Hub) -> frozenset[str]:
    held = {"": old.shared, **{each.get("name", ""): each for each in old.versions}}
    found = set()
    for name, holder in (("", new.shared), *((each.get("name", ""), each) for each in new.versions)):
        before = (held.get(name) or {}).get("selectableFields") or []
        if len(before) > MAX_SELECTABLE and same_json(holder.get("selectableFields"), before):
            found.add(name)
    return frozenset(found)


def _unchanged(new: Hub, old: Hub) -> frozenset[str]:
    schemas, before = new.schemas_by_version(), old.schemas_by_version()
    if not any(version.get("schema") is not None for version in old.versions):
        # Versions that the old definition does not have count as well, by the schema that its versions share.
        before = dict.fromkeys(schemas, old.shared.get("schema"))
    return frozenset(name for name, schema in schemas.items() if name in before and same_json(schema, before[name]))


# -- the schema -------------------------------------------------------------------------------------------------------

_AT_ROOT: Final = (
    "Description", "Type", "Format", "Title", "Maximum", "ExclusiveMaximum", "Minimum", "ExclusiveMinimum",
    "MaxLength", "MinLength", "Pattern", "MaxItems", "MinItems", "UniqueItems", "MultipleOf", "Required", "Items",
    "Properties", "ExternalDocs", "Example", "XPreserveUnknownFields", "XValidations",
)  # fmt: skip
"""What the root of a schema may have beside a status subresource, whose own schema is cut out of it."""
_ENABLED: Final = "at the root of the schema if the status subresource is enabled"


def schema_causes(
    schema: Object,
    where: Where,
    demands: Demands,
    patterns: SchemaPatterns,
    *,
    has_status: bool,
    unchanged: bool,
    must_be_structural: bool,
) -> list[Cause]:
    """Return the problems of an openAPIV3Schema. ``where``: the path of the object that holds it."""
    at = where.child("openAPIV3Schema")
    causes = list(_root(schema, where)) if has_status else []
    if schema.get("nullable"):
        causes.append(forbidden(where.child("openAPIV3Schema.nullable"), "nullable cannot be true at the root"))
    reason, rules = "", None
    if must_be_structural:
        reason = unsupported(schema)
        found = [] if reason else structural(schema, at, patterns)
        if not reason:
            check = RuleCheck(limited=not unchanged)
            found = found or defaults(schema, at, check, pruned=demands.pruned)
            rules = None if found else check
        causes += found
    causes += validation_openapi.check(schema, at, demands.openapi, rules)
    if reason and not causes:
        # Other checks name the same keywords better.
        causes.append(invalid_value(at, "", reason))
    if rules is not None:
        causes += rules.total(at)
    return causes


def _root(schema: Object, where: Where) -> Iterator[Cause]:
    for go, name, absent in SCHEMA_MEMBERS:
        value = schema.get(name)
        if value is None or (value == absent and value.__class__ is absent.__class__):
            continue
        if go == "Type":
            if value != "object":
                detail = f'only "object" is allowed as the type {_ENABLED}'
                yield invalid_value(where.child("openAPIV3Schema.type"), value, detail)
                return
        elif go not in _AT_ROOT:
            detail = f"only [{' '.join(_AT_ROOT)}] fields are allowed {_ENABLED}"
            yield invalid_value(where.child("openAPIV3Schema"), printed_schema(schema), detail)
            return
