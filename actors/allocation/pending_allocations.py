"""What one write takes and gives back: gathered while addresses and ports are claimed, committed beside the write."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from kubechronicle.actors.admission.chain import State
from kubechronicle.actors.companion_changes import CompanionChange
from kubechronicle.api.values.objects import Object
from kubechronicle.eventlog.records import Key


class Owner(NamedTuple):
    """The Service something is given to."""

    namespace: str
    name: str


@dataclass(slots=True)
class PendingAllocations:
    """Nothing of it is kept for a dry run."""

    owner: Owner
    state: State
    dry_run: bool = False
    taken: dict[Key, Object] = field(default_factory=dict)
    returned: list[CompanionChange] = field(default_factory=list)

    def has(self, key: Key) -> bool:
        """Whether somebody has it, or this very write takes it."""
        return key in self.taken or self.state.peek(*key) is not None

    def take(self, key: Key, obj: Object) -> None:
        self.taken[key] = obj

    def release(self, key: Key, owner: Owner | None) -> None:
        """Give up what the state holds, if it is ``owner``'s (who that is: see ``owner_of_address`` and of ports)."""
        entry = self.state.peek(*key)
        if entry is not None and owner == self.owner and all(key != one.key for one in self.returned):
            self.returned.append(CompanionChange(key=key, old=entry, object=None))

    def companion_changes(self) -> list[CompanionChange]:
        if self.dry_run:
            return []
        return [*(CompanionChange(key=key, old=None, object=obj) for key, obj in self.taken.items()), *self.returned]
