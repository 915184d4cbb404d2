"""PATCH with application/apply-patch+yaml through the handlers: creation, races, dry runs, subresources, rejections."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from in_process import MAPS, PROTOBUF, Answer, InProcess, open_server

from kubechronicle.api.codecs import protobuf

DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"
TYPE = {"content-type": "application/apply-patch+yaml"}


def config_map(**data: str) -> Any:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": data}


def deployment(**spec: Any) -> Any:
    template = {"metadata": {"labels": {"app": "a"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    spec = {"selector": {"matchLabels": {"app": "a"}}, "template": template, **spec}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "a"}, "spec": spec}


async def apply(server: InProcess, target: str, body: Any, manager: str = "m1", query: str = "") -> Answer:
    return await server.ask("PATCH", f"{target}?fieldManager={manager}{query}", body, headers=TYPE)


async def test_creates_updates_and_leaves_alone() -> None:
    async with open_server() as server:
        created = await apply(server, f"{MAPS}/a", config_map(k="v"))
        assert created.status == 201
        again = await apply(server, f"{MAPS}/a", config_map(k="v"))
        assert (again.status, again.json()) == (200, created.json())
        changed = (await apply(server, f"{MAPS}/a", b"apiVersion: v1\nkind: ConfigMap\ndata: {k: w}\n")).ok()
        assert changed["data"] == {"k": "w"}
        assert changed["metadata"]["uid"] == created.json()["metadata"]["uid"]


async def test_conflict_and_force() -> None:
    async with open_server() as server:
        await apply(server, f"{MAPS}/a", config_map(k="v"))
        refused = (await apply(server, f"{MAPS}/a", config_map(k="w"), "m2")).refused(409)
        assert refused["message"] == 'Apply failed with 1 conflict: conflict with "m1": .data.k'
        assert refused["details"]["causes"][0]["reason"] == "FieldManagerConflict"
        assert (await apply(server, f"{MAPS}/a", config_map(k="w"), "m2", "&force=true")).ok()["data"] == {"k": "w"}


async def test_of_two_that_create_one_updates() -> None:
    async with open_server() as server:
        codes: list[int] = []

        async def one(manager: str, **data: str) -> None:
            codes.append((await apply(server, f"{MAPS}/a", config_map(**data), manager)).status)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(lambda: one("m1", k="v"))
            nursery.start_soon(lambda: one("m2", l="w"))
        assert sorted(codes) == [200, 201]
        assert (await server.get(f"{MAPS}/a"))["data"] == {"k": "v", "l": "w"}


async def test_dry_run_stores_nothing() -> None:
    async with open_server() as server:
        assert (await apply(server, f"{MAPS}/a", config_map(k="v"), query="&dryRun=All")).status == 201
        (await server.ask("GET", f"{MAPS}/a")).refused(404)
        await apply(server, f"{MAPS}/a", config_map(k="v"))
        assert (await apply(server, f"{MAPS}/a", config_map(k="w"), query="&dryRun=All")).ok()["data"] == {"k": "w"}
        assert (await server.get(f"{MAPS}/a"))["data"] == {"k": "v"}


async def test_scale_and_status() -> None:
    async with open_server() as server:
        target = f"{DEPLOYMENTS}/a"
        scale = {"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": "a"}, "spec": {"replicas": 5}}
        for below, body in (("scale", scale), ("status", deployment())):
            (await apply(server, f"{target}/{below}", body)).refused(404)
        await apply(server, target, deployment(replicas=2))
        (await apply(server, f"{target}/scale", scale, "scaler")).refused(409)
        answer = (await apply(server, f"{target}/scale", scale, "scaler", "&force=true")).ok()
        assert (answer["kind"], answer["spec"]) == ("Scale", {"replicas": 5})
        stored = await server.get(target)
        owners = {entry["manager"]: entry.get("subresource") for entry in stored["metadata"]["managedFields"]}
        assert (stored["spec"]["replicas"], owners) == (5, {"m1": None, "scaler": "scale"})


async def test_refusals_before_anything_is_read() -> None:
    async with open_server() as server:
        answer = await server.ask("PATCH", f"{MAPS}/a", config_map(k="v"), headers=TYPE)
        assert answer.refused(422)["details"]["causes"][0]["field"] == "fieldManager"
        merge = {"content-type": "application/merge-patch+json"}
        (await server.ask("PATCH", f"{MAPS}/a?force=true", {"data": {}}, headers=merge)).refused(422)
        duplicate = b"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {k: a, k: b}\n"
        (await apply(server, f"{MAPS}/a", duplicate, query="&fieldValidation=Strict")).refused(400)
        warned = await apply(server, f"{MAPS}/a", duplicate)
        assert warned.header("warning") == '299 - "line 4: key \\"k\\" already set in map"'
        (await apply(server, "/api/v1/namespaces/none/configmaps/a", config_map(k="v"))).refused(404)


@pytest.mark.parametrize("secrets", [[{}], [{"name": "c"}]])
async def test_an_object_whose_fields_have_no_manager_must_have_keys(secrets: list[dict[str, str]]) -> None:
    async with open_server() as server:
        accounts = "/api/v1/namespaces/default/serviceaccounts"
        made = await server.post(accounts, {"metadata": {"name": "b"}, "secrets": [{"name": "x"}, {}]})
        assert "managedFields" not in made["metadata"]
        body = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "b"}}
        keyless = (
            'associative list with keys has an element that omits all key fields ["name"] '
            "(and doesn't have default values for any key fields)"
        )
        for config in (body, {**body, "secrets": secrets}):
            refusal = (await apply(server, f"{accounts}/b", config, "m")).refused(500)
            assert refusal["message"] == (
                "failed to create manager for existing fields: failed to convert new object "
                f"(default/b; /v1, Kind=ServiceAccount) to smd typed: .secrets: element 1: {keyless}"
            )
        assert await server.get(f"{accounts}/b") == made


async def test_a_patch_with_repeated_owners_takes_them_over() -> None:
    async with open_server() as server:
        owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "b", "uid": "u"}
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "ownerReferences": [owner]}}
        (await apply(server, f"{MAPS}/a", body)).ok()
        patch = {"metadata": {"ownerReferences": [owner, owner]}}
        headers = {"content-type": "application/merge-patch+json"}
        answer = await server.ask("PATCH", f"{MAPS}/a?fieldManager=other", patch, headers=headers)
        assert "contains duplicate entries after mutating admission" in answer.header_all("warning")[0]
        meta = answer.ok()["metadata"]
        assert meta["ownerReferences"] == [owner]
        assert [entry["manager"] for entry in meta["managedFields"] if entry["fieldsV1"]] == ["other"]


async def test_an_apply_to_a_status_that_is_absent_reads_the_configuration_first() -> None:
    async with open_server() as server:
        target = "/api/v1/namespaces/default/services/a/status"
        body = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "a"}, "status": {"conditions": 1}}
        error = (await apply(server, target, body)).refused(500)
        assert ".status.conditions: expected list" in error["message"]
        (await apply(server, target, {**body, "status": {}})).refused(404)
        (await apply(server, target, {**body, "kind": "Pod"})).refused(400)


async def test_a_status_that_is_absent_is_missed_first_if_no_update_creates_its_object() -> None:
    async with open_server() as server:
        target = "/api/v1/namespaces/default/pods/a/status"
        body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, "status": {"conditions": 1}}
        (await apply(server, target, body)).refused(404)


async def test_managed_fields_that_are_no_json_are_dropped() -> None:
    """Only protobuf can hold them: their bytes are not looked at when a body is decoded."""
    fields, headers = {"f:data": {}}, {"content-type": PROTOBUF}
    entry = {"manager": "m", "operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1", "fieldsV1": fields}

    def body(name: str, **data: str) -> bytes:
        metadata = {"name": name, "managedFields": [entry]}
        made = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}
        return protobuf.encode(made).replace(b'{"f:data":{}}', b'{"f:data":{}x')

    async with open_server() as server:
        made = (await server.ask("POST", f"{MAPS}?fieldManager=me", body("a"), headers=headers)).ok()
        assert "managedFields" not in made["metadata"]
        (await server.ask("POST", f"{MAPS}?fieldManager=me", body("b", k="v"), headers=headers)).ok()
        changed = (await server.ask("PUT", f"{MAPS}/b?fieldManager=me", body("b", k="w"), headers=headers)).ok()
        assert [each["manager"] for each in changed["metadata"]["managedFields"]] == ["me"]


async def test_an_apply_needs_keys_in_lists_that_it_does_not_change() -> None:
    """The live object has owners, and an update has brought an item without a key."""
    async with open_server() as server:
        accounts = "/api/v1/namespaces/default/serviceaccounts"
        await server.post(f"{accounts}?fieldManager=m", {"metadata": {"name": "b"}, "secrets": [{"name": "x"}]})
        written = await server.put(f"{accounts}/b", {"metadata": {"name": "b"}, "secrets": [{"name": "x"}, {}]})
        assert written["metadata"]["managedFields"]
        body = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "b", "labels": {"a": "b"}}}
        refusal = (await apply(server, f"{accounts}/b", body, "m")).refused(500)
        assert refusal["message"] == (
            "failed to create typed live object (default/b; /v1, Kind=ServiceAccount): .secrets: element 1: "
            'associative list with keys has an element that omits all key fields ["name"] '
            "(and doesn't have default values for any key fields)"
        )
        await server.put(f"{accounts}/b", {"metadata": {"name": "b"}, "secrets": [{"name": "x"}]})
        (await apply(server, f"{accounts}/b", body, "m")).ok()
