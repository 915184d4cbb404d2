"""The priority levels of this process, as the objects of flowcontrol.apiserver.k8s.io say, and the flow of a request.

Configuration comes from the views, and is looked at before each request, as rights are: a change counts from the next
request on. A level whose object is deleted ends with its last request. ``exempt`` and ``catch-all`` always exist.

The limits hold for one process: N workers or replicas have N times the seats.
"""

from __future__ import annotations

import logging
import math
from collections import deque
from collections.abc import Callable
from hashlib import sha256
from time import perf_counter
from typing import Any, Final, TypeVar

import trio

from kubechronicle.actors.pauses import Pauses
from kubechronicle.api.builtin.flowcontrol import bootstrap
from kubechronicle.api.flow_control import schemas as flow_schemas
from kubechronicle.api.flow_control.limits import (
    PERIOD,
    Demand,
    LevelSpec,
    SeatClaim,
    UnusableLimits,
    adjusted,
    level_spec,
    shared,
)
from kubechronicle.api.flow_control.pace import Flow, Pace, Ticket
from kubechronicle.api.flow_control.queues import Level
from kubechronicle.api.flow_control.schemas import FlowSchema
from kubechronicle.api.meta.request_info import RequestInfo
from kubechronicle.api.values.caches import kept
from kubechronicle.eventlog.entries import Entry
from kubechronicle.eventlog.views.views import Views
from kubechronicle.http.authentication.user import User
from kubechronicle.http.authorization.view_follower import ViewFollower
from kubechronicle.http.flow_control.measures import READS, WRITES, Estimates, FindView, FlowMeasures, RequestKinds, Use

# -- retry after -------------------------------------------------------------------------------------------------------
#
# The seconds in Retry-After of rejected requests, by priority level (k8s.io/apiserver, dropped_requests_tracker.go).
#
# It doubles while more than three requests a second are rejected, up to 32, and falls by one a second when there are
# few.

MOST: Final = 32
FEW: Final = 3


class RetryAfter:
    """The rejected requests of one level, counted by second."""

    def __init__(self) -> None:
        self.seconds = 1
        self._history: deque[tuple[int, int]] = deque()  # (second, rejected requests)
        self._second = 0
        self._count = 0
        self._doubled = 0

    def note(self, now: float) -> None:
        """Count a rejected request."""
        second = int(now)
        if second == self._second:
            self._count += 1
            return
        self._history.append((self._second, self._count))
        while self._history and second - self._history[0][0] > min(2 * self.seconds, MOST):
            self._history.popleft()
        self._second, self._count = second, 1
        self._adjust(second)

    def _adjust(self, second: int) -> None:
        rejected = sum(count for at, count in self._history if second - at <= self.seconds)
        if second - self._doubled >= self.seconds and rejected >= FEW * self.seconds:
            self.seconds = min(2 * self.seconds, MOST)
            self._doubled = second
        elif rejected < self.seconds and self.seconds > 1:
            self.seconds -= 1


# -- control -----------------------------------------------------------------------------------------------------------

log = logging.getLogger(__name__)

T = TypeVar("T")

FLOWS_KEPT: Final = 10_000
TURNS: Final = 1
"""Long answers that go on in one pass of the event loop."""
LONG: Final = 512
"""Characters of a path or name from which a flow is not kept: clients choose them."""
SCHEMA_UID: Final = "x-kubernetes-pf-flowschema-uid"
LEVEL_UID: Final = "x-kubernetes-pf-prioritylevel-uid"
READ_VERBS: Final = frozenset({"get", "list", "watch"})
_MANDATORY: Final = (bootstrap.EXEMPT, bootstrap.CATCH_ALL)


class KnownFlow:
    """A flow of requests with the same verb, the header fields of its answers (uids, so that names stay the
    administrator's), and its measures. ``executing``, ``waiting``: the numbers of requests of their kind."""

    __slots__ = ("executing", "flow", "headers", "level", "measures", "waiting")

    def __init__(
        self, flow: Flow, level: Level, schema: FlowSchema, measures: FlowMeasures, kinds: RequestKinds, kind: str
    ) -> None:
        self.flow = flow
        self.level = level
        self.headers = ((SCHEMA_UID, schema.uid), (LEVEL_UID, level.spec.uid))
        self.measures = measures
        self.executing, self.waiting = kinds.executing[kind], kinds.waiting[kind]


