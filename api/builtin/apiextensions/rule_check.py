"""The check of the expressions in ``x-kubernetes-validations``: the one place where definitions meet api/custom/rules.

kube-apiserver compiles the rules of a structural schema whose defaults are valid, and adds up their costs. The language
is imported with the first rule: most definitions have none.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

from kubechronicle.api.builtin.apiextensions.where import Where
from kubechronicle.api.errors.field_errors import Cause
from kubechronicle.api.values.objects import Object, ReadOnlyObject

if TYPE_CHECKING:
    from kubechronicle.api.custom.rules.definitions import TotalCost


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
        from kubechronicle.api.custom.rules.definitions import times_below

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
        from kubechronicle.api.custom.rules.definitions import TotalCost

        self._used = True
        return TotalCost()

    def site(self, site: Site, where: Where, uncorrelated: Where | None) -> list[Cause]:
        """Return the causes of a schema's rules, and count their costs.

        ``uncorrelated``: the outermost list or map around the schema whose parts have no stored values.
        """
        from kubechronicle.api.custom.rules.definitions import rule_problems

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
        from kubechronicle.api.custom.rules.rules import Rules

        rules = Rules(schema, resource=resource)
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
