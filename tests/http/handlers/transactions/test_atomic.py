"""Transactions: several changes, committed together or not at all."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from in_process import AUTHORIZATION, JOE, InProcess, open_server
from services import open_services

API = "/apis/history.kubechronicle.dev/v1/transactions"
CONFIGMAPS = "/api/v1/namespaces/default/configmaps"


def transaction(*changes: dict[str, Any]) -> dict[str, Any]:
    return {
        "apiVersion": "history.kubechronicle.dev/v1",
        "kind": "Transaction",
        "spec": {"changes": list(changes)},
    }


def configmap(name: str, namespace: str = "default", **data: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": namespace},
        "data": data,
    }


def create(obj: dict[str, Any]) -> dict[str, Any]:
    return {"verb": "create", "object": obj}


def named(verb: str, name: str, **more: Any) -> dict[str, Any]:
    return {"verb": verb, "apiVersion": "v1", "kind": "ConfigMap", "namespace": "default", "name": name, **more}


async def names(server: InProcess) -> set[str]:
    return set(await server.names(CONFIGMAPS))


async def test_all_verbs_in_one_range_of_revisions() -> None:
    async with open_server() as server:
        for name in ("patched", "updated", "deleted", "same"):
            await server.post(CONFIGMAPS, configmap(name, a="1"))
        changes = (
            create(configmap("created")),
            named("patch", "patched", patchType="merge", patch={"data": {"b": "2"}}),
            {"verb": "update", "object": configmap("updated", a="2")},
            named("delete", "deleted"),
            {"verb": "apply", "object": configmap("applied", c="3")},
            named("patch", "same", patchType="json", patch=[{"op": "test", "path": "/data/a", "value": "1"}]),
        )
        status = (await server.post(f"{API}?fieldManager=me", transaction(*changes)))["status"]
        assert [each["outcome"] for each in status["changes"]] == [
            "created",
            "changed",
            "changed",
            "deleted",
            "created",
            "unchanged",
        ]
        first, last = int(status["firstRevision"]), int(status["lastRevision"])
        assert [each["resourceVersion"] for each in status["changes"][:5]] == [
            str(each) for each in range(first, last + 1)
        ]
        assert {"created", "patched", "updated", "applied", "same"} <= await names(server)
        assert "deleted" not in await names(server)
        query = f"fieldSelector=revision.from%3D{first},revision.to%3D{last}&order=oldest"
        revisions = await server.get(f"/apis/history.kubechronicle.dev/v1/revisions?{query}")
        assert {each["request"]["verb"] for each in revisions["items"]} == {"transaction"}
        assert {each["who"]["fieldManager"] for each in revisions["items"]} == {"me"}
        assert len({each["time"] for each in revisions["items"]}) == 1


async def test_each_change_has_its_own_cause() -> None:
    """A change without one has that of the request. A companion change has the cause of its write."""
    async with open_server() as server:
        quotas = "/api/v1/namespaces/default/resourcequotas"
        hard = {"hard": {"count/secrets": "9"}}
        await server.post(quotas, {"metadata": {"name": "q"}, "spec": hard})
        path = f"{quotas}/q/status"
        await server.patch(path, {"status": hard | {"used": {"count/secrets": "0"}}})
        secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s", "namespace": "default"}}
        changes = (
            create(configmap("own")) | {"cause": "3"},
            create(configmap("of-all")),
            create(secret) | {"cause": "2"},
        )
        done = await server.ask("POST", API, transaction(*changes), headers={"Kubechronicle-Cause": "4"})
        status = done.ok()["status"]
        query = f"fieldSelector=revision.from%3D{status['firstRevision']}&order=oldest"
        revisions = (await server.get(f"/apis/history.kubechronicle.dev/v1/revisions?{query}"))["items"]
        causes = {each["object"]["name"]: each["cause"] for each in revisions}
        assert causes == {"own": "3", "of-all": "4", "s": "2", "q": "2"}
        wrong = await server.ask("POST", API, transaction(create(configmap("b")) | {"cause": "x"}))
        assert "spec.changes[0].cause: must be a revision" in wrong.refused(400)["message"]


@pytest.mark.parametrize(
    ("bad", "code", "place"),
    [
        (create(configmap("taken")), 409, "spec.changes[1] (create ConfigMap default/taken): "),
        (create(configmap("UPPER")), 422, "spec.changes[1] (create ConfigMap default/UPPER): "),
        (named("patch", "none", patchType="merge", patch={}), 404, "spec.changes[1] (patch ConfigMap default/none)"),
        (create(configmap("b", "nowhere")), 404, "spec.changes[1] (create ConfigMap nowhere/b): "),
        ({"verb": "update", "object": configmap("taken") | {"metadata": {"name": "taken", "namespace": "default",
            "resourceVersion": "1"}}}, 409, "spec.changes[1] (update ConfigMap default/taken): "),
        (named("patch", "fine", patchType="merge", patch={}), 404, "spec.changes[1] "),
        (create({**configmap("b"), "kind": "Nothing"}), 400, "spec.changes[1]: the server has no kind Nothing"),
        (create({**configmap("b"), "metadata": {"name": "b"}}), 400, "spec.changes[1]: ConfigMap needs a namespace"),
        ({"verb": "move"}, 400, "spec.changes[1].verb: must be one of create, update"),
        ({"verb": "apply", "object": configmap("b")}, 400, "apply needs ?fieldManager=NAME"),
    ],
)  # fmt: skip
async def test_one_rejection_rejects_all(bad: dict[str, Any], code: int, place: str) -> None:
    async with open_server() as server:
        await server.post(CONFIGMAPS, configmap("taken"))
        before = await names(server)
        answer = await server.ask("POST", API, transaction(create(configmap("fine")), bad, create(configmap("last"))))
        body = answer.refused(code)
        assert place in body["message"]
        assert await names(server) == before


async def test_an_object_may_be_changed_once() -> None:
    async with open_server() as server:
        twice = transaction(create(configmap("a")), create(configmap("a")))
        message = (await server.ask("POST", API, twice)).refused(400)["message"]
        assert "it is the object of spec.changes[0]" in message
        assert "a" not in await names(server)


async def test_later_changes_see_earlier_ones() -> None:
    """A namespace, a quota's charges, and addresses of Services."""
    async with open_services() as server:
        space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "fresh"}}
        await server.post(
            API, transaction(create(space), create(configmap("a", "fresh")), create(configmap("b", "fresh")))
        )
        quotas = "/api/v1/namespaces/fresh/resourcequotas"
        hard = {"hard": {"count/configmaps": "4"}}
        await server.post(quotas, {"metadata": {"name": "q"}, "spec": hard})
        await server.patch(f"{quotas}/q/status", {"status": hard | {"used": {"count/configmaps": "2"}}})
        three = [create(configmap(name, "fresh")) for name in ("c", "d", "e")]
        message = (await server.ask("POST", API, transaction(*three))).refused(403)["message"]
        assert message.startswith("spec.changes[2] (create ConfigMap fresh/e): ")
        assert "exceeded quota: q" in message
        await server.post(API, transaction(*three[:2]))
        assert (await server.get(f"{quotas}/q"))["status"]["used"] == {"count/configmaps": "4"}
        services = [
            {
                "apiVersion": "v1",
                "kind": "Service",
                "metadata": {"name": name, "namespace": "fresh"},
                "spec": {"type": "NodePort", "ports": [{"port": 80}]},
            }
            for name in ("one", "two", "three")
        ]
        await server.post(API, transaction(*map(create, services)))
        made = (await server.get("/api/v1/namespaces/fresh/services"))["items"]
        assert len({each["spec"]["clusterIP"] for each in made}) == 3
        assert len({each["spec"]["ports"][0]["nodePort"] for each in made}) == 3


