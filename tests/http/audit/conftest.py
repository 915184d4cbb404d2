"""A client for requests to other servers that runs during the test."""

from __future__ import annotations

import pytest
import trio
import trio.testing

from kubechronicle.http.outgoing.client import Outgoing


@pytest.fixture
async def outgoing(nursery: trio.Nursery) -> Outgoing:
    made = Outgoing()
    await nursery.start(made.run)
    return made
