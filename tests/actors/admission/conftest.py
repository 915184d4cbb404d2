"""Webhooks with prepared answers."""

from __future__ import annotations

import pytest
from admission.prepared_webhooks import Hooks

from kubechronicle.ops.server import composition


@pytest.fixture
def hooks(monkeypatch: pytest.MonkeyPatch) -> Hooks:
    found = Hooks()
    monkeypatch.setattr(composition, "Webhooks", lambda outgoing, find_service: found)
    return found
