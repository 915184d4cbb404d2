"""A write goes on after the answers of webhooks, unless something that it has read has changed meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from admission.prepared_webhooks import MAPS, Hooks, adding, configure, webhook
from in_process import InProcess, configmap, open_server

from kubechronicle.actors.admission.chain import Attributes, State
from kubechronicle.actors.admission.namespace_lifecycle import NamespaceLifecycle
from kubechronicle.actors.admission.state import HeldLists
from kubechronicle.actors.unfinished_work import EXPECTED, Expectations, Observer, Progress
from kubechronicle.eventlog.entries import Entry


@pytest.fixture
def admitted(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Collect the names of objects each time that NamespaceLifecycle admits them."""
    names: list[str] = []
    admit = NamespaceLifecycle.admit

    def noted(self: NamespaceLifecycle, attributes: Attributes, state: State) -> None:
        names.append(attributes.name)
        admit(self, attributes, state)

    monkeypatch.setattr(NamespaceLifecycle, "admit", noted)
    return names


async def ask_three(server: InProcess, hooks: Hooks) -> None:
    hooks.replies["two"] = adding("/data/two", "2")
    await configure(server, "mutating", webhook("one"), webhook("two"))
    await configure(server, "validating", webhook("last"))


async def test_only_the_first_write_of_a_kind_begins_again(hooks: Hooks, admitted: list[str]) -> None:
    async with open_server() as server:
        await ask_three(server, hooks)
        admitted.clear()
        await server.post(MAPS, configmap("a", x="0"))
        assert admitted == ["a"] * 3  # it begins again once, and again after the patch
        admitted.clear()
        assert (await server.post(MAPS, configmap("b", x="0")))["data"] == {"x": "0", "two": "2"}
        assert admitted == ["b", "b"]  # once more after the patch
        admitted.clear()
        await server.patch(f"{MAPS}/b", {"data": {"y": "1"}})
        admitted.clear()
        await server.patch(f"{MAPS}/b", {"data": {"y": "2"}})
        hooks.replies["two"] = {}
        await server.delete(f"{MAPS}/b")
        await server.delete(f"{MAPS}/a")
    assert admitted[-1] == "a"
    assert admitted.count("a") == 1
    assert hooks.names == ["one", "two", "last"] * 6


async def test_a_write_begins_again_on_a_changed_namespace(hooks: Hooks, admitted: list[str]) -> None:
    async with open_server() as server:
        await ask_three(server, hooks)
        await server.post(MAPS, configmap("a", x="0"))

        async def labelling(request: dict[str, Any]) -> dict[str, Any]:
            if request["name"] == "b" and hooks.names.count("last") == 2:
                await server.patch("/api/v1/namespaces/default", {"metadata": {"labels": {"k": "v"}}})
            return {}

        hooks.replies["last"] = labelling
        admitted.clear()
        await server.post(MAPS, configmap("b", x="0"))
        assert admitted.count("b") == 4  # all again, with the answers that are there
        assert hooks.names == ["one", "two", "last"] * 2


async def test_an_answer_for_a_mutation_serves_the_write_that_begins_again(hooks: Hooks, admitted: list[str]) -> None:
    async with open_server() as server:
        await ask_three(server, hooks)
        await server.post(MAPS, configmap("a", x="0"))

        async def labelling(request: dict[str, Any]) -> dict[str, Any]:
            if request["name"] == "b":
                await server.patch("/api/v1/namespaces/default", {"metadata": {"labels": {"k": "v"}}})
            return {}

        hooks.replies["one"] = labelling
        admitted.clear()
        assert (await server.post(MAPS, configmap("b", x="0")))["data"] == {"x": "0", "two": "2"}
        assert admitted == ["b"] * 3
        assert hooks.names == ["one", "two", "last"] * 2


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


def test_observations() -> None:
    state: dict[str, object] = {"a": object()}
    observer, progress = Observer(), Progress()
    read = observer.reading(state.get)
    read("a")
    observer.progress = progress
    assert read("a") is state["a"]
    assert read("b") is None
    assert progress.is_current()
    state["b"] = object()
    assert not progress.is_current()
    del state["b"]
    observer.uncertain(state.get)("a")
    assert not progress.is_current()


def test_readings_are_compared_after_a_change_alone() -> None:
    state: dict[str, object] = {"a": object(), "b": object()}
    reads: list[str] = []
    changed: dict[str, Callable[[], None]] = {}

    def peek(resource: str) -> object:
        reads.append(resource)
        return state[resource]

    observer = Observer(changed.__setitem__)
    observer.progress = progress = Progress(observer)
    read, clock = observer.reading(peek, of_resource=True), observer.reading(lambda: state["b"])
    assert read("a") is read("a") is state["a"]
    clock()
    assert progress.is_current()
    assert (reads, list(changed)) == (["a"], ["a"])
    changed["a"]()  # another object of the resource
    assert progress.is_current()
    assert progress.is_current()
    assert reads == ["a", "a"]
    state["b"] = object()  # nothing tells of it
    assert not progress.is_current()
    state["a"] = object()
    assert read("a") is not state["a"]  # until its attempt ends
    progress.repeats = True
    assert read("a") is state["a"]
    assert not progress.certain


def test_lists_are_held_until_they_change() -> None:
    state: dict[str, tuple[Entry, ...]] = {"a": (), "b": ()}
    reads: list[str] = []
    changed: dict[str, Callable[[], None]] = {}

    def entries(resource: str, namespace: str) -> tuple[Entry, ...]:
        reads.append(resource)
        return state[resource]

    observer = Observer(changed.__setitem__)
    progress = Progress(observer)
    held = HeldLists(entries, changed.__setitem__, observer.outdate)
    assert held["a"] is held["a"] is state["a"]
    assert held["b"] == ()
    assert reads == ["a", "b"]
    assert progress.is_current()
    changed["a"]()
    assert not progress.is_current()
    assert Progress(observer).is_current()
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


def test_expectations_end() -> None:
    expectations = Expectations()
    assert expectations.begin("a") is None
    expectations.asked("a")
    assert all(expectations.begin("a") is not None for _ in range(EXPECTED + 1))
    assert expectations.begin("a") is None
