"""Charges a write to the quotas of its namespace, and rejects a write that exceeds one.

    quota a: status hard pods 2, used pods 1; hard requests.cpu 1, used 600m
    pod of 300m  ->  charge a: pods 2, requests.cpu 900m
    pod of 500m  ->  Exceeded: exceeded quota: a, requested: requests.cpu=500m, used: requests.cpu=600m, limited: …

The limits are those of a quota's status. A change of its spec takes effect when a controller has copied it there.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from kubechronicle.api.quota import amounts, scopes
from kubechronicle.api.quota.amounts import ZERO, Usage
from kubechronicle.api.quota.evaluators import UPDATE, Evaluator, Facts, Measure
from kubechronicle.api.quota.scopes import Selector, Traits
from kubechronicle.api.values.objects import Object
from kubechronicle.api.values.steps import Steps

# -- totals ------------------------------------------------------------------------------------------------------------
#
# The total usage of a namespace, which a controller writes to a quota's status.used.


def total(names: Collection[str], selectors: list[Selector], measures: Iterable[Measure]) -> Usage:
    """Return the sum over the objects that meet the selectors, with every name."""
    sums: Usage = dict.fromkeys(names, ZERO)
    for measure in measures:
        if scopes.match(selectors, measure.traits):
            amounts.add(sums, amounts.only(measure.usage, names))
    return sums


def times(names: Collection[str], selectors: list[Selector], measure: Measure, count: int) -> Usage:
    """Return the usage of ``count`` objects with the same usage."""
    counted = count if scopes.match(selectors, measure.traits) else 0
    sums: Usage = dict.fromkeys(names, ZERO)
    amounts.add(sums, {name: (each * counted, family) for name, (each, family) in measure.usage.items()})
    return amounts.only(sums, names)


# -- limited -----------------------------------------------------------------------------------------------------------
#
# Resources that may only be consumed where a quota covers them (ResourceQuotaConfiguration: limitedResources).
#
# resource: persistentvolumeclaims, matchContains: [gold.storageclass.storage.k8s.io/requests.storage]
# a claim of class gold in a namespace without a quota of that name
#     ->  insufficient quota to consume: gold.storageclass.storage.k8s.io/requests.storage


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitedResource:
    """``resource``: its storage name. ``contains``: parts of the names of usage. ``scopes``: of its objects."""

    resource: str
    contains: tuple[str, ...] = ()
    scopes: tuple[Selector, ...] = ()


def uncovered_names(
    limits: Sequence[LimitedResource], resource: str, usage: Usage, covered: Collection[str]
) -> list[str]:
    """Return the names of positive usage that a limit demands a quota for and that no quota covers, sorted."""
    parts = [part for limit in limits if limit.resource == resource for part in limit.contains]
    consumed = (name for name, amount in usage.items() if amount[0] > 0 and name not in covered)
    return sorted(name for name in consumed if any(part in name for part in parts))


def uncovered_scopes(
    limits: Sequence[LimitedResource], traits: Traits, covering: Collection[Selector]
) -> list[Selector]:
    """Return the scopes of limits that the object is in and that no quota names among those the object is in.

    As in kube-apiserver, a limit's scopes count for objects of every resource that has scopes.
    """
    names = {selector.scope for selector in covering}
    return [each for limit in limits for each in limit.scopes if each.scope not in names and each.matches(traits)]


def shown(scopes: Sequence[Selector]) -> str:
    """Return selectors as Go's ``%v`` prints them: ``[{PriorityClass In [high]}]``."""
    texts = (f"{{{each.scope} {each.operator} [{' '.join(each.values)}]}}" for each in scopes)
    return f"[{' '.join(texts)}]"


class Exceeded(Exception):
    """The write exceeds a quota. The text is kube-apiserver's."""


