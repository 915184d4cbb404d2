"""A Trio loop in a thread with a clock that jumps, for synchronous tests such as state machines of Hypothesis."""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import trio
import trio.testing

T = TypeVar("T")


class TrioThread:
    """``run`` runs one async function in the thread's loop and returns its result.

    All functions run in one task (``_main``), so that one may open a nursery and another close it.
    """

    def __init__(self) -> None:
        self._calls: trio.MemorySendChannel[Any]
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        self._ready.wait()

    def _run(self) -> None:
        trio.run(self._main, clock=trio.testing.MockClock(autojump_threshold=0))

    async def _main(self) -> None:
        self._calls, calls = trio.open_memory_channel(1)
        self._token = trio.lowlevel.current_trio_token()
        self._ready.set()
        async for function, results, completed in calls:
            try:
                results.append((await function(), None))
            except Exception as error:
                results.append((None, error))
            completed.set()

    def run(self, function: Callable[[], Awaitable[T]]) -> T:
        results: list[Any] = []
        completed = threading.Event()
        trio.from_thread.run(self._calls.send, (function, results, completed), trio_token=self._token)
        completed.wait()
        result, error = results[0]
        if error is not None:
            raise error
        return result  # type: ignore[no-any-return]

    def close(self) -> None:
        trio.from_thread.run(self._calls.aclose, trio_token=self._token)
        self._thread.join()
