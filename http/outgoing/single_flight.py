"""Single flight: concurrent equal requests share one call.

The call has a task of its own, below Outgoing, so that it survives the cancellation of the request that started it. It
is cancelled when no request waits for it any more.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import trio

from kubechronicle.api.values.caches import kept_in_order
from kubechronicle.http.outgoing.errors import AskError
from kubechronicle.http.outgoing.shared import Shared

T = TypeVar("T")


@dataclass(slots=True)
class _Flight(Generic[T]):
    done: trio.Event = field(default_factory=trio.Event)
    scope: trio.CancelScope = field(default_factory=trio.CancelScope)
    waiting: int = 0
    answers: list[T] = field(default_factory=list)


class SingleFlight(Generic[T]):
    """Calls in flight, by key. ``len``: their number."""

    def __init__(self, outgoing: Shared) -> None:
        self._outgoing = outgoing
        self._calls: dict[Hashable, _Flight[T]] = {}

    async def join(self, key: Hashable, ask: Callable[[], Awaitable[T]]) -> T:
        """Return the result of ``ask``, or of the call in flight with the same key. ``ask`` must not raise.

        Raises AskError while the server starts or stops.
        """
        call = self._calls.get(key)
        if call is None:
            nursery = self._outgoing.nursery
            if nursery is None:
                raise AskError("no request is sent while the server starts or stops")
            call = self._calls[key] = _Flight()
            nursery.start_soon(self._run, key, call, ask)
        call.waiting += 1
        try:
            await call.done.wait()
        finally:
            call.waiting -= 1
            if not call.waiting and not call.done.is_set():
                self._forget(key, call)
                call.scope.cancel()
        if not call.answers:
            raise AskError("the server is stopping")
        return call.answers[0]

    async def _run(self, key: Hashable, call: _Flight[T], ask: Callable[[], Awaitable[T]]) -> None:
        try:
            with call.scope:
                call.answers.append(await ask())
        finally:
            self._forget(key, call)
            call.done.set()

    def _forget(self, key: Hashable, call: _Flight[T]) -> None:
        if self._calls.get(key) is call:
            del self._calls[key]

    def __len__(self) -> int:
        return len(self._calls)


# -- ttl cache ---------------------------------------------------------------------------------------------------------
#
# A bounded TTL cache that evicts the least recently used entries.


class TtlCache(Generic[T]):
    """At most ``size`` entries. ``clock``: monotonic, in seconds."""

    def __init__(self, size: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._size = size
        self._clock = clock
        self._entries: OrderedDict[Hashable, tuple[float, T]] = kept_in_order("answers of webhooks")

    def get(self, key: Hashable) -> T | None:
        entry = self._entries.get(key)
        if entry is None:
            return None
        until, value = entry
        if self._clock() >= until:
            del self._entries[key]
            return None
        self._entries.move_to_end(key)
        return value

    def put(self, key: Hashable, value: T, seconds: float) -> None:
        """Cache a value for ``seconds``; for 0, only drop the former value."""
        self._entries.pop(key, None)
        if seconds <= 0:
            return
        while len(self._entries) >= self._size:
            self._entries.popitem(last=False)
        self._entries[key] = (self._clock() + seconds, value)

    def clear(self) -> None:
        self._entries.clear()

    def __len__(self) -> int:
        return len(self._entries)
