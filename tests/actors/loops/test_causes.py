"""Every write of the server's loops records its cause, and the chain of causes ends at the request that began it."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

import pytest
from in_process import InProcess, configmap, open_server
from trio import sleep
from trio.testing import MockClock

from kubechronicle.eventlog.memory.memory_log import MemoryLog
from kubechronicle.eventlog.records import Operation, Record
from kubechronicle.ops.server.controllers import CONTROLLERS

ALL = frozenset(CONTROLLERS)
SPACES = "/api/v1/namespaces"
QUIET = 100.0
"""Virtual seconds after which the loops have nothing more to do."""
REVISIONS = "/apis/history.kubechronicle.dev/v1"


def running(log: MemoryLog | None = None) -> Any:
    return open_server(log, loops=True, controllers=ALL, root_ca=b"-----BEGIN CERTIFICATE-----\n")


def rows(server: InProcess, *, after: int = 0) -> list[Record]:
    store = server.log.store
    return list(store.rows(after=after))


def cause(server: InProcess, revision: int) -> int:
    return server.log.store.who[revision].cause


def origin(server: InProcess, revision: int) -> int:
    """Return the first cause of a change, by recorded causes and marks alone."""
    by_revision = {row.revision: row for row in rows(server)}
    while True:
        row = by_revision[revision]
        marked = b'"deletionTimestamp"' in row.body and row.operation is Operation.DELETE
        earlier = next(
            (each.revision for each in rows(server) if each.uid == row.uid and b'"deletionTimestamp"' in each.body), 0
        )
        following = earlier if marked and earlier < revision else cause(server, revision)
        if not following:
            return revision
        assert following < revision
        revision = following


async def test_aggregated_roles_follow_the_change_of_a_part(autojump_clock: MockClock) -> None:
    """Also those of the first start."""
    async with running() as server:
        await sleep(QUIET)
        updates = [
            row
            for row in rows(server)
            if row.key.resource.startswith("clusterroles.") and row.operation is Operation.UPDATE
        ]
        by_revision = {row.revision: row for row in rows(server)}
        assert {row.key.name for row in updates} >= {"admin", "edit", "view"}
        for row in updates:
            assert by_revision[cause(server, row.revision)].key.resource == row.key.resource


def owned_by(owner: Mapping[str, Any], name: str, namespace: str) -> Any:
    body = configmap(name, namespace)
    reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": owner["name"], "uid": owner["uid"]}
    body["metadata"]["ownerReferences"] = [reference]
    return body


@pytest.mark.parametrize("seed", range(6))
async def test_each_removal_leads_to_the_request_that_caused_it(seed: int, autojump_clock: MockClock) -> None:
    """Random namespaces, owners and dependents; the truth is which deletion takes each of them away."""
    draw = random.Random(seed)
    async with running() as server:
        spaces, expected, live = [f"s{number}" for number in range(3)], dict[str, int](), dict[str, list[str]]()
        for space in spaces:
            await server.post(SPACES, {"metadata": {"name": space}})
        await sleep(QUIET)
        trees: list[tuple[str, list[str], dict[str, Any]]] = []  # namespace, uids from the owner down, owner
        for number in range(12):
            space = draw.choice(spaces)
            top = await server.post(f"{SPACES}/{space}/configmaps", configmap(f"o{number}", space))
            below, metadata, uids = draw.randrange(4), top["metadata"], [top["metadata"]["uid"]]
            for depth in range(below):
                child = await server.post(
                    f"{SPACES}/{space}/configmaps", owned_by(metadata, f"o{number}-{depth}", space)
                )
                metadata = child["metadata"]
                uids.append(metadata["uid"])
            trees.append((space, uids, top["metadata"]))
            live[top["metadata"]["uid"]] = uids
        draw.shuffle(trees)
        for space, uids, top in trees[:6]:
            policy = draw.choice(("Background", "Foreground"))
            before = server.log.store.revision
            await server.delete(f"{SPACES}/{space}/configmaps/{top['name']}?propagationPolicy={policy}")
            expected |= dict.fromkeys(uids, before + 1)
            await sleep(QUIET)
        gone = draw.choice(spaces)
        before = server.log.store.revision
        await server.delete(f"{SPACES}/{gone}")
        await sleep(QUIET)
        for space, uids, _ in trees[6:]:
            if space == gone:
                expected |= dict.fromkeys(uids, before + 1)
        ends = {row.uid: row for row in rows(server) if row.operation is Operation.DELETE}
        assert expected.keys() <= ends.keys()
        assert {uid: origin(server, ends[uid].revision) for uid in expected} == expected
        assert server.tree.restarts_total == 0


async def test_all_writes_of_loops_have_a_cause(autojump_clock: MockClock) -> None:
    async with running() as server:
        await sleep(QUIET)
        start = server.log.store.revision
        await server.post(SPACES, {"metadata": {"name": "shop"}})
        await server.post(f"{SPACES}/shop/resourcequotas", {"metadata": {"name": "q"}, "spec": {"hard": {"pods": "1"}}})
        await server.post(f"{SPACES}/shop/serviceaccounts", {"metadata": {"name": "deployer"}})
        annotations = {"kubernetes.io/service-account.name": "deployer"}
        token = {"metadata": {"name": "t", "annotations": annotations}, "type": "kubernetes.io/service-account-token"}
        await server.post(f"{SPACES}/shop/secrets", token)
        await sleep(QUIET)
        deleted = server.log.store.revision
        await server.delete(f"{SPACES}/shop/configmaps/kube-root-ca.crt")
        await sleep(QUIET)
        await server.delete(f"{SPACES}/shop/serviceaccounts/deployer")
        await sleep(QUIET)
        await server.delete(f"{SPACES}/shop")
        await sleep(QUIET)
        written = [row for row in rows(server, after=start) if server.log.store.who[row.revision].user != "admin"]
        without = {
            (server.log.store.who[row.revision].user_agent, *row.key)
            for row in written
            if not cause(server, row.revision)
        }
        assert without == set()
        again = next(row for row in rows(server, after=deleted + 1) if row.key.name == "kube-root-ca.crt")
        assert (again.operation, cause(server, again.revision)) == (Operation.CREATE, deleted + 1)


async def test_a_collector_that_starts_later_finds_the_cause_in_the_log(autojump_clock: MockClock) -> None:
    log = MemoryLog()
    async with open_server(log, loops=True, controllers=frozenset()) as server:
        top = await server.post(f"{SPACES}/default/configmaps", configmap("top"))
        await server.post(f"{SPACES}/default/configmaps", owned_by(top["metadata"], "below", "default"))
        await server.delete(f"{SPACES}/default/configmaps/top?propagationPolicy=Background")
        deleted = server.log.store.revision
        for number in range(3):
            await server.post(f"{SPACES}/default/configmaps", configmap(f"later{number}"))
    async with open_server(log, loops=True, controllers=frozenset({"garbage-collector"})) as server:
        await sleep(QUIET)
        end = next(row for row in rows(server, after=deleted) if row.key.name == "below")
        assert (end.operation, cause(server, end.revision)) == (Operation.DELETE, deleted)


async def test_the_chain_of_a_change_is_told(autojump_clock: MockClock) -> None:
    async with running() as server:
        await server.post(SPACES, {"metadata": {"name": "shop"}})
        await server.post(f"{SPACES}/shop/configmaps", configmap("a", "shop"))
        await sleep(QUIET)
        await server.delete(f"{SPACES}/shop")
        await sleep(QUIET)
        end = max(row.revision for row in rows(server) if row.key.name == "a")
        path = f"{REVISIONS}/namespaces/shop/revisions?summary=causes&fieldSelector=metadata.name={end}"
        found = await server.get(path)
        last, first = found["links"][0], found["links"][-1]
        assert [link["operation"] for link in found["links"]] == ["Delete", "Update"]
        assert (last["because"], last["known"], last["cause"]) == (
            first["metadata"]["name"],
            "recorded",
            last["because"],
        )
        assert (first["who"]["username"], first["object"]["name"]) == ("admin", "shop")
        listed = await server.get(f"{REVISIONS}/revisions?fieldSelector=cause={first['metadata']['name']}")
        assert str(end) in [each["metadata"]["name"] for each in listed["items"]]


async def test_a_client_gives_the_cause_of_a_restore(autojump_clock: MockClock) -> None:
    async with open_server() as server:
        headers = {"kubechronicle-cause": "7"}
        made = await server.post(f"{SPACES}/default/configmaps", configmap("a"), headers=headers)
        assert cause(server, int(made["metadata"]["resourceVersion"])) == 7
        wrong = await server.ask(
            "POST", f"{SPACES}/default/configmaps", configmap("b"), headers={"kubechronicle-cause": "x"}
        )
        assert "Kubechronicle-Cause must be a revision" in wrong.refused(400)["message"]
