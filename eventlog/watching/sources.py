"""The parts of the views and of the log that a cursor reads. The views above this folder satisfy these protocols."""

from __future__ import annotations

from typing import Protocol

from kubechronicle.eventlog.entries import Entry, Event
from kubechronicle.eventlog.queries.chunks import Chunk
from kubechronicle.eventlog.records import Key, Record
from kubechronicle.eventlog.watching.dispatcher import WatcherGroups


class ReadHistory(Protocol):
    """``RevisionLog.read_resource``."""

    async def __call__(
        self, resource: str, *, after: int, until: int, limit: int, namespace: str = "", name: str = ""
    ) -> Chunk[tuple[Record, Record | None]]: ...


class ReadObject(Protocol):
    """``RevisionLog.get_at``."""

    async def __call__(self, key: Key, *, revision: int) -> Record | None: ...


class RecentEvents(Protocol):
    """The events of one resource in memory, in revision order: all those above ``held_since`` (views/view.py)."""

    @property
    def events(self) -> list[Event]: ...

    @property
    def held_since(self) -> int: ...

    def after(self, revision: int) -> int:
        """Return the index of the first event above the revision."""
        ...


class WatchedView(Protocol):
    """The view of one resource."""

    @property
    def resource(self) -> str: ...

    @property
    def applied(self) -> int: ...

    @property
    def held_since(self) -> int: ...

    @property
    def window(self) -> RecentEvents: ...

    @property
    def watchers(self) -> WatcherGroups: ...


class HistorySource(Protocol):
    """``read_history``: None until the views are connected to a log. ``erasures``: erasures seen so far. ``restarts``:
    how often the log went back."""

    @property
    def read_history(self) -> ReadHistory | None: ...

    @property
    def erasures(self) -> int: ...

    @property
    def restarts(self) -> int: ...

    def describe_record(self, record: Record) -> Entry: ...
