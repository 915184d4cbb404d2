"""The setting --database-url-overrides: which resources may have a database of their own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from kubechronicle.ops.errors import OperatorError
from kubechronicle.ops.settings import types

FLAG: Final = "--database-url-overrides"

OVERRIDABLE: Final[Mapping[str, str]] = MappingProxyType(
    {
        "/events": "events",
        "events.k8s.io/events": "events",
        "coordination.k8s.io/leases": "leases.coordination.k8s.io",
    }
)
"""The resources that may have a database of their own, and where they are stored.

Events: no quota counts them, they have no owners, and no other object rests on one.
Leases: a quota of count/leases.coordination.k8s.io is charged with them, before (writing/several_databases.py).
All others: their writes allocate addresses, are charged to quotas or bind rules, in one transaction with other objects.
"""


@dataclass(frozen=True, slots=True)
class Override:
    """One database. ``resources``: where its resources are stored."""

    url: str
    resources: tuple[str, ...]

    @property
    def name(self) -> str:
        return ",".join(self.resources)


def overrides_of(setting: types.DatabaseOverrides | None) -> tuple[Override, ...]:
    """Return the databases of the setting. OperatorError: a resource cannot have one."""
    urls: dict[str, str] = {}
    for name, url in setting.overrides if setting is not None else ():
        resource = OVERRIDABLE.get(name)
        if resource is None:
            raise OperatorError(
                f"{FLAG}: {name}: only {', '.join(OVERRIDABLE)} can be in another database; changes of other resources "
                "are committed together with quotas, addresses and the like"
            )
        if urls.setdefault(resource, url) != url:
            raise OperatorError(f"{FLAG}: {name}: /events and events.k8s.io/events are the same objects: give one URL")
    by_url: dict[str, list[str]] = {}
    for resource, url in urls.items():
        by_url.setdefault(url, []).append(resource)
    return tuple(Override(url, tuple(sorted(resources))) for url, resources in by_url.items())
