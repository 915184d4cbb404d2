"""The store face: the one way to objects, for HTTP handlers and control loops alike."""

from __future__ import annotations

from dataclasses import dataclass

import trio

from kubechronicle.actors.reading.reads import Reads
from kubechronicle.actors.writing.writes import Caller, Writes
from kubechronicle.api.registry.registry import Registry
from kubechronicle.eventlog.records import Who

# How long a control loop waits for one write of its own; then it looks at the state again and starts over.
LOOP_TIMEOUT = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Store:
    registry: Registry
    reads: Reads
    writes: Writes


def system_caller(component: str, verb: str) -> Caller:
    """The identity under which the server itself writes: in the log it is told apart from every user."""
    who = Who(
        user="system:apiserver",
        groups=("system:masters", "system:authenticated"),
        verb=verb,
        user_agent=f"kubechronicle/{component}",
        field_manager=f"kubechronicle-{component}",
    )
    return Caller(who=who, deadline=trio.current_time() + LOOP_TIMEOUT)
