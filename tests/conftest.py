"""The order of the tests, the settings of Hypothesis, the garbage collection of the tests' own process, threads under
clocks that jump, the failure of tests that stall a server's event loop, and the repetition of measurements.

Several processes share the tests (run.py). Each starts at the front of its part. A process that is done takes tests
from the end of another part. So the longest tests come first, and many short ones are left to share at the end.
"""

from __future__ import annotations

import gc
import math
import re
from collections.abc import Generator
from functools import cache
from pathlib import Path
from typing import IO, Any
from weakref import WeakKeyDictionary

import pytest
import trio
from hypothesis import HealthCheck, settings
from stalls.checks import CHECKS
from starting.clusters import EMBEDDED
from starting.forks import FORKS
from trio.testing import MockClock

from kubechronicle.ops.development.server_process import Process, ServerProcess

# The time to draw or run an example depends on the load of the machine, so it has no limit.
settings.register_profile("kubechronicle", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("kubechronicle")

# The files with the longest tests, each a minute or more; the first mostly waits. The rest of their folder comes next,
# then all other folders.
LONGEST = ("test_access.py", "test_informers.py", "test_crash.py", "test_replicas.py")


def _rank(item: pytest.Item) -> int:
    if "clients" not in (item.path.parent.name, item.path.parent.parent.name):
        return len(LONGEST) + 1
    return LONGEST.index(item.path.name) if item.path.name in LONGEST else len(LONGEST)


MEASURES = re.compile(r"mark\.alone|stalls\.longest_pass|write_timing|thread_time|process_time")


@cache
def _measures(path: Path) -> bool:
    """Tell whether a file compares times. A busy machine only ever adds to a time, so the best of three counts."""
    return MEASURES.search(path.read_text()) is not None


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=_rank)  # stable: the order within a file is kept
    for item in items:
        if _measures(item.path):
            item.add_marker(pytest.mark.flaky(reruns=2))


# To Trio, a task that waits for its thread is as idle as all others. So a clock that jumps would let hours pass during
# milliseconds of a thread, and with them the deadline of its request.

_run_sync = trio.to_thread.run_sync
_working: WeakKeyDictionary[MockClock, tuple[int, float]] = WeakKeyDictionary()  # threads, and the usual threshold


async def _run_while_time_stands(*arguments: Any, **options: Any) -> Any:
    """Run a function in a thread. No clock of Trio's tests jumps meanwhile."""
    clock = trio.lowlevel.current_clock()
    if not isinstance(clock, MockClock):
        return await _run_sync(*arguments, **options)
    threads, threshold = _working.get(clock, (0, clock.autojump_threshold))
    _working[clock] = (threads + 1, threshold)
    clock.autojump_threshold = math.inf
    try:
        return await _run_sync(*arguments, **options)
    finally:
        threads, threshold = _working.pop(clock)
        if threads > 1:
            _working[clock] = (threads - 1, threshold)
        else:
            clock.autojump_threshold = threshold


trio.to_thread.run_sync = _run_while_time_stands


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Search for no garbage during collection, where it took a quarter of the time: modules and tests stay until the
    end. Leave them out of later searches, too."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.collect()
        gc.freeze()


_start, _launch = ServerProcess.start, ServerProcess.launch


def _start_and_follow(server: ServerProcess, **options: Any) -> ServerProcess:
    if not _deployed and not server.data_dir.exists() and "--database-url" not in server.arguments:
        server.data_dir.mkdir(parents=True)
        EMBEDDED.copy(server.data_dir / "postgres")
    _start(server, **options)
    CHECKS.follow(server)
    return server


def _fork_or_launch(server: ServerProcess, command: list[str], environment: dict[str, str], log: IO[str]) -> Process:
    """Launch a server as a user does where a test asks for that, or sets variables, which an interpreter reads at its
    start. Else fork it (ops/ephemeral)."""
    if _deployed or server.variables or command[:1] != ServerProcess.command():
        return _launch(server, command, environment, log)
    return FORKS.start(command, environment, stderr=log)


ServerProcess.start = _start_and_follow  # type: ignore[method-assign]
ServerProcess.launch = _fork_or_launch  # type: ignore[method-assign,assignment]
_deployed: set[str] = set()  # the present test, if its servers are started as users do


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    if any(item.iter_markers("alone")) or any(item.iter_markers("as_deployed")):
        _deployed.add(item.nodeid)
    try:
        return (yield)
    finally:
        _deployed.clear()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """Fail a test that passes, but stalls a server's event loop (tests/support/stalls)."""
    CHECKS.begin()
    result = yield
    stalls = CHECKS.end()
    if stalls and item.get_closest_marker("stalls") is None:
        pytest.fail(f"the event loop stood still; mend it, or mark the test (stalls):\n{stalls}", pytrace=False)
    return result
