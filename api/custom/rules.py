"""The rules of a version's schema, compiled once, and their evaluation on objects.

Each part of the schema with rules, or with parts that have some, is a node. A node evaluates its rules on its value,
then those of the parts. Evaluation stops when an object has used up its budget of costs.
Source: apiextensions-apiserver ``pkg/apiserver/schema/cel/validation.go``; KEP-2876, KEP-4008 (ratcheting).
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any, Final

from kubechronicle.api.cel import schemas
from kubechronicle.api.cel.errors import CostExceeded, EvaluationError
from kubechronicle.api.cel.syntax.escaping import escape
from kubechronicle.api.cel.types import CelType
from kubechronicle.api.cel.values import NONE, OptionalValue
from kubechronicle.api.custom.rule import (
    OLD_SELF,
    SELF,
    TYPE_NAME,
    CustomRule,
    FieldPathError,
    RuleMeasures,
    RuleScope,
    field_path,
)
from kubechronicle.api.custom.schema.ratcheting import Correlated, StoredItems
from kubechronicle.api.custom.schema.structure import SchemaNode
from kubechronicle.api.errors.field_errors import Cause, duplicate, forbidden, go_quote, invalid_value, required
from kubechronicle.api.values.allowance import ALLOWANCE

PER_RULE: Final = 1_000_000
"""The cost limit of one evaluation (``PerCallLimit``)."""
PER_OBJECT: Final = 10_000_000
"""The cost limit of all rules for one object (``RuntimeCELCostBudget``)."""
LONGEST_MESSAGE: Final = 5 * 1024
"""Bytes of the result of a messageExpression (``MaxEvaluatedMessageExpressionSizeBytes``)."""

RULES: Final = "x-kubernetes-validations"
OUT_OF_BUDGET: Final = "validation failed due to running out of cost budget, no further validation rules will be run"

Schema = Mapping[str, Any]


class _OutOfBudget(Exception):
    """The costs of an object's rules exceed the budget; its causes are recorded."""


class _Run:
    """One evaluation of all rules: the budget that is left, and the problems found so far."""

    __slots__ = ("budget", "causes", "warnings")

    def __init__(self, budget: int) -> None:
        self.budget = budget
        self.causes: list[Cause] = []
        self.warnings: list[str] = []

    def spend(self, cost: int, path: str, kind: str) -> None:
        if cost > self.budget:
            self.causes.append(_invalid(path, kind, OUT_OF_BUDGET))
            raise _OutOfBudget
        self.budget -= cost


class _RulePlace:
    """The stored value beside a value, and the nearest one above it that has such a value."""

    __slots__ = ("_nearest", "_own")

    def __init__(self, own: Correlated | None, nearest: Correlated | None = None) -> None:
        self._own = own
        self._nearest = nearest

    def field(self, name: str) -> _RulePlace:
        if self._own is None:
            return self
        if self._nearest is None and name in ("apiVersion", "kind"):
            return NEW  # a conversion changes these, and both sides are converted
        return _RulePlace(self._own.field(name), self._own)

    def item(self, index: int) -> _RulePlace:
        return self if self._own is None else _RulePlace(self._own.item(index), self._own)

    @property
    def unchanged(self) -> bool:
        known = self._nearest if self._own is None else self._own
        return known is not None and known.equal()


NEW: Final = _RulePlace(None)


class CustomRules:
    """The rules of a schema. Immutable; concurrent use is safe."""

    __slots__ = ("_root", "_structure", "of_contents", "sees_metadata")

    def __init__(self, schema: Schema, *, resource: bool = True, measures: RuleMeasures | None = None) -> None:
        """``resource``: values have apiVersion, kind and metadata, even if the schema does not name them.

        ``measures``: measure the rules; None: do not.
        ``of_contents``: the result for an object depends neither on its own metadata nor on the stored object, as long
        as no rule fails. ``sees_metadata``: it may depend on the object's own metadata.
        """
        self._root = _node(schema, measures, resource=resource)
        self.sees_metadata = self._root is not None and (bool(self._root.rules) or "metadata" in self._root.fields)
        self.of_contents = self._root is not None and not self.sees_metadata and not _uses_old(self._root)
        self._structure = SchemaNode(schema if self._root is not None else {})

    def __bool__(self) -> bool:
        """Tell whether there are any rules."""
        return self._root is not None

    def validate(self, new: Any, old: Any = None) -> tuple[list[Cause], list[str]]:
        """Return (causes, warnings) of an object in this version.

        ``old``: the stored object, for an update. A rule that fails for an unchanged value is a warning.
        """
        if self._root is None:
            return [], []
        run = _Run(PER_OBJECT)
        place = NEW if old is None else _RulePlace(Correlated(new, old, self._structure))
        with ALLOWANCE.get(), contextlib.suppress(_OutOfBudget):
            self._root.evaluate(run, "", new, old, place)
        return run.causes, run.warnings


