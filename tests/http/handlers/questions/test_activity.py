"""?summary=activity: what people did and what followed; ?summary=lanes: many changes with the states after them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlencode

import pytest
from in_process import ADMIN, JOE
from server_in_thread import InThread, Running, server_in_thread
from stories.rollouts import ask_as, make_story

from kubechronicle.actors.history import activity, lanes
from kubechronicle.actors.history.activity import _stretches
from kubechronicle.api.explaining.states import state_of

API = "/apis/history.kubechronicle.dev/v1"
CI = "system:serviceaccount:ci:deployer"


@pytest.fixture(scope="module")
def running() -> Iterator[Running]:
    with server_in_thread() as server:
        make_story(server)
        yield server


def asked(running: Running, where: str = "revisions", summary: str = "activity", **query: str) -> Any:
    return running.ask("GET", f"{API}/{where}?{urlencode({'summary': summary, **query})}")


def rows(found: Any) -> list[tuple[str, str, str]]:
    return [
        (row["revision"]["who"]["username"], row["revision"]["operation"], row["revision"]["object"]["name"])
        for row in found["rows"]
    ]


def test_a_rollout_is_one_row_with_its_pods(running: Running) -> None:
    found = asked(running, include="clusterrevisions")
    people = [row for row in rows(found) if row[0] != "admin"]
    flags = [(CI, "Create", f"flag-{number}") for number in range(3, -1, -1)]
    assert people == [
        ("alice@example.com", "Delete", "flag-0"),
        ("bob", "Create", "bob-shop"),
        ("alice@example.com", "Update", "web"),
        (CI, "Update", "web"),
        *flags,
        ("alice@example.com", "Create", "web"),
        ("alice@example.com", "Create", "shop"),
    ]
    assert found["next"] == ""
    assert found["through"]
    by_name = {
        (row["revision"]["who"]["username"], row["revision"]["operation"], row["revision"]["object"]["name"]): row
        for row in found["rows"]
    }
    broken = by_name[CI, "Update", "web"]
    assert broken["pods"] == {"crash": 2}
    assert [(each["resource"], each["operation"], each["objects"]) for each in broken["kinds"]] == [
        ("replicasets.apps", "Create", 1),
        ("pods", "Create", 2),
    ]
    assert [each["kind"] for each in broken["kinds"]] == ["ReplicaSet", "Pod"]
    assert broken["kinds"][1]["names"] == ["web-2-0", "web-2-1"]
    assert by_name["alice@example.com", "Update", "web"]["pods"] == {"ready": 2}
    assert by_name["alice@example.com", "Update", "web"]["revision"]["reason"] == "2 crashes"
    assert by_name["bob", "Create", "bob-shop"]["revision"]["grants"] == "ClusterRole cluster-admin to User bob"


def test_selectors_texts_and_controllers(running: Running) -> None:
    deleted = asked(running, fieldSelector="who.username=alice@example.com,operation=Delete")
    assert rows(deleted) == [("alice@example.com", "Delete", "flag-0")]
    # Changes that put the text into an object, or removed it; those of controllers only on demand.
    image = {"text": "r.io/web:2"}
    assert rows(asked(running, **image)) == [("alice@example.com", "Update", "web"), (CI, "Update", "web")]
    assert ("replicasets", 1) in [
        (row["revision"]["object"]["resource"], row["revision"]["version"])
        for row in asked(running, controllers="shown", **image)["rows"]
    ]
    reply = InThread(running, JOE).send("GET", f"{API}/revisions?summary=activity", {}, None)
    assert reply.status == 403
    for query, words in (("controllers=1", "must be shown"), ("include=pods", "must be clusterrevisions")):
        reply = InThread(running, ADMIN).send("GET", f"{API}/revisions?summary=activity&{query}", {}, None)
        assert (reply.status, words in reply.body.decode()) == (400, True)


def test_values_of_secrets_are_not_searched(running: Running) -> None:
    body = {"metadata": {"name": "key"}, "stringData": {"a": "hush-hush-hush"}}
    ask_as(running, "alice@example.com", "POST", "/api/v1/namespaces/shop/secrets", body)
    assert rows(asked(running, text="aHVzaC1odXNo")) == []
    assert "aHVzaC1odXNo" not in str(asked(running))


def test_a_text_reveals_nothing_that_may_not_be_read(running: Running) -> None:
    rbac = "/apis/rbac.authorization.k8s.io/v1/namespaces/shop"
    rules = [{"apiGroups": ["history.kubechronicle.dev"], "resources": ["revisions"], "verbs": ["list"]}]
    running.ask("POST", f"{rbac}/roles", {"metadata": {"name": "lists"}, "rules": rules})
    subjects = [{"kind": "User", "name": "joe", "apiGroup": "rbac.authorization.k8s.io"}]
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "lists"}
    running.ask(
        "POST", f"{rbac}/rolebindings", {"metadata": {"name": "lists"}, "roleRef": reference, "subjects": subjects}
    )
    path = f"{API}/namespaces/shop/revisions?summary=activity"
    found = [json.loads(InThread(running, JOE).send("GET", f"{path}{more}", {}, None).body) for more in ("", "&text=r")]
    assert ("alice@example.com", "Update", "web") in rows(found[0])
    assert all(row["revision"]["redacted"] and not row["pods"] for row in found[0]["rows"])
    assert "r.io/web" not in str(found[0])
    assert rows(found[1]) == []


def all_pages(running: Running) -> list[tuple[str, str, str]]:
    found, until = [], ""
    while True:
        selector = {"fieldSelector": f"revision.to={until}"} if until else {}
        page = asked(running, include="clusterrevisions", **selector)
        assert len(page["rows"]) <= activity.PAGE
        found += rows(page)
        until = page["next"]
        if not until:
            return found


def test_pages_are_bounded(running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = rows(asked(running, include="clusterrevisions"))
    monkeypatch.setattr(activity, "PAGE", 3)
    assert all_pages(running) == whole
    monkeypatch.setattr(activity, "SPAN", 40)
    assert all_pages(running) == whole
    monkeypatch.setattr(activity, "MOST_FOLLOWING", 2)
    assert not asked(running)["through"]


def test_stretches_have_each_revision_once() -> None:
    assert _stretches([41, 40], 10_000) == [(39, 341)]
    assert _stretches([41, 5000], 5100) == [(4999, 5100), (40, 341)]


def test_lanes_are_columns(running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    found = asked(running, "namespaces/shop/revisions", "lanes")
    columns = ("revisions", "times", "objects", "users", "operations", "states")
    assert len({len(found[name]) for name in columns}) == 1
    assert found["revisions"] == sorted(found["revisions"], reverse=True)
    last = {}
    for place, state in zip(found["objects"], found["states"], strict=True):
        last.setdefault(found["objectNames"][place][2], found["stateNames"][state])
    assert last["flag-0"] == "gone"
    assert (last["web-2-0"], last["web-3-0"], last["flag-1"]) == ("crash", "ready", "exists")
    monkeypatch.setattr(lanes, "PAGE", 1)
    monkeypatch.setattr(lanes, "CHUNK", 4)
    page = asked(running, "namespaces/shop/revisions", "lanes")
    assert page["revisions"] == found["revisions"][:4]
    assert int(page["next"]) == found["revisions"][3] - 1


@pytest.mark.parametrize(
    ("resource", "spec", "status", "state"),
    [
        ("pods", {}, {"phase": "Succeeded"}, "done"),
        ("pods", {}, {"phase": "Pending"}, "waiting"),
        ("pods", {}, {"containerStatuses": [{"state": {"waiting": {"reason": "ContainerCreating"}}}]}, "waiting"),
        ("pods", {}, {"containerStatuses": [{"state": {"terminated": {"exitCode": 3}}}]}, "crash"),
        ("deployments.apps", {"replicas": 0}, {}, "zero"),
        ("deployments.apps", {"replicas": 2}, {"readyReplicas": 1}, "waiting"),
        ("daemonsets.apps", {}, {"desiredNumberScheduled": 2, "numberReady": 2}, "ready"),
        ("jobs.batch", {}, {"conditions": [{"type": "Failed", "status": "True"}]}, "failed"),
        ("nodes", {"unschedulable": True}, {}, "zero"),
        ("persistentvolumeclaims", {}, {"phase": "Lost"}, "failed"),
        ("widgets.example.com", {"replicas": 0}, {}, "exists"),
    ],
)
def test_states(resource: str, spec: Any, status: Any, state: str) -> None:
    assert state_of(resource, {"metadata": {}, "spec": spec, "status": status}) == state
    assert state_of(resource, {"metadata": {"deletionTimestamp": "t"}, "spec": spec}) == "ending"
