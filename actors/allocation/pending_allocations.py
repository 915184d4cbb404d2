"""The allocations and releases of one write, collected for its companion changes.

Also the metrics of the allocators. ``scope``: "static" for requested values, "dynamic" for chosen ones.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from kubechronicle.actors.admission.chain import AdmissionState
from kubechronicle.actors.companion_changes import CompanionChange
from kubechronicle.api.values.objects import Object
from kubechronicle.eventlog.measures import Histogram
from kubechronicle.eventlog.records import Key


class AllocationOwner(NamedTuple):
    """The Service that holds an allocation."""

    namespace: str
    name: str


@dataclass(slots=True)
class PendingAllocations:
    """Addresses and ports allocated and released by one write of ``owner``. A dry run commits none of them.

    ``taken``: key → new object.
    ``released``: deletions of objects, by key.
    ``dummy``: the highest port taken in a dry run.
    ``chosen``: the number of ports chosen so far. ``free``: after many, the ports left to choose from, the next last.
    """

    owner: AllocationOwner
    state: AdmissionState
    dry_run: bool = False
    taken: dict[Key, Object] = field(default_factory=dict)
    released: dict[Key, CompanionChange] = field(default_factory=dict)
    dummy: int = 0
    chosen: int = 0
    free: list[int] | None = None

    def has(self, key: Key) -> bool:
        """Return True if a key is allocated, perhaps by this write."""
        return key in self.taken or self.state.peek(*key) is not None

    def take(self, key: Key, obj: Object) -> None:
        self.taken[key] = obj

    def release(self, key: Key, owner: AllocationOwner | None) -> None:
        """Release an allocation if ``owner`` (see ``owner_of_address``, ``owner_of_port``) is this write's owner."""
        entry = self.state.peek(*key)
        if entry is not None and owner == self.owner:
            self.released.setdefault(key, CompanionChange(key=key, old=entry, object=None))

    def companion_changes(self) -> list[CompanionChange]:
        if self.dry_run:
            return []
        taken = [CompanionChange(key=key, old=None, object=obj) for key, obj in self.taken.items()]
        return [*taken, *self.released.values()]


STATIC: Final = "static"
DYNAMIC: Final = "dynamic"


@dataclass(slots=True)
class AllocationMetrics:
    """Counts of allocations and failures. A write that is prepared again is counted again."""

    addresses: Counter[tuple[str, str]] = field(default_factory=Counter)  # (range, scope)
    address_errors: Counter[tuple[str, str]] = field(default_factory=Counter)
    address_seconds: dict[tuple[str], Histogram] = field(default_factory=dict)  # by range
    ports: Counter[str] = field(default_factory=Counter)  # by scope
    port_errors: Counter[str] = field(default_factory=Counter)


@dataclass(slots=True)
class RepairMetrics:
    """Errors found by a repair loop, by kind, and the number of its failed passes."""

    errors: Counter[str] = field(default_factory=Counter)
    failures: int = 0
