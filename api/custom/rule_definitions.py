"""The check of rules when a definition is written: compile errors, worst-case costs, and the use of oldSelf.

Source: apiextensions-apiserver ``pkg/apis/apiextensions/validation/{validation,cel_validation}.go``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from kubechronicle.api.cel import schemas
from kubechronicle.api.custom.rule import TYPE_NAME, CustomRule, RuleScope
from kubechronicle.api.custom.rules import RULES
from kubechronicle.api.custom.sizes import bounds, sizes_of, times_in_a_request
from kubechronicle.api.errors.field_errors import Cause, Path, forbidden, internal, invalid_value

PER_RULE: Final = 10_000_000
"""The worst-case cost of a rule for an object (``StaticEstimatedCostLimit``)."""
PER_SCHEMA: Final = 100_000_000
"""The worst-case cost of all rules of a schema (``StaticEstimatedCRDCostLimit``)."""
_MOST_EXPENSIVE: Final = 4
_NOTABLE: Final = PER_SCHEMA // 100
_LARGEST: Final = 2**64 - 1
_ADVICE: Final = (
    "try simplifying the rule, or adding maxItems, maxProperties, and maxLength where arrays, maps, and strings are "
    "declared"
)


class TotalCost:
    """The worst-case costs of the rules of one schema."""

    def __init__(self) -> None:
        self._total = 0
        self._most_expensive: list[tuple[int, Path]] = []

    def add(self, path: Path, cost: int) -> None:
        self._total = min(self._total + cost, _LARGEST)
        if cost >= _NOTABLE:
            self._most_expensive.append((cost, path))
            self._most_expensive.sort(key=lambda one: -one[0])
            del self._most_expensive[_MOST_EXPENSIVE:]

    def problems(self, path: Path) -> list[Cause]:
        """Return the causes of a schema at ``path`` whose rules cost too much together."""
        if self._total <= PER_SCHEMA:
            return []
        why = "contributed to estimated rule cost total exceeding cost limit for entire OpenAPIv3 schema"
        name = "x-kubernetes-validations estimated rule cost total for entire OpenAPIv3 schema"
        causes = [forbidden(each, why) for _, each in self._most_expensive]
        return [*causes, forbidden(path, _too_expensive(name, self._total, PER_SCHEMA))]


def times_below(schema: Mapping[str, Any], times: int | None) -> int | None:
    """Return the number of values of each part of a schema whose own values are ``times``; None: unlimited."""
    if times is None:
        return None
    limit: int | None = 1
    if schema.get("type") == "array":
        limit = schema.get("maxItems")
    elif schema.get("type") == "object" and schema.get("additionalProperties") is not None:
        limit = schema.get("maxProperties")
    return None if limit is None else min(times * max(limit, 0), _LARGEST)


def rule_problems(
    schema: Mapping[str, Any],
    path: Path,
    *,
    resource: bool,
    times: int | None,
    total: TotalCost,
    uncorrelated: str = "",
    limited: bool = True,
) -> list[Cause]:
    """Return the problems of the rules of a valid schema at ``path``, without those of its parts.

    ``resource``: the schema is the root, or an embedded resource.
    ``times``: the most values of this schema in an object (``times_below``); None: unlimited.
    ``uncorrelated``: the path of the list or map whose parts have no stored values, empty if there is none.
    ``limited`` False: a rule may cost more than PER_RULE, since the schema is unchanged.
    """
    rules: Sequence[Mapping[str, Any]] = schema.get(RULES) or ()
    if not rules:
        return []
    at = path.child(RULES)
    of = schemas.object_type_of(schema, TYPE_NAME, resource=resource)
    sized = sizes_of(schema, resource=resource)
    if of is None or sized is None:
        why = "internal error: failed to construct type information for x-kubernetes-validations rules: "
        return [internal(at, why + "unable to convert structural schema to CEL declarations")]
    scope = RuleScope(of, bounds(sized))
    times = times_in_a_request(sized) if times is None else times
    causes: list[Cause] = []
    for index, written in enumerate(rules):
        rule, place = scope.compile(written), at.index(index)
        causes += _costs(rule, place, times, total, limited=limited)
        if rule.refusal:
            causes.append(invalid_value(place.child("rule"), _shown(written), rule.refusal))
        if rule.message_refusal:
            causes.append(invalid_value(place.child("messageExpression"), _shown(written), rule.message_refusal))
        causes += _old_self(rule, written, place, uncorrelated)
    return causes


def _costs(rule: CustomRule, place: Path, times: int, total: TotalCost, *, limited: bool) -> list[Cause]:
    causes = []
    found = [("rule", "estimated rule cost", min(rule.cost * times, _LARGEST))]
    if rule.message_program is not None:
        found.append(("messageExpression", "estimated messageExpression cost", rule.message_cost))
    for name, cost_name, cost in found:
        if limited and cost > PER_RULE:
            causes.append(forbidden(place.child(name), _too_expensive(cost_name, cost, PER_RULE)))
        total.add(place.child(name), cost)
    return causes


def _old_self(rule: CustomRule, written: Mapping[str, Any], place: Path, uncorrelated: str) -> list[Cause]:
    if rule.uses_old:
        if not uncorrelated:
            return []
        why = f"oldSelf cannot be used on the uncorrelatable portion of the schema within {uncorrelated}"
        return [invalid_value(place.child("rule"), rule.text, why)]
    optional = written.get("optionalOldSelf")
    if optional is None:
        return []
    return [invalid_value(place.child("optionalOldSelf"), optional, "may not be set if oldSelf is not used in rule")]


def _shown(rule: Mapping[str, Any]) -> dict[str, Any]:
    """Return a rule as kube-apiserver prints it."""
    return {
        "Rule": rule.get("rule") or "",
        "Message": rule.get("message") or "",
        "MessageExpression": rule.get("messageExpression") or "",
        "Reason": rule.get("reason"),
        "FieldPath": rule.get("fieldPath") or "",
        "OptionalOldSelf": rule.get("optionalOldSelf"),
    }


def _too_expensive(name: str, cost: int, limit: int) -> str:
    factor = cost / limit
    times = "more than 100x" if factor > 100 else f"{factor:f}x" if factor < 1.5 else f"{factor:.1f}x"
    return f"{name} exceeds budget by factor of {times} ({_ADVICE})"