async def test_a_dry_run_changes_nothing() -> None:
    async with open_server() as server:
        before = await names(server)
        made = await server.post(f"{API}?dryRun=All", transaction(create(configmap("a")), create(configmap("b"))))
        assert [each["outcome"] for each in made["status"]["changes"]] == ["created", "created"]
        assert "firstRevision" not in made["status"]
        assert await names(server) == before


async def test_marks_and_finalizers() -> None:
    async with open_server() as server:
        held = configmap("held")
        held["metadata"]["finalizers"] = ["example.com/a"]
        await server.post(CONFIGMAPS, held)
        made = await server.post(API, transaction(named("delete", "held"), create(configmap("new"))))
        assert [each["outcome"] for each in made["status"]["changes"]] == ["marked", "created"]
        assert (await server.get(f"{CONFIGMAPS}/held"))["metadata"]["deletionTimestamp"]
        last = named("patch", "held", patchType="merge", patch={"metadata": {"finalizers": None}})
        await server.post(API, transaction(last, named("delete", "new")))
        assert not {"held", "new"} & await names(server)


async def test_each_change_needs_its_right() -> None:
    """Joe may ask for transactions, and create configmaps, but no secrets."""
    rbac = "/apis/rbac.authorization.k8s.io/v1"
    rules = [
        {"apiGroups": ["history.kubechronicle.dev"], "resources": ["transactions"], "verbs": ["create"]},
        {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["create"]},
    ]
    async with open_server(authorization=AUTHORIZATION) as server:
        asked = transaction(create(configmap("a")))
        assert (await server.ask("POST", API, asked, token=JOE)).refused(403)["details"]["kind"] == "transactions"
        await server.post(f"{rbac}/clusterroles", {"metadata": {"name": "r"}, "rules": rules})
        role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "r"}
        subjects = [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "joe"}]
        await server.post(
            f"{rbac}/clusterrolebindings", {"metadata": {"name": "b"}, "roleRef": role, "subjects": subjects}
        )
        secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s", "namespace": "default"}}
        both = transaction(create(configmap("a")), create(secret))
        refused = (await server.ask("POST", API, both, token=JOE)).refused(403)
        assert refused["message"].startswith("spec.changes[1] (create Secret default/s): secrets is forbidden: User ")
        assert await names(server) == set()
        (await server.ask("POST", API, asked, token=JOE)).ok()
        applied = transaction({"verb": "apply", "object": configmap("b")})
        refused = (await server.ask("POST", f"{API}?fieldManager=me", applied, token=JOE)).refused(403)
        assert 'cannot patch resource "configmaps"' in refused["message"]


async def test_simultaneous_transactions_over_the_same_objects() -> None:
    """Each adds one to two counters, in opposite orders: none is lost, none ends half, and nobody waits for ever."""
    rounds = 12
    async with open_server() as server:
        for name in ("x", "y"):
            await server.post(CONFIGMAPS, configmap(name, n="0"))

        async def add(order: tuple[str, str], done: list[int]) -> None:
            while True:
                found = {name: await server.get(f"{CONFIGMAPS}/{name}") for name in order}
                for obj in found.values():
                    obj["data"]["n"] = str(int(obj["data"]["n"]) + 1)
                changes = [{"verb": "update", "object": found[name]} for name in order]
                answer = await server.ask("POST", API, transaction(*changes))
                if answer.status == 201:
                    done.append(1)
                    return
                assert answer.status == 409, answer.content

        done: list[int] = []
        with trio.fail_after(60):
            async with trio.open_nursery() as nursery:
                for number in range(rounds):
                    nursery.start_soon(add, ("x", "y") if number % 2 else ("y", "x"), done)
        counts = [(await server.get(f"{CONFIGMAPS}/{name}"))["data"]["n"] for name in ("x", "y")]
        assert (len(done), counts) == (rounds, [str(rounds)] * 2)
