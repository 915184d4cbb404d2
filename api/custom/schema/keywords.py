"""The keywords of a schema as closures: types, combinations, enumerations, and the choice of checks for a JSON type.

After kube-openapi ``pkg/validation/validate``. A check notes failures and returns the number of its positive checks
(MatchCount): of several failed alternatives, the errors of the one with the most positive checks are shown. Most values
need no call at all, because they cannot fail and their number is constant:

    table({"type": "string"})[str] == (7, None)
    table({"type": "string", "maxLength": 3})[str] == (7, a function)

A check is compiled when the first value of its class arrives, so a schema of 10,000 fields costs little.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import orjson

from kubechronicle.api.custom.numbers import as_decoded
from kubechronicle.api.custom.schema.containers import items_check, length_check, object_check, size_check
from kubechronicle.api.custom.schema.failures import Choices, Failures, bad_value, enum_text
from kubechronicle.api.custom.schema.formats import FORMATS
from kubechronicle.api.custom.schema.ratcheting import Correlated
from kubechronicle.api.custom.schema.scalars import format_check, is_integral, number_check, string_check, wrapped
from kubechronicle.api.custom.schema.structure import Schema, Where
from kubechronicle.api.custom.schema.tables import Check, Entry, Table

_NULL: Final = type(None)
_TYPE_NAMES: Final = {bool: "boolean", str: "string", int: "integer", float: "number", list: "array", dict: "object"}
_FORMAT_NAMES: Final = {int: "int64", float: "float64"}
_NUMBER_FORMATS: Final = {"integer": ("int32", "int64"), "number": ("float", "double")}


def table(schema: Schema) -> Table:
    """Return the checks of a whole schema."""
    return Table(schema, compile_check, root=True)


def structural_table(schema: Schema) -> Table:
    """Return the checks of defaults by their schema, in which x-kubernetes-int-or-string allows all types.

    kube-apiserver checks them by the structural form, which has no type there (``pkg/apiserver/schema``).
    """
    return Table(schema, _compile_structural_check, root=True)


def types_of(schema: Schema) -> tuple[str, ...]:
    """Return the types that a schema names."""
    return ("integer", "string") if schema.get("x-kubernetes-int-or-string") else _named_types(schema)


def _named_types(schema: Schema) -> tuple[str, ...]:
    name = schema.get("type")
    return (name,) if name else ()


def format_of(schema: Schema) -> str:
    """Return the format of a schema, empty if kube-apiserver ignores it for the type (``validation/formats.go``)."""
    name: str = schema.get("format") or ""
    types = types_of(schema)
    kind = types[0] if len(types) == 1 else ""
    if kind in ("", "string"):
        return name if name.replace("-", "") in FORMATS else ""
    return name if name in _NUMBER_FORMATS.get(kind, ()) else ""


def compile_check(table: Table, cls: type) -> Entry:
    """Return the number of positive checks of all values of a class, and their check, None if no value fails."""
    return _compiled(table, cls, types_of(table.schema))


def own_check(table: Table, cls: type) -> Check | None:
    """Return the check of objects or lists without those of their members, None if no value fails."""
    schema = table.schema
    typed, _ = _type_check(types_of(schema), format_of(schema), bool(schema.get("nullable")), cls)
    size = size_check(schema) if cls is dict else length_check(schema)
    checks = [check for check in (typed, *_combinations(table), size) if check is not None]
    if schema.get("enum"):
        checks.append(_enum_check(as_decoded(schema["enum"]), cls))
    return _joined(checks)


def _compile_structural_check(table: Table, cls: type) -> Entry:
    return _compiled(table, cls, _named_types(table.schema))


def _compiled(table: Table, cls: type, types: Sequence[str]) -> Entry:
    schema, format_name = table.schema, format_of(table.schema)
    typed, accepted = _type_check(types, format_name, bool(schema.get("nullable")), cls)
    checks = [] if typed is None else [typed]
    if cls is _NULL:
        base = int(accepted)
    else:
        # One for the value, one for its enumeration, two for combinations, one for a type and one for a right one.
        base = 4 + (bool(types) or bool(format_name)) + accepted
        checks += _combinations(table)
        own_base, own = _class_checks(table, cls, types, format_name)
        base += own_base
        checks += own
    if schema.get("enum"):
        checks.append(_enum_check(as_decoded(schema["enum"]), cls))
    return base, _joined(checks)


def _joined(checks: Sequence[Check]) -> Check | None:
    if len(checks) <= 1:
        return checks[0] if checks else None

    def check(value: Any, where: Where, failures: Failures, old: Correlated | None) -> int:
        count = 0
        for each in checks:
            count += each(value, where, failures, old)
        return count

    return check


def _class_checks(table: Table, cls: type, types: Sequence[str], format_name: str) -> tuple[int, list[Check]]:
    """Return the constant number and the checks of the keywords for one JSON type."""
    schema = table.schema
    found: list[Check | None] = []
    base = 0
    if cls is str:
        base = 1
        found.append(string_check(schema))
        holds = FORMATS.get(format_name.replace("-", ""))
        if format_name and holds is not None:
            base += 1
            found.append(format_check(format_name, holds))
    elif cls is int or cls is float:
        base = 2
        kind = types[0] if len(types) == 1 and types[0] in _NUMBER_FORMATS else ""
        found.append(number_check(schema, cls, kind, format_name if kind else ""))
    elif cls is list:
        base = 2
        found += [items_check(table), length_check(schema)]
    elif cls is dict:
        base = 1
        found += [size_check(schema), object_check(table)]
    return base, [check for check in found if check is not None]


def _type_check(types: Sequence[str], format_name: str, nullable: bool, cls: type) -> tuple[Check | None, bool]:
    """Return the check of the type, None if all values of a class pass or none is needed; and whether it counts."""
    named = ",".join(types)
    if cls is _NULL:
        if not types or nullable:
            return None, True
        return _WrongType(named, "null"), False
    if not types and not format_name:
        return None, False
    given = _TYPE_NAMES[cls]
    if given in types or (cls is int and "number" in types):
        return None, True
    numeric = "number" in types or "integer" in types
    if format_name and cls not in (str, list):
        if cls is int and format_name == "int64":
            return None, True
        failed = _WrongType(format_name, _FORMAT_NAMES.get(cls, ""))
    elif format_name and not numeric:
        return None, True  # whatever the type is: kube-openapi leaves strings and lists to the format
    else:
        failed = _WrongType(named, given)
    if cls is float and "integer" in types:
        return _or_integral(failed), False
    return failed, False


class _WrongType:
    """The check of values whose type is never right."""

    __slots__ = ("_given", "_wanted")

    def __init__(self, wanted: str, given: str) -> None:
        self._wanted, self._given = wanted, given

    def __call__(self, value: Any, where: Where, failures: Failures, old: Correlated | None) -> int:
        failures.wrong_type(where, self._wanted, self._given)
        return 0


def _or_integral(failed: Check) -> Check:
    """Return the check of a float where an integer is wanted."""

    def check(value: float, where: Where, failures: Failures, old: Correlated | None) -> int:
        return 1 if is_integral(value) else failed(value, where, failures, old)

    return check


def _enum_check(allowed: Sequence[Any], cls: type) -> Check:
    """Return the check of an enumeration. Numbers match after conversion to the allowed one's type, as in Go."""
    choices = Choices(tuple(map(enum_text, allowed)))
    reals = frozenset(each for each in allowed if each.__class__ is float)
    whole = frozenset(each for each in allowed if each.__class__ is int)
    texts = frozenset(each for each in allowed if each.__class__ is str)
    others = frozenset(_written(each) for each in allowed if each.__class__ in (dict, list, bool))

    def holds(value: Any) -> bool:
        if cls is str:
            return value in texts
        if cls is int:
            return value in whole or float(value) in reals or _character(value) in texts
        if cls is float:
            return value in reals or wrapped(value) in whole
        return cls is not _NULL and _written(value) in others

    def check(value: Any, where: Where, failures: Failures, old: Correlated | None) -> int:
        if not holds(value):
            failures.add("enum", where, choices, bad_value(value))
        return 0

    return check


