"""Large work: rules over large bodies and objects run in threads, in turns, while the event loop serves others.

    turn = large.turn("alice")                           one for each request; it takes no place yet
    turn.reserve(2_000_000)                              counts a body; 429 if too many bytes are held already
    await turn.begin(size)                               waits for a place, if the size is large; 429 if too many wait
    obj = await turn.run(size, decode, body)             in a thread; a small one at once, without a checkpoint
    turn.end()

Python runs one thread at a time, and switches between two that compute after the switch interval (ops/server). So a
rule in a thread delays the event loop by about that interval for each of its waits, not by the whole rule.

A request keeps its place from the decoding of its body until its answer is encoded. A place is as large as the body or
object, and all places are bounded together. So they bound the memory: decoded, a body takes up to a hundred times its
bytes (api/codecs/budget.py bounds that).

Work goes through one of two lanes, each with places and a thread of its own:

    short    inputs up to SHORT bytes                                      a 100 KB write never waits for a 3 MB one
    long     larger ones, and those of users whose short work was long     each of their pieces takes seconds at most

Within a lane, users take turns, for places and for the thread: the user who has just had a turn comes after all others
who wait. So a user waits for one piece of another one, however many that one has sent.

The way to the thread and back costs about half a millisecond of CPU, and the rules run slower there. So those of inputs
up to QUICK_BYTES run on the event loop, like small ones, as long as they are quick. A user whose rules took longer than
SLOW there twice within SLOW_FOR seconds uses the thread for as long:

    alice    40 KB, 1 ms on the event loop    invalid items, 200 ms there    the same again: the thread for a minute

Once does not count: the first object of a kind compiles its rules, and a garbage collection may fall into any write.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from contextvars import Token
from functools import partial
from math import inf
from time import thread_time
from typing import Any, Final, Protocol, TypeVar

import msgspec
import trio

from kubechronicle.actors.evaluation import IN_THREAD, OnLoop, run_in_thread
from kubechronicle.actors.external_answers import (
    NeedsExternalAnswer,
    begin_remembering,
    end_remembering,
    resolve_until,
)
from kubechronicle.actors.fair_share import BUSY, Lane, LaneStatistics, Piece
from kubechronicle.api.errors import status
from kubechronicle.api.values.allowance import ALLOWANCE, Allowance
from kubechronicle.api.values.caches import kept_in_order
from kubechronicle.eventlog.entries import Entry

LARGE: Final = 16 * 1024
"""Bytes of a body or object from which its rules run in the thread. The slowest ones take 7 µs a byte (many small
invalid items), usual ones a hundredth of that."""

QUICK_BYTES: Final = 64 * 1024
"""Bytes up to which the rules of a large body or object run on the event loop, unless the user's were slow there."""

SLOW: Final = 0.02
"""Seconds of CPU on the event loop after which work was slow."""

SLOW_FOR: Final = 60.0
"""Seconds within which slow work counts, and for which the thread is used after the second time. So slow rules delay
the event loop twice a minute for each such user."""

LONG_USERS: Final = 1024
"""Users whose work goes through the long lane at the same time; more are forgotten."""

SLOW_USERS: Final = 16
"""Users whose work was slow at the same time. With so many, the large work of all runs in the thread."""

LARGE_BYTES: Final = 128 * 1024
"""Bytes from which a body counts among HELD_BYTES, and an object is encoded in the thread: that takes 10 ns a byte."""

SHORT: Final = 256 * 1024
"""Bytes of an input up to which it goes through the short lane."""

SHORT_ROOM: Final = 2 * 1024 * 1024
"""Bytes of the inputs of all requests that have a place in the short lane."""

ROOM: Final = 6 * 1024 * 1024
"""The same in the long lane: two bodies of the largest size, or many smaller ones."""

LONG: Final = 0.5
"""Seconds of CPU in the short lane's thread, after which the user's work goes through the long lane for SLOW_FOR
seconds."""

HELD_BYTES: Final = 256 * 1024 * 1024
"""Bytes of large bodies in memory: read partly or wholly, and not answered yet."""

HELD_BY_USER: Final = HELD_BYTES // 2
"""Of these, the bytes of one user."""

_NEVER: Final = (0.0, 0)

T = TypeVar("T")


