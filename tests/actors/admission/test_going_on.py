"""A write goes on after the answers of webhooks, where it asked them. A changed object is decided anew."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from admission.prepared_webhooks import MAPS, Hooks, adding, configure, webhook
from in_process import InProcess, configmap, open_server

from kubechronicle.actors.admission.chain import AdmissionState, Attributes
from kubechronicle.actors.admission.namespace_lifecycle import NamespaceLifecycle
from kubechronicle.actors.admission.state import HeldLists
from kubechronicle.eventlog.entries import Entry


@pytest.fixture
def admitted(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Collect the names of objects each time that NamespaceLifecycle admits them."""
    names: list[str] = []
    admit = NamespaceLifecycle.admit

    def noted(self: NamespaceLifecycle, attributes: Attributes, state: AdmissionState) -> None:
        names.append(attributes.name)
        admit(self, attributes, state)

    monkeypatch.setattr(NamespaceLifecycle, "admit", noted)
    return names


async def ask_three(server: InProcess, hooks: Hooks) -> None:
    hooks.replies["two"] = adding("/data/two", "2")
    await configure(server, "mutating", webhook("one"), webhook("two"))
    await configure(server, "validating", webhook("last"))


async def test_a_write_is_admitted_once(hooks: Hooks, admitted: list[str]) -> None:
    async with open_server() as server:
        await ask_three(server, hooks)
        admitted.clear()
        assert (await server.post(MAPS, configmap("a", x="0")))["data"] == {"x": "0", "two": "2"}
        assert admitted == ["a", "a"]  # once more after the patch
        admitted.clear()
        await server.patch(f"{MAPS}/a", {"data": {"y": "1"}})
        hooks.replies["two"] = {}
        await server.delete(f"{MAPS}/a")
    assert admitted == ["a"]  # it looks at no update
    assert hooks.names == ["one", "two", "last"] * 3


async def test_a_write_goes_on_though_its_namespace_has_changed(hooks: Hooks, admitted: list[str]) -> None:
    async with open_server() as server:
        await ask_three(server, hooks)

        async def labelling(request: dict[str, Any]) -> dict[str, Any]:
            await server.patch("/api/v1/namespaces/default", {"metadata": {"labels": {"k": "v"}}})
            return {}

        hooks.replies["one"] = labelling
        admitted.clear()
        assert (await server.post(MAPS, configmap("b", x="0")))["data"] == {"x": "0", "two": "2"}
        assert admitted.count("b") == 2  # once more after the patch
        assert hooks.names == ["one", "two", "last"]


async def test_no_lock_is_held_while_a_webhook_is_asked(hooks: Hooks) -> None:
    async with open_server() as server:
        quota = {"metadata": {"name": "q"}, "spec": {"hard": {"count/configmaps": "10"}}}
        await server.post("/api/v1/namespaces/default/resourcequotas", quota)
        path = "/api/v1/namespaces/default/resourcequotas/q"
        await server.patch(
            f"{path}/status", {"status": {"hard": quota["spec"]["hard"], "used": {"count/configmaps": "0"}}}
        )
        await configure(server, "mutating", webhook("one"))
        await server.post(MAPS, configmap("a"))

        async def writing(request: dict[str, Any]) -> dict[str, Any]:
            if request["name"] == "b":
                await server.post(MAPS, configmap("c"))  # it needs the same lock
            return {}

        hooks.replies["one"] = writing
        await server.post(MAPS, configmap("b"))
        assert hooks.names == ["one"] * 3
        assert (await server.get(path))["status"]["used"] == {"count/configmaps": "3"}


async def test_a_denied_write_is_not_asked_about_again(hooks: Hooks) -> None:
    """It is admitted once more on the newest state, with the answers that are there."""
    async with open_server() as server:
        await ask_three(server, hooks)
        await server.post(MAPS, configmap("a", x="0"))
        hooks.replies["last"] = {"allowed": False}
        answer = await server.ask("POST", MAPS, configmap("b", x="0"))
        assert "denied the request" in answer.refused(400)["message"]
        assert hooks.names == ["one", "two", "last"] * 2


async def test_a_namespace_that_ends_while_a_webhook_is_asked_takes_no_object(hooks: Hooks) -> None:
    async with open_server() as server:
        await server.post("/api/v1/namespaces", {"metadata": {"name": "n", "finalizers": ["example.com/f"]}})
        await ask_three(server, hooks)
        maps = "/api/v1/namespaces/n/configmaps"
        await server.post(maps, {"metadata": {"name": "a"}, "data": {"x": "0"}})

        async def ending(request: dict[str, Any]) -> dict[str, Any]:
            await server.delete("/api/v1/namespaces/n")
            return {}

        hooks.replies["last"] = ending
        answer = await server.ask("POST", maps, {"metadata": {"name": "b"}, "data": {"x": "0"}})
    assert "because it is being terminated" in answer.refused(403)["message"]


async def test_a_changed_object_is_decided_anew(hooks: Hooks) -> None:
    async with open_server() as server:
        await ask_three(server, hooks)
        await server.post(MAPS, configmap("a", x="0"))
        await server.patch(f"{MAPS}/a", {"data": {"y": "1"}})

        async def interfering(request: dict[str, Any]) -> dict[str, Any]:
            if request["object"]["data"].get("z") and "w" not in request["oldObject"]["data"]:
                await server.patch(f"{MAPS}/a", {"data": {"w": "3"}})
            return {}

        hooks.replies["last"] = interfering
        patched = await server.patch(f"{MAPS}/a", {"data": {"z": "2"}})
    assert patched["data"] == {"x": "0", "y": "1", "z": "2", "w": "3", "two": "2"}
    assert hooks.last()["oldObject"]["data"] == {"x": "0", "y": "1", "w": "3", "two": "2"}


def test_lists_are_held_until_they_change() -> None:
    state: dict[str, tuple[Entry, ...]] = {"a": (), "b": ()}
    reads: list[str] = []
    changed: dict[str, Callable[[], None]] = {}

    def entries(resource: str, namespace: str) -> tuple[Entry, ...]:
        reads.append(resource)
        return state[resource]

    held = HeldLists(entries, changed.__setitem__)
    assert held["a"] is held["a"] is state["a"]
    assert held["b"] == ()
    assert reads == ["a", "b"]
    changed["a"]()
    assert (held["a"], held["b"]) == ((), ())
    assert reads == ["a", "b", "a"]


def test_lists_are_read_again_where_nothing_tells_of_changes() -> None:
    reads: list[str] = []

    def entries(resource: str, namespace: str) -> tuple[Entry, ...]:
        reads.append(resource)
        return ()

    held = HeldLists(entries)
    assert held["a"] == held["a"] == ()
    assert reads == ["a", "a"]
