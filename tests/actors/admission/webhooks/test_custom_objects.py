"""Admission webhooks and custom objects: fields that the schema does not know."""

from __future__ import annotations

from typing import Any

from admission.prepared_webhooks import Hooks, configure, patching, webhook
from custom.definitions import definition, version
from custom.serving import WIDGETS, define, serving

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
