"""Definitions on two servers that share one Postgres: both serve them, and kill -9 leaves none half done."""

from __future__ import annotations

import http.client
import os
import random
import statistics
import threading
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from typing import Any

import pytest
from custom_resources import CRDS, define, is_true, merge, undefine
from harness import Api, Cluster, Server, cluster_in, eventually, home

KILLS = int(os.environ.get("KUBECHRONICLE_TEST_DEFINITION_KILLS", "8"))
OBJECTS = 20  # of each definition that is deleted
WITHIN = 1.0  # second after which each server serves a definition, or none of it any more
LONGEST = {"establish": 0.05, "delete": 0.12}  # seconds from the request to the kill, from none
BROKEN = (OSError, http.client.HTTPException)
SCHEMA = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}


@pytest.fixture(scope="module")
def shared() -> Iterator[Cluster]:
    with home("definitions") as directory, cluster_in(directory) as cluster:
        yield cluster


def definition(plural: str) -> dict[str, Any]:
    names = {"plural": plural, "singular": plural, "kind": plural.capitalize(), "listKind": f"{plural}List"}
    versions = [{"name": "v1", "served": True, "storage": True, "schema": SCHEMA}]
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{plural}.example.com"},
        "spec": {"group": f"{plural}.example.com", "scope": "Cluster", "names": names, "versions": versions},
    }


def path(plural: str) -> str:
    return f"/apis/{plural}.example.com/v1/{plural}"


def delay(api: Api, plural: str, status: int, *, since: float) -> float:
    """Return the seconds until the server answers for the resource with this status."""
    eventually(lambda: api.request("GET", path(plural)).status == status, f"{status} at {path(plural)}", pause=0.002)
    return time.monotonic() - since


@pytest.mark.alone
def test_each_server_serves_a_definition_within_a_second(shared: Cluster) -> None:
    with closing(shared.servers[0].api()) as one, closing(shared.servers[1].api()) as other:
        delays = []
        for turn in range(5):
            plural = f"quick{turn}"
            name = define(one, definition(plural))
            delays.append(delay(other, plural, 200, since=time.monotonic()))
            undefine(one, name)
            delays.append(delay(other, plural, 404, since=time.monotonic()))
        print(f"median {statistics.median(delays) * 1000:.1f} ms, longest {max(delays) * 1000:.1f} ms")
        assert statistics.median(delays) < WITHIN


def test_kill_9_leaves_no_definition_half_done(shared: Cluster) -> None:
    """The server that got the request is killed at any moment. In every fourth turn the other one, too."""
    seed = int(os.environ.get("KUBECHRONICLE_TEST_SEED", str(time.time_ns() % 1_000_000)))
    print(f"KUBECHRONICLE_TEST_SEED={seed} KUBECHRONICLE_TEST_DEFINITION_KILLS={KILLS}")
    chance = random.Random(seed)
    for turn in range(KILLS):
        victim, survivor = shared.servers[turn % 2], shared.servers[(turn + 1) % 2]
        killed = [victim, survivor] if turn % 8 in (3, 6) else [victim]
        plural = f"turn{turn}"
        if turn % 2 == 0:
            known = disturbed(killed, "POST", CRDS, definition(plural), chance.uniform(0, LONGEST["establish"]))
            check_established(survivor, plural, known=known)
        else:
            held = turn % 4 == 1
            fill(survivor, plural, held=held)
            url = f"{CRDS}/{plural}.{plural}.example.com"
            known = disturbed(killed, "DELETE", url, None, chance.uniform(0, LONGEST["delete"]))
            check_deleting(survivor, plural, known=known, held=held)
        check_gone(shared.servers, survivor, plural)
    shared.servers[0].verify()


def disturbed(killed: list[Server], method: str, url: str, body: Any, pause: float) -> bool:
    """Send a request to the first server, kill these servers after the pause, and start them again. Return whether the
    request was answered with success."""
    statuses: list[int] = []

    def send() -> None:
        with suppress(*BROKEN), closing(killed[0].api()) as api:
            statuses.append(api.request(method, url, body).status)

    sending = threading.Thread(target=send)
    sending.start()
    time.sleep(pause)  # the test is about the moment of the kill
    for server in killed:
        server.kill9()
    sending.join()
    for server in reversed(killed):
        server.start()
    return bool(statuses) and statuses[0] < 300


def fill(server: Server, plural: str, *, held: bool) -> None:
    """Create the definition with objects. ``held``: the last one has a finalizer."""
    with closing(server.api()) as api:
        define(api, definition(plural))
        body = {"apiVersion": f"{plural}.example.com/v1", "kind": plural.capitalize()}
        for number in range(OBJECTS):
            finalizers = ["example.com/held"] if held and number == OBJECTS - 1 else []
            api.create(path(plural), {**body, "metadata": {"name": f"o-{number}", "finalizers": finalizers}})


def check_established(server: Server, plural: str, *, known: bool) -> None:
    with closing(server.api()) as api:
        url = f"{CRDS}/{plural}.{plural}.example.com"
        if api.request("GET", url).status == 404:
            assert not known, "an answered creation was lost"
            api.create(CRDS, definition(plural))
        eventually(lambda: is_true(api.get(url), "Established"), f"{plural} is established")
        assert api.get(path(plural))["items"] == []
        made = {"apiVersion": f"{plural}.example.com/v1", "kind": plural.capitalize(), "metadata": {"name": "a"}}
        api.create(path(plural), made)


def check_deleting(server: Server, plural: str, *, known: bool, held: bool) -> None:
    """Check that a deletion which has begun ends without another request, but for a finalizer of an object."""
    with closing(server.api()) as api:
        url = f"{CRDS}/{plural}.{plural}.example.com"
        answer = api.request("GET", url)
        begun = answer.status == 404 or "deletionTimestamp" in answer.json()["metadata"]
        assert begun or not known, "an answered deletion was lost"
        if not begun:
            api.request("DELETE", url).expect(200)
        if held:
            eventually(lambda: len(api.get(path(plural))["items"]) == 1, "only the held object is left")
            merge(api, f"{path(plural)}/o-{OBJECTS - 1}", {"metadata": {"finalizers": None}})
        eventually(lambda: api.request("GET", url).status == 404, f"{plural} is gone")


def check_gone(servers: list[Server], survivor: Server, plural: str) -> None:
    """Check that the deletion ends: no definition, no path, no APIService; nor an object when it is made again."""
    name = f"{plural}.{plural}.example.com"
    apis = [server.api() for server in servers]
    with closing(survivor.api()) as api:
        undefine(api, name)
        for each in apis:
            eventually(lambda each=each: each.request("GET", path(plural)).status == 404, "no path is served")
            assert each.request("GET", f"/apis/{plural}.example.com").status == 404
        service = f"/apis/apiregistration.k8s.io/v1/apiservices/v1.{plural}.example.com"
        eventually(lambda: api.request("GET", service).status == 404, "the APIService is gone")
        define(api, definition(plural))
        assert api.get(path(plural))["items"] == []
        undefine(api, name)
    for each in apis:
        each.close()
