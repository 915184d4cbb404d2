"""Store: the access to objects shared by HTTP handlers and control loops."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

import trio

from kubechronicle.actors.definitions.past import PastDefinitions
from kubechronicle.actors.queue_measures import QueueMeasures
from kubechronicle.actors.reading.conversions import Conversions, without_webhooks
from kubechronicle.actors.reading.reads import Reads
from kubechronicle.actors.writing.writes import Caller, Writes
from kubechronicle.api.registry.registry import Registry, ResourceType
from kubechronicle.eventlog.records import Who

LOOP_TIMEOUT = 30.0
"""Seconds a control loop waits for one write, before it reads the state again and starts over."""


class Served(Protocol):
    """The served resource types; CurrentRegistry describes the methods."""

    @property
    def registry(self) -> Registry: ...

    def end_with(self, rt: ResourceType, end: Callable[[], None]) -> None: ...

    def forget_end(self, rt: ResourceType, end: Callable[[], None]) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Store:
    """``served``: the present resource types; custom resources come and go. ``past``: those of earlier moments.

    ``conversions``: those of custom objects by webhooks.
    ``queues``: the measures of the control loops' queues, by the name of the loop.
    """

    served: Served
    past: PastDefinitions
    reads: Reads
    writes: Writes
    conversions: Conversions = field(default_factory=without_webhooks)
    queues: dict[str, QueueMeasures] = field(default_factory=dict)

    @property
    def registry(self) -> Registry:
        """The registry of this moment: a request or a pass of a loop asks once. Built-in types never change."""
        return self.served.registry

    def queue(self, name: str) -> QueueMeasures:
        """Return the measures of a loop's queues."""
        return self.queues.setdefault(name, QueueMeasures())


def system_caller(component: str, verb: str, *, cause: int) -> Caller:
    """Return the identity of a write by the server itself. The log distinguishes it from every user.

    ``cause``: the revision that the write is a consequence of (loops/edits.py).
    """
    who = Who(
        user="system:apiserver",
        groups=("system:masters", "system:authenticated"),
        verb=verb,
        user_agent=f"kubechronicle/{component}",
        field_manager=f"kubechronicle-{component}",
        cause=cause,
    )
    return Caller(who=who, deadline=trio.current_time() + LOOP_TIMEOUT)
