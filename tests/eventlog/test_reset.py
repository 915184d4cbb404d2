"""Resets of a server's objects to a marked state, on both logs, while clients read, watch and write."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from in_process import MAPS, InProcess, configmap, open_server

from kubechronicle.api.meta.path_prefixes import HISTORY
from kubechronicle.eventlog.memory.memory_log import MemoryLog
from kubechronicle.eventlog.memory.store import MemoryStore

DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
WIDGETS = "/apis/shop.example.com/v1/namespaces/default/widgets"


def resettable(store: MemoryStore, **options: Any) -> Any:
    return open_server(store, other={"forget": store.compact}, **options)


async def reset(server: InProcess) -> dict[str, int]:
    done: dict[str, int] = await server.post("/ephemeral/reset", None)
    return done


def definition() -> dict[str, Any]:
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.shop.example.com"},
        "spec": {
            "group": "shop.example.com",
            "scope": "Namespaced",
            "names": {"plural": "widgets", "singular": "widget", "kind": "Widget"},
            "versions": [{"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}],
        },
    }


async def test_a_reset_deletes_creations_and_undoes_changes_and_deletions() -> None:
    store = MemoryStore()
    async with resettable(store) as server:
        await server.post(MAPS, configmap("kept", value="1"))
        await server.post(MAPS, configmap("changed", value="1"))
        await server.post(MAPS, configmap("deleted", value="1"))
        uid = (await server.get(f"{MAPS}/deleted"))["metadata"]["uid"]
        marked = (await server.post("/ephemeral/mark", None))["revision"]

        await server.patch(f"{MAPS}/changed", {"data": {"value": "2"}})
        await server.delete(f"{MAPS}/deleted")
        await server.post(MAPS, configmap("new"))
        await server.post(MAPS, configmap("gone"))
        await server.delete(f"{MAPS}/gone")

        async with server.watch(f"{MAPS}?watch=1&resourceVersion={store.revision}") as watch:
            done = await reset(server)
            assert (done["deleted"], done["restored"]) == (1, 2)
            events = [await watch.next() for _ in range(3)]
        assert {(each["type"], each["object"]["metadata"]["name"]) for each in events} == {
            ("MODIFIED", "changed"),
            ("ADDED", "deleted"),
            ("DELETED", "new"),
        }
        assert await server.names(MAPS) == ["changed", "deleted", "kept"]
        assert (await server.get(f"{MAPS}/changed"))["data"] == {"value": "1"}
        assert (await server.get(f"{MAPS}/deleted"))["metadata"]["uid"] == uid
        assert done["revision"] > marked

        assert (await reset(server))["deleted"] == 0
        await server.post(MAPS, configmap("new"))
        assert (await reset(server))["deleted"] == 1


async def test_finalizers_and_grace_delay_no_reset() -> None:
    store = MemoryStore()
    async with resettable(store) as server:
        await server.post("/ephemeral/mark", None)
        held = configmap("held")
        held["metadata"]["finalizers"] = ["example.com/forever"]
        await server.post(MAPS, held)
        await server.delete(f"{MAPS}/held")
        assert await server.names(MAPS) == ["held"]
        await reset(server)
        assert await server.names(MAPS) == []


async def test_the_changes_of_a_test_can_be_read_until_the_reset_after_the_next_one() -> None:
    store = MemoryStore()
    async with resettable(store) as server:
        await server.post("/ephemeral/mark", None)
        await server.post(MAPS, configmap("first"))
        at = store.revision
        await reset(server)
        assert (await server.get(f"{HISTORY}{at}{MAPS}/first"))["metadata"]["name"] == "first"
        await reset(server)
        assert (await server.ask("GET", f"{HISTORY}{at}{MAPS}/first")).status == 410
        assert len(store._rows) < 10


async def test_a_definition_of_a_test_goes_with_its_objects() -> None:
    store = MemoryStore()
    async with resettable(store, loops=True, namespaces=()) as server:
        await server.post("/ephemeral/mark", None)
        for _ in range(2):
            await server.post(DEFINITIONS, definition())
            with trio.fail_after(30):
                while (await server.ask("GET", WIDGETS)).status != 200:
                    await trio.lowlevel.checkpoint()
            widget = {"apiVersion": "shop.example.com/v1", "kind": "Widget", "metadata": {"name": "one"}}
            await server.post(WIDGETS, widget)
            await reset(server)
            assert (await server.ask("GET", WIDGETS)).status == 404
            assert await server.names(DEFINITIONS) == []


async def test_without_a_mark_or_the_right_nothing_is_reset() -> None:
    store = MemoryStore()
    async with resettable(store) as server:
        assert (await server.ask("POST", "/ephemeral/reset", None)).status == 400
        assert (await server.ask("GET", "/ephemeral/mark")).status == 404
    async with open_server(MemoryLog(store)) as server:
        assert (await server.ask("POST", "/ephemeral/mark", None)).status == 404


@pytest.mark.parametrize("writers", [3])
async def test_writers_beside_a_reset_leave_whole_objects(writers: int) -> None:
    """A write is before the reset, and undone, or after it. No write fails otherwise than by a conflict."""
    store = MemoryStore()
    async with resettable(store) as server:
        await server.post(MAPS, configmap("shared", value="0"))
        await server.post("/ephemeral/mark", None)

        async def write(number: int) -> None:
            for count in range(30):
                assert (await server.ask("POST", MAPS, configmap(f"of-{number}-{count}"))).status == 201
                body = {"data": {"value": str(count)}}
                headers = {"content-type": "application/merge-patch+json"}
                status = (await server.ask("PATCH", f"{MAPS}/shared", body, headers=headers)).status
                assert status in (200, 409)

        async with trio.open_nursery() as nursery:
            for number in range(writers):
                nursery.start_soon(write, number)
            for _ in range(5):
                await reset(server)
        await reset(server)
        assert await server.names(MAPS) == ["shared"]
        assert (await server.get(f"{MAPS}/shared"))["data"] == {"value": "0"}
