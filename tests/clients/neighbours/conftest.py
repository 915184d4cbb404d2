"""Tests with programs that take minutes to build: they run with `make test-neighbours` only."""

from __future__ import annotations

import os
import random
import socket
from pathlib import Path

import pytest
from harness import prepare

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if not os.environ.get("KUBECHRONICLE_NEIGHBOURS"):
        for item in items:
            if HERE in item.path.parents:
                item.add_marker(pytest.mark.skip(reason="make test-neighbours runs it"))


@pytest.fixture(scope="session", autouse=True)
def _programs() -> None:
    prepare("neighbours", "kubectl", "kubelet")


def free_port() -> int:
    """Return a free port below the ephemeral ones, which the proxy server refuses."""
    while True:
        with socket.socket() as trial:
            try:
                trial.bind(("127.0.0.1", port := random.randrange(20_000, 32_000)))
            except OSError:
                continue
            return port
