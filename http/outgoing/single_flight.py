"""One question for all who ask the same at once. It is asked in a task of its own, below Outgoing, so that it does not
end with the request that was first; when nobody waits for it any more, it ends."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import trio

from kubechronicle.http.outgoing.client import AskError, Outgoing

T = TypeVar("T")


@dataclass(slots=True)
class _Flight(Generic[T]):
    landed: trio.Event = field(default_factory=trio.Event)
    scope: trio.CancelScope = field(default_factory=trio.CancelScope)
    waiting: int = 0
    answers: list[T] = field(default_factory=list)


class SingleFlight(Generic[T]):
    """``len`` tells how many questions are under way."""

    def __init__(self, outgoing: Outgoing) -> None:
        self._outgoing = outgoing
        self._flights: dict[Hashable, _Flight[T]] = {}

    async def join(self, key: Hashable, ask: Callable[[], Awaitable[T]]) -> T:
        """What ``ask`` returns to whoever came first; it must not raise. AskError: the server is stopping."""
        flight = self._flights.get(key)
        if flight is None:
            nursery = self._outgoing.nursery
            if nursery is None:
                raise AskError("nothing is asked while the server starts or stops")
            flight = self._flights[key] = _Flight()
            nursery.start_soon(self._fly, key, flight, ask)
        flight.waiting += 1
        try:
            await flight.landed.wait()
        finally:
            flight.waiting -= 1
            if not flight.waiting and not flight.landed.is_set():
                self._forget(key, flight)
                flight.scope.cancel()
        if not flight.answers:
            raise AskError("the server is stopping")
        return flight.answers[0]

    async def _fly(self, key: Hashable, flight: _Flight[T], ask: Callable[[], Awaitable[T]]) -> None:
        try:
            with flight.scope:
                flight.answers.append(await ask())
        finally:
            self._forget(key, flight)
            flight.landed.set()

    def _forget(self, key: Hashable, flight: _Flight[T]) -> None:
        if self._flights.get(key) is flight:
            del self._flights[key]

    def __len__(self) -> int:
        return len(self._flights)
