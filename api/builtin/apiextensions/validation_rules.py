"""The check of ``x-kubernetes-validations``: the form of the rules, and their expressions.

This is the one place where definitions meet api/custom/rules. kube-apiserver compiles the rules of a structural schema
whose defaults are valid, and adds up their costs. The language is imported with the first rule: most definitions have
none. Source: ``ValidateCustomResourceDefinitionOpenAPISchema`` in apiextensions-apiserver
``pkg/apis/apiextensions/validation``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kubechronicle.api.builtin.apiextensions.hub import unsupported
from kubechronicle.api.builtin.apiextensions.where import Where
from kubechronicle.api.custom.rule import FieldPathError, field_path
from kubechronicle.api.errors.field_errors import Cause, invalid_value, not_supported, required
from kubechronicle.api.values.objects import Object, ReadOnlyObject

if TYPE_CHECKING:
    from kubechronicle.api.custom.rule_definitions import TotalCost

# -- form -------------------------------------------------------------------------------------------------------------

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


# -- expressions ------------------------------------------------------------------------------------------------------


class Site(NamedTuple):
    """A schema within others. ``parent``: None for the root."""

    schema: Object
    parent: Site | None

    @property
    def is_resource(self) -> bool:
        """True if values have apiVersion, kind and metadata, even if the schema does not name them."""
        return self.parent is None or bool(self.schema.get("x-kubernetes-embedded-resource"))

    def times(self) -> int | None:
        """Return the largest number of values in one object, None if nothing limits it."""
        from kubechronicle.api.custom.rule_definitions import times_below

        above: list[Object] = []
        at = self.parent
        while at is not None:
            above.append(at.schema)
            at = at.parent
        times: int | None = 1
        for schema in reversed(above):
            times = times_below(schema, times)
        return times


class RuleCheck:
    """The check of the rules of one schema. ``limited``: each rule has a limit of its own, beside that of all."""

    def __init__(self, *, limited: bool) -> None:
        self._limited = limited
        self._used = False

    @cached_property
    def _costs(self) -> TotalCost:
        from kubechronicle.api.custom.rule_definitions import TotalCost

        self._used = True
        return TotalCost()

    def site(self, site: Site, where: Where, uncorrelated: Where | None) -> list[Cause]:
        """Return the causes of a schema's rules, and count their costs.

        ``uncorrelated``: the outermost list or map around the schema whose parts have no stored values.
        """
        from kubechronicle.api.custom.rule_definitions import rule_problems

        return rule_problems(
            site.schema,
            where,
            resource=site.is_resource,
            times=site.times(),
            total=self._costs,
            uncorrelated="" if uncorrelated is None else str(uncorrelated),
            limited=self._limited,
        )

    def total(self, where: Where) -> list[Cause]:
        """Return the causes of the costs of all rules. ``where``: the path of openAPIV3Schema."""
        return self._costs.problems(where) if self._used else []

    def default(self, schema: ReadOnlyObject, value: Any, where: Where, *, resource: bool) -> list[Cause]:
        """Return the causes of the schema's rules for a default value. ``resource``: it is a whole object.

        The value is judged as an unchanged one, and then as a new one.
        """
        if not _has_rules(schema, value):
            return []
        from kubechronicle.api.custom.rules import CustomRules

        rules = CustomRules(schema, resource=resource)
        found, tolerated = rules.validate(value, value)
        if tolerated:
            found += [cause for cause in rules.validate(value)[0] if str(cause) in tolerated]
        elif not found:
            found, _ = rules.validate(value)
        return [_moved(cause, where) for cause in found]


def _has_rules(schema: ReadOnlyObject, value: Any) -> bool:
    """Return whether a part of a value has rules. Only the schemas of the value's parts are visited."""
    pending: list[tuple[Any, Any]] = [(schema, value)]
    while pending:
        schema, value = pending.pop()
        if not isinstance(schema, Mapping):
            continue
        if schema.get("x-kubernetes-validations"):
            return True
        if isinstance(value, dict):
            fields, values = schema.get("properties") or {}, schema.get("additionalProperties")
            pending += [(fields.get(name, values), item) for name, item in value.items()]
        elif isinstance(value, list):
            pending += [(schema.get("items"), item) for item in value]
    return False


def _moved(cause: Cause, where: Where) -> Cause:
    """Return a cause of a part of a value, for the value's place."""
    if cause.field == "<nil>":
        return Cause(cause.reason, cause.message, str(where))
    dot = "" if cause.field.startswith("[") else "."
    return Cause(cause.reason, cause.message, f"{where}{dot}{cause.field}")
