"""Deletions of collections in a version that a webhook converts to: selectors apply to the converted objects."""

from __future__ import annotations

import pytest
from custom.conversion_hook import CONVERSION, Hook, schema
from custom.definitions import definition, version
from custom.serving import define, serving

from kubechronicle.ops.server import composition

WIDGETS = "/apis/example.com/v2/namespaces/default/widgets"


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
