"""The admission chain in its order (``plugins_in_order``). A plugin says what it mutates and what it validates; it sees
the object and the views, and raises StatusError to refuse."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from kubechronicle.api.registry import ResourceType
from kubechronicle.eventlog.entries import Entry


@dataclass(frozen=True, slots=True, kw_only=True)
class Attributes:
    """What is to be admitted. ``operation``: CREATE, UPDATE or DELETE; ``object`` is None for DELETE."""

    rt: ResourceType
    operation: str
    namespace: str
    name: str
    subresource: str = ""
    object: dict[str, Any] | None = None
    old: Entry | None = None
    dry_run: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """What plugins may look at, in this replica's views: ``peek(resource, namespace, name)`` and
    ``entries(resource, namespace)``. They may lag; a refusal of a create is checked again on a consistent state."""

    peek: Callable[[str, str, str], Entry | None]
    entries: Callable[[str, str], Sequence[Entry]]


class Plugin(Protocol):
    @property
    def name(self) -> str:
        """As --enable-admission-plugins names it."""
        ...

    def admit(self, attributes: Attributes, state: State) -> None:
        """Raise StatusError to refuse; may change ``attributes.object`` in place."""
        ...


class AdmissionChain:
    def __init__(self, plugins: Sequence[Plugin], state: State) -> None:
        self._plugins = tuple(plugins)
        self._state = state

    def admit(self, attributes: Attributes) -> None:
        """Run every plugin in order. StatusError of the first that refuses."""
        for plugin in self._plugins:
            plugin.admit(attributes, self._state)
