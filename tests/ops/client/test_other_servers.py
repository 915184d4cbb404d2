"""Kinds of extension API servers: the log has nothing of them, and no command restores or prunes their objects."""

from __future__ import annotations

from in_process import ADMIN, JOE
from server_in_thread import InThread, Running

from kubechronicle.ops.client.client import Client
from kubechronicle.ops.client.kinds import Kind, Kinds
from kubechronicle.ops.client.session import other_server, remark

VERBS = frozenset(("get", "list", "create", "delete"))
THING = Kind("things.example.com", "v1", "things", "thing", "Thing", True, VERBS)
DEPLOYMENT = Kind("apps", "v1", "deployments", "deployment", "Deployment", True, VERBS)
POD = Kind("", "v1", "pods", "pod", "Pod", True, VERBS)


def test_the_service_of_another_server_is_found(running: Running) -> None:
    service = {"namespace": "default", "name": "backend"}
    spec = {"group": THING.group, "version": "v1", "groupPriorityMinimum": 1, "versionPriority": 1, "service": service}
    body = {"metadata": {"name": f"v1.{THING.group}"}, "spec": spec}
    running.ask("POST", "/apis/apiregistration.k8s.io/v1/apiservices", body)
    client = Client(InThread(running, ADMIN), "default")
    assert other_server(client, THING) == "default/backend"
    assert other_server(client, DEPLOYMENT) == ""
    assert other_server(Client(InThread(running, JOE), "default"), THING) == ""  # who may not read APIServices
    assert "default/backend" in remark(THING, "default/backend")
    # Its group is in the discovery of the present, and not in that of history.
    assert THING.group in {group["name"] for group in client.get("/apis")["groups"]}
    assert THING.group not in {group["name"] for group in client.at("-0s").get("/apis")["groups"]}
    running.ask("DELETE", f"/apis/apiregistration.k8s.io/v1/apiservices/v1.{THING.group}")


def test_only_own_kinds_are_stored() -> None:
    kinds = Kinds([POD, DEPLOYMENT, THING], lambda: frozenset({("apps", "deployments")}))
    assert kinds.stored() == [POD, DEPLOYMENT]
    assert kinds.find("thing") is THING
    assert Kinds([POD, THING]).stored() == [POD, THING]
