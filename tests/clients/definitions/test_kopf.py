"""An operator on the unchanged kopf: creation, status, update, kill -9 in the middle, deletion with its finalizer."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, closing
from pathlib import Path
from typing import Any

import pytest
from custom_resources import FOLDER, define, load, merge, undefine
from harness import Api, Server, eventually, unique
from programs import Lines, running

GROUP = "operator.example.com"
SECOND = 30.0


@pytest.fixture
def api(server: Server) -> Iterator[Api]:
    with closing(server.api()) as api:
        name = define(api, load("site.yaml"))
        yield api
        undefine(api, name)


def peering(plural: str, kind: str, scope: str) -> dict[str, Any]:
    """Return the definition of kopf's peering objects, after kopf's documentation."""
    schema = {
        "type": "object",
        "properties": {"status": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.kopf.dev"},
        "spec": {
            "group": "kopf.dev",
            "scope": scope,
            "names": {"plural": plural, "singular": kind.lower(), "kind": kind},
            "versions": [
                {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}},
            ],
        },
    }


def test_two_operators_hand_over_by_priority(api: Api, server: Server, tmp_path: Path) -> None:
    """The one of higher priority works while it lives; after kill -9 the other one takes over."""
    names = [
        define(api, peering("kopfpeerings", "KopfPeering", "Namespaced")),
        define(api, peering("clusterkopfpeerings", "ClusterKopfPeering", "Cluster")),
    ]
    namespace = api.namespace(unique("peers"))
    sites = f"/apis/{GROUP}/v1/namespaces/{namespace}/sites"
    peers = f"/apis/kopf.dev/v1/namespaces/{namespace}/kopfpeerings"
    head = {"apiVersion": "kopf.dev/v1", "kind": "KopfPeering"}
    api.create(peers, {**head, "metadata": {"name": "sites"}})

    def operator(name: str, priority: int) -> AbstractContextManager[Lines]:
        command = [sys.executable, "-m", "kopf", "run", "--namespace", namespace, "--priority", str(priority)]
        environment = {
            "KUBECONFIG": str(server.kubeconfig),
            "KOPF_PAUSED": str(tmp_path / "-"),
            "KOPF_PEERING": "sites",
        }
        return running([*command, str(FOLDER / "kopf_operator.py")], log=tmp_path / name, environment=environment)

    def site(name: str) -> None:
        head = {"apiVersion": f"{GROUP}/v1", "kind": "Site"}
        api.create(sites, {**head, "metadata": {"name": name}, "spec": {"host": "a.b"}})

    def priorities() -> set[int]:
        status = api.get(f"{peers}/sites").get("status") or {}
        return {one["priority"] for one in status.values() if one}

    with operator("low", 1) as low:
        site("first")
        assert low.until(lambda line: line.endswith(" 1"), timeout=SECOND) == "create first 1"
        with operator("high", 100) as high:
            eventually(lambda: "Pausing operations" in (tmp_path / "low").read_text(), "the low one pauses")
            assert priorities() == {1, 100}
            site("second")
            assert high.until(lambda line: "second" in line, timeout=SECOND) == "create second 1"
            eventually(lambda: api.get(f"{sites}/second").get("status"), "the status of second")
        # Killed: it could not withdraw from the peering object.
        site("third")
        assert low.until(lambda line: line.startswith("create"), timeout=SECOND) == "create third 1"
        for name in ("first", "second", "third"):
            api.request("DELETE", f"{sites}/{name}").expect(200)
        eventually(lambda: not api.get(sites)["items"], "all sites are gone")
    api.request("DELETE", f"/api/v1/namespaces/{namespace}").expect(200)
    for name in names:
        undefine(api, name)


def test_an_operator_through_the_life_of_its_objects(api: Api, server: Server, tmp_path: Path) -> None:
    namespace = api.namespace(unique("kopf"))
    sites = f"/apis/{GROUP}/v1/namespaces/{namespace}/sites"
    paused = tmp_path / "paused"

    def operator(name: str) -> AbstractContextManager[Lines]:
        command = [sys.executable, "-m", "kopf", "run", "--namespace", namespace, str(FOLDER / "kopf_operator.py")]
        environment = {"KUBECONFIG": str(server.kubeconfig), "KOPF_PAUSED": str(paused)}
        return running(command, log=tmp_path / f"{name}.log", environment=environment)

    def create(name: str) -> Any:
        spec = {"host": "a.b"}
        return api.create(
            sites, {"apiVersion": f"{GROUP}/v1", "kind": "Site", "metadata": {"name": name}, "spec": spec}
        )

    def observed(name: str, generation: int) -> Any:
        obj = api.get(f"{sites}/{name}")
        return obj if obj.get("status", {}).get("observedGeneration") == generation else None

    create("early")
    with operator("first") as first:
        assert first.until(lambda line: line.endswith(" early 1"), timeout=SECOND) == "create early 1"
        obj = eventually(lambda: observed("early", 1), "the status of early")
        assert obj["status"]["configMap"] == "a.b-1", "with the default of the schema"
        assert obj["metadata"]["finalizers"] == [f"{GROUP}/kopf"]
        assert obj["metadata"]["generation"] == 1, "neither finalizer nor status change it"
        paused.touch()
        merge(api, f"{sites}/early", {"spec": {"pages": 2}})
        # kopf notes the retry in an annotation, and is killed before it.
        eventually(lambda: "retries" in str(api.get(f"{sites}/early")["metadata"]["annotations"]), "the failed update")
    assert observed("early", 2) is None
    create("late")
    merge(api, f"{sites}/early", {"spec": {"pages": 3}})
    paused.unlink()
    with operator("second") as second:
        seen = {second.until(lambda line: line[-1].isdigit(), timeout=SECOND) for _ in range(2)}
        assert seen == {"create late 1", "update early 3"}
        obj = eventually(lambda: observed("early", 3), "the status of the third generation")
        assert obj["status"]["configMap"] == "a.b-3"
        api.request("DELETE", f"{sites}/early").expect(200)
        assert second.until(lambda line: line.startswith("delete"), timeout=SECOND).startswith("delete early ")
        eventually(lambda: api.request("GET", f"{sites}/early").status == 404, "early is gone")
    assert api.request("DELETE", f"{sites}/late").expect(200)["metadata"]["deletionTimestamp"]
    with operator("third") as third:
        assert third.until(lambda line: line.startswith("delete"), timeout=SECOND).startswith("delete late ")
        eventually(lambda: api.request("GET", f"{sites}/late").status == 404, "late is gone")
    logs = "".join((tmp_path / f"{name}.log").read_text() for name in ("first", "second", "third"))
    assert "Traceback" not in logs
    assert "nconsisten" not in logs, "kopf warns of a patch that the server has not stored as sent"
    api.request("DELETE", f"/api/v1/namespaces/{namespace}").expect(200)
