"""A server in this process with the loops of custom resources, and nothing else in it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast

import trio
from in_process import InProcess, open_server

from kubechronicle.actors.definitions.current import CurrentRegistry
from kubechronicle.ops.server.controllers import definition_loops

CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
WIDGETS = "/apis/example.com/v1/namespaces/default/widgets"


@asynccontextmanager
async def serving(log: Any = None, *, leads: bool = True, **options: Any) -> AsyncIterator[InProcess]:
    """Run a server. ``leads``: with the loops of custom resources."""
    async with open_server(log, **options) as server, trio.open_nursery() as nursery:
        if leads:
            for child in definition_loops(server.store, current(server)):
                await nursery.start(child.run)
        yield server
        nursery.cancel_scope.cancel()


def current(server: InProcess) -> CurrentRegistry:
    return cast("CurrentRegistry", server.store.served)


async def define(server: InProcess, obj: dict[str, Any]) -> dict[str, Any]:
    """Create a definition, and return it when it is established."""
    await server.post(CRDS, obj)
    return await until(server, obj["metadata"]["name"], "Established", "True")


async def until(server: InProcess, name: str, kind: str, state: str, *, below: str = "") -> dict[str, Any]:
    """Return a definition when its condition has this state. ``below``: the path of a branch."""
    path = f"{below}{CRDS}?watch=1&fieldSelector=metadata.name={name}"
    async with server.watch(path) as stream:
        while (event := await stream.next()) is not None:
            conditions = event["object"].get("status", {}).get("conditions") or ()
            if any(one["type"] == kind and one["status"] == state for one in conditions):
                return event["object"]
    raise AssertionError(f"{name} never became {kind}={state}")


async def until_gone(server: InProcess, name: str) -> None:
    """Return when the definition is deleted."""
    reads = server.store.reads
    while (await server.ask("GET", f"{CRDS}/{name}")).status != 404:
        await reads.wait_newer(reads.applied)
