"""Tests with real brokers, which take minutes to build: they run with `make test-feeds` only."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from harness import prepare

HERE = Path(__file__).parent
CACHE = HERE.parents[2] / ".cache"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if not os.environ.get("KUBECHRONICLE_FEEDS"):
        for item in items:
            if HERE in item.path.parents:
                item.add_marker(pytest.mark.skip(reason="make test-feeds runs it"))


@pytest.fixture(scope="session", autouse=True)
def _programs() -> None:
    prepare("brokers")
    sys.path.append(str(CACHE / "feeds"))  # the clients
