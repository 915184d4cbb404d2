"""Servers on one database that reject each other's credentials say so at their start."""

from __future__ import annotations

import logging

import pytest

from kubechronicle.eventlog.postgres.connection import open_session
from kubechronicle.ops.server import trust

ONE = {"signs": "a", "verifies": ["a"], "issuers": ["here"], "issuesClients": ["1"], "acceptsClients": ["1"]}
TWO = ONE | {"signs": "b", "verifies": ["b"]}


async def test_the_difference_is_logged_at_the_start(database: str, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        await trust.compare_trust(database, "host 10.0.0.1:6443", ONE)
        await trust.compare_trust(database, "host 10.0.0.2:6443", ONE)
        assert caplog.messages == []
        await trust.compare_trust(database, "host 10.0.0.2:6443", TWO)
    (message,) = caplog.messages
    assert "host 10.0.0.1:6443" in message
    assert "--service-account-signing-key-file" in message
    caplog.clear()
    async with open_session(database) as session:
        await session.fetch("update kubechronicle.servers set seen_at = now() - interval '2 days'")
    await trust.compare_trust(database, "host 10.0.0.3:6443", TWO)
    assert caplog.messages == []


async def test_a_database_that_is_away_prevents_no_comparison_later(caplog: pytest.LogCaptureFixture) -> None:
    await trust.compare_trust("postgresql://postgres@127.0.0.1:1/none", "host 10.0.0.1:6443", ONE)
    assert "could not be compared" in caplog.text
