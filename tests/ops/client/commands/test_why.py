"""`why`: from the state of an object back to the people who caused it."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

Chronicle = Callable[..., Any]


@pytest.fixture
def crash(running: Any, shop: tuple[str, int]) -> str:
    """Return a namespace with a Pod that crashes since its ConfigMap was changed."""
    name, _ = shop
    core = f"/api/v1/namespaces/{name}"
    container = {"name": "web", "image": "web:1", "envFrom": [{"configMapRef": {"name": "db"}}]}
    annotations = {"app.example.com/git-commit": "3f2a1bcd"}
    running.ask("POST", f"{core}/configmaps", {"metadata": {"name": "db", "annotations": annotations}})
    running.ask(
        "POST",
        f"{core}/pods",
        {"metadata": {"name": "web", "labels": {"app": "web"}}, "spec": {"containers": [container]}},
    )
    running.ask("PATCH", f"{core}/configmaps/db", {"data": {"HOST": "wrong"}})
    ended = {
        "exitCode": 1,
        "reason": "Error",
        "startedAt": "2099-01-01T00:00:00Z",
        "finishedAt": "2099-01-01T00:00:00Z",
    }
    crashes = {"name": "web", "ready": False, "restartCount": 3, "image": "web:1", "imageID": ""} | {
        "state": {"waiting": {"reason": "CrashLoopBackOff"}},
        "lastState": {"terminated": ended},
    }
    running.ask("PATCH", f"{core}/pods/web/status", {"status": {"phase": "Running", "containerStatuses": [crashes]}})
    spec = {"selector": {"app": "web"}, "ports": [{"port": 80}]}
    running.ask("POST", f"{core}/services", {"metadata": {"name": "front"}, "spec": spec})
    return name


def test_a_crash_leads_to_the_configmap_and_its_commit(chronicle: Chronicle, crash: str) -> None:
    output = chronicle("why", "pod/web", "-n", crash)
    assert output.code == 0, output.err
    assert "container web: CrashLoopBackOff, exit code 1 (Error), 3 restarts" in output.out
    first = output.out.split("\n\n")[1]
    assert first.startswith("  configmap/db: used by it")
    assert "patch configmaps/db" in first
    assert "commit 3f2a1bcd" in first


def test_a_service_leads_to_its_pods(chronicle: Chronicle, crash: str) -> None:
    output = chronicle("why", "service/front", "-n", crash, "-o", "json")
    document = json.loads(output.out)
    assert document["symptoms"][0]["text"] == "0 ready endpoints; 1 Pods have the labels app=web"
    assert {"configmap/db", "pod/web"} <= {each["object"] for each in document["suspects"]}


def test_the_creation_of_a_pod_is_found_behind_its_reports(chronicle: Chronicle, running: Any, crash: str) -> None:
    path = f"/api/v1/namespaces/{crash}/pods/web"
    status = running.ask("GET", path)["status"]
    for restarts in range(4, 20):
        status["containerStatuses"][0]["restartCount"] = restarts
        running.ask("PATCH", f"{path}/status", {"status": status})
    output = chronicle("why", "pod/web", "-n", crash)
    assert "create pods/web" in output.out
    assert "changes of pod/web before revision " in output.err
    assert "the newest 10 report its status" in output.err


def test_of_many_pods_the_states_of_all_count_and_the_changes_of_some(
    chronicle: Chronicle, running: Any, crash: str
) -> None:
    path = f"/api/v1/namespaces/{crash}/pods"
    for number in range(4):
        pod = {"metadata": {"name": f"more-{number}", "labels": {"app": "web"}}}
        running.ask("POST", path, pod | {"spec": {"containers": [{"name": "a", "image": "a"}]}})
    document = chronicle("why", "service/front", "-n", crash, "--limit", "0", "-o", "json").json()
    assert document["symptoms"][0]["text"].startswith("0 ready endpoints; 5 Pods")
    assert sum(each["object"].startswith("pod/") for each in document["suspects"]) == 3
    assert "pod/web" in {each["object"] for each in document["suspects"]}  # the one with a symptom
    assert document["notSearched"] == {"changes of 2 more Pods": "those of the first 3 are searched"}


def test_a_deleted_object_is_explained_by_its_deletion(chronicle: Chronicle, running: Any, crash: str) -> None:
    running.ask("DELETE", f"/api/v1/namespaces/{crash}/configmaps/db")
    output = chronicle("why", "configmap/db", "-n", crash)
    assert output.code == 0, output.err
    assert "does not exist: it was deleted" in output.out
    assert "delete configmaps/db" in output.out


def test_an_object_that_never_was_is_an_error(chronicle: Chronicle, crash: str) -> None:
    output = chronicle("why", "configmap/dc", "-n", crash)
    assert output.code == 2
    assert "there is no configmap/dc" in output.err