class LargeWork:
    """The lanes of a process; see the head of this file."""

    def __init__(self) -> None:
        self._short, self._long = Lane(SHORT_ROOM), Lane(ROOM)
        self._held: dict[str, int] = {}  # bytes of bodies, by user
        self._held_bytes = 0
        # Until when work counts as slow, and how often it was, by user; the first to end is the first.
        self._slow: OrderedDict[str, tuple[float, int]] = kept_in_order("users with slow work")
        # Until when users use the long lane.
        self._long_users: OrderedDict[str, float] = kept_in_order("users with long work")

    def turn(self, user: str) -> Turn:
        return Turn(self, user)

    @property
    def idle(self) -> bool:
        """True if no request has a place, waits for one or holds a large body."""
        return not (self._held_bytes or any(lane.places.busy for lane in self.lanes.values()))

    @property
    def lanes(self) -> dict[str, Lane]:
        return {"short": self._short, "long": self._long}

    def statistics(self) -> dict[str, LaneStatistics]:
        """Return the statistics of each lane."""
        return {name: lane.statistics() for name, lane in self.lanes.items()}

    def hold(self, user: str, size: int) -> None:
        """Count bytes of bodies. StatusError 429: there are too many."""
        held = self._held.get(user, 0) + size
        if held > HELD_BY_USER or self._held_bytes + size > HELD_BYTES:
            raise status.too_many_requests(BUSY)
        self._held[user] = held
        self._held_bytes += size

    def free(self, user: str, size: int) -> None:
        self._held_bytes -= size
        self._held[user] -= size
        if not self._held[user]:
            del self._held[user]

    def lane(self, user: str, size: int) -> Lane:
        """Return the lane for an input of this size."""
        if size <= SHORT and not (self._long_users and self._is_long(user)):
            return self._short
        return self._long

    def _is_long(self, user: str) -> bool:
        now = trio.current_time()
        while self._long_users and next(iter(self._long_users.values())) <= now:
            self._long_users.popitem(last=False)
        return user in self._long_users

    def is_quick(self, user: str) -> bool:
        """Tell whether the large work of a user may run on the event loop."""
        now = trio.current_time()
        while self._slow and next(iter(self._slow.values()))[0] <= now:
            self._slow.popitem(last=False)
        return self._slow.get(user, _NEVER)[1] < 2 and len(self._slow) < SLOW_USERS

    def on_loop(self, user: str, function: Callable[..., T], *arguments: object) -> T:
        """Call the function, and note the user if it is slow."""
        began = thread_time()
        try:
            return function(*arguments)
        finally:
            if thread_time() - began > SLOW:
                times = self._slow.get(user, _NEVER)[1] + 1
                self._slow[user] = trio.current_time() + SLOW_FOR, times
                self._slow.move_to_end(user)

    async def in_thread(self, user: str, size: int, function: Callable[..., T], *arguments: object) -> T:
        """Call the function in the thread of a lane. Note the user if it takes long in the short one."""
        lane, piece = self.lane(user, size), Piece()
        try:
            return await lane.run(user, piece, function, *arguments)
        finally:
            if lane is self._short and piece.computed > LONG:
                self._long_users[user] = trio.current_time() + SLOW_FOR
                self._long_users.move_to_end(user)
                if len(self._long_users) > LONG_USERS:
                    self._long_users.popitem(last=False)


class Locks(Protocol):
    """The locks that a request holds (writing/write_loop.py)."""

    async def take(self) -> None: ...

    def release(self) -> None: ...


