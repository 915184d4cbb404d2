"""Values of Secrets in history: masked, with masks that tell equal from different; shown on request, and recorded."""

from __future__ import annotations

import json
from typing import Any

import pytest
from in_process import InProcess, open_server

from kubechronicle.eventlog.queries.reads import ReadQuery

API = "/apis/history.kubechronicle.dev/v1/namespaces/default/revisions"
SECRETS = "/api/v1/namespaces/default/secrets"
OF_KEY = "fieldSelector=object.resource%3Dsecrets"


async def make_secret(server: InProcess) -> str:
    """Create a Secret, change one of its two values and then its labels; return the name of the revision between."""
    annotations = {"kubectl.kubernetes.io/last-applied-configuration": '{"data":{"a":"hush"}}'}
    await server.post(
        SECRETS, {"metadata": {"name": "key", "annotations": annotations}, "stringData": {"a": "hush", "b": "same"}}
    )
    changed = await server.patch(f"{SECRETS}/key", {"stringData": {"a": "quiet"}})
    await server.patch(f"{SECRETS}/key", {"metadata": {"labels": {"l": "1"}}})
    return str(changed["metadata"]["resourceVersion"])


def values(text: Any) -> str:
    return json.dumps(text)


HIDDEN = ("hush", "quiet", "aHVzaA", "cXVpZXQ", "c2FtZQ")


async def test_masks() -> None:
    async with open_server() as server:
        name = await make_secret(server)
        one = await server.get(f"{API}/{name}")
        lists = [await server.get(f"{API}?{OF_KEY}&content={content}") for content in ("", "diff", "full")]
        table = await server.get(f"{API}?{OF_KEY}", headers={"accept": "application/json;as=Table;v=v1;g=meta.k8s.io"})
        for answer in (one, *lists, table):
            assert not [each for each in HIDDEN if each in values(answer)]
        before, after = one["before"]["data"], one["after"]["data"]
        assert before["a"] != after["a"]
        assert before["b"] == after["b"]
        assert one["summary"] == f"data.a: {before['a']} → {after['a']}"
        # Other requests have other masks, unless they name the same key.
        assert (await server.get(f"{API}/{name}"))["after"]["data"] != after
        asked = [await server.get(f"{API}/{name}?mask=k"), await server.get(f"{API}?{OF_KEY}&content=full&mask=k")]
        assert asked[0]["after"]["data"] == asked[1]["items"][0]["after"]["data"]
        assert not await server.store.reads.log.recorded.list(ReadQuery(), limit=1)


async def test_shown_values_are_recorded() -> None:
    async with open_server() as server:
        name = await make_secret(server)
        log = server.store.reads.log.recorded
        shown = await server.get(f"{API}/{name}?values=shown")
        assert shown["after"]["data"] == {"a": "cXVpZXQ=", "b": "c2FtZQ=="}
        [read] = await log.list(ReadQuery(), limit=9)
        assert (read.resource, read.namespace, read.name, read.verb) == ("secrets", "default", "key", "get")
        assert read.request_uri.endswith("?values=shown")
        await server.get(f"{API}?{OF_KEY}&content=diff&values=shown")
        assert [each.verb for each in await log.list(ReadQuery(), limit=9)] == ["list", "get"]
        await server.get(f"{API}?fieldSelector=object.resource%3Dconfigmaps&values=shown")
        await server.get(f"/history/at/{name}{SECRETS}/key")
        assert len(await log.list(ReadQuery(), limit=9)) == 2
        past = await server.get(f"/history/at/{name}{SECRETS}/key?values=shown")
        assert past["data"]["a"] == "cXVpZXQ="
        assert len(await log.list(ReadQuery(name="key"), limit=9)) == 3


@pytest.mark.parametrize("query", ["values=hidden", f"mask={'x' * 129}"])
async def test_wrong_parameters(query: str) -> None:
    async with open_server() as server:
        (await server.ask("GET", f"{API}?{query}")).refused(400)


async def test_a_deletion_tells_of_its_mark() -> None:
    async with open_server() as server:
        maps = "/api/v1/namespaces/default/configmaps"
        await server.post(maps, {"metadata": {"name": "held", "finalizers": ["example.com/a"]}})
        marked = await server.delete(f"{maps}/held")
        await server.patch(f"{maps}/held", {"metadata": {"finalizers": None}})
        query = "fieldSelector=operation%3DDelete,object.name%3Dheld"
        [revision] = (await server.get(f"{API}?{query}"))["items"]
        assert revision["deletionTimestamp"] == marked["metadata"]["deletionTimestamp"]
