"""Extents of searches for revisions: counts, beginnings, unknown fields; and revisions in groups and without noise."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

import pytest
from in_process import AUTHORIZATION, JOE, InProcess, configmap, open_server

API = "/apis/history.kubechronicle.dev/v1"
REVISIONS = f"{API}/namespaces/shop/revisions"
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/shop/leases"


async def made(server: InProcess) -> None:
    """Make a ConfigMap in three versions and a Lease."""
    await server.post("/api/v1/namespaces", {"metadata": {"name": "shop"}})
    path = "/api/v1/namespaces/shop/configmaps"
    await server.post(path, configmap("a", "shop"))
    for value in ("x", "y"):
        await server.patch(f"{path}/a", {"data": {"colour": value}})
    await server.post(LEASES, {"metadata": {"name": "holder"}})


async def extent(server: InProcess, selector: str, path: str = REVISIONS) -> Any:
    return await server.get(f"{path}?summary=extent&fieldSelector={quote(selector)}")


async def test_an_extent_counts_the_changes_of_the_named_objects(autojump_clock: Any) -> None:
    async with open_server() as server:
        await made(server)
        found = await extent(server, "object.resource=configmaps,object.name=a,who.username=nobody,operation=Delete")
        assert found["kind"] == "RevisionExtent"
        assert (found["complete"], found["since"]["revision"]) == (True, "1")
        assert found["searched"] == found["held"]
        assert found["held"]["operations"] == {"Create": 1, "Update": 2}
        first, last = (int(found["held"][name]["revision"]) for name in ("first", "last"))
        assert last == first + 2
        bounded = await extent(server, f"object.name=a,revision.from={last}")
        assert (bounded["searched"]["changes"], bounded["held"]["changes"]) == (1, 3)
        assert bounded["bounds"]["after"] == str(first + 1)
        none = await extent(server, "object.resource=configmaps,object.name=b")
        assert none["held"] == {"changes": 0, "operations": {}}
        assert none["message"].startswith("the history has no change of it; it begins at 2")
        assert found["message"].startswith("3 changes were searched, from 2")


async def test_an_extent_names_the_beginning_of_shorter_histories(autojump_clock: Any) -> None:
    async with open_server() as server:
        await made(server)
        lease = await server.get(f"{LEASES}/holder")
        mark = int(lease["metadata"]["resourceVersion"])
        server.log.store.compact(mark, resource="leases.coordination.k8s.io")
        await server.patch(f"{LEASES}/holder", {"spec": {"holderIdentity": "me"}})
        found = await extent(server, "metadata.namespace=shop")
        assert (found["complete"], found["since"]["revision"]) == (True, "1")
        [later] = found["later"]
        assert (later["resource"], later["since"]["revision"]) == ("leases.coordination.k8s.io", str(mark))
        assert later["since"]["time"]
        leases = await extent(server, "object.resource=leases")
        assert (leases["complete"], leases["since"]["revision"]) == (False, str(mark))


@pytest.mark.parametrize(
    ("path", "nearest"),
    [("data.color", "data.colour"), ("colour", "data.colour"), ("metadta.name", "metadata.name"), ("zzzzzzzz", "")],
)
async def test_a_field_that_no_version_had_is_unknown(autojump_clock: Any, path: str, nearest: str) -> None:
    async with open_server() as server:
        await made(server)
        found = await extent(server, f"object.resource=configmaps,object.name=a,changed={path}")
        assert found["fields"] == {"versions": 3, "whole": True, "unknown": [{"field": path, "nearest": nearest}]}
        known = await extent(server, "object.resource=configmaps,object.name=a,changed=data.colour")
        assert known["fields"]["unknown"] == []


async def test_fields_of_unreadable_objects_stay_hidden(autojump_clock: Any) -> None:
    async with open_server(authorization=AUTHORIZATION) as server:
        await made(server)
        await allow(server, "revisions")
        query = f"summary=extent&fieldSelector={quote('object.name=a,changed=data.color')}"
        found = (await server.ask("GET", f"{REVISIONS}?{query}", token=JOE)).ok()
        assert found["held"]["changes"] == 3
        assert found["fields"] == {"versions": 0, "whole": True, "unknown": [{"field": "data.color", "nearest": ""}]}


async def test_groups_count_by_several_columns(autojump_clock: Any) -> None:
    async with open_server() as server:
        await made(server)
        path = f"{REVISIONS}?summary=groups&by=resource,operation&fieldSelector=object.name%3Da"
        found = await server.get(path)
        assert (found["kind"], found["total"], found["truncated"]) == ("RevisionGroups", 3, False)
        assert [(each["resource"], each["operation"], each["changes"]) for each in found["groups"]] == [
            ("configmaps", "Update", 2),
            ("configmaps", "Create", 1),
        ]
        assert int(found["groups"][0]["last"]) == int(found["groups"][1]["first"]) + 2
        for query in ("by=colour", "by=resource&fieldSelector=changed%3Ddata"):
            (await server.ask("GET", f"{REVISIONS}?summary=groups&{query}")).refused(400)


async def test_tables_leave_out_noise_and_say_so(autojump_clock: Any) -> None:
    async with open_server() as server:
        await made(server)

        async def kinds(selector: str, accept: str = TABLE) -> tuple[set[str], list[str]]:
            path = f"{REVISIONS}?fieldSelector={quote(selector)}"
            answer = await server.ask("GET", path, headers={"accept": accept})
            found = answer.ok()
            rows = (
                [row["cells"][4] for row in found["rows"]]
                if "rows" in found
                else [item["object"]["resource"] for item in found["items"]]
            )
            return {row.partition(".")[0].partition("/")[0] for row in rows}, answer.header_all("warning")

        shown, warnings = await kinds("")
        assert "leases" not in shown
        assert "configmaps" in shown
        assert "noise=shown" in warnings[0]
        for selector in ("noise=shown", "object.resource=leases", "object.name=holder"):
            shown, warnings = await kinds(selector)
            assert ("leases" in shown, warnings) == (True, [])
        assert "leases" in (await kinds("", "application/json"))[0]
        assert "leases" not in (await kinds("noise=hidden", "application/json"))[0]
        shown, warnings = await kinds("who.username=nobody")
        assert not shown
        assert "nothing was found" in warnings[1]
        assert "were searched, from" in warnings[1]


async def test_incidents_and_trees_hide_objects_that_may_not_be_read(autojump_clock: Any) -> None:
    async with open_server(authorization=AUTHORIZATION) as server:
        await made(server)
        path = "/api/v1/namespaces/shop/configmaps"
        uid = (await server.get(f"{path}/a"))["metadata"]["uid"]
        owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "a", "uid": uid}
        secret = {"metadata": {"name": "s", "ownerReferences": [owner]}, "stringData": {"a": "hush"}}
        await server.post("/api/v1/namespaces/shop/secrets", secret)
        await server.patch("/api/v1/namespaces/shop/secrets/s", {"stringData": {"a": "quiet"}})
        await allow(server, "revisions", "configmaps")
        tree = f"{REVISIONS}?summary=tree&fieldSelector={quote('object.resource=configmaps,object.name=a')}"
        whole = (await server.ask("GET", tree)).ok()
        assert [each["resource"] for each in whole["objects"]] == ["configmaps", "secrets"]
        assert b"aHVzaA" not in (await server.ask("GET", tree)).body
        seen = (await server.ask("GET", tree, token=JOE)).ok()
        assert [each["resource"] for each in seen["objects"]] == ["configmaps"]
        incident = (await server.ask("GET", f"{REVISIONS}?summary=incident", token=JOE)).ok()
        secrets = [each for each in incident["changes"] if each["object"]["resource"] == "secrets"]
        assert len(secrets) == 2
        assert all(each["redacted"] and "changed" not in each and "because" not in each for each in secrets)
        assert "leases" not in {each["object"]["resource"] for each in incident["changes"]}
        assert b"aHVzaA" not in (await server.ask("GET", f"{REVISIONS}?summary=incident")).body
        for query in ("summary=tree", "summary=tree&fieldSelector=object.name%3Da", "summary=incident&labelSelector=a"):
            (await server.ask("GET", f"{REVISIONS}?{query}")).refused(400)
        (await server.ask("GET", tree.replace("namespaces/shop/", ""))).refused(400)


async def allow(server: InProcess, resource: str, core: str = "") -> None:
    """Allow joe to list revisions, and to get objects of a resource of the core group, in the namespace."""
    rbac = "/apis/rbac.authorization.k8s.io/v1/namespaces/shop"
    rules = [{"apiGroups": ["history.kubechronicle.dev"], "resources": [resource], "verbs": ["list"]}]
    if core:
        rules.append({"apiGroups": [""], "resources": [core], "verbs": ["get"]})
    await server.post(f"{rbac}/roles", {"metadata": {"name": "auditor"}, "rules": rules})
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "auditor"}
    subject = {"kind": "User", "name": "joe", "apiGroup": "rbac.authorization.k8s.io"}
    await server.post(f"{rbac}/rolebindings", {"metadata": {"name": "joe"}, "roleRef": role, "subjects": [subject]})
