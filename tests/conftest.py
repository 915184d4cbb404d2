"""The order of the tests, the settings of Hypothesis, and the clock that jumps.

Several processes share the tests (run.py). Each starts at the front of its part. A process that is done takes tests
from the end of another part. So the longest tests come first, and many short ones are left to share at the end.
"""

from __future__ import annotations

import math
from typing import Any

import pytest
import trio
from hypothesis import HealthCheck, settings
from trio.testing import MockClock

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


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=_rank)  # stable: the order within a file is kept


@pytest.fixture
def autojump_clock(monkeypatch: pytest.MonkeyPatch) -> MockClock:
    """Override pytest-trio's fixture: the clock does not jump while a thread works.

    To Trio, a task that waits for its thread is as idle as all others. A thread of milliseconds let hours pass, and
    with them the deadline of its request.
    """
    clock, run_sync, working = MockClock(autojump_threshold=0), trio.to_thread.run_sync, 0

    async def run_while_time_stands(*arguments: Any, **options: Any) -> Any:
        nonlocal working
        working += 1
        clock.autojump_threshold = math.inf
        try:
            return await run_sync(*arguments, **options)
        finally:
            working -= 1
            if not working:
                clock.autojump_threshold = 0

    monkeypatch.setattr(trio.to_thread, "run_sync", run_while_time_stands)
    return clock
