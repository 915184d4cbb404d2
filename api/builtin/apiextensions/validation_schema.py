"""The schema of a version: its root, its structure, its defaults and its keywords, in kube-apiserver's order.

Source: ``validateCustomResourceDefinitionValidation`` in apiextensions-apiserver
``pkg/apis/apiextensions/validation``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from kubechronicle.api.builtin.apiextensions import validation_openapi
from kubechronicle.api.builtin.apiextensions.demands import Demands
from kubechronicle.api.builtin.apiextensions.pattern_check import Patterns
from kubechronicle.api.builtin.apiextensions.printed import SCHEMA_MEMBERS
from kubechronicle.api.builtin.apiextensions.printed import schema as printed_schema
from kubechronicle.api.builtin.apiextensions.rule_check import RuleCheck
from kubechronicle.api.builtin.apiextensions.subschemas import unsupported
from kubechronicle.api.builtin.apiextensions.validation_defaults import defaults
from kubechronicle.api.builtin.apiextensions.validation_structural import structural
from kubechronicle.api.builtin.apiextensions.where import Where
from kubechronicle.api.errors.field_errors import Cause, forbidden, invalid_value
from kubechronicle.api.values.objects import Object

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
    patterns: Patterns,
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
