"""Custom objects in several stored versions: after a change of the storage version, and until they are rewritten."""

from __future__ import annotations

from typing import Any

from custom.definitions import definition, version
from custom.serving import CRDS, WIDGETS, define, serving
from trio.testing import MockClock

from kubechronicle.eventlog.memory.memory_log import MemoryLog
from kubechronicle.eventlog.memory.store import MemoryStore

NAME = "widgets.example.com"
OLD, NEW = WIDGETS, WIDGETS.replace("v1", "v2")
TABLE = {"accept": "application/json;as=Table;g=meta.k8s.io;v=v1"}
TEXT: dict[str, Any] = {"type": "string"}


def one(name: str, *, storage: bool, **properties: Any) -> dict[str, Any]:
    schema = {"type": "object", "properties": {"spec": {"type": "object", "properties": {"a": TEXT, **properties}}}}
    columns = [{"name": "A", "type": "string", "jsonPath": ".spec.a"}]
    return version(name, schema={"openAPIV3Schema": schema}, additionalPrinterColumns=columns) | {"storage": storage}


def versions(storage: str) -> list[dict[str, Any]]:
    one_default, two_default = {**TEXT, "default": "1"}, {**TEXT, "default": "2"}
    return [
        one("v1", storage=storage == "v1", one=one_default),
        one("v2", storage=storage == "v2", two=two_default),
    ]


def widget(name: str, in_version: str = "v1", **spec: Any) -> dict[str, Any]:
    return {"apiVersion": f"example.com/{in_version}", "kind": "Widget", "metadata": {"name": name}, "spec": spec}


async def replace(server: Any, found: list[dict[str, Any]]) -> dict[str, Any]:
    held = await server.get(f"{CRDS}/{NAME}")
    held["spec"]["versions"] = found
    changed: dict[str, Any] = await server.put(f"{CRDS}/{NAME}", held)
    return changed


def stored(server: Any, name: str) -> dict[str, Any]:
    entry = server.store.reads.peek(NAME, "default", name)
    obj: dict[str, Any] = entry.object()
    return obj


async def specs(server: Any, path: str) -> dict[str, dict[str, Any]]:
    return {item["metadata"]["name"]: item["spec"] for item in (await server.get(path))["items"]}


async def test_objects_in_two_stored_versions_are_read_and_written_in_both(autojump_clock: MockClock) -> None:
    store = MemoryStore()
    async with serving(MemoryLog(store)) as server:
        await define(server, definition(*versions("v1")))
        await server.post(OLD, widget("a", a="x"))
        changed = await replace(server, versions("v2"))
        assert changed["status"]["storedVersions"] == ["v1", "v2"]
        await server.post(NEW, widget("b", "v2", a="y"))
        await server.post(OLD, widget("c", a="z", one="own"))
    async with serving(MemoryLog(store)) as server:
        assert [stored(server, name)["apiVersion"] for name in "abc"] == [
            f"example.com/{v}" for v in ("v1", "v2", "v2")
        ]
        assert await specs(server, OLD) == {"a": {"a": "x", "one": "1"}, "b": {"a": "y"}, "c": {"a": "z"}}
        assert await specs(server, NEW) == {
            "a": {"a": "x"},
            "b": {"a": "y", "two": "2"},
            "c": {"a": "z", "two": "2"},
        }
        assert [row["cells"][1] for row in (await server.get(NEW, headers=TABLE))["rows"]] == ["x", "y", "z"]
        async with server.watch(f"{NEW}?watch=1") as stream:
            found = [await stream.next() for _ in "abc"]
        assert [event["object"]["apiVersion"] for event in found if event is not None] == ["example.com/v2"] * 3
        before = stored(server, "a")["metadata"]["resourceVersion"]
        patched = await server.patch(f"{OLD}/a", {"metadata": {}})
        assert patched["metadata"]["resourceVersion"] != before
        assert stored(server, "a")["apiVersion"] == "example.com/v2"
        assert stored(server, "a")["spec"] == {"a": "x", "two": "2"}
        assert (await server.patch(f"{NEW}/b", {"spec": {"a": "w"}}))["metadata"]["generation"] == 2
        assert sorted(await server.names(OLD)) == ["a", "b", "c"]