class ScopesNotCovered(Exception):
    """The write needs a quota with certain scopes. The text is kube-apiserver's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaWrite:
    """A write to charge. ``operation``: CREATE or UPDATE. ``old``: the stored object of an UPDATE."""

    operation: str
    subresource: str
    new: Object
    old: Object | None = None


def charges(
    quotas: Sequence[Object],
    evaluator: Evaluator,
    write: QuotaWrite,
    facts: Facts,
    limits: Sequence[LimitedResource] = (),
) -> Steps[list[tuple[int, dict[str, str]]]]:
    """Return (index of the quota, its new status.used) for every quota charged with the write.

    ``limits``: what may be consumed only where a quota covers it. Raises Exceeded, ScopesNotCovered.
    """
    if not evaluator.handles(write.operation, write.subresource, write.new, write.old):
        return []
    limiting = [index for index, quota in enumerate(quotas) if (quota.get("status") or {}).get("hard")]
    if not limiting and not limits:
        return []
    measure = evaluator.measure(write.new, facts)
    matching = []
    for index in limiting:
        yield
        if _matches(quotas[index], evaluator, measure, facts):
            matching.append(index)
    for index in matching:
        yield
        _check_countable(quotas[index], evaluator, write.new, facts)
    negative = sorted(name for name, amount in measure.usage.items() if amount[0] < 0)
    if negative:
        raise Exceeded(f"quota usage is negative for resource(s): {','.join(negative)}")
    before = evaluator.measure(write.old, facts) if write.operation == UPDATE and write.old is not None else None
    if limits:
        _check_covered(limits, quotas, matching, evaluator, measure, before, facts)
    charged = []
    for index in matching:
        yield
        used = _charge(quotas[index], evaluator, measure, before, facts, limited=write.subresource != "status")
        if used is not None:
            charged.append((index, used))
    return charged


def _matches(quota: Object, evaluator: Evaluator, measure: Measure, facts: Facts) -> bool:
    about = any(evaluator.covers(name, facts) for name in quota["status"]["hard"])
    return about and scopes.match(scopes.selectors_of(quota), measure.traits)


def _check_countable(quota: Object, evaluator: Evaluator, obj: Object, facts: Facts) -> None:
    """Raise Exceeded if the object leaves out fields that the quota limits, or the quota's status has no usage yet."""
    name, status = quota["metadata"]["name"], quota["status"]
    covered = evaluator.covered(status["hard"], facts)
    missing = evaluator.missing(obj, covered)
    if missing:
        raise Exceeded(f"failed quota: {name}: {missing}")
    used = status.get("used") or {}
    if any(each not in used for each in covered):
        raise Exceeded(f"status unknown for quota: {name}, resources: {','.join(covered)}")


def _check_covered(
    limits: Sequence[LimitedResource],
    quotas: Sequence[Object],
    matching: Sequence[int],
    evaluator: Evaluator,
    measure: Measure,
    before: Measure | None,
    facts: Facts,
) -> None:
    """Raise Exceeded or ScopesNotCovered if a write that raises its usage lacks a quota that ``limits`` demand.

    ``matching``: the indexes of the quotas that match the object. ``before``: of the stored object of an update.
    """
    unmatched_before = before is None or any(not _matches(quotas[i], evaluator, before, facts) for i in matching)
    held: Mapping[str, amounts.Amount] = {}
    if before is not None and not (matching and unmatched_before):
        held = before.usage
    if not amounts.risen(measure.usage, held):
        return
    covered = {name for index in matching for name in evaluator.covered(quotas[index]["status"]["hard"], facts)}
    if names := uncovered_names(limits, evaluator.resource, measure.usage, covered):
        raise Exceeded(f"insufficient quota to consume: {','.join(names)}")
    covering = [each for quota in quotas for each in scopes.selectors_of(quota) if each.matches(measure.traits)]
    if missing := uncovered_scopes(limits, measure.traits, covering):
        raise ScopesNotCovered(f"insufficient quota to match these scopes: {shown(missing)}")


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
