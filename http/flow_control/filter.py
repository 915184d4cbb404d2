"""The filter of priority and fairness: a request runs, waits in its queue, or is answered with 429.

A request keeps its seats until its answer is sent, a watch until its initial events are sent.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Mapping, MutableMapping
from typing import Final

import trio

from kubechronicle.api.flow_control.pace import Ticket
from kubechronicle.api.flow_control.queues import RUNS, TOO_LATE, WAITS
from kubechronicle.http.authentication.user import GROUP_MASTERS
from kubechronicle.http.context import Context, Step
from kubechronicle.http.flow_control.control import READ_VERBS, FlowControl, KnownFlow
from kubechronicle.http.flow_control.measures import READS, WRITES
from kubechronicle.http.list_body import ListBody
from kubechronicle.http.messages import Request, Response
from kubechronicle.http.representation.answers import too_many_requests
from kubechronicle.http.wire.exchange import close_iterator

# -- fixed limits ------------------------------------------------------------------------------------------------------
#
# Fixed limits of the requests in flight, for reads and for writes: those of a server without priority and fairness.


def with_limits(limits: Mapping[str, int], counts: MutableMapping[str, int], following: Step) -> Step:
    """Return the step that rejects requests above a limit with 429. Watches and masters are not limited.

    ``limits``: of "readOnly" and "mutating" requests; 0: none. ``counts``: the present numbers.
    """

    def filtered(request: Request, context: Context) -> Awaitable[Response]:
        if context.long_running:
            return following(request, context)
        return counted(request, context, READS if context.info.verb in READ_VERBS else WRITES)

    async def counted(request: Request, context: Context, kind: str) -> Response:
        limit = limits[kind]
        if limit and counts[kind] >= limit and GROUP_MASTERS not in context.user.groups:
            context.terminated = True
            return too_many_requests(1)
        counts[kind] += 1
        try:
            return await following(request, context)
        finally:
            counts[kind] -= 1

    return filtered


# -- filter ------------------------------------------------------------------------------------------------------------

LONGEST_WAIT: Final = 60.0
"""Seconds that a request waits at most; else a quarter of its time-out."""


def with_seats(control: FlowControl, following: Step, request_timeout: float) -> Step:
    """Return the filter. It is one long function, because every request passes it and each call costs."""
    default_wait = min(request_timeout / 4, LONGEST_WAIT)
    estimate = control.estimates.work

    def filtered(request: Request, context: Context) -> Awaitable[Response]:
        if context.long_running and context.info.verb != "watch":
            return following(request, context)
        return started(request, context)

    async def started(request: Request, context: Context) -> Response:
        info = context.info
        verb = info.verb
        known = control.flow_of(context.user, info)
        context.flow_headers = known.headers
        level, measures = known.level, known.measures
        if level.spec.exempt:
            while not control.admits(context.user.name):
                await trio.lowlevel.checkpoint()
        if verb == "get":
            ticket = Ticket(known.flow, context)
        else:
            work = estimate(info, context.query, level.limits.request, measures.watchers)
            ticket = Ticket(known.flow, context, *work)
        measures.seats[ticket.width] += 1
        decision = level.start(ticket, control.clock())
        if decision is not RUNS:
            if decision is WAITS:
                decision = await waited(control, context, known, ticket, default_wait)
            else:
                measures.refused += 1
            if decision is not RUNS:
                context.terminated = True
                return too_many_requests(control.rejected(level, ticket, decision))
        known.executing.change(1, ticket.started)
        running = None
        if context.long_running:
            running = context.seats = RunningRequest(control, known, ticket)
        try:
            response = await following(request, context)
        except BaseException:
            if running is None:
                end(control, known, ticket)
            else:
                running.end()
            raise
        if running is None and isinstance(response.body, bytes):
            end(control, known, ticket)
        else:
            keep_seats(control, response, running or RunningRequest(control, known, ticket))
        return response

    return filtered


def keep_seats(control: FlowControl, response: Response, running: RunningRequest) -> None:
    """Let the answer of a watch, or one that is sent in parts, keep its seats for a time."""
    body = response.body
    if running.awaited:
        return
    if isinstance(body, bytes) or running.of_watch:
        running.end()
    elif isinstance(body, ListBody):
        body.when_closed, body.turn = running.end, control.turn
    else:
        response.body = _HeldSeats(body, running)


async def waited(control: FlowControl, context: Context, known: KnownFlow, ticket: Ticket, longest: float) -> str:
    """Wait for seats: a quarter of the request's time, or ``longest`` seconds for a watch. Returns RUNS or TOO_LATE."""
    now = ticket.arrived
    until = now + (longest if context.long_running else min((context.deadline - now) / 4, LONGEST_WAIT))
    woken = trio.Event()
    ticket.wake = woken.set
    level, measures = known.level, known.measures
    known.waiting.change(1, now)
    control.waits()
    try:
        with trio.move_on_at(until):
            await woken.wait()
    except BaseException:
        if ticket.running:
            level.finish(ticket, trio.current_time())
            if level.waiting:
                control.waits()
        raise
    finally:
        later = trio.current_time()
        context.waited += later - now
        known.waiting.change(-1, later)
        if ticket.running:
            measures.waited.add(later - now)
        else:
            level.give_up(ticket, later)
            measures.waited_in_vain.add(later - now)
    return RUNS if ticket.running else TOO_LATE


def end(control: FlowControl, known: KnownFlow, ticket: Ticket) -> None:
    """Give back the seats of a request that ran."""
    now, measures, level = control.clock(), known.measures, known.level
    known.executing.change(-1, now)
    level.finish(ticket, now)
    if level.waiting:
        control.waits()  # for its seats, or wake those that hand out the rest
    (measures.initialized if ticket.about.long_running else measures.executed).note(now - ticket.started)


class RunningRequest:
    """A request that keeps its seats while its answer is sent. ``end`` gives them back, once.

    ``awaited``: set by the handler of a watch that has initial events: the seats are given back after these.
    """

    __slots__ = ("_control", "_known", "_open", "_ticket", "awaited")

    def __init__(self, control: FlowControl, known: KnownFlow, ticket: Ticket) -> None:
        self._control, self._known, self._ticket = control, known, ticket
        self._open = True
        self.awaited = False

    @property
    def of_watch(self) -> bool:
        return bool(self._ticket.about.long_running)

    async def turn(self) -> None:
        await self._control.turn()

    def end(self) -> None:
        if self._open:
            self._open = False
            end(self._control, self._known, self._ticket)


class _HeldSeats:
    """A streamed body whose request keeps its seats until it is closed."""

    def __init__(self, body: AsyncIterator[bytes], running: RunningRequest) -> None:
        self._body, self._running = body, running

    def __aiter__(self) -> _HeldSeats:
        return self

    def __anext__(self) -> Awaitable[bytes]:
        return self._body.__anext__()

    async def aclose(self) -> None:
        self._running.end()
        await close_iterator(self._body)