class _RuleNode:
    """A part of the schema with rules in it.

    ``of``: its type, None if expressions cannot name it.
    ``fields``, ``values``, ``items``: the nodes below. A structural schema has no rules below allOf and the like.
    """

    __slots__ = (
        "_kind",
        "_measures",
        "_uses_old",
        "_without_nulls",
        "fields",
        "items",
        "of",
        "rules",
        "schema",
        "values",
    )

    def __init__(
        self, schema: Schema, of: CelType | None, rules: list[CustomRule], measures: RuleMeasures | None
    ) -> None:
        self.schema = schema
        self._measures = measures
        self.of = of
        self.rules = rules
        self.fields: dict[str, _RuleNode] = {}
        self.values: _RuleNode | None = None
        self.items: _RuleNode | None = None
        self._kind = schema.get("type") or ""
        self._uses_old = any(rule.uses_old for rule in rules)
        self._without_nulls = schemas.without_nulls(schema) if rules else None

    def evaluate(self, run: _Run, path: str, new: Any, old: Any, place: _RulePlace) -> None:
        """Evaluate the rules here and below. Raises _OutOfBudget."""
        if new is None:
            return
        if self.rules:
            measures = self._measures
            if measures is None:
                self._evaluate_rules(run, path, new, old, place)
            else:
                began = measures.clock()
                try:
                    self._evaluate_rules(run, path, new, old, place)
                finally:
                    measures.evaluated(measures.clock() - began)
        if type(new) is list:
            self._evaluate_items(run, path, new, old, place)
        elif type(new) is dict:
            self._evaluate_fields(run, path, new, old if type(old) is dict else {}, place)

    def _evaluate_items(self, run: _Run, path: str, new: list[Any], old: Any, place: _RulePlace) -> None:
        if self.items is not None:
            stored = StoredItems(self.schema, old)
            for index, item in enumerate(new):
                self.items.evaluate(run, f"{path}[{index}]", item, stored.get(item), place.item(index))

    def _evaluate_fields(
        self, run: _Run, path: str, new: dict[str, Any], old: dict[str, Any], place: _RulePlace
    ) -> None:
        if self.values is not None:
            for name, value in new.items():
                self.values.evaluate(run, f"{path}[{name}]", value, old.get(name), place.field(name))
        for name, node in self.fields.items():
            if name in new:
                below = f"{path}.{name}" if path else name
                node.evaluate(run, below, new[name], old.get(name), place.field(name))

    # -- rules of this value ------------------------------------------------------------------------------------------

    def _evaluate_rules(self, run: _Run, path: str, new: Any, old: Any, place: _RulePlace) -> None:
        if self.of is None:
            why = "rule compiler initialization error: failed to convert to declType for CEL validation rules"
            run.causes.append(_invalid(path, self._kind, why))
            return
        if run.budget <= 0:
            run.causes.append(_invalid(path, self._kind, OUT_OF_BUDGET))
            raise _OutOfBudget
        plain: dict[str, Any] = {SELF: self._value(new)}
        with_optional = plain
        if self._uses_old:
            with_optional = {**plain, OLD_SELF: NONE}
            if old is not None:
                plain[OLD_SELF] = self._value(old)
                with_optional[OLD_SELF] = OptionalValue(plain[OLD_SELF])
        for rule in self.rules:
            if rule.refusal:
                run.causes.append(_invalid(path, self._kind, f"rule compile error: {rule.refusal}"))
                continue
            if rule.program is None or (rule.uses_old and old is None and not rule.optional_old):
                continue
            if not self._holds(run, rule, path, with_optional if rule.optional_old else plain):
                self._report(run, rule, path, new, plain, place)

    def _value(self, data: Any) -> Any:
        if self._without_nulls is not None:
            data = self._without_nulls(data)
        assert self.of is not None
        return schemas.value_of(data, self.of)

    def _holds(self, run: _Run, rule: CustomRule, path: str, variables: Mapping[str, Any]) -> bool:
        """Return False if the rule is false. True if it fails otherwise: then the cause is recorded."""
        assert rule.program is not None
        value, cost = rule.program.outcome(variables, PER_RULE)
        run.spend(cost, path, self._kind)
        if not isinstance(value, EvaluationError):
            return value is True
        shown = rule.message or rule.text.strip()
        if isinstance(value, CostExceeded):
            why = f"'{value}': no further validation rules will be run due to call cost exceeds limit for rule: {shown}"
            run.causes.append(_invalid(path, self._kind, why))
            raise _OutOfBudget
        if str(value).startswith("no such overload"):
            why = (
                f"'{value}': call arguments did not match a supported operator, function or macro signature "
                f"for rule: {shown}"
            )
        else:
            why = f"{value} evaluating rule: {shown}"
        run.causes.append(_invalid(path, self._kind, why))
        return True

    def _report(
        self, run: _Run, rule: CustomRule, path: str, new: Any, variables: Mapping[str, Any], place: _RulePlace
    ) -> None:
        """Record that a rule is false. Raises _OutOfBudget if its messageExpression exceeds the budget."""
        at = (f"{path}.{rule.path}" if path else rule.path) if rule.path else path
        tolerated = not rule.uses_old and place.unchanged
        detail, fatal = self._message(run, rule, variables)
        if fatal:
            _record(run, _invalid(at, self._kind, detail), tolerated)
            raise _OutOfBudget
        if not detail:
            detail = rule.message or f"failed rule: {rule.text.strip()}"
        _record(run, _cause(rule.reason, at, new, detail), tolerated)

    def _message(self, run: _Run, rule: CustomRule, variables: Mapping[str, Any]) -> tuple[str, bool]:
        """Return (the evaluated message, False), empty if it fails; (the problem, True) if it costs too much."""
        if rule.message_program is None:
            return "", False
        value, cost = rule.message_program.outcome(variables, PER_RULE)
        if cost > run.budget:
            why = "messageExpression evaluation failed due to running out of cost budget"
            return f"{why}, no further validation rules will be run", True
        if isinstance(value, CostExceeded):
            shown = rule.message_program.source
            why = "no further validation rules will be run due to call cost exceeds limit for messageExpression"
            return f"{why}: {go_quote(shown)}", True
        run.budget -= cost
        text = value.strip() if isinstance(value, str) else ""
        return ("" if "\n" in text or len(text.encode()) > LONGEST_MESSAGE else text), False


