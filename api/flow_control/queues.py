"""The seats and queues of one priority level: which request runs now, which waits, which is rejected (KEP-1040).

    flow = level.flow("global-default", "alice", hash_value)
    ticket = Ticket(flow, request, seats=1)
    level.start(ticket, now)      RUNS, WAITS, or the reason of a rejection
    level.finish(ticket, now)     of a request that ran; its seats go to waiting ones, whose ``wake`` is called
    level.give_up(ticket, now)    of a request that waited too long

A flow has a hand of a few queues, dealt by a hash of its name, and a request joins the shortest of them. So a flow with
many requests fills its own hand, and another one most likely has a queue of its own (shuffle sharding).

Queues take turns by work, in seat seconds, as in start-time fair queuing (Goyal, Vin and Cheng, 1996): virtual time is
the virtual start of the request that began last. A queue that becomes busy starts there, so it gains nothing by having
been idle. The next request is the one that would finish first. Its work is estimated when it starts, and corrected
when it ends. kube-apiserver advances virtual time by the seats of a level. That supposes that as many requests compute
at once, which is not so here.

Python runs one request at a time, so the seats of all levels do not say how many requests compute. They say how much
work is begun and not finished: answers being built and sent, writes that wait for their commit. The pace of the event
loop limits the computing (pace.py): seats are given in the next pass if this one has begun enough.

There are no locks and no clock here: every call has the time ``now``, in seconds of a clock that does not go back.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Collection, Sequence
from typing import Final

from kubechronicle.api.flow_control.limits import LevelSpec, Limits
from kubechronicle.api.flow_control.pace import SERVICE_TIME, Flow, FlowCounts, Pace, Queue, Ticket, TicketPart, hand_of

SIZES_GATE: Final = "SizeBasedListCostEstimate"
"""The gate without which lists are estimated by the number of objects."""
RUNS: Final = "runs"
WAITS: Final = "waits"
FULL: Final = "queue-full"
NO_SEATS: Final = "concurrency-limit"
TOO_LATE: Final = "time-out"
"""FULL, NO_SEATS and TOO_LATE are the reasons of apiserver_flowcontrol_rejected_requests_total."""


class Level:
    """One priority level.

    ``limits``, ``current``: its seats by configuration and at present.
    ``waiting``, ``executing``: numbers of requests; ``seats_waiting``, ``seats_used``: their seats.
    ``dispatch_r``, ``latest_s``: the virtual time of the last dispatch, and the virtual start of its request.
    ``high``: the most seats, used and waiting, since the last ``take_high``.
    ``part``: what it may begin in the present pass of the event loop.
    ``retiring``: its object is gone; it ends with its last request.
    """

    def __init__(self, spec: LevelSpec, now: float, pace: Pace) -> None:
        self.spec = spec
        self.part = TicketPart(pace)
        self.limits = Limits(0, 0, 0, 0)
        self.current = 0
        self.retiring = False
        self.queues: list[Queue] = []
        self.flows: dict[str, FlowCounts] = {}
        self.without_queue: dict[Ticket, None] = {}
        self.waiting = self.executing = self.seats_waiting = self.seats_used = 0
        self._wide_used = 0  # seats of requests with several
        self.rejected = self.timed_out = 0
        self.virtual_time = self.dispatch_r = self.latest_s = 0.0
        self._times: defaultdict[tuple[int, int, int, int], float] = defaultdict(float)
        # The times in which each request has one seat, and none waits.
        self._times_plain: defaultdict[int, float] = defaultdict(float)
        self.rejections: dict[tuple[str, str], int] = {}  # (FlowSchema, reason)
        self.no_room: dict[str, int] = {}  # dispatches that found too few seats
        self.high = 0
        self._last = now
        self._backlog: dict[int, Queue] = {}  # queues with waiting requests
        self._robin = 0
        self._joined = 0
        self._lingering: list[tuple[float, int, Ticket]] = []  # seats that are free at a time
        self._order = 0
        self.configure(spec)

    # Configuration

    def configure(self, spec: LevelSpec) -> None:
        """Take another spec. Requests keep the queues that they are in; superfluous queues end when they are empty."""
        self.spec = spec
        while len(self.queues) < spec.queues:
            self.queues.append(Queue(len(self.queues)))
        self._trim()

    def limit(self, limits: Limits, current: int, now: float) -> None:
        """Set the limits, and start what fits into them."""
        self.advance(now)
        self.limits, self.current = limits, current
        self._dispatch(now)

    def _trim(self) -> None:
        while len(self.queues) > self.spec.queues and not (self.queues[-1].waiting or self.queues[-1].executing):
            self.queues.pop()

    @property
    def idle(self) -> bool:
        return not (self.waiting or self.executing)

    @property
    def dispatched(self) -> int:
        """Requests that have begun, in all."""
        return sum(counts.dispatched for counts in self.flows.values())

    @property
    def active_queues(self) -> int:
        """Queues in which requests wait."""
        return len(self._backlog)

    def flow(self, schema: str, distinguisher: str, hash_value: int) -> Flow:
        """Return a flow, with the hand that its hash value deals."""
        counts = self.flows.get(schema)
        if counts is None:
            counts = self.flows[schema] = FlowCounts()
        hand = hand_of(hash_value, self.spec.queues, self.spec.hand_size) if self.spec.queues else ()
        return Flow(schema, distinguisher, hand, counts)

    # Requests

    def start(self, ticket: Ticket, now: float) -> str:
        """Let the request run, wait, or be rejected. Returns RUNS, WAITS, FULL or NO_SEATS.

        Every request comes here, and most find free seats. So that way has few calls.
        """
        self.advance(now)
        ticket.arrived = now
        queue, width, hand = None, ticket.width, ticket.flow.hand
        free = self.seats_used < self.current if width == 1 <= self.current else self._fits(width)
        if hand:
            queue = self._shortest(hand)
            if self.seats_used >= self.current and len(queue.waiting) >= self.spec.queue_length:
                return FULL
            virtual_time = self.virtual_time
            ticket.queue, ticket.arrived_r = queue, virtual_time
            if not (queue.waiting or queue.executing):
                queue.next_r = virtual_time
            if self.waiting or not (free and self.part.begins(width)):
                return self._join(queue, ticket, now)
            if queue.next_r < virtual_time:
                queue.next_r = virtual_time
        elif not (free or self.spec.exempt):
            return NO_SEATS
        self._run(ticket, queue, now)
        return RUNS

    def _join(self, queue: Queue, ticket: Ticket, now: float) -> str:
        queue.waiting.append(ticket)
        queue.work += ticket.work
        self._bound(queue)
        self._backlog[queue.index] = queue
        self.waiting += 1
        self.seats_waiting += ticket.width
        counts, length = ticket.flow.counts, len(queue.waiting)
        counts.waiting += 1
        counts.waiting_seats += ticket.width
        counts.joined[length] = counts.joined.get(length, 0) + 1
        self.high = max(self.high, self.seats_used + self.seats_waiting)
        if not self.part.held_back:
            self._dispatch(now)
        return RUNS if ticket.running else WAITS

    def _run(self, ticket: Ticket, queue: Queue | None, now: float) -> None:
        ticket.running, ticket.started = True, now
        width, counts = ticket.width, ticket.flow.counts
        if queue is None:
            self.without_queue[ticket] = None
        else:
            if queue.next_r > self.virtual_time:
                self.virtual_time = queue.next_r
            self.dispatch_r, self.latest_s = self.virtual_time, queue.next_r
            queue.executing[ticket] = None
            queue.seats += width
            queue.next_r += ticket.work
        self.executing += 1
        self.seats_used += width
        if width > 1:
            self._wide_used += width
        counts.executing += 1
        counts.executing_seats += width
        counts.dispatched += 1
        seats = self.seats_used + self.seats_waiting
        if seats > self.high:
            self.high = seats

    def take_high(self) -> int:
        """Return ``high``, and begin again with the present demand."""
        high, self.high = self.high, self.seats_used + self.seats_waiting
        return high

    def finish(self, ticket: Ticket, now: float) -> None:
        """Note the end of a request that ran. Its seats are free now, or after its ``extra`` seconds."""
        self.advance(now)
        self.executing -= 1
        ticket.flow.counts.executing -= 1
        queue = ticket.queue
        if queue is None:
            self.without_queue.pop(ticket, None)
        else:
            queue.executing.pop(ticket, None)
            # The work was estimated with SERVICE_TIME.
            queue.next_r += ticket.seats * (now - ticket.started - SERVICE_TIME)
            if queue.waiting:
                self._bound(queue)
        if ticket.extra > 0:
            self._order += 1
            heapq.heappush(self._lingering, (now + ticket.extra, self._order, ticket))
        else:
            self._free(ticket)
        if self.waiting:
            self._dispatch(now)

    def _free(self, ticket: Ticket) -> None:
        self.seats_used -= ticket.width
        if ticket.width > 1:
            self._wide_used -= ticket.width
        ticket.flow.counts.executing_seats -= ticket.width
        if ticket.queue is not None:
            ticket.queue.seats -= ticket.width
            if len(self.queues) > self.spec.queues:
                self._trim()

    def give_up(self, ticket: Ticket, now: float) -> None:
        """Remove a request that still waits; it is rejected with TOO_LATE."""
        self.advance(now)
        queue = ticket.queue
        if ticket.running or queue is None:
            return
        queue.waiting.remove(ticket)
        self._left(queue, ticket)
        self.timed_out += 1
        self._bound(queue)
        self._dispatch(now)  # the next one of the queue may need fewer seats

    def reject(self, ticket: Ticket, reason: str) -> None:
        """Count a rejected request."""
        self.rejected += 1
        key = (ticket.flow.schema, reason)
        self.rejections[key] = self.rejections.get(key, 0) + 1

    def _left(self, queue: Queue, ticket: Ticket) -> None:
        queue.work -= ticket.work
        if not queue.waiting:
            queue.work = 0.0  # no rounding errors remain
            del self._backlog[queue.index]
        self.waiting -= 1
        self.seats_waiting -= ticket.width
        ticket.flow.counts.waiting -= 1
        ticket.flow.counts.waiting_seats -= ticket.width

    # Time

    def advance(self, now: float) -> None:
        """Advance to ``now``: the times of use, and seats that linger no longer."""
        passed = now - self._last
        if passed > 0:
            self._last = now
            executing, used = self.executing, self.seats_used
            if executing == used and not self.waiting:
                self._times_plain[executing] += passed
            else:
                self._times[executing, used, self.waiting, self.seats_waiting] += passed
        lingering = self._lingering
        while lingering and lingering[0][0] <= now:
            self._free(heapq.heappop(lingering)[2])

    def next_free(self) -> float | None:
        """Return the time at which seats linger no longer, if a request waits for them."""
        return self._lingering[0][0] if self.waiting and self._lingering else None

    def release(self, now: float) -> None:
        """Advance, and start what fits."""
        self.advance(now)
        self._dispatch(now)

    def take_times(self, now: float) -> dict[tuple[int, int, int, int], float]:
        """Return the seconds at each (executing, seats used, waiting, seats waiting) since the last call."""
        self.advance(now)
        times, self._times = self._times, defaultdict(float)
        for executing, seconds in self._times_plain.items():
            times[executing, executing, 0, 0] += seconds
        self._times_plain.clear()
        return times

    # Choice

    def _shortest(self, hand: Sequence[int]) -> Queue:
        """Return the queue of the hand with the least waiting work; another one is tried first at each call."""
        count, queues = len(hand), self.queues
        self._joined += 1
        best = queues[hand[self._joined % count]]
        if not self.waiting:
            return best
        for offset in range(1, count):
            queue = queues[hand[(self._joined + offset) % count]]
            if queue.work < best.work:
                best = queue
        return best

    def _fits(self, width: int) -> bool:
        """Tell whether seats are free. A request that is wider than the limit runs alone."""
        if width > self.current:
            return not self.executing
        if self.seats_used + width > self.current:
            return False
        return width == 1 or not self._wide_used or self._wide_used + width <= self.current - self._kept()

    def _kept(self) -> int:
        """Return the seats that requests of several seats leave to those of one.

        Long lists would otherwise take all seats of a level, and a short request would wait until one of them ends.
        """
        return self.current // 4

    def _dispatch(self, now: float) -> None:
        """Start waiting requests while seats are free, in the order of their virtual ends.

        If the next one does not fit, all wait: otherwise narrow requests would always overtake wide ones. Only the
        seats that are kept for requests of one seat are given to these at once.
        """
        while self.waiting and (self.seats_used < self.current or not self.executing):
            queue = self._next(self._backlog.values())
            ticket = queue.waiting[0]
            if not self._fits(ticket.width):
                name = ticket.flow.schema
                self.no_room[name] = self.no_room.get(name, 0) + 1
                narrow = [queue for queue in self._backlog.values() if queue.waiting[0].width == 1]
                if not narrow or self.seats_used - self._wide_used >= self._kept() or not self._fits(1):
                    return
                queue = self._next(narrow)
                ticket = queue.waiting[0]
            if not self.part.begins(ticket.width):
                return
            queue.waiting.popleft()
            self._left(queue, ticket)
            if ticket.final_seats > self.current > 0:
                ticket.extra *= ticket.final_seats / self.current  # the same work in fewer seats takes longer
                ticket.final_seats = self.current
                ticket.width = max(ticket.seats, ticket.final_seats)
            self._robin = queue.index
            self._run(ticket, queue, now)
            self._bound(queue)
            ticket.wake()

    def _next(self, queues: Collection[Queue]) -> Queue:
        """Return the queue whose first request would finish first in virtual time; among equals, in turns."""
        count, after = len(self.queues), self._robin + 1
        return min(queues, key=lambda queue: (queue.next_r + queue.waiting[0].work, (queue.index - after) % count))

    @staticmethod
    def _bound(queue: Queue) -> None:
        """No request starts before it arrived: an idle queue collects no claim on later time."""
        if queue.waiting and queue.next_r < queue.waiting[0].arrived_r:
            queue.next_r = queue.waiting[0].arrived_r
