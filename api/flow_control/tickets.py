"""A request at its priority level: its flow, its ticket, and the queue in which it waits."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

SERVICE_TIME: Final = 0.003
"""Seconds that a request is expected to take, until it ends."""


@dataclass(slots=True)
class FlowCounts:
    """Requests and seats of one FlowSchema in one level: waiting, executing, and totals.

    ``joined``: requests by the length of their queue when they joined it; those that ran at once are not in it.
    """

    waiting: int = 0
    waiting_seats: int = 0
    executing: int = 0
    executing_seats: int = 0
    dispatched: int = 0
    joined: dict[int, int] = field(default_factory=dict)


class Flow:
    """The requests of one FlowSchema with the same distinguisher, in one level.

    ``hand``: the queues that they may join; empty for a level without queues.
    """

    __slots__ = ("counts", "distinguisher", "hand", "schema")

    def __init__(self, schema: str, distinguisher: str, hand: tuple[int, ...], counts: FlowCounts) -> None:
        self.schema = schema
        self.distinguisher = distinguisher
        self.hand = hand
        self.counts = counts


class Ticket:
    """One request at its level.

    ``seats``: taken while it runs. ``final_seats``: taken for ``extra`` seconds after its end, for the events that it
    causes. ``width``: the larger of both, which is held all the time.
    ``wake``: called when a request that has joined a queue may run.
    ``about``: what the caller knows of the request, for dumps.
    """

    # Most requests are of one seat and never wait: what they do not change belongs to the class.
    seats = width = 1
    final_seats = 0
    extra = arrived = started = arrived_r = 0.0
    work = SERVICE_TIME
    queue: Queue | None = None
    running = False
    wake: Callable[[], object] = staticmethod(lambda: None)

    def __init__(self, flow: Flow, about: Any, seats: int = 1, final_seats: int = 0, extra: float = 0.0) -> None:
        self.flow = flow
        self.about = about
        if seats != 1 or final_seats:
            self.seats = seats
            self.final_seats = final_seats
            self.extra = extra
            self.width = max(seats, final_seats)
            self.work = seats * SERVICE_TIME + final_seats * extra


class Queue:
    """One queue. ``next_r``: the virtual time at which its next request starts."""

    __slots__ = ("executing", "index", "next_r", "seats", "waiting", "work")

    def __init__(self, index: int) -> None:
        self.index = index
        self.waiting: deque[Ticket] = deque()
        self.work = 0.0  # of those that wait
        self.executing: dict[Ticket, None] = {}
        self.seats = 0
        self.next_r = 0.0


def hand_of(hash_value: int, deck: int, hand: int) -> tuple[int, ...]:
    """Deal ``hand`` different queues of ``deck`` by a hash value (k8s.io/apiserver, package shufflesharding)."""
    cards: list[int] = []
    rest = hash_value
    for dealt in range(min(hand, deck)):
        rest, card = divmod(rest, deck - dealt)
        # The card counts only the queues that are not dealt yet.
        for former in sorted(cards):
            if card >= former:
                card += 1
        cards.append(card)
    return tuple(cards)