def _node(schema: Schema, measures: RuleMeasures | None, *, resource: bool) -> _RuleNode | None:
    """Return the node of a schema, None without rules."""
    items, values = _part(schema.get("items"), measures), _part(schema.get("additionalProperties"), measures)
    parts = ((name, _part(each, measures)) for name, each in (schema.get("properties") or {}).items())
    properties = {name: node for name, node in parts if node is not None}
    written = schema.get(RULES)
    if not (items or properties or values or written):
        return None
    of = schemas.object_type_of(schema, TYPE_NAME, resource=resource)
    rules = []
    if written:
        began = 0.0 if measures is None else measures.clock()
        scope = None if of is None else RuleScope(of, None)
        for rule in written:
            rules.append(
                CustomRule(rule.get("rule") or "") if scope is None else scope.compile(rule, _path(rule, schema))
            )
        if measures is not None:
            measures.compiled(measures.clock() - began)
    node = _RuleNode(schema, of, rules, measures)
    if items is not None and schema.get("type") == "object":
        _lose_type(items)  # an object has no items, so expressions have no type for them
    node.items, node.values = items, values
    # Fields that expressions cannot name, for lack of a type, have no rules.
    node.fields = {
        name: below
        for name, below in properties.items()
        if escape(name) is None or (of is not None and below.of is not None)
    }
    return node


def _lose_type(node: _RuleNode) -> None:
    """Let the rules of a node and its items fail: they cannot be compiled.

    Of its fields, those keep their rules whose names no expression can have. The others are not looked at.
    """
    node.of, node.fields = None, {name: below for name, below in node.fields.items() if escape(name) is None}
    for below in (node.items, node.values):
        if below is not None:
            _lose_type(below)


def _uses_old(root: _RuleNode) -> bool:
    """Return whether a rule can see the stored object."""
    nodes = [root]
    while nodes:
        node = nodes.pop()
        if any(rule.uses_old for rule in node.rules):
            return True
        nodes += [below for below in (*node.fields.values(), node.values, node.items) if below is not None]
    return False


def _part(schema: Any, measures: RuleMeasures | None) -> _RuleNode | None:
    if not isinstance(schema, Mapping):
        return None
    return _node(schema, measures, resource=bool(schema.get(schemas.EMBEDDED)))


def _path(rule: Mapping[str, Any], schema: Schema) -> str:
    try:
        return field_path(rule.get("fieldPath") or "", schema)[0]
    except FieldPathError:
        return ""


# -- causes -----------------------------------------------------------------------------------------------------------


def _record(run: _Run, cause: Cause, tolerated: bool) -> None:
    if tolerated:
        run.warnings.append(str(cause))
    else:
        run.causes.append(cause)


def _invalid(path: str, kind: str, detail: str) -> Cause:
    return invalid_value(path or "<nil>", kind, detail)


def _cause(reason: str, path: str, value: Any, detail: str) -> Cause:
    """Return the cause of a false rule. Objects and lists are not shown."""
    at, scalar = path or "<nil>", not isinstance(value, dict | list)
    if reason == "FieldValueForbidden":
        return forbidden(at, detail)
    if reason == "FieldValueRequired":
        return required(at, detail)
    if reason == "FieldValueDuplicate":
        return duplicate(at, value) if scalar else Cause(reason, "Duplicate value", at)
    return (
        invalid_value(at, value, detail) if scalar else Cause("FieldValueInvalid", "Invalid value", at, detail=detail)
    )