class FlowControl:
    """Starts and ends requests. ``run`` adjusts the limits and frees seats that linger.

    ``seats``: of all levels together; positive.
    ``levels``: the levels by name.
    ``uses``: for each level, its use over time. ``kinds``: the numbers of reads and writes.
    ``clock``: returns Trio's time.
    ``find``: returns the view of a resource, if it has been used.
    ``by_size``: lists are estimated by the bytes of their objects.
    """

    def __init__(self, views: Views, seats: int, *, find: FindView | None = None, by_size: bool = True) -> None:
        self.seats = seats
        self.levels: dict[str, Level] = {}
        self.demands: dict[str, Demand] = {}
        self.uses: dict[str, Use] = {}
        self.measures: dict[tuple[str, str], FlowMeasures] = {}  # by level and FlowSchema
        self.fair_fraction = 0.0
        self.kinds = RequestKinds()
        self.clock: Callable[[], float] = trio.current_time
        self.estimates = Estimates(find or views.find, by_size=by_size)
        self._schemas: list[FlowSchema] = []
        self._flows: dict[tuple[Any, ...], KnownFlow] = kept("flows")
        self._retry_after: dict[str, RetryAfter] = {}
        self._level_objects: dict[str, Entry] = {}
        self._compiled: dict[str, FlowSchema] = {}
        self._followers = (
            ViewFollower(views[f"prioritylevelconfigurations.{bootstrap.GROUP}"], self._take_level),
            ViewFollower(views[f"flowschemas.{bootstrap.GROUP}"], self._take_schema),
        )
        self._pace = Pace()
        for resource in ("prioritylevelconfigurations", "flowschemas"):
            views.follow(f"{resource}.{bootstrap.GROUP}", self._note_change)
        self._next_adjustment = 0.0
        self._wanted = trio.Event()
        self._first = 0
        self._changed = self._outdated = True
        self._turns: dict[trio.lowlevel.Task, None] = {}
        self._turns_given = (0, 0)  # the pass, and how many in it

    # Requests

    def flow_of(self, user: User, info: RequestInfo) -> KnownFlow:
        """Return the flow of a request, by the present configuration."""
        if self._changed:
            self._changed = False
            for follower in self._followers:
                follower.catch_up()
            if self._outdated:
                self._configure(trio.current_time())
        key: tuple[Any, ...]
        if info.is_resource:
            key = (user.name, user.groups, info.verb, info.group, info.resource, info.subresource, info.namespace)
        else:
            key = (user.name, user.groups, info.verb, info.path)
        known = self._flows.get(key)
        if known is None:
            known = self._find(user, info)
            if len(info.path) < LONG and len(user.name) < LONG:
                if len(self._flows) >= FLOWS_KEPT:
                    self._flows.clear()
                self._flows[key] = known
        return known

    def _find(self, user: User, info: RequestInfo) -> KnownFlow:
        schema = flow_schemas.classify(self._schemas, user.name, user.groups, info)
        level = self.levels[schema.level]
        distinguisher = schema.distinguisher(user.name, info)
        digest = sha256(f"{schema.name}\0{distinguisher}".encode()).digest()
        flow = level.flow(schema.name, distinguisher, int.from_bytes(digest[:8], "little"))
        measures = self.measures.setdefault((level.spec.name, schema.name), FlowMeasures())
        return KnownFlow(flow, level, schema, measures, self.kinds, READS if info.verb in READ_VERBS else WRITES)

    def rejected(self, level: Level, ticket: Ticket, reason: str) -> int:
        """Count a rejected request, and return the seconds for its Retry-After."""
        level.reject(ticket, reason)
        retry = self._retry_after.setdefault(level.spec.name, RetryAfter())
        retry.note(trio.current_time())
        return retry.seconds

    def waits(self) -> None:
        """Note that requests wait: for seats, or for a later pass of the event loop."""
        self._wanted.set()

    def admits(self, user: str) -> bool:
        """Tell whether a request of a level without queues begins in this pass of the event loop."""
        return self._pace.admits(user, perf_counter())

    async def turn(self) -> None:
        """Wait for the turn of a long answer: TURNS of them go on in one pass of the event loop."""
        number, given = self._turns_given
        if number != self._pace.number:
            given = 0
        if not self._pace.number or (given < TURNS and not self._turns):
            self._turns_given = (self._pace.number, given + 1)
            await trio.lowlevel.checkpoint()
            return
        task = trio.lowlevel.current_task()
        self._turns[task] = None
        self._wanted.set()

        def abort(_: object) -> trio.lowlevel.Abort:
            self._turns.pop(task, None)
            return trio.lowlevel.Abort.SUCCEEDED

        await trio.lowlevel.wait_task_rescheduled(abort)

    def _give_turns(self) -> bool:
        """Give turns to those that wait longest. Returns whether others still wait."""
        self._turns_given = (self._pace.number, TURNS)
        for task in list(self._turns)[:TURNS]:
            del self._turns[task]
            trio.lowlevel.reschedule(task)
        return bool(self._turns)

    # Configuration

    def _note_change(self, _: object) -> None:
        self._changed = True

    def _take_level(self, _: str, name: str, entry: Entry | None) -> None:
        self._outdated = True
        _put(self._level_objects, name, entry)

    def _take_schema(self, _: str, name: str, entry: Entry | None) -> None:
        self._outdated = True
        _put(self._compiled, name, None if entry is None else flow_schemas.compiled(entry.object()))

    def _configure(self, now: float) -> None:
        """Take the present objects. An unusable one counts as absent."""
        self._outdated = False
        specs = {spec.name: spec for spec in map(_usable_spec, self._level_objects.values()) if spec is not None}
        defaults = bootstrap.level_specs()
        for name in _MANDATORY:
            if name not in specs:
                specs[name] = level_spec({"metadata": {"name": name}, "spec": defaults[name]})
        for name, level in list(self.levels.items()):
            level.retiring = name not in specs
            if level.retiring and level.idle:
                self._forget(name)
        for name, spec in specs.items():
            if name in self.levels:
                self.levels[name].configure(spec)
            else:
                self.levels[name] = Level(spec, now, self._pace)
                self.demands[name], self.uses[name] = Demand(), Use()
        all_specs = [level.spec for level in self.levels.values()]
        for name, limits in shared(all_specs, self.seats).items():
            level = self.levels[name]
            current = level.current if level.limits.nominal else limits.nominal - (limits.nominal - limits.lower) // 2
            level.part.share = limits.nominal / self.seats
            level.limit(limits, current, now)
        self._schemas = flow_schemas.in_order(self._compiled.values(), specs)
        self._flows.clear()
        self.adjust(now)

    def _forget(self, name: str) -> None:
        for held in (self.levels, self.demands, self.uses, self._retry_after):
            held.pop(name, None)
        for key in [key for key in self.measures if key[0] == name]:
            del self.measures[key]

    def adjust(self, now: float) -> None:
        """Set the current limits by the demand since the last adjustment."""
        for name, level in list(self.levels.items()):
            if level.retiring and level.idle:
                self._forget(name)
                continue
            self.take_use(name, now)
            self.demands[name].update(self.uses[name].take_period(), level.take_high())
        claims = {
            name: SeatClaim(level.spec.exempt, level.limits, self.demands[name]) for name, level in self.levels.items()
        }
        current, self.fair_fraction = adjusted(claims)
        for name, level in self.levels.items():
            level.limit(level.limits, current[name], now)
        self._next_adjustment = now + PERIOD

    def target(self, level: Level) -> float:
        """Return the seats that the adjustment aims at for a level."""
        demand = self.demands[level.spec.name]
        return max(SeatClaim(level.spec.exempt, level.limits, demand).least, demand.smoothed)

    def take_use(self, name: str, now: float) -> None:
        """Move the use that a level has noted into its totals."""
        level, use = self.levels[name], self.uses[name]
        use.add(level.take_times(now), level)

    # Time

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Begin in each pass of the event loop what waits, free seats that linger, and adjust the limits."""
        passes = _Passes(self._pace)
        trio.lowlevel.add_instrument(passes)
        self.clock = trio.lowlevel.current_clock().current_time  # what trio.current_time finds anew at each call
        try:
            for follower in self._followers:
                await Pauses().take(follower.steps())
            self._changed = True
            task_status.started()
            while True:
                await self._step()
        finally:
            trio.lowlevel.remove_instrument(passes)
            self._pace.stop()
            self.clock = trio.current_time
            for task in list(self._turns):
                del self._turns[task]
                trio.lowlevel.reschedule(task)

    async def _step(self) -> None:
        if self._wanted.is_set():
            self._wanted = trio.Event()
        now = trio.current_time()
        if now >= self._next_adjustment:
            self.adjust(now)
        free, held_back = math.inf, bool(self._turns) and self._give_turns()
        for level in self._in_turn():
            level.part.held_back = False
            level.release(now)
            held_back = held_back or level.part.held_back
            free = min(free, level.next_free() or math.inf)
        if held_back:
            await trio.lowlevel.checkpoint()  # the next pass
            return
        with trio.move_on_at(min(self._next_adjustment, free)):
            await self._wanted.wait()

    def _in_turn(self) -> list[Level]:
        """Return the levels; another one is first each time, and has the budget that the parts leave."""
        levels = list(self.levels.values())
        self._first = (self._first + 1) % max(1, len(levels))
        return levels[self._first :] + levels[: self._first]


class _Passes(trio.abc.Instrument):
    """Tells the pace about the passes of Trio's event loop, which begin after the wait for I/O."""

    def __init__(self, pace: Pace) -> None:
        self._pace = pace

    def after_io_wait(self, timeout: float) -> None:
        self._pace.begin_pass(perf_counter())


def _put(objects: dict[str, T], name: str, found: T | None) -> None:
    if found is None:
        objects.pop(name, None)
    else:
        objects[name] = found


def _usable_spec(entry: Entry) -> LevelSpec | None:
    try:
        return level_spec(entry.object())
    except UnusableLimits as error:
        log.warning("the PriorityLevelConfiguration %s is ignored: %s", entry.key.name, error)
        return None
