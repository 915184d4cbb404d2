"""Erased history as clients see it: at a moment, in lists, watches and revisions; also if it was in memory."""

from __future__ import annotations

from typing import Any

import pytest
from in_process import MAPS, PODS, PROTOBUF, InProcess, configmap, open_server, pod

from kubechronicle.actors.branches.branches import Branches
from kubechronicle.actors.definitions.past import PastDefinitions
from kubechronicle.api.values.caches import Caches
from kubechronicle.eventlog.memory.erase import erase
from kubechronicle.eventlog.memory.store import MemoryStore
from kubechronicle.eventlog.records import Key
from kubechronicle.http.list_body import FEW

API = "/apis/history.kubechronicle.dev/v1"
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
MARK = "hunter2"
WEB = Key("configmaps", "default", "web")
FORMS = ("application/json", TABLE, "application/yaml", PROTOBUF)


async def shop(server: InProcess) -> list[int]:
    """Return the revisions: web created, changed, changed; other created; web deleted."""
    found = [await server.post(MAPS, configmap("web", labels={"app": "web"}, password=f"{MARK}-0"))]
    for number in (1, 2):
        found.append(await server.patch(f"{MAPS}/web", {"data": {"password": f"{MARK}-{number}"}}))
    found.append(await server.post(MAPS, configmap("other", labels={"app": "web"}, text="stays")))
    await server.delete(f"{MAPS}/web")
    revisions = [int(each["metadata"]["resourceVersion"]) for each in found]
    return [*revisions, revisions[-1] + 1]


async def applied(*servers: InProcess) -> None:
    for server in servers:
        await server.get(MAPS)  # a consistent read waits for the entry


def at(revision: int, path: str = MAPS) -> str:
    return f"/history/at/{revision}{path}"


@pytest.mark.parametrize("cached", [True, False])
async def test_a_moment_before(cached: bool, autojump_clock: Any) -> None:
    store = MemoryStore()
    async with open_server(store) as server, open_server(store) as replica:
        made, _, changed, other, deleted = await shop(server)
        for one in (server, replica):
            assert MARK in str(await one.get(at(changed)))  # which loads it into memory
            assert MARK in str(await one.get(at(changed, f"{MAPS}/web")))
            if not cached:
                one.assembly.views["configmaps"].window.reset(one.assembly.views.applied)
                assert MARK in str(await one.get(at(changed)))
        erase(store, WEB)
        await applied(server, replica)
        for one in (server, replica):
            refused = (await one.ask("GET", at(changed, f"{MAPS}/web"))).refused(410)
            assert refused["reason"] == "Gone"
            assert refused["message"] == f'what configmaps "web" was at revision {changed} was erased from history'
            for form in FORMS:
                answer = await one.ask("GET", at(changed), headers={"accept": form})
                assert answer.status == 200
                assert MARK.encode() not in answer.body
                said = '299 - "1 configmaps left out: their contents were erased from history"'
                assert answer.header_all("warning") == [said]
            for query in ("labelSelector=app%3Dweb", "fieldSelector=metadata.name%3Dweb", "limit=1"):
                answer = await one.ask("GET", f"{at(other)}?{query}")
                assert [item["metadata"]["name"] for item in answer.ok()["items"]] == (
                    ["other"] if "metadata.name" not in query else []
                )
            assert await one.names(at(deleted)) == ["other"]
            assert (await one.ask("GET", f"{MAPS}/web")).status == 404
            exact = await one.ask("GET", f"{MAPS}?resourceVersion={changed}&resourceVersionMatch=Exact")
            assert exact.ok()["items"] == []
            assert await one.names(at(made - 1)) == []


async def test_watches_show_the_remaining_changes(autojump_clock: Any) -> None:
    async with open_server() as server:
        made, _, changed, other, deleted = await shop(server)
        start = made - 1
        async with server.watch(f"{MAPS}?watch=1&resourceVersion={start}") as behind:
            erase(server.log.store, WEB)
            await applied(server)
            # From memory it was five changes.
            assert await behind.event() == ("ADDED", "other", other)
            event = await behind.next()
            assert event is not None
            assert (event["type"], event["object"]["metadata"]["name"]) == ("DELETED", "web")
            assert event["object"]["kind"] == "ConfigMap"
            assert int(event["object"]["metadata"]["resourceVersion"]) == deleted
            assert MARK not in str(event)
            assert "erased" not in event["object"]
            await server.post(MAPS, configmap("new"))
            assert (await behind.event())[:2] == ("ADDED", "new")
        # Clients that saw it, by any selector, get its deletion.
        for query in ("labelSelector=app%3Dweb", "fieldSelector=metadata.name%3Dweb", ""):
            for form in FORMS[:2]:
                async with server.watch(
                    f"{MAPS}?watch=1&resourceVersion={changed}&timeoutSeconds=5&{query}", headers={"accept": form}
                ) as watch:
                    types = [each["type"] for each in await watch.rest()]
                    assert types[:2] == (["ADDED", "DELETED"] if "name" not in query else ["DELETED"])
        async with server.watch(f"{at(start)}?watch=1&until={deleted}") as past:
            assert [each["type"] for each in await past.rest()] == ["ADDED", "DELETED"]


