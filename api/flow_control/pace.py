"""The pace of a process with one event loop: how much of what waits is begun in one pass of the loop.

Seats limit the requests that are begun and not finished. That is not enough where one thread does all work. Most
requests begin and end in one pass of the loop, so they never take seats at the same time. A pass with the requests of
200 connections takes as long as all of them. So each pass has a budget:

    a request begins at once      while the pass has not begun BUDGET seconds of work,
                                  or its level has not begun its part of it, or nothing at all
    else it waits                 in the queue of its flow; the next passes begin what waits, in the order of the queues

Work is measured in seats. The seconds of a seat are measured from the passes themselves.

Requests of levels without queues, such as those of administrators, begin at once. After LONG seconds of a pass, a user
who has begun one in it begins the next one in a later pass.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

# -- tickets -----------------------------------------------------------------------------------------------------------
#
# A request at its priority level: its flow, its ticket, and the queue in which it waits.

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


# -- pace --------------------------------------------------------------------------------------------------------------

BUDGET: Final = 0.003
"""Seconds of work that a pass begins."""
LONG: Final = 0.025
"""Seconds of a pass after which a user begins no further request in it: 20 of 5 ms each would hold it for 0.1 s. Usual
requests of some dozen connections take less, also on a busy machine: waiting for another pass costs 10 µs."""
FIRST_COST: Final = 0.0005
LEAST_COST: Final = 0.00002
MOST_COST: Final = 0.001
"""Seconds of a seat: at first, and the bounds of what is measured. A pass is long for other reasons, too."""
_WEIGHT: Final = 0.05
MEASURED: Final = 3
"""Seats from which a pass is measured: one with fewer may have waited for I/O."""


class Pace:
    """The budget of the present pass. Without ``begin_pass``, every request begins at once.

    ``number``: of the present pass; 0: passes are not known.
    ``cost``: seconds of a seat. ``spent``, ``seats``: what this pass has begun.
    """

    __slots__ = ("_started", "_users", "cost", "number", "seats", "spent")

    def __init__(self) -> None:
        self.number = 0
        self.cost = FIRST_COST
        self.spent = 0.0
        self.seats = 0
        self._started = 0.0
        self._users: set[str] = set()  # that have begun a request by ``admits`` in this pass

    def begin_pass(self, now: float) -> None:
        """Measure the cost of a seat in the last pass, and begin another one."""
        if self.seats >= MEASURED:
            measured = min(max((now - self._started) / self.seats, LEAST_COST), MOST_COST)
            self.cost += (measured - self.cost) * _WEIGHT
        self.number += 1
        self.spent = 0.0
        self.seats = 0
        self._started = now
        if self._users:
            self._users.clear()

    def admits(self, user: str, now: float) -> bool:
        """Tell whether a request that no queue holds back begins in this pass."""
        if user in self._users and now - self._started > LONG and self.number:
            return False
        self._users.add(user)
        return True

    def stop(self) -> None:
        """Let every request begin at once from now on."""
        self.number = 0


class TicketPart:
    """The work of one level in the present pass.

    ``share``: its part of the budget, of 1.
    ``held_back``: a request has had to wait for a later pass; whoever serves those resets it.
    """

    __slots__ = ("_number", "_pace", "_spent", "held_back", "share")

    def __init__(self, pace: Pace) -> None:
        self._pace = pace
        self._number = 0
        self._spent = 0.0
        self.share = 0.0
        self.held_back = False

    def begins(self, seats: int) -> bool:
        """Return whether a request may begin in this pass, and count it if so. ``held_back`` is set if not."""
        pace = self._pace
        if not pace.number:
            return True
        if self._number != pace.number:
            self._number = pace.number
            self._spent = 0.0
        work = seats * pace.cost
        if pace.spent + work > BUDGET and self._spent and self._spent + work > self.share * BUDGET:
            self.held_back = True
            return False
        self._spent += work
        pace.spent += work
        pace.seats += seats
        return True