def _written(value: Any) -> bytes:
    """Return a value as text, which is equal for equal values, and not for 1 and 1.0."""
    return orjson.dumps(value, option=orjson.OPT_SORT_KEYS)


def _character(value: int) -> str:
    """Return the character of a code: Go converts an integer to a string so."""
    return chr(value) if 0 <= value < 0x110000 and not 0xD800 <= value < 0xE000 else "\ufffd"


def _combinations(table: Table) -> list[Check]:
    schema, root = table.schema, table.root
    checks = []
    for keyword, make in (("anyOf", _any_of), ("oneOf", _one_of), ("allOf", _all_of)):
        if schema.get(keyword):
            checks.append(make([table.below(each, root=root) for each in schema[keyword]]))
    if schema.get("not") is not None:
        checks.append(_negation(table.below(schema["not"], root=root)))
    return checks


def _any_of(tables: Sequence[Table]) -> Check:
    def check(value: Any, where: Where, failures: Failures, old: Correlated | None) -> int:
        for each in tables:  # of an integer or a string, one type is right, and no failure is noted
            count, inner = each[value.__class__]
            if inner is None:
                return count
            if inner.__class__ is not _WrongType:
                break
        best, best_count = None, 0
        for each in tables:
            found = Failures()
            count, inner = each[value.__class__]
            if inner is not None:
                count += inner(value, where, found, None)
            if not found:
                return count
            if best is None or count > best_count:
                best, best_count = found, count
        failures.combination(where, "must validate at least one schema (anyOf)")
        if best is not None:
            failures.merge(best)
        return best_count

    return check


def _one_of(tables: Sequence[Table]) -> Check:
    def check(value: Any, where: Where, failures: Failures, old: Correlated | None) -> int:
        best, best_count, first_count, valid = None, 0, 0, 0
        for each in tables:
            found = Failures()
            count, inner = each[value.__class__]
            if inner is not None:
                count += inner(value, where, found, None)
            if not found:
                valid += 1
                first_count = first_count if valid > 1 else count
            elif not valid and (best is None or count > best_count):
                best, best_count = found, count
        if valid == 1:
            return first_count
        number = f"Found {valid} valid alternatives" if valid else "Found none valid"
        failures.combination(where, f"must validate one and only one schema (oneOf). {number}")
        if best is None or valid:
            return 0
        failures.merge(best)
        return best_count

    return check


def _all_of(tables: Sequence[Table]) -> Check:
    def check(value: Any, where: Where, failures: Failures, old: Correlated | None) -> int:
        valid = total = 0
        for each in tables:
            found = Failures()
            count, inner = each[value.__class__]
            total += count if inner is None else count + inner(value, where, found, None)
            valid += not found
            failures.merge(found)
        if valid < len(tables):
            none = "" if valid else ". None validated"
            failures.combination(where, f"must validate all the schemas (allOf){none}")
        return total

    return check


def _negation(forbidden: Table) -> Check:
    def check(value: Any, where: Where, failures: Failures, old: Correlated | None) -> int:
        found = Failures()
        _, inner = forbidden[value.__class__]
        if inner is not None:
            inner(value, where, found, None)
        if not found:
            failures.combination(where, "must not validate the schema (not)")
        return 0

    return check
