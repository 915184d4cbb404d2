"""Tokens that servers of webhooks may ask for."""

from __future__ import annotations

from functools import partial
from typing import Any

from kubechronicle.api.subresources import token_request


def test_a_webhook_whose_deletion_is_due_asks_for_no_reviews() -> None:
    hook = {"clientConfig": {"url": "https://h"}, "rules": [{"apiGroups": ["apps"]}]}
    made: dict[str, Any] = {"metadata": {"name": "w", "uid": "u"}, "webhooks": [hook]}
    ask = partial(token_request.asks_for_reviews, audience="https://h", group="apps", now="2026-01-01T00:00:05Z")
    assert ask(made) is not None
    made["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:06Z"
    assert ask(made) is not None
    made["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:05Z"
    assert ask(made) is None
