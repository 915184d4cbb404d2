"""Watches of objects that the webhook of their definition cannot convert."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
import trio
from custom.conversion_hook import CONVERSION, Hook, schema
from custom.definitions import definition, version
from custom.serving import define, serving
from trio.testing import MockClock

from kubechronicle.actors.reading.conversions import WebhookError
from kubechronicle.ops.server import composition

V1 = "/apis/example.com/v1/namespaces/default/widgets"
V2 = V1.replace("/v1/", "/v2/")


class Unsteady(Hook):
    """Fails as long as ``works`` is not set. ``asked``: is set by each call."""

    def __init__(self) -> None:
        self.works = False
        self.asked = trio.Event()

    async def __call__(
        self, config: Mapping[str, Any], body: bytes, *, timeout: float, deadline: float | None = None
    ) -> Any:
        self.asked.set()
        if not self.works:
            raise WebhookError("out of order")
        return await super().__call__(config, body, timeout=timeout, deadline=deadline)

    async def mend(self) -> None:
        """Let it work after its first failure."""
        await self.asked.wait()
        self.works = True


@pytest.fixture
def hook(monkeypatch: pytest.MonkeyPatch) -> Unsteady:
    hook = Unsteady()
    monkeypatch.setattr(composition, "Webhooks", lambda *_: hook)
    return hook


def widgets() -> dict[str, Any]:
    kind = definition(version(**schema(hostPort="string")), version("v2", **schema(host="string", port="string")))
    kind["spec"]["conversion"] = CONVERSION
    return kind


def widget(name: str) -> dict[str, Any]:
    return {"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": name}, "hostPort": "h:80"}


async def test_a_watch_from_the_newest_state_ends_with_504(hook: Unsteady, autojump_clock: MockClock) -> None:
    async with serving() as server:
        await define(server, widgets())
        created = await server.post(V1, widget("a"))
        for query in (
            "watch=1",
            "watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true",
        ):
            async with server.watch(f"{V2}?{query}") as stream:
                event = await stream.next()
                assert event is not None
                status = event["object"]
                assert (event["type"], status["code"], status["reason"]) == ("ERROR", 504, "Timeout")
                assert status["details"]["causes"][0]["reason"] == "ResourceVersionTooLarge"
                shown = int(created["metadata"]["resourceVersion"]) - 1
                assert status["message"].startswith("Timeout: Too large resource version: ")
                assert f", current: {shown}: " in status["message"]
                assert status["message"].endswith("out of order")
                assert await stream.next() is None


@pytest.mark.parametrize("query", ["resourceVersion=0", "resourceVersion={before}"])
async def test_a_watch_waits_until_the_webhook_works(query: str, hook: Unsteady, autojump_clock: MockClock) -> None:
    async with serving() as server:
        before = (await define(server, widgets()))["metadata"]["resourceVersion"]
        await server.post(V1, widget("b"))
        await server.post(V1, widget("a"))
        async with (
            server.watch(f"{V2}?watch=1&{query.format(before=before)}") as stream,
            trio.open_nursery() as nursery,
        ):
            nursery.start_soon(hook.mend)
            assert [(await stream.event())[:2] for _ in range(2)] == [("ADDED", "b"), ("ADDED", "a")]
            await server.delete(f"{V1}/a")
            assert (await stream.event())[:2] == ("DELETED", "a")


async def test_a_watch_that_waits_sends_no_bookmark_and_ends_in_time(hook: Unsteady, autojump_clock: MockClock) -> None:
    async with serving() as server:
        before = (await define(server, widgets()))["metadata"]["resourceVersion"]
        await server.post(V1, widget("a"))
        query = f"watch=1&allowWatchBookmarks=true&timeoutSeconds=300&resourceVersion={before}"
        async with server.watch(f"{V2}?{query}") as stream:
            begun = trio.current_time()
            assert await stream.next() is None
            assert trio.current_time() - begun == pytest.approx(300, abs=2)


async def test_other_objects_are_listed_by_name_without_the_webhook(hook: Unsteady) -> None:
    async with serving() as server:
        await define(server, widgets())
        await server.post(V1, widget("a"))
        assert (await server.get(f"{V2}?fieldSelector=metadata.name=nobody"))["items"] == []
        assert (await server.ask("GET", f"{V2}?fieldSelector=metadata.name=a")).status == 429


@pytest.mark.parametrize("query", ["", "?resourceVersion=0", "?labelSelector=a", "?limit=5&labelSelector=!a"])
async def test_a_list_from_a_cache_is_to_be_tried_again(hook: Unsteady, query: str) -> None:
    async with serving() as server:
        await define(server, widgets())
        await server.post(V1, widget("a"))
        answer = await server.ask("GET", f"{V2}{query}")
        assert answer.header("retry-after") == "1"
        assert answer.refused(429)["message"] == (
            "storage is (re)initializing: conversion webhook for example.com/v1, Kind=Widget failed: out of order"
        )


async def test_a_page_that_kube_apiserver_reads_from_etcd_is_an_error(hook: Unsteady) -> None:
    async with serving() as server:
        await define(server, widgets())
        await server.post(V1, widget("a"))
        await server.post(V1, widget("b"))
        first = await server.get(f"{V1}?limit=1")
        for query in ("limit=1", f"limit=1&continue={first['metadata']['continue']}"):
            assert (await server.ask("GET", f"{V2}?{query}")).status == 500
        held = first["metadata"]["resourceVersion"]
        assert (await server.ask("GET", f"{V2}?resourceVersionMatch=Exact&resourceVersion={held}")).status == 500
