"""Units that the requests of several users share, such as places or a thread: who waits for them, and who comes next.

    alice has the only unit; alice, alice and bob wait, in this order
    alice gives it back    →    bob has it, and then alice

So a user waits for one request of each other user, however many those have sent. `FairThreads` are threads that are
shared so. Trio's own limiters serve in the order of arrival: one user could fill them. A `Lane` has places for
requests, and a thread for their pieces of work.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable
from contextvars import ContextVar
from functools import partial
from math import inf
from time import thread_time
from typing import Final, NamedTuple, TypeVar

import trio

from kubechronicle.api.codecs import budget
from kubechronicle.api.errors import status

T = TypeVar("T")

SERVED: Final[ContextVar[str]] = ContextVar("the user whose request a task serves", default="")

WAITING: Final = 128
"""Large requests that wait for a place of a lane; the next one is rejected."""

WAITING_OF_USER: Final = 32
"""Of these, the requests of one user."""

BUSY: Final = "the server handles too many large requests, please try again later"


class FairShare:
    """``most`` units that requests share. A single one may take more, if it is alone.

    Users who wait get units in turn, each for his first request; the one who has given some back comes last.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self.taken = self.waiting = 0
        self.waited = 0.0
        self._queues: OrderedDict[str, deque[_Waiting]] = OrderedDict()  # by user; the next user is the first

    @property
    def busy(self) -> bool:
        return bool(self.taken or self.waiting)

    def waiting_of(self, user: str) -> int:
        return len(self._queues.get(user, ()))

    async def take(self, user: str, size: int) -> None:
        """Wait until so many units are free. Not a checkpoint if they are."""
        if not self._queues and self._fits(size):
            self.taken += size
            return
        waiting, began = _Waiting(size), trio.current_time()
        queue = self._queues.setdefault(user, deque())
        queue.append(waiting)
        self.waiting += 1
        try:
            await waiting.given.wait()
        except trio.Cancelled:  # only while it waits: units that were given are taken
            self.waiting -= 1
            queue.remove(waiting)
            if not queue:
                del self._queues[user]
            self._give()  # the next one may be smaller
            raise
        finally:
            self.waited += trio.current_time() - began

    def _fits(self, size: int) -> bool:
        return not self.taken or self.taken + size <= self._most

    def give_back(self, user: str, size: int) -> None:
        self.taken -= size
        if user in self._queues:
            self._queues.move_to_end(user)
        self._give()

    def _give(self) -> None:
        """Give units to the first request of each user in turn, while there are enough."""
        while self._queues:
            user, queue = next(iter(self._queues.items()))
            if not self._fits(queue[0].size):
                return
            waiting = queue.popleft()
            self.waiting -= 1
            self.taken += waiting.size
            waiting.given.set()
            if queue:
                self._queues.move_to_end(user)  # behind all other users
            else:
                del self._queues[user]


class _Waiting:
    """A request that waits for ``size`` units."""

    __slots__ = ("given", "size")

    def __init__(self, size: int) -> None:
        self.given = trio.Event()
        self.size = size


class FairThreads:
    """At most ``most`` threads of users who take turns. ``share``: the threads taken, and who waits."""

    def __init__(self, most: int) -> None:
        self.share = FairShare(most)
        self._limiter = trio.CapacityLimiter(most)  # taken until an abandoned function ends

    async def run(
        self, function: Callable[..., T], *arguments: object, user: str | None = None, abandons: bool = False
    ) -> T:
        """Call a function in a thread, when it is the turn of the user; None: the one whose request the task serves.

        ``abandons``: a cancelled caller does not wait for its end, but the thread takes no other work until then.
        """
        user = SERVED.get() if user is None else user
        await self.share.take(user, 1)
        try:
            result: T = await trio.to_thread.run_sync(
                function, *arguments, limiter=self._limiter, abandon_on_cancel=abandons
            )
            return result
        finally:
            self.share.give_back(user, 1)


class LaneStatistics(NamedTuple):
    """A lane: requests that wait for a place, bytes of the places taken, pieces that wait for the thread, and since the
    start the seconds of both waits, the pieces done, their seconds of CPU, and the requests rejected."""

    waiting: int
    taken: int
    pieces_waiting: int
    waited: float
    pieces: int
    computed: float
    rejected: int


class Piece:
    """One call in a thread. ``computed``: its seconds of CPU; infinite until it ends."""

    __slots__ = ("computed",)

    def __init__(self) -> None:
        self.computed = 0.0


class _Failure:
    """The error of a call in a thread, until it is taken.

    Frames of the thread outlive their call: the traceback of the error refers to them. If one of them still had the
    error, only a garbage collection would free it, with the decoded body in another frame.
    """

    __slots__ = ("_error",)

    def __init__(self, error: BaseException) -> None:
        self._error: BaseException | None = error

    def take(self) -> BaseException:
        error, self._error = self._error, None
        assert error is not None
        return error


class Lane:
    """The places and the thread of one lane."""

    def __init__(self, room: int) -> None:
        self.places = FairShare(room)
        self._thread = FairThreads(1)
        self._rejected = self._pieces = 0
        self._computed = 0.0

    def statistics(self) -> LaneStatistics:
        places, thread = self.places, self._thread.share
        waited = places.waited + thread.waited
        return LaneStatistics(
            places.waiting, places.taken, thread.waiting, waited, self._pieces, self._computed, self._rejected
        )

    async def take_place(self, user: str, size: int) -> None:
        """Wait for a place of this size. StatusError 429: too many wait already."""
        if self.places.waiting >= WAITING or self.places.waiting_of(user) >= WAITING_OF_USER:
            self._rejected += 1
            raise status.too_many_requests(BUSY)
        await self.places.take(user, size)

    async def run(self, user: str, piece: Piece, function: Callable[..., T], *arguments: object) -> T:
        """Call the function in the thread, when it is the user's turn. A cancelled request does not wait for its end,
        but the thread takes no other work until then."""
        computed = partial(self._compute, piece, function, *arguments)
        result: T | _Failure = await self._thread.run(computed, user=user, abandons=True)
        if isinstance(result, _Failure):
            raise result.take()
        return result

    def _compute(self, piece: Piece, function: Callable[..., T], *arguments: object) -> T | _Failure:
        """Call a function if there is memory. MemoryError otherwise: encoders crash without, and others may have taken
        it while the function waited for the thread."""
        piece.computed, began = inf, thread_time()
        try:
            budget.require(budget.MARGIN)
            return function(*arguments)
        except BaseException as error:
            return _Failure(error)
        finally:
            piece.computed = thread_time() - began
            self._pieces += 1
            self._computed += piece.computed
