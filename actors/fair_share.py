"""Units that the requests of several users share, such as places or a thread: who waits for them, and who comes next.

    alice has the only unit; alice, alice and bob wait, in this order
    alice gives it back    →    bob has it, and then alice

So a user waits for one request of each other user, however many those have sent.
"""

from __future__ import annotations

from collections import OrderedDict, deque

import trio


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
