"""A server with webhooks that have prepared answers, and a branch of it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from admission.prepared_webhooks import Hooks
from in_process import InProcess, open_server

from kubechronicle.ops.server import composition


@pytest.fixture
def hooks(monkeypatch: pytest.MonkeyPatch) -> Hooks:
    found = Hooks()
    monkeypatch.setattr(composition, "Webhooks", lambda outgoing, find_service: found)
    return found


@pytest.fixture
async def server(autojump_clock: Any, hooks: Hooks) -> AsyncIterator[InProcess]:
    async with open_server() as server:
        yield server
