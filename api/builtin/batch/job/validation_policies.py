"""Validation of a Job's pod failure policy and success policy."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, Final

from kubechronicle.api.builtin.common.checks import not_negative, qualified_name, repeated
from kubechronicle.api.errors.field_errors import (
    Cause,
    duplicate,
    go_quote,
    invalid_value,
    not_supported,
    required,
    too_long,
    too_many,
)
from kubechronicle.api.kinds.reading import enum
from kubechronicle.api.values.objects import Object

MAX_RULES: Final = 20
MAX_EXIT_CODES: Final = 255
MAX_SUCCEEDED_INDEXES: Final = 64 * 1024
_STATUSES: Final = ("False", "True", "Unknown")


def _choices(values: Sequence[str]) -> str:
    """Return the choices as Go's %q prints a list."""
    return f"valid values: [{' '.join(map(go_quote, values))}]"


def _one_of(value: str, choices: Sequence[str], field: str) -> list[Cause]:
    if value in choices:
        return []
    return [not_supported(field, value, choices)] if value else [required(field, _choices(choices))]


def failure_policy(spec: Object, field: str) -> list[Cause]:
    """Check each rule of a pod failure policy, by exit codes or by pod conditions (KEP-3329)."""
    rules, path = spec["podFailurePolicy"].get("rules") or (), f"{field}.rules"
    causes = [too_many(path, len(rules), MAX_RULES)] if len(rules) > MAX_RULES else []
    pod = (spec.get("template") or {}).get("spec") or {}
    containers = {each.get("name") for group in ("containers", "initContainers") for each in pod.get(group) or ()}
    for index, rule in enumerate(rules):
        place, action = f"{path}[{index}]", rule.get("action", "")
        if action == "FailIndex":
            if spec.get("backoffLimitPerIndex") is None:
                detail = "requires the backoffLimitPerIndex to be set"
                causes.append(invalid_value(f"{place}.action", action, detail))
        else:
            causes += _one_of(action, enum("batch.v1.PodFailurePolicyAction"), f"{place}.action")
        codes, conditions = rule.get("onExitCodes"), rule.get("onPodConditions") or ()
        if codes is not None:
            causes += _exit_codes(codes, containers, f"{place}.onExitCodes")
        if len(conditions) > MAX_RULES:
            causes.append(too_many(f"{place}.onPodConditions", len(conditions), MAX_RULES))
        for position, pattern in enumerate(conditions):
            below = f"{place}.onPodConditions[{position}]"
            causes += qualified_name(pattern.get("type", ""), f"{below}.type")
            causes += _one_of(pattern.get("status", ""), _STATUSES, f"{below}.status")
        if codes is not None and conditions:
            causes.append(_invalid(place, "specifying both OnExitCodes and OnPodConditions is not supported"))
        elif codes is None and not conditions:
            causes.append(_invalid(place, "specifying one of OnExitCodes and OnPodConditions is required"))
    return causes


def _invalid(field: str, detail: str) -> Cause:
    """Return a cause without the value, as Kubernetes reports some."""
    return Cause("FieldValueInvalid", f"Invalid value: {detail}", field)


def _exit_codes(codes: Object, containers: set[Any], field: str) -> list[Cause]:
    operator, name, values = codes.get("operator", ""), codes.get("containerName"), codes.get("values") or []
    causes = _one_of(operator, enum("batch.v1.PodFailurePolicyOnExitCodesOperator"), f"{field}.operator")
    if name is not None and name not in containers:
        detail = "must be one of the container or initContainer names in the pod template"
        causes.append(invalid_value(f"{field}.containerName", name, detail))
    path = f"{field}.values"
    if not values:
        causes.append(invalid_value(path, values or codes.get("values"), "at least one value is required"))
    elif len(values) > MAX_EXIT_CODES:
        causes.append(too_many(path, len(values), MAX_EXIT_CODES))
    for index, (value, again) in enumerate(zip(values, repeated(values), strict=True)):
        if operator == "In" and value == 0:
            causes.append(invalid_value(f"{path}[{index}]", value, "must not be 0 for the In operator"))
        if again:
            causes.append(duplicate(f"{path}[{index}]", value))
    if values != sorted(values):
        causes.append(invalid_value(path, values, "must be ordered"))
    return causes


