"""An operator on the unchanged controller-runtime: creation, status, update, kill -9 in the middle, and deletion."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from custom_resources import define, is_true, load, merge, undefine
from harness import BINARIES, Api, Server, eventually, prepare, unique
from programs import Lines, running

GROUP = "operator.example.com"
LEASE = f"/apis/coordination.k8s.io/v1/namespaces/{{}}/leases/sites.{GROUP}"
SECOND = 30.0  # for a step of an operator; a lease of a killed one lasts three seconds


class Operator:
    """A running operator, and its documents."""

    def __init__(self, lines: Lines) -> None:
        self._lines = lines

    def wait(self, event: str, wanted: Callable[[dict[str, Any]], bool] = lambda _: True) -> dict[str, Any]:
        """Return the next document of this kind that is wanted. A failure of a reconciliation fails the test."""

        def matches(line: str) -> bool:
            document = json.loads(line)
            assert document["event"] != "failed", document
            return document["event"] == event and wanted(document)

        found: dict[str, Any] = json.loads(self._lines.until(matches, timeout=SECOND))
        return found


@pytest.fixture
def api(server: Server) -> Iterator[Api]:
    with closing(server.api()) as api:
        name = define(api, load("site.yaml"))
        yield api
        undefine(api, name)


def site(name: str, **spec: Any) -> dict[str, Any]:
    return {"apiVersion": f"{GROUP}/v1", "kind": "Site", "metadata": {"name": name}, "spec": {"host": "a.b", **spec}}


def test_an_operator_through_the_life_of_its_objects(api: Api, server: Server, tmp_path: Path) -> None:
    prepare("operator")
    namespace = api.namespace(unique("operator"))
    sites = f"/apis/{GROUP}/v1/namespaces/{namespace}/sites"
    configs = f"/api/v1/namespaces/{namespace}/configmaps"

    @contextmanager
    def operator(name: str, *more: str) -> Iterator[Operator]:
        command = [str(BINARIES / "operator"), "--kubeconfig", str(server.kubeconfig), "--namespace", namespace]
        with running([*command, "--name", name, *more], log=tmp_path / f"{name}.log") as lines:
            yield Operator(lines)

    def settled(name: str, generation: int) -> Any:
        obj = api.get(f"{sites}/{name}")
        status = obj.get("status", {})
        return obj if is_true(obj, "Ready") and status["observedGeneration"] == generation else None

    with operator("standby") as standby:
        standby.wait("leading")
        made = api.create(sites, site("early"))
        standby.wait("reconciled", lambda one: one["site"] == "early")
        obj = eventually(lambda: settled("early", 1), "the status of early")
        assert obj["metadata"]["finalizers"] == [f"{GROUP}/pages"]
        assert obj["status"]["conditions"][0]["message"] == "a.b has 1 pages", "with the default of the schema"
        owner = api.get(f"{configs}/early")["metadata"]["ownerReferences"][0]
        assert (owner["uid"], owner["controller"], owner["kind"]) == (made["metadata"]["uid"], True, "Site")

    # Killed before the ConfigMap of the new generation, before the status, and before the finalizer is removed.
    merge(api, f"{sites}/early", {"metadata": {"annotations": {"pause": "yes"}}})
    for turn, step in enumerate(("configmap", "status")):
        generation = merge(api, f"{sites}/early", {"spec": {"pages": 10 + turn}})["metadata"]["generation"]
        with operator(f"killed-{step}", "--pause-at", step) as killed:
            killed.wait("paused")
            assert settled("early", generation) is None
    with operator("next") as after:
        after.wait("leading")
        eventually(lambda: settled("early", 3), "the status of the third generation")
        assert api.get(f"{configs}/early")["data"] == {"host": "a.b", "pages": "11"}
        late = api.create(sites, site("late", pages=3))
        assert late["metadata"]["generation"] == 1
        eventually(lambda: settled("late", 1), "the status of late")
    assert api.get(LEASE.format(namespace))["spec"]["leaseTransitions"] >= 3
    api.request("DELETE", f"{sites}/early").expect(200)
    with operator("killed-finalizer", "--pause-at", "finalizer") as killed:
        killed.wait("paused")
        assert api.get(f"{sites}/early")["metadata"]["deletionTimestamp"]
        api.request("DELETE", f"{sites}/late").expect(200)
    with operator("last") as last:
        last.wait("leading")
        for name in ("early", "late"):
            eventually(lambda name=name: api.request("GET", f"{sites}/{name}").status == 404, f"{name} is gone")
            eventually(lambda name=name: api.request("GET", f"{configs}/{name}").status == 404, "its ConfigMap, too")
    events = api.get(f"/apis/events.k8s.io/v1/namespaces/{namespace}/events")["items"]
    assert {one["regarding"]["kind"] for one in events} == {"Lease", "Site"}
    api.request("DELETE", f"/api/v1/namespaces/{namespace}").expect(200)
