"""Resources that may only be consumed where a quota covers them (ResourceQuotaConfiguration: limitedResources).

resource: persistentvolumeclaims, matchContains: [gold.storageclass.storage.k8s.io/requests.storage]
a claim of class gold in a namespace without a quota of that name
    ->  insufficient quota to consume: gold.storageclass.storage.k8s.io/requests.storage
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from kubechronicle.api.quota.amounts import Usage
from kubechronicle.api.quota.scopes import Selector, Traits


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
