"""`incident`: the changes before a moment, as text and for programs."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from in_process import ADMIN
from server_in_thread import InThread

Chronicle = Callable[..., Any]
CONTROLLER = "system:serviceaccount:kube-system:deployment-controller"
NAMESPACE_CONTROLLER = "system:serviceaccount:kube-system:namespace-controller"


@pytest.fixture
def rollout(running: Any, shop: tuple[str, int]) -> str:
    """Return a namespace in which jane sets an image, and a controller makes a ReplicaSet of the Deployment."""
    name, _ = shop
    apps = f"/apis/apps/v1/namespaces/{name}"
    deployment = running.ask("GET", f"{apps}/deployments/web")

    def ask(user: str, method: str, path: str, body: Any, kind: str) -> None:
        who = (("Impersonate-User", user), ("Impersonate-Group", "system:masters"))
        reply = InThread(running, ADMIN, who).send(
            method, path, {"Content-Type": f"application/{kind}"}, json.dumps(body).encode()
        )
        assert reply.status < 300, reply

    container = {"name": "web", "image": "web:3"}
    image = {"spec": {"template": {"spec": {"containers": [container]}}}}
    ask("jane", "PATCH", f"{apps}/deployments/web", image, "merge-patch+json")
    owner = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "uid": deployment["metadata"]["uid"]}
    metadata = {"name": "web-1", "ownerReferences": [{**owner, "controller": True}]}
    spec = {name: deployment["spec"][name] for name in ("selector", "template")}
    ask(CONTROLLER, "POST", f"{apps}/replicasets", {"metadata": metadata, "spec": spec}, "json")
    return name


def test_causes_come_with_their_consequences(chronicle: Chronicle, rollout: str) -> None:
    output = chronicle("incident", "now", "-n", rollout)
    assert output.code == 0, output.err
    entries = output.out.split("\n\n")
    assert "changes between 2" in entries[0]
    [jane] = [entry for entry in entries if "by jane" in entry]
    assert "first change by this user" in jane
    assert "image" in jane
    assert "web:2 → web:3" in jane
    assert f"  └ create replicasets.apps/web-1  by {CONTROLLER}" in jane
    document = chronicle("incident", "now", "-n", rollout, "-o", "json").json()
    assert document["kind"] == "RevisionIncident"
    scores = [change["score"] for change in document["changes"]]
    assert scores == sorted(scores, reverse=True)
    assert "aHVzaA" not in json.dumps(document)
    cause = next(change for change in document["changes"] if change["who"]["username"] == "jane")
    consequence = next(change for change in document["changes"] if change["object"]["resource"] == "replicasets")
    assert consequence["because"] == cause["metadata"]["name"]


def test_reports_to_share(chronicle: Chronicle, rollout: str) -> None:
    page = chronicle("incident", "now", "-n", rollout, "-o", "html")
    assert page.out.startswith("<!doctype html>")
    assert page.out.endswith("</html>\n")
    assert f"What changed in namespace {rollout}" in page.out
    assert "aHVzaA" not in page.out
    text = chronicle("incident", "now", "-n", rollout, "-o", "markdown").out
    assert text.startswith(f"# What changed in namespace {rollout} from ")
    assert "web:2 → web:3" in text
    empty = chronicle("incident", "now", "-n", rollout, "--before", "1ms", "-o", "markdown")
    assert (empty.code, "Nothing changed:" in empty.err) == (1, True)


def test_removals_follow_from_the_deletion_of_their_namespace(chronicle: Chronicle, running: Any) -> None:
    running.ask("POST", "/api/v1/namespaces", {"metadata": {"name": "fire"}})
    running.ask("POST", "/api/v1/namespaces/fire/configmaps", {"metadata": {"name": "a"}})
    running.ask("DELETE", "/api/v1/namespaces/fire")
    who = (("Impersonate-User", NAMESPACE_CONTROLLER), ("Impersonate-Group", "system:masters"))
    assert InThread(running, ADMIN, who).send("DELETE", "/api/v1/namespaces/fire/configmaps/a", {}, None).status == 200
    for flag in (("-n", "fire"), ("-A",)):
        changes = chronicle("incident", "now", *flag, "-o", "json").json()["changes"]
        assert len({change["metadata"]["name"] for change in changes}) == len(changes)
        [deletion] = [
            change["metadata"]["name"]
            for change in changes
            if change["object"]["name"] == "fire" and change["request"]["verb"] == "delete"
        ]
        [removal] = [change for change in changes if change["who"]["username"] == NAMESPACE_CONTROLLER]
        assert removal["because"] == deletion


def test_the_whole_cluster_and_a_revision(chronicle: Chronicle, shop: tuple[str, int]) -> None:
    _, revision = shop
    output = chronicle("incident", str(revision), "-A", "--before", "1h", "--limit", "0", "-o", "json").json()
    numbers = {int(change["metadata"]["name"]) for change in output["changes"]}
    assert max(numbers) >= revision
    assert any(change["kind"] == "ClusterRevision" for change in output["changes"])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("now", "--before", "x"), "--before x: must be a duration, such as 10m"),
        (("now", "--limit", "-1"), "--limit must not be negative"),
        (("x",), "'x' is no moment"),
    ],
)
def test_mistakes(chronicle: Chronicle, arguments: tuple[str, ...], message: str) -> None:
    output = chronicle("incident", *arguments)
    assert message in output.err
    assert output.code == 2


def test_an_empty_period_says_what_was_searched(chronicle: Chronicle, shop: tuple[str, int]) -> None:
    output = chronicle("incident", "2020-01-01", "-n", shop[0])
    assert "the period ends before the history of namespace" in output.err
    assert output.code == 2
