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
