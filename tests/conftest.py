"""In which order the tests run, and what holds for all that Hypothesis draws.

Several processes share them (run.py): each begins at the front of its part, and one that is through takes from the end
of another's. So what takes longest stands in front, and at the end there are many small tests to share.
"""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, settings

# How long an example takes, or is drawn, says on a busy machine what else it does, and nothing of the test.
settings.register_profile("kubechronicle", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("kubechronicle")

# Files whose tests take longest, each a minute or more, and first of all the one that mostly waits; then their folder,
# which the rest follows.
LONGEST = ("test_access.py", "test_informers.py", "test_crash.py", "test_replicas.py")


def _rank(item: pytest.Item) -> int:
    if item.path.parent.name != "clients":
        return len(LONGEST) + 1
    return LONGEST.index(item.path.name) if item.path.name in LONGEST else len(LONGEST)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=_rank)  # stable: within a file all stays as it was
