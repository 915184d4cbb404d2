"""`tree`: an object with its owners, dependents, changes and Events, as text and for programs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

Chronicle = Callable[..., Any]


@pytest.fixture
def rollout(running: Any, shop: tuple[str, int]) -> tuple[str, int]:
    """Return a namespace with a ReplicaSet of the Deployment, and the revision before its Pod, which has an Event."""
    name, _ = shop
    apps, core = f"/apis/apps/v1/namespaces/{name}", f"/api/v1/namespaces/{name}"

    def owned(owner: Any, kind: str, name: str) -> Any:
        reference = {"apiVersion": "apps/v1", "kind": kind, "controller": True}
        return {"name": name, "ownerReferences": [{**reference, **{k: owner["metadata"][k] for k in ("name", "uid")}}]}

    deployment = running.ask("GET", f"{apps}/deployments/web")
    spec = {part: deployment["spec"][part] for part in ("selector", "template")}
    made = running.ask(
        "POST", f"{apps}/replicasets", {"metadata": owned(deployment, "Deployment", "web-1"), "spec": spec}
    )
    container = {"name": "web", "image": "web:1"}
    pod = {
        "metadata": owned(made, "ReplicaSet", "web-1-a") | {"labels": {"app": "web"}},
        "spec": {"containers": [container], "terminationGracePeriodSeconds": 0},
    }
    running.ask("POST", f"{core}/pods", pod)
    uid = running.ask("GET", f"{core}/pods/web-1-a")["metadata"]["uid"]
    event = {
        "metadata": {"name": "web-1-a.1", "namespace": name},
        "involvedObject": {"kind": "Pod", "name": "web-1-a", "namespace": name, "uid": uid},
        "type": "Warning",
        "reason": "BackOff",
        "message": "Back-off pulling image",
        "count": 4,
    }
    running.ask("POST", f"{core}/events", event)
    running.ask("DELETE", f"{core}/pods/web-1-a")
    return name, int(made["metadata"]["resourceVersion"])


def test_a_tree_on_one_axis(chronicle: Chronicle, rollout: tuple[str, int], running: Any) -> None:
    name, revision = rollout
    newest = running.ask("GET", f"/api/v1/namespaces/{name}/pods")["metadata"]["resourceVersion"]
    # The axis has only the changes after the Deployment's, so each change of the Pod has a cell of its own.
    output = chronicle("tree", "deployment/web", "-n", name, "--from", str(revision - 1), "--to", newest)
    assert output.code == 0, output.err
    axes, changes = output.out.split("\n\n")
    _, deployment, replicaset, pod = axes.splitlines()
    assert deployment.startswith("deployments.apps/web ")
    assert replicaset.startswith("  replicasets.apps/web-1 ")
    assert pod.startswith("    pods/web-1-a ")
    assert "●" in pod
    assert "Event of pods/web-1-a: Warning BackOff Back-off pulling image (×4)" in changes
    assert "create replicasets.apps/web-1  by admin" in changes
    assert "settings" not in changes
    assert changes.splitlines()[-1].endswith("delete pods/web-1-a  by admin  <deleted>")


def test_a_tree_for_programs(chronicle: Chronicle, rollout: tuple[str, int]) -> None:
    name, revision = rollout
    document = chronicle("tree", "rs/web-1", "-n", name, "--from", str(revision), "-o", "json").json()
    assert document["kind"] == "RevisionTree"
    objects = {each["resource"]: each for each in document["objects"]}
    assert {each: objects[each]["level"] for each in objects} == {
        "deployments.apps": -1,
        "replicasets.apps": 0,
        "pods": 1,
    }
    assert [each["kind"] for each in document["objects"]] == ["Deployment", "ReplicaSet", "Pod"]
    assert objects["replicasets.apps"]["owners"] == [objects["deployments.apps"]["uid"]]
    assert [objects[each]["existed"] for each in ("deployments.apps", "replicasets.apps", "pods")] == [
        True,
        True,
        False,
    ]
    operations = [each["operation"] for each in objects["pods"]["revisions"]]
    assert (operations[0], operations[-1]) == ("Create", "Delete")
    assert [event["reason"] for event in objects["pods"]["events"]] == ["BackOff"]
    assert (document["truncated"], document["left"]) == (False, [])


def test_an_object_that_was_not_there(chronicle: Chronicle, rollout: tuple[str, int]) -> None:
    name, _ = rollout
    missing = chronicle("tree", "deployment/wbe", "-n", name)
    assert "did you mean deployment.apps/web?" in missing.err
    assert missing.code == 2
    early = chronicle("tree", "deployment/web", "-n", name, "--from", "1", "--to", "2")
    assert "did not exist in that time: none of the 3 changes lies in that time" in early.out
    assert early.code == 1
