"""Fixtures: one Chromium for all tests of the page, and a profile of its own in it for each test."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import browser
import pytest


@pytest.fixture(scope="session")
def chromium_url() -> Iterator[str]:
    """Return the URL of a running Chromium. To start one costs more than most of the tests."""
    with browser.running() as url:
        yield url


@pytest.fixture
async def chromium(chromium_url: str) -> AsyncIterator[browser.Browser]:
    async with browser.connected(chromium_url) as connected:
        yield connected
