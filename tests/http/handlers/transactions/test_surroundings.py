"""Transactions among webhooks, other servers, Pods, and clients that give up."""

from __future__ import annotations

from typing import Any

import pytest
from admission.prepared_webhooks import Hooks, adding, configure, webhook
from in_process import configmap, open_server, pod

from kubechronicle.api.errors.status import StatusError
from kubechronicle.api.history.transactions import parse_changes
from kubechronicle.eventlog.memory.store import MemoryStore
from kubechronicle.ops.server import composition

API = "/apis/history.kubechronicle.dev/v1/transactions"
MAPS = "/api/v1/namespaces/default/configmaps"
PODS = "/api/v1/namespaces/default/pods"


def transaction(*changes: dict[str, Any]) -> dict[str, Any]:
    return {
        "apiVersion": "history.kubechronicle.dev/v1",
        "kind": "Transaction",
        "spec": {"changes": list(changes)},
    }


def create(obj: dict[str, Any], kind: str = "ConfigMap") -> dict[str, Any]:
    metadata = {"namespace": "default", **obj["metadata"]}
    return {"verb": "create", "object": {"apiVersion": "v1", "kind": kind, **obj, "metadata": metadata}}


@pytest.fixture
def hooks(monkeypatch: pytest.MonkeyPatch) -> Hooks:
    found = Hooks()
    monkeypatch.setattr(composition, "Webhooks", lambda outgoing, find_service: found)
    return found


async def test_webhooks_are_asked_once_for_each_change(hooks: Hooks) -> None:
    async def judged(request: dict[str, Any]) -> dict[str, Any]:
        return {"allowed": request["name"] != "bad", "status": {"message": "no", "code": 403}}

    hooks.replies = {"adds": adding("/data/added", "1"), "judges": judged}
    async with open_server() as server:
        await configure(server, "mutating", webhook("adds"))
        await configure(server, "validating", webhook("judges"))
        await server.post(API, transaction(create(configmap("a", x="0")), create(configmap("b", x="0"))))
        assert hooks.names == ["adds", "judges"] * 2
        assert (await server.get(f"{MAPS}/b"))["data"] == {"x": "0", "added": "1"}
        some = transaction(create(configmap("c", x="0")), create(configmap("bad", x="0")))
        message = (await server.ask("POST", API, some)).refused(403)["message"]
        assert message.startswith("spec.changes[1] (create ConfigMap default/bad): admission webhook")
        assert set(await server.names(MAPS)) == {"a", "b"}


async def test_another_server_comes_first() -> None:
    """The view of the second server lags. Its transaction is prepared again on the newest state."""
    store = MemoryStore()
    async with open_server(store) as first, open_server(store) as second:
        await first.post(MAPS, configmap("a", n="1"))
        await first.patch(f"{MAPS}/a", {"data": {"n": "2"}})
        change = {"verb": "patch", "apiVersion": "v1", "kind": "ConfigMap", "namespace": "default", "name": "a"}
        tested = [{"op": "test", "path": "/data/n", "value": "2"}, {"op": "add", "path": "/data/m", "value": "3"}]
        both = transaction(create(configmap("b")), {**change, "patchType": "json", "patch": tested})
        await second.post(API, both)
        assert (await first.get(f"{MAPS}/a"))["data"] == {"n": "2", "m": "3"}
        taken = transaction(create(configmap("c")), create(configmap("b")))
        assert (await first.ask("POST", API, taken)).refused(409)["reason"] == "AlreadyExists"
        assert set(await first.names(MAPS)) == {"a", "b"}


async def test_a_pod_that_can_go_at_once_is_removed() -> None:
    async with open_server() as server:
        await server.post("/api/v1/namespaces/default/serviceaccounts", {"metadata": {"name": "default"}})
        await server.post(PODS, pod("p"))
        gone = {"verb": "delete", "apiVersion": "v1", "kind": "Pod", "namespace": "default", "name": "p"}
        status = (await server.post(API, transaction(gone, create(pod("q"), "Pod"))))["status"]
        assert [each["outcome"] for each in status["changes"]] == ["deleted", "created"]
        assert await server.names(PODS) == ["q"]


async def test_names_that_the_server_completes() -> None:
    async with open_server() as server:
        named = create({"metadata": {"generateName": "x-"}})
        status = (await server.post(API, transaction(named, named, named)))["status"]
        names = [each["name"] for each in status["changes"]]
        assert sorted(names) == sorted(await server.names(MAPS))
        assert len(set(names)) == 3


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ([], "spec.changes must be a list with at least one change"),
        ([create(configmap("a"))] * 101, "spec.changes has 101 changes: at most 100 can be committed together"),
        (["create"], r"spec.changes\[0\] must be an object"),
        ([{"verb": "create", "object": "a"}], r"spec.changes\[0\].object: must be an object with metadata"),
        ([{**create(configmap("a")), "force": True}], r"spec.changes\[0\].force: create has no such field"),
        ([{"verb": "delete", "apiVersion": "v1", "kind": "Pod"}], r"spec.changes\[0\]: name is missing"),
        ([{"verb": "delete", "apiVersion": "v1", "kind": "Pod", "name": 7}], "name: must be a string"),
        ([{"verb": "delete", "apiVersion": "v1", "kind": "Pod", "name": "p", "preconditions": {"uid": 1}}],
            r"spec.changes\[0\].preconditions: must have strings"),
        ([{"verb": "patch", "apiVersion": "v1", "kind": "Pod", "name": "p", "patch": {}}], "patchType must be one of"),
        ([{"verb": "apply", "force": 1, "object": {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}}}],
            "force: must be true or false"),
    ],
)  # fmt: skip
def test_mistakes(changes: list[Any], why: str) -> None:
    with pytest.raises(StatusError, match=why):
        parse_changes(transaction(*changes), dry_run=False)