def success_policy(policy: Object, completions: int, field: str) -> list[Cause]:
    """Check that each rule of a success policy has valid indexes or a possible count."""
    rules = policy.get("rules") or ()
    if not rules:
        detail = "at least one rules must be specified when the successPolicy is specified"
        return [required(f"{field}.rules", detail)]
    causes = [too_many(f"{field}.rules", len(rules), MAX_RULES)] if len(rules) > MAX_RULES else []
    for index, rule in enumerate(rules):
        path, indexes, count = f"{field}.rules[{index}]", rule.get("succeededIndexes"), rule.get("succeededCount")
        if indexes is None and count is None:
            detail = "at least one of succeededCount or succeededIndexes must be specified"
            causes.append(required(path, detail))
        total = 0
        if indexes is not None:
            if len(indexes) > MAX_SUCCEEDED_INDEXES:
                causes.append(too_long(f"{path}.succeededIndexes", MAX_SUCCEEDED_INDEXES))
            total, problem = count_indexes(indexes, completions)
            if problem:
                detail = f"error parsing succeededIndexes: {problem}"
                causes.append(invalid_value(f"{path}.succeededIndexes", indexes, detail))
        if count is not None:
            causes += not_negative(rule, path, "succeededCount")
            if count > completions:
                detail = f"must be less than or equal to {completions} (the number of specified completions)"
                causes.append(invalid_value(f"{path}.succeededCount", count, detail))
            if indexes is not None and count > total:
                words = "the number of indexes in the specified succeededIndexes field"
                detail = f"must be less than or equal to {total} ({words})"
                causes.append(invalid_value(f"{path}.succeededCount", count, detail))
    return causes


def intervals(text: str, completions: int) -> Iterator[tuple[int, int] | str]:
    """Yield each interval of an index list such as "1,3-5" as (first, last), or its problem as a text."""
    for interval in text.split(",") if text else ():
        limits = interval.split("-")
        if len(limits) > 2:
            rule = "an index interval can have at most two parts separated by '-'"
            yield f"the fragment {go_quote(interval)} violates the requirement that {rule}"
            continue
        problem = ""
        for limit in limits:
            if not re.fullmatch(r"[+-]?[0-9]+", limit):
                problem = f"cannot convert string to integer for index: {go_quote(limit)}"
            elif int(limit) >= completions:
                problem = f"too large index: {go_quote(limit)}"
            if problem:
                break
        if problem:
            yield problem
        elif len(limits) == 2 and int(limits[0]) >= int(limits[1]):
            yield f"non-increasing order, previous: {int(limits[0])}, current: {int(limits[1])}"
        else:
            yield int(limits[0]), int(limits[-1])


def count_indexes(text: str, completions: int) -> tuple[int, str]:
    """Return (number of indexes in a list, its problem or "")."""
    last, total = None, 0
    for interval in intervals(text, completions):
        if isinstance(interval, str):
            return 0, interval
        first, end = interval
        if last is not None and last >= first:
            return 0, f"non-increasing order, previous: {last}, current: {first}"
        total, last = total + end - first + 1, end
    return total, ""


# -- scheduling (KEP-5547) --------------------------------------------------------------------------------------------


def scheduling(spec: Object, field: str) -> list[Cause]:
    """Check that a gang is not larger than all pods at once, and that pods are disrupted together only in a gang."""
    given = spec["scheduling"]
    policy, disruption = given.get("schedulingPolicy") or {}, given.get("disruptionMode") or {}
    gang, basic = policy.get("gang"), policy.get("basic")
    least = None if gang is None else gang.get("minCount")
    most = 1 if spec.get("parallelism") is None else spec["parallelism"]
    causes: list[Cause] = []
    if least is not None and least > most:
        detail = f"must not be greater than parallelism ({most})"
        causes.append(invalid_value(f"{field}.schedulingPolicy.gang.minCount", least, detail))
    if (basic is not None or gang is None) and disruption.get("all") is not None and disruption.get("single") is None:
        detail = "the disruptionMode `all` is not supported with the Basic scheduling policy"
        causes.append(invalid_value(f"{field}.disruptionMode", "", detail))
    return causes


def scheduling_update(spec: Object, held: Object, field: str) -> list[Cause]:
    """Reject a change between the policies basic and gang. Tags reject that one is added or removed."""
    new, old = ((each.get("scheduling") or {}).get("schedulingPolicy") for each in (spec, held))
    if new is None or old is None or (new.get("basic") is None) == (old.get("basic") is None):
        return []
    detail = (
        "the basic/gang policy variant is immutable after creation; only schedulingPolicy.gang.minCount may be updated"
    )
    return [invalid_value(f"{field}.schedulingPolicy", None, detail)]
