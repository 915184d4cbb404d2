"""The control loops see custom resources as they come and go."""

from __future__ import annotations

from typing import Any

import trio
from custom.definitions import definition
from custom.serving import CRDS, WIDGETS, define, serving, until_gone
from in_process import MAPS, InProcess
from trio.testing import MockClock

NAME = "widgets.example.com"
LONG = 120.0


def widget(name: str, **metadata: Any) -> dict[str, Any]:
    return {"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": name, **metadata}}


def controlled(*names: str) -> Any:
    return serving(leads=False, loops=True, controllers=frozenset(names))


async def make_namespace(server: InProcess, name: str) -> None:
    await server.post("/api/v1/namespaces", {"metadata": {"name": name}})


async def test_a_namespace_takes_its_custom_objects_with_it(autojump_clock: MockClock) -> None:
    async with controlled("namespace") as server:
        await make_namespace(server, "n")
        await define(server, definition())
        path = WIDGETS.replace("default", "n")
        await server.post(path, widget("a"))
        await server.delete("/api/v1/namespaces/n")
        await trio.sleep(LONG)
        assert await server.names("/apis/example.com/v1/widgets") == []
        assert (await server.ask("GET", "/api/v1/namespaces/n")).status == 404


async def test_dependents_of_custom_objects_are_collected(autojump_clock: MockClock) -> None:
    async with controlled("garbage-collector") as server:
        await define(server, definition())
        owner = await server.post(WIDGETS, widget("a"))
        reference = {"apiVersion": "example.com/v1", "kind": "Widget", "name": "a", "uid": owner["metadata"]["uid"]}
        await server.post(MAPS, {"metadata": {"name": "m", "ownerReferences": [reference]}})
        await server.post(WIDGETS, widget("b", ownerReferences=[reference]))
        await trio.sleep(LONG)
        assert "m" in await server.names(MAPS)
        await server.delete(f"{WIDGETS}/a")
        await trio.sleep(LONG)
        assert "m" not in await server.names(MAPS)
        assert await server.names(WIDGETS) == []
        await server.delete(f"{CRDS}/{NAME}")
        await until_gone(server, NAME)
        await trio.sleep(LONG)


async def test_custom_objects_are_counted_and_limited(autojump_clock: MockClock) -> None:
    async with controlled("resourcequota") as server:
        await define(server, definition())
        await server.post(WIDGETS, widget("a"))
        quotas = "/api/v1/namespaces/default/resourcequotas"
        await server.post(quotas, {"metadata": {"name": "q"}, "spec": {"hard": {"count/widgets.example.com": "2"}}})
        await trio.sleep(LONG)

        async def used() -> str:
            status = (await server.get(f"{quotas}/q"))["status"]
            return str(status["used"]["count/widgets.example.com"])

        assert await used() == "1"
        await server.post(WIDGETS, widget("b"))
        assert await used() == "2"
        (await server.ask("POST", WIDGETS, widget("c"))).refused(403)
        await server.delete(f"{WIDGETS}/a")
        await trio.sleep(LONG)
        assert await used() == "1"