async def test_a_stored_version_cannot_be_removed_from_the_definition(autojump_clock: MockClock) -> None:
    async with serving() as server:
        await define(server, definition(*versions("v1")))
        await server.post(OLD, widget("a", a="x"))
        held = await replace(server, versions("v2"))
        held["spec"]["versions"] = versions("v2")[1:]
        error = (await server.ask("PUT", f"{CRDS}/{NAME}", held)).refused(422)
        assert error["details"]["causes"][0]["field"] == "status.storedVersions[0]"
        await server.patch(f"{OLD}/a", {"metadata": {}})
        done = await server.patch(f"{CRDS}/{NAME}/status", {"status": {"storedVersions": ["v2"]}})
        assert done["status"]["storedVersions"] == ["v2"]
        await replace(server, versions("v2")[1:])
        assert (await server.ask("GET", OLD)).status == 404
        assert await specs(server, NEW) == {"a": {"a": "x", "two": "2"}}


async def test_the_past_is_read_with_the_schema_of_its_moment(autojump_clock: MockClock) -> None:
    async with serving() as server:
        await define(server, definition(one("v1", storage=True, gone=TEXT)))
        created = await server.post(OLD, widget("a", a="x", gone="g"))
        before = f"/history/at/{created['metadata']['resourceVersion']}"
        await replace(server, [one("v1", storage=True, size={**TEXT, "default": "L"})])
        after = f"/history/at/{server.store.reads.applied}"
        patched = await server.patch(f"{OLD}/a", {"spec": {"a": "y"}})
        await replace(server, [one("v1", storage=True)])
        for _ in range(2):
            assert await specs(server, f"{before}{OLD}") == {"a": {"a": "x", "gone": "g"}}
            assert (await server.get(f"{before}{OLD}/a"))["spec"] == {"a": "x", "gone": "g"}
            assert await specs(server, f"{after}{OLD}") == {"a": {"a": "x", "size": "L"}}
            assert (await server.get(f"{after}{OLD}/a"))["spec"] == {"a": "x", "size": "L"}
            assert await specs(server, OLD) == {"a": {"a": "y"}}
        latest = f"/history/at/{patched['metadata']['resourceVersion']}"
        assert (await server.get(f"{latest}{OLD}/a"))["spec"] == {"a": "y", "size": "L"}


async def test_selectors_in_the_past_have_the_fields_of_its_moment(autojump_clock: MockClock) -> None:
    selectable = {"selectableFields": [{"jsonPath": ".spec.size"}]}

    async with serving() as server:
        await define(server, definition(one("v1", storage=True, size=TEXT) | selectable))
        for name, size in (("a", "L"), ("b", "S"), ("c", "L")):
            created = await server.post(
                OLD, widget(name, size=size) | {"metadata": {"name": name, "labels": {"x": name}}}
            )
        await server.post(OLD, widget("d"))
        plain = f"/history/at/{created['metadata']['resourceVersion']}"
        await replace(server, [one("v1", storage=True, size={**TEXT, "default": "L"}) | selectable])
        defaulted = f"/history/at/{server.store.reads.applied}"
        await replace(server, [one("v1", storage=True, size=TEXT)])
        await server.patch(f"{OLD}/a", {"spec": {"size": "S"}})
        query = "fieldSelector=spec.size=L"
        (await server.ask("GET", f"{OLD}?{query}")).refused(400)
        assert await server.names(f"{plain}{OLD}?{query}") == ["a", "c"]
        assert await server.names(f"{plain}{OLD}?{query}&labelSelector=x=c") == ["c"]
        assert await server.names(f"{defaulted}{OLD}?{query}") == ["a", "c", "d"]
        page = await server.get(f"{defaulted}{OLD}?{query}&limit=2")
        assert [item["metadata"]["name"] for item in page["items"]] == ["a", "c"]
        token = page["metadata"]["continue"]
        assert await server.names(f"{defaulted}{OLD}?{query}&limit=2&continue={token}") == ["d"]
        async with server.watch(f"{plain}{OLD}?{query}&watch=1") as stream:
            events = [(await stream.event())[:2] for _ in range(3)]
        assert events == [("ADDED", "a"), ("ADDED", "c"), ("DELETED", "a")]