class Turn(msgspec.Struct, eq=False):
    """The share of one request in the large work; see the head of this file. Its decisions wait through it.

    ``slow``: its expressions take long, so all its rules run in the thread. ``seconds``: left for them there.
    ``deadline``: trio time until which the present decision waits for answers. ``locks``: those that it holds.
    """

    _work: LargeWork
    _user: str
    _place: int = 0  # bytes
    _most: int = 0  # bytes of its largest place, which it keeps when it has paused
    _lane: Lane | None = None  # of the place
    _bytes: int = 0
    slow: bool = False
    seconds: float = IN_THREAD
    deadline: float = inf
    locks: Locks | None = None
    _remembers: bool = False
    _outer: Token[Allowance] | None = None

    def begin_decision(self, deadline: float) -> None:
        """Begin to decide a write, within an allowance for its expressions. ``end_decision`` follows."""
        self.deadline = deadline
        self._outer = ALLOWANCE.set(OnLoop(self))

    def end_decision(self) -> None:
        """Forget the answers of the decision."""
        assert self._outer is not None
        ALLOWANCE.reset(self._outer)
        self.locks = None
        if self._remembers:
            self._remembers = False
            end_remembering()

    async def wait(self, missing: NeedsExternalAnswer) -> None:
        """Wait for an answer from outside, with neither a lock nor a place. Then the decision goes on.

        StatusError 429, 504. LogUnavailable: the locks were not free before the deadline.
        """
        if begin_remembering():
            self._remembers = True
        if self.locks is not None:
            self.locks.release()
        self.pause()
        await resolve_until(self.deadline, missing)
        await self.begin(0)
        if self.locks is not None:
            await self.locks.take()
        ALLOWANCE.set(OnLoop(self))

    async def let_others_run(self) -> None:
        """Pause in the middle of a long decision. Then its expressions have a new allowance."""
        await trio.lowlevel.checkpoint()
        ALLOWANCE.set(OnLoop(self))

    @property
    def large(self) -> bool:
        """True if an input of this request was large, or its rules are slow, so that copies of objects take long."""
        return self.slow or self._most > QUICK_BYTES

    def reserve(self, size: int) -> None:
        """Count the bytes of a body that is being read, if they are many. StatusError 429."""
        if size > LARGE_BYTES and size > self._bytes:
            self._work.hold(self._user, size - self._bytes)
            self._bytes = size

    def is_small(self, size: int) -> bool:
        """Tell whether ``run`` would call the function at once, and ``begin`` do nothing: a caller may do without."""
        return size <= LARGE and not self._most and not self.slow

    async def begin(self, size: int) -> None:
        """Wait for a place, if the size is large and this request has none. StatusError 429.

        Not while holding a lock: the requests that have the places may wait for it.
        """
        size = max(size, self._most, LARGE + 1 if self.slow else 0)
        if size > LARGE and not self._place:
            lane = self._work.lane(self._user, size)
            await lane.take_place(self._user, size)
            self._place, self._lane, self._most = size, lane, max(size, self._most)

    async def run(self, size: int, function: Callable[..., T], *arguments: object) -> T:
        """Call the function: in the thread if its input is large, or another one of this request was, and the user's
        work of this size is not known to be quick. Otherwise at once, without a checkpoint."""
        size = max(size, self._most)
        if size <= LARGE and not self.slow:
            return function(*arguments)
        if size <= QUICK_BYTES and not self.slow and self._work.is_quick(self._user):
            return self._work.on_loop(self._user, function, *arguments)
        in_thread = partial(self._work.in_thread, self._user, size)
        return await run_in_thread(in_thread, self, function, *arguments)

    async def run_once(self, size: int, function: Callable[[], T]) -> T:
        """Call a function whose result is kept for later requests: in the thread if its input is large. Its time says
        nothing about the user's own work."""
        if size <= LARGE:
            return function()
        in_thread = partial(self._work.lane(self._user, size).run, self._user, Piece())
        return await run_in_thread(in_thread, self, function)

    async def read(self, entry: Entry, look: Callable[[dict[str, Any]], T]) -> T:
        """Return what ``look`` finds in a stored object. A large one is decoded, read and freed in the thread.

        The result must not have parts that are as large. StatusError 429; as ``begin``, not while holding a lock.
        """
        size = len(entry.json)
        if self.is_small(size):
            return look(entry.object())
        kept = self._place
        await self.begin(size)
        try:
            return await self.run(size, _read, entry, look)
        finally:
            if not kept:
                self.pause()  # a session with a container lasts for hours

    def pause(self) -> None:
        """Give the place back for a wait of unknown length; ``begin`` takes another one."""
        if self._lane is not None:
            lane, size, self._place, self._lane = self._lane, self._place, 0, None
            lane.places.give_back(self._user, size)

    def end(self) -> None:
        """Give everything back."""
        if self._place:
            self.pause()
        if self._bytes:
            self._work.free(self._user, self._bytes)
            self._bytes = 0


def _read(entry: Entry, look: Callable[[dict[str, Any]], T]) -> T:
    return look(entry.object())
