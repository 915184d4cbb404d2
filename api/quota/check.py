"""A write against the quotas of its namespace: what it would add to each, and whether it still fits.

    quota a: status hard pods 2, used pods 1; hard requests.cpu 1, used 600m
    pod of 300m  ->  charge a: pods 2, requests.cpu 900m
    pod of 500m  ->  Exceeded: exceeded quota: a, requested: requests.cpu=500m, used: requests.cpu=600m, limited: …

Quotas count as their status has them: what spec demands holds from when a controller has taken it over.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kubechronicle.api.quota import amounts, scopes
from kubechronicle.api.quota.amounts import Usage
from kubechronicle.api.quota.evaluators import UPDATE, Evaluator, Measure
from kubechronicle.api.quota.facts import Facts
from kubechronicle.api.values.objects import Object


class Exceeded(Exception):
    """The write does not fit. Its text is kube-apiserver's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Write:
    """What is to be charged. ``operation``: CREATE or UPDATE; ``old`` is the stored object of an UPDATE."""

    operation: str
    subresource: str
    new: Object
    old: Object | None = None


def charges(
    quotas: Sequence[Object], evaluator: Evaluator, write: Write, facts: Facts
) -> list[tuple[int, dict[str, str]]]:
    """Return (index of the quota, its new status.used) for every quota the write is charged to. Exceeded."""
    if not evaluator.handles(write.operation, write.subresource, write.new, write.old):
        return []
    concerned = [index for index, quota in enumerate(quotas) if (quota.get("status") or {}).get("hard")]
    if not concerned:
        return []
    measure = evaluator.measure(write.new, facts)
    matching = [index for index in concerned if _matches(quotas[index], evaluator, measure, facts)]
    for index in matching:
        _check_countable(quotas[index], evaluator, write.new, facts)
    negative = sorted(name for name, amount in measure.usage.items() if amount[0] < 0)
    if negative:
        raise Exceeded(f"quota usage is negative for resource(s): {','.join(negative)}")
    before = evaluator.measure(write.old, facts) if write.operation == UPDATE and write.old is not None else None
    found = []
    for index in matching:
        used = _charge(quotas[index], evaluator, measure, before, facts, limited=write.subresource != "status")
        if used is not None:
            found.append((index, used))
    return found


def _matches(quota: Object, evaluator: Evaluator, measure: Measure, facts: Facts) -> bool:
    about = any(evaluator.covers(name, facts) for name in quota["status"]["hard"])
    return about and scopes.match(scopes.selectors_of(quota), measure.traits)


def _check_countable(quota: Object, evaluator: Evaluator, obj: Object, facts: Facts) -> None:
    """Whether the object says what the quota needs to know, and the quota what is used so far."""
    name, status = quota["metadata"]["name"], quota["status"]
    covered = evaluator.covered(status["hard"], facts)
    missing = evaluator.missing(obj, covered)
    if missing:
        raise Exceeded(f"failed quota: {name}: {missing}")
    used = status.get("used") or {}
    if any(each not in used for each in covered):
        raise Exceeded(f"status unknown for quota: {name}, resources: {','.join(covered)}")


def _charge(
    quota: Object, evaluator: Evaluator, measure: Measure, before: Measure | None, facts: Facts, *, limited: bool
) -> dict[str, str] | None:
    hard, used = amounts.parsed(quota["status"]["hard"]), amounts.parsed(quota["status"].get("used"))
    held: Mapping[str, amounts.Amount] = {}
    if before is not None and _matches(quota, evaluator, before, facts):
        held = before.usage
    requested = amounts.only(amounts.risen(measure.usage, held), hard)
    if not requested:
        return None
    new: Usage = dict(used)
    amounts.add(new, requested)
    exceeded = [name for name in requested if new[name][0] > hard[name][0]] if limited else []
    if exceeded:
        raise Exceeded(
            f"exceeded quota: {quota['metadata']['name']}, requested: {amounts.listed(requested, exceeded)}, "
            f"used: {amounts.listed(used, exceeded)}, limited: {amounts.listed(hard, exceeded)}"
        )
    return amounts.texts(new)
