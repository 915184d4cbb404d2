"""The form of ``x-kubernetes-validations``: the fields of a rule, apart from the meaning of its expressions.

Source: ``ValidateCustomResourceDefinitionOpenAPISchema`` in apiextensions-apiserver
``pkg/apis/apiextensions/validation``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from kubechronicle.api.builtin.apiextensions.subschemas import unsupported
from kubechronicle.api.builtin.apiextensions.where import Where
from kubechronicle.api.custom.rules.field_paths import FieldPathError, field_path
from kubechronicle.api.errors.field_errors import Cause, invalid_value, not_supported, required
from kubechronicle.api.values.objects import Object

RULES: Final = "x-kubernetes-validations"
REASONS: Final = ("FieldValueDuplicate", "FieldValueForbidden", "FieldValueInvalid", "FieldValueRequired")

_WHITE: Final = (
    " \t\n\v\f\r\u0085\u00a0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u2028\u2029"
    "\u202f\u205f\u3000"
)
"""What Go's strings.TrimSpace removes."""


def _broken(text: str) -> bool:
    return re.search(r"[\n\r]", text) is not None


def rule_forms(schema: Object, where: Where) -> Iterator[Cause]:
    """Check the fields of each rule of a schema, apart from the meaning of its expressions."""
    form: list[str] = []  # the reason why the schema has no field paths; found once
    for index, rule in enumerate(schema.get(RULES) or ()):
        at = where.child(RULES).index(index)
        yield from _texts(rule, at)
        reason, path = rule.get("reason"), rule.get("fieldPath", "")
        if reason is not None and reason not in REASONS:
            yield not_supported(at.child("reason"), reason, REASONS)
        if not path:
            continue
        field_at = at.child("fieldPath")
        if not path.strip(_WHITE):
            yield invalid_value(field_at, path, "must be non-empty if specified")
        if _broken(path):
            yield invalid_value(field_at, path, "must not contain line breaks")
        if not form:
            form.append(unsupported(schema))
        if not form[0] and not _resolves(path, schema):
            yield invalid_value(field_at, path, "must be a valid path")


def _texts(rule: Object, at: Where) -> Iterator[Cause]:
    expression, message, computed = (rule.get(name, "") for name in ("rule", "message", "messageExpression"))
    trimmed, said = expression.strip(_WHITE), message.strip(_WHITE)
    if not trimmed:
        yield required(at.child("rule"), "rule is not specified")
    elif message and not said:
        yield invalid_value(at.child("message"), message, "must be non-empty if specified")
    elif _broken(said):
        yield invalid_value(at.child("message"), message, "must not contain line breaks")
    elif _broken(trimmed) and not said:
        yield required(at.child("message"), "message must be specified if rule contains line breaks")
    if computed and not computed.strip(_WHITE):
        yield required(at.child("messageExpression"), "messageExpression must be non-empty if specified")


def _resolves(path: str, schema: Object) -> bool:
    try:
        field_path(path, schema)
    except FieldPathError:
        return False
    return True
