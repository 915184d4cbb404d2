"""Large work: rules over large bodies and objects run in a thread, in turns, while the event loop serves others.

    turn = large.turn("alice")                           one for each request; it takes no place yet
    turn.reserve(2_000_000)                              counts a body; 429 if too many bytes are held already
    await turn.begin(size)                               waits for a place, if the size is large; 429 if too many wait
    obj = await turn.run(size, decode, body)             in the thread; a small one at once, without a checkpoint
    turn.end()

Python runs one thread at a time, and switches between two that compute after the switch interval (ops/server). So a
rule in a thread delays the event loop by about that interval for each of its waits, not by the whole rule.

A request keeps its place from the decoding of its body until its answer is encoded. A place is as large as the body or
object, and all places are bounded together. So they bound the memory: decoded, a body takes up to a hundred times its
bytes. Users take turns, so one user with many large requests does not keep out another one.

The way to the thread and back costs about half a millisecond of CPU, and the rules run slower there. So those of inputs
up to QUICK_BYTES run on the event loop, like small ones, as long as they are quick. A user whose rules took longer than
SLOW there twice within SLOW_FOR seconds uses the thread for as long:

    alice    40 KB, 1 ms on the event loop    invalid items, 200 ms there    the same again: the thread for a minute

Once does not count: the first object of a kind compiles its rules, and a garbage collection may fall into any write.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable
from time import thread_time
from typing import Final, TypeVar

import msgspec
import trio

from kubechronicle.actors.evaluation import IN_THREAD, run_in_thread
from kubechronicle.api.codecs import headroom
from kubechronicle.api.errors import status

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

SLOW_USERS: Final = 16
"""Users whose work was slow at the same time. With so many, the large work of all runs in the thread."""

LARGE_BYTES: Final = 128 * 1024
"""Bytes from which a body counts among HELD_BYTES, and an object is encoded in the thread: that takes 10 ns a byte."""

ROOM: Final = 6 * 1024 * 1024
"""Bytes of the inputs of all requests that have a place: two bodies of the largest size, or many smaller ones."""

THREADS: Final = 1
"""Threads. A second one would not compute faster, and the event loop would wait for two."""

WAITING: Final = 128
"""Large requests that wait for a place; the next one is rejected."""

WAITING_OF_USER: Final = 32
"""Of these, the requests of one user."""

HELD_BYTES: Final = 256 * 1024 * 1024
"""Bytes of large bodies in memory: read partly or wholly, and not answered yet."""

BUSY: Final = "the server handles too many large requests, please try again later"

_NEVER: Final = (0.0, 0)

T = TypeVar("T")


class LargeWork:
    """The places, the queue and the thread of a process; see the head of this file."""

    def __init__(self) -> None:
        self._threads = trio.CapacityLimiter(THREADS)
        self._taken = 0  # bytes of ROOM
        self._waiting = 0
        self._queues: OrderedDict[str, deque[_Waiting]] = OrderedDict()  # by user; the next user is the first
        self._held_bytes = 0
        # Until when work counts as slow, and how often it was, by user; the first to end is the first.
        self._slow: OrderedDict[str, tuple[float, int]] = OrderedDict()

    def turn(self, user: str) -> Turn:
        return Turn(self, user)

    @property
    def idle(self) -> bool:
        """True if no request has a place, waits for one or holds a large body."""
        return not (self._taken or self._waiting or self._held_bytes)

    def hold(self, size: int) -> None:
        """Count bytes of bodies. StatusError 429: there are too many."""
        if self._held_bytes + size > HELD_BYTES:
            raise status.too_many_requests(BUSY)
        self._held_bytes += size

    def free(self, size: int) -> None:
        self._held_bytes -= size

    async def take_place(self, user: str, size: int) -> None:
        """Wait for a place of this size. StatusError 429: too many wait already."""
        if not self._queues and self._fits(size):
            self._taken += size
            return
        queue = self._queues.get(user)
        if self._waiting >= WAITING or (queue is not None and len(queue) >= WAITING_OF_USER):
            raise status.too_many_requests(BUSY)
        if queue is None:
            queue = self._queues[user] = deque()
        waiting = _Waiting(size)
        queue.append(waiting)
        self._waiting += 1
        try:
            await waiting.given.wait()
        except trio.Cancelled:  # only while it waits: a place that was given is taken
            self._waiting -= 1
            queue.remove(waiting)
            if not queue:
                del self._queues[user]
            self._give_places()  # the next one may be smaller
            raise

    def _fits(self, size: int) -> bool:
        return not self._taken or self._taken + size <= ROOM

    def give_back(self, size: int) -> None:
        self._taken -= size
        self._give_places()

    def _give_places(self) -> None:
        """Give places to the first request of each user in turn, while there is room."""
        while self._queues:
            user, queue = next(iter(self._queues.items()))
            if not self._fits(queue[0].size):
                return
            waiting = queue.popleft()
            self._waiting -= 1
            self._taken += waiting.size
            waiting.given.set()
            if queue:
                self._queues.move_to_end(user)  # behind all other users
            else:
                del self._queues[user]

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

    async def in_thread(self, function: Callable[..., T], *arguments: object) -> T:
        # A cancelled request does not wait for the thread, which takes no other work until the function has ended.
        return await trio.to_thread.run_sync(
            _with_headroom, function, *arguments, limiter=self._threads, abandon_on_cancel=True
        )


def _with_headroom(function: Callable[..., T], *arguments: object) -> T:
    """Call a function if there is memory. MemoryError otherwise: encoders crash without, and others may have taken it
    while the function waited for the thread."""
    headroom.require(headroom.MARGIN)
    return function(*arguments)


class _Waiting:
    """A request that waits for a place of ``size`` bytes."""

    __slots__ = ("given", "size")

    def __init__(self, size: int) -> None:
        self.given = trio.Event()
        self.size = size


class Turn(msgspec.Struct, eq=False):
    """The share of one request in the large work; see the head of this file.

    ``waits_until``: trio time until which its rules may wait where they are; 0: they hold a lock, or others do.
    ``answers``: those that they have waited for there, by their keys, for all attempts of the request.
    ``slow``: its expressions take long, so all its rules run in the thread. ``seconds``: left for them there.
    """

    _work: LargeWork
    _user: str
    _place: int = 0  # bytes
    _bytes: int = 0
    waits_until: float = 0.0
    answers: dict[object, object] = {}
    slow: bool = False
    seconds: float = IN_THREAD

    @property
    def may_wait(self) -> bool:
        """True if its rules may wait where they are: it holds neither a lock nor a place."""
        return self.waits_until > 0.0 and not self._place

    def reserve(self, size: int) -> None:
        """Count the bytes of a body that is being read, if they are many. StatusError 429."""
        if size > LARGE_BYTES and size > self._bytes:
            self._work.hold(size - self._bytes)
            self._bytes = size

    def is_small(self, size: int) -> bool:
        """Tell whether ``run`` would call the function at once, and ``begin`` do nothing: a caller may do without."""
        return size <= LARGE and not self._place and not self.slow

    async def begin(self, size: int) -> None:
        """Wait for a place, if the size is large and this request has none. StatusError 429.

        Not while holding a lock: the requests that have the places may wait for it.
        """
        if self.slow:
            size = max(size, LARGE + 1)
        if size > LARGE and not self._place:
            await self._work.take_place(self._user, size)
            self._place = size

    async def run(self, size: int, function: Callable[..., T], *arguments: object) -> T:
        """Call the function: in the thread if its input is large, or another one of this request was, and the user's
        work of this size is not known to be quick. Otherwise at once, without a checkpoint."""
        size = max(size, self._place)
        if self.slow:
            return await run_in_thread(self._work.in_thread, self, function, *arguments)
        if size <= LARGE:
            return function(*arguments)
        if size <= QUICK_BYTES and self._work.is_quick(self._user):
            return self._work.on_loop(self._user, function, *arguments)
        return await run_in_thread(self._work.in_thread, self, function, *arguments)

    async def run_once(self, size: int, function: Callable[[], T]) -> T:
        """Call a function whose result is kept for later requests: in the thread if its input is large. Its time says
        nothing about the user's own work."""
        return function() if size <= LARGE else await run_in_thread(self._work.in_thread, self, function)

    def pause(self) -> None:
        """Give the place back for a wait of unknown length; ``begin`` takes another one."""
        if self._place:
            size, self._place = self._place, 0
            self._work.give_back(size)

    def end(self) -> None:
        """Give everything back."""
        if self._place:
            self.pause()
        if self._bytes:
            self._work.free(self._bytes)
            self._bytes = 0
