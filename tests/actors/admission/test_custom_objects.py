"""Admission webhooks and custom objects: unknown fields, and large contents that applies share."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from admission.prepared_webhooks import Hooks, configure, patching, webhook
from custom.definitions import definition, version
from custom.serving import WIDGETS, define, serving

from kubechronicle.api.meta import stored_contents

SCHEMA = {"type": "object", "properties": {"spec": {"type": "object", "properties": {"a": {"type": "string"}}}}}


def widget(name: str, **spec: Any) -> dict[str, Any]:
    return {"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": name}, "spec": spec}


async def test_fields_of_webhooks_are_pruned_after_validating_admission(hooks: Hooks) -> None:
    hooks.replies["one"] = patching(
        {"op": "add", "path": "/spec/added", "value": 1}, {"op": "add", "path": "/spec/a", "value": "patched"}
    )
    async with serving() as server:
        await define(server, definition(version(schema={"openAPIV3Schema": SCHEMA})))
        await configure(server, "mutating", webhook("one", "widgets"))
        await configure(server, "validating", webhook("last", "widgets"))
        created = await server.post(WIDGETS, widget("w", a="b", unknown=2))
        assert [request["object"]["spec"] for _, request in hooks.asked[-2:]] == [
            {"a": "b"},
            {"a": "patched", "added": 1},
        ]
        assert created["spec"] == {"a": "patched"}
        assert created == await server.get(f"{WIDGETS}/w")
        # kube-apiserver compares for the generation before it prunes.
        updated = await server.patch(f"{WIDGETS}/w", {"spec": {"a": "c"}})
        assert hooks.last()["object"]["spec"] == {"a": "patched", "added": 1}
        assert (updated["spec"], updated["metadata"]["generation"]) == ({"a": "patched"}, 2)
        assert "f:added" not in str(updated["metadata"]["managedFields"])


async def test_patches_leave_the_contents_that_applies_share(hooks: Hooks, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stored_contents, "LEAST", 64)
    texts = {"type": "object", "additionalProperties": {"type": "string"}}
    schema = {"type": "object", "properties": {"spec": {"type": "object", "properties": {"texts": texts}}}}
    sent = {f"key-{number}": "text" for number in range(9)}
    async with serving() as server:
        await define(server, definition(version(schema={"openAPIV3Schema": schema})))
        await configure(server, "mutating", webhook("one", "widgets"))
        for turn in range(12):
            operations = [{"op": "replace", "path": "/spec/texts/key-3", "value": f"turn {turn}"}]
            hooks.replies["one"] = patching(*operations) if turn % 3 == 2 else {}
            body = widget("w", texts=sent) | {"metadata": {"name": "w", "labels": {"turn": str(turn)}}}
            query = "fieldManager=one&force=true"
            headers = {"content-type": "application/apply-patch+yaml"}
            answer = (await server.ask("PATCH", f"{WIDGETS}/w?{query}", body, headers=headers)).ok()
            assert answer == await server.get(f"{WIDGETS}/w")
            assert answer["spec"]["texts"] == (sent | {"key-3": f"turn {turn}"} if turn % 3 == 2 else sent)
    generations = stored_contents._members._now, stored_contents._members._former
    held = {text: value for generation in generations for text, value in generation.by_text.items()}
    assert any(b"key-3" in text for text in held)
    assert all(orjson.loads(b"{%b}" % text) in ({"spec": value}, {"status": value}) for text, value in held.items())
