"""Stalls of the event loop that a test has caused: it fails unless it is marked with their reason.

    @pytest.mark.stalls(reason="compiles 5,000 rules at once")

Servers in this process: each step of a request on the loop is timed (``timed``). Its CPU counts, without that of the
collector of garbage, whose work grows with all objects of all tests. A step that imports modules is left out: it is a
first use. Code of the test itself is not timed.

Servers in processes of their own: their logs tell each stall (http/stalls.py). A line may count the CPU of up to 0.1 s
before the stall, and first uses happen there, too. So the bound is higher.
"""

from __future__ import annotations

import gc
import re
import sys
import time
from collections.abc import Awaitable, Generator
from pathlib import Path
from typing import Any, Final, TypeVar

from kubechronicle.ops.development.server_process import ServerProcess

MOST: Final = 0.1
"""Seconds of CPU of a step in this process."""
MOST_IN_LOG: Final = 0.25
"""Seconds of CPU of a stall in the log of another process."""
SHOWN: Final = 5
"""Stalls that a failure shows."""
_LINE: Final = re.compile(r'"The event loop stood still" .*?cpu=([\d.]+) cause="computing".*')

T = TypeVar("T")


class StallChecks:
    """The stalls of the present test."""

    def __init__(self) -> None:
        self.found: list[str] = []
        self._logs: dict[Path, int] = {}  # the bytes that have been read
        self._collected = self._collecting = 0.0
        gc.callbacks.append(self._on_collection)

    def _on_collection(self, phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            self._collecting = time.thread_time()
        else:
            self._collected += time.thread_time() - self._collecting

    def follow(self, server: ServerProcess) -> None:
        """Read the log of a server from now on."""
        self._logs[server.log] = _size(server.log)

    def read_logs(self) -> None:
        for path, seen in list(self._logs.items()):
            size = _size(path)
            if size <= seen:
                continue
            self._logs[path] = size
            with path.open("rb") as log:
                log.seek(seen)
                text = log.read(size - seen).decode(errors="replace")
            self.found += [line[0] for line in _LINE.finditer(text) if float(line[1]) > MOST_IN_LOG]
        self._logs = {path: seen for path, seen in self._logs.items() if path.exists()}

    def begin(self) -> None:
        """Forget the stalls of fixtures and of former tests."""
        self.read_logs()
        self.found.clear()

    def end(self) -> str:
        """Return the stalls since ``begin`` as text."""
        self.read_logs()
        return "\n".join(self.found[:SHOWN])

    def timed(self, work: Awaitable[T], name: str) -> Awaitable[T]:
        """Return an awaitable whose steps are timed."""
        return _Timed(self, work, name)

    def steps(self, work: Awaitable[T], name: str) -> Generator[Any, Any, T]:
        """Run the work step by step."""
        awaited = work.__await__()
        send, value = awaited.send, None
        while True:
            modules, collected, began = len(sys.modules), self._collected, time.thread_time()
            try:
                trap = send(value)
            except StopIteration as stop:
                self._note(name, began, collected, modules)
                return stop.value  # type: ignore[no-any-return]
            self._note(name, began, collected, modules)
            try:
                send, value = awaited.send, (yield trap)
            except BaseException as error:
                send, value = awaited.throw, error  # type: ignore[assignment]

    def _note(self, name: str, began: float, collected: float, modules: int) -> None:
        used = time.thread_time() - began - (self._collected - collected)
        if used > MOST and len(sys.modules) == modules:
            self.found.append(f"{name} held the event loop for {used:.3f} s of CPU")


class _Timed(Awaitable[T]):
    def __init__(self, checks: StallChecks, work: Awaitable[T], name: str) -> None:
        self._checks, self._work, self._name = checks, work, name

    def __await__(self) -> Generator[Any, Any, T]:
        return self._checks.steps(self._work, self._name)


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


CHECKS: Final = StallChecks()
"""One for the process that runs the tests."""