async def test_an_object_with_an_erased_past(autojump_clock: Any) -> None:
    async with open_server() as server:
        for number in range(3):
            path, body = f"{PODS}/web", {"metadata": {"labels": {"is": f"{MARK}-{number}"}}}
            if number:
                newest = await server.patch(path, body)
            else:
                newest = await server.post(PODS, pod("web", node="n1", labels=body["metadata"]["labels"]))
        now = int(newest["metadata"]["resourceVersion"])
        first = now - 2
        erase(server.log.store, Key("pods", "default", "web"))
        await applied(server)
        assert await server.names(PODS) == ["web"]
        for query, types in (
            ("", "ADDED"),
            ("fieldSelector=spec.nodeName%3Dn1", "ADDED"),
            (f"labelSelector=is%3D{MARK}-2", "ADDED"),
            ("labelSelector=is%3Dx", "DELETED"),
            ("fieldSelector=spec.nodeName%3Dn2", "DELETED"),
        ):
            async with server.watch(f"{PODS}?watch=1&resourceVersion={first}&timeoutSeconds=5&{query}") as watch:
                events = await watch.rest()
            found = [(each["type"], each["object"]["metadata"]["resourceVersion"]) for each in events]
            assert found == [(types, str(now))]
            assert MARK not in str(events) or types == "ADDED"


async def test_a_slow_replay_drops_read_changes(autojump_clock: Any) -> None:
    async with open_server() as server:
        made, *_, deleted = await shop(server)
        for end in ("", f"&until={deleted + 1}"):
            async with server.watch(f"{at(made - 1)}?watch=1&speed=0.001&timeoutSeconds=9999{end}") as replay:
                if not end:
                    assert await replay.event() == ("ADDED", "web", made)
                    erase(server.log.store, WEB)
                    await applied(server)
                    assert (await replay.event())[:2] == ("ADDED", "other")
                event = await replay.next()
                if end and event is not None and event["object"]["metadata"]["name"] == "other":
                    event = await replay.next()
                assert event is not None
                assert (event["type"], MARK in str(event)) == ("DELETED", False)


async def test_revisions_tell_that_it_is_erased(autojump_clock: Any) -> None:
    async with open_server() as server:
        await shop(server)
        erase(server.log.store, WEB)
        path = f"{API}/namespaces/default/revisions?fieldSelector=object.name%3Dweb"
        for query in ("", "&content=full"):
            items = (await server.get(path + query))["items"]
            assert [item["operation"] for item in items] == ["Delete", "Update", "Update", "Create"]
            assert all(item["erased"] and item["who"]["username"] == "admin" for item in items)
            assert all(item["object"]["kind"] == "ConfigMap" for item in items)
            assert not any(name in item for item in items for name in ("changed", "before", "after", "diff", "summary"))
        table = await server.get(path, headers={"accept": TABLE})
        assert {row["cells"][5] for row in table["rows"]} == {"<erased>"}
        assert (await server.get(f"{path},changed%3Ddata"))["items"] == []
        one = await server.get(f"{API}/namespaces/default/revisions/{items[0]['metadata']['name']}")
        assert MARK not in str(one)
        entries = (await server.get(f"{API}/clusterrevisions?content=full&limit=1"))["items"]
        assert entries[0]["object"]["kind"] == "Erasure"
        assert entries[0]["after"]["spec"]["reason"] == "asked for"
        density = await server.get(f"{API}/namespaces/default/revisions?summary=density")
        assert density["total"] == 5


async def test_a_server_that_was_away(autojump_clock: Any) -> None:
    """It finds tombstones instead of changes, so it begins with the present state."""
    store = MemoryStore()
    async with open_server(store) as server, open_server(store) as away:
        start = int((await away.get(MAPS))["metadata"]["resourceVersion"])
        async with away.watch(f"{MAPS}?watch=1&resourceVersion={start}") as watch:
            with away.log.hold("read"):
                *_, other, deleted = await shop(server)
                erase(store, WEB)
            assert await away.names(MAPS) == ["other"]
            assert await watch.event() == ("ADDED", "other", other)
            assert await watch.event() == ("DELETED", "web", deleted)


async def test_no_cache_holds_erased_objects(autojump_clock: Any) -> None:
    """Cached lists and past states are dropped when the server applies the erasure, without a request."""
    async with open_server() as server:
        for number in range(FEW):
            await server.post(MAPS, configmap(f"more-{number}", text="x" * 3000))
        await server.post(MAPS, configmap("web", labels={"app": MARK}, password=MARK))
        for form in FORMS:
            for encoding in ("identity", "gzip"):
                for _ in range(3):
                    await server.ask("GET", MAPS, headers={"accept": form, "accept-encoding": encoding})
        await server.delete(f"{MAPS}/web")
        views = server.assembly.views
        views["configmaps"].window.reset(views.applied)
        await server.ask("GET", at(views.applied - 1))
        listeners = [callback.__self__ for callback in views._erasure_callbacks]  # type: ignore[attr-defined]
        caches = [each for each in listeners if not isinstance(each, PastDefinitions | Branches | Caches)]
        assert [MARK in str(vars(each)) for each in caches] == [True, True]
        erase(server.log.store, WEB)
        await views.wait_applied(views.applied + 1)
        assert [MARK in str(vars(each)) for each in caches] == [False, False]
