"""Deletions of collections in a version that a webhook converts to: selectors apply to the converted objects."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest
from custom.definitions import definition, version
from custom.serving import define, serving

from kubechronicle.ops.server import composition

WIDGETS = "/apis/example.com/v2/namespaces/default/widgets"
CONVERSION = {
    "strategy": "Webhook",
    "webhook": {"clientConfig": {"url": "https://hook/"}, "conversionReviewVersions": ["v1"]},
}


class Hook:
    """Converts {hostPort: host:port} of v1 to {host, port} of v2, and back."""

    async def __call__(self, config: Mapping[str, Any], body: bytes, *, timeout: float) -> Any:
        request = json.loads(body)["request"]
        wanted = request["desiredAPIVersion"]
        objects = [self.converted(obj, wanted) for obj in request["objects"]]
        response = {"uid": request["uid"], "result": {"status": "Success"}, "convertedObjects": objects}
        return {"apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview", "response": response}

    def converted(self, obj: dict[str, Any], wanted: str) -> dict[str, Any]:
        base = {"apiVersion": wanted, "kind": obj["kind"], "metadata": obj["metadata"]}
        if wanted.endswith("v1"):
            return {**base, "hostPort": f"{obj['host']}:{obj['port']}"}
        host, _, port = obj["hostPort"].partition(":")
        return {**base, "host": host, "port": port}


def schema(**members: str) -> dict[str, Any]:
    fields = {name: {"type": kind} for name, kind in members.items()}
    return {
        "schema": {"openAPIV3Schema": {"type": "object", "properties": fields}},
        "selectableFields": [{"jsonPath": f".{name}"} for name in members],
    }


async def test_field_selectors_of_a_deletion_apply_to_converted_objects(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(composition, "Webhooks", lambda *_: Hook())
    kind = definition(version(**schema(hostPort="string")), version("v2", **schema(host="string", port="string")))
    kind["spec"]["conversion"] = CONVERSION
    async with serving() as server:
        await define(server, kind)
        for name, host, port in (("a", "one", "80"), ("b", "one", "81"), ("c", "two", "80")):
            body = {"apiVersion": "example.com/v2", "kind": "Widget", "metadata": {"name": name}}
            await server.post(WIDGETS, body | {"host": host, "port": port})
        deleted = await server.delete(f"{WIDGETS}?fieldSelector=host=one,port=80")
        assert [item["host"] for item in deleted["items"]] == ["one"]
        assert await server.names(WIDGETS) == ["b", "c"]
        await server.delete(f"{WIDGETS}?fieldSelector=host!=two")
        assert await server.names(WIDGETS) == ["c"]
