"""NamespaceAutoProvision, which creates the missing namespaces of new objects."""

from __future__ import annotations

from in_process import open_server
from trio.testing import MockClock

from kubechronicle.actors.admission import plugins

MAPS = "/api/v1/namespaces/{}/configmaps"
ENABLED = plugins.DEFAULT | {"NamespaceAutoProvision", "NamespaceExists"}


async def test_missing_namespaces_are_provided(autojump_clock: MockClock) -> None:
    async with open_server(admission=ENABLED) as server:
        dry = await server.ask("POST", MAPS.format("new") + "?dryRun=All", {"metadata": {"name": "a"}})
        assert dry.refused(404)["message"] == 'namespaces "new" not found'
        await server.post(MAPS.format("new"), {"metadata": {"name": "a"}})
        assert (await server.get("/api/v1/namespaces/new"))["status"]["phase"] == "Active"
        (await server.ask("POST", MAPS.format("No_Name"), {"metadata": {"name": "a"}})).refused(403)
