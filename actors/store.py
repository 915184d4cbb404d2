"""Store: the access to objects shared by HTTP handlers and control loops."""

from __future__ import annotations

from dataclasses import dataclass

import trio

from kubechronicle.actors.reading.reads import Reads
from kubechronicle.actors.writing.writes import Caller, Writes
from kubechronicle.api.registry.registry import Registry
from kubechronicle.eventlog.records import Who

LOOP_TIMEOUT = 30.0
"""Seconds a control loop waits for one write, before it reads the state again and starts over."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Store:
    registry: Registry
    reads: Reads
    writes: Writes


def system_caller(component: str, verb: str) -> Caller:
    """Return the identity of a write by the server itself. The log distinguishes it from every user."""
    who = Who(
        user="system:apiserver",
        groups=("system:masters", "system:authenticated"),
        verb=verb,
        user_agent=f"kubechronicle/{component}",
        field_manager=f"kubechronicle-{component}",
    )
    return Caller(who=who, deadline=trio.current_time() + LOOP_TIMEOUT)
