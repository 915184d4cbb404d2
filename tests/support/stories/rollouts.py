"""A rollout as controllers make it, by a server that runs none: for tests of causes and of the page."""

from __future__ import annotations

import json
from typing import Any

from in_process import ADMIN
from server_in_thread import InThread, Running

KCM = "system:serviceaccount:kube-system:"
APPS = "/apis/apps/v1/namespaces"


def ask_as(running: Running, user: str, method: str, path: str, body: Any = None, reason: str = "") -> Any:
    """Send a request in the name of a user with all rights."""
    who = (("Impersonate-User", user), ("Impersonate-Group", "system:masters"))
    kind = "merge-patch+json" if method == "PATCH" else "json"
    headers = {"Content-Type": f"application/{kind}", **({"Kubechronicle-Reason": reason} if reason else {})}
    reply = InThread(running, ADMIN, who).send(
        method, path, headers, None if body is None else json.dumps(body).encode()
    )
    assert reply.status < 300, reply
    return json.loads(reply.body)


def deployment(image: str, replicas: int = 2) -> Any:
    template = {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "web", "image": image}]}}
    return {"replicas": replicas, "selector": {"matchLabels": {"app": "web"}}, "template": template}


def roll_out(running: Running, namespace: str, number: int, *, ready: bool, replicas: int = 2) -> list[str]:
    """Make the ReplicaSet and the Pods of the Deployment ``web``, and return the names of the Pods."""
    found = running.ask("GET", f"{APPS}/{namespace}/deployments/web")
    name = f"web-{number}"
    owner = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "uid": found["metadata"]["uid"]}
    spec = {part: found["spec"][part] for part in ("selector", "template", "replicas")}
    metadata: dict[str, Any] = {"name": name, "ownerReferences": [{**owner, "controller": True}]}
    path = f"{APPS}/{namespace}/replicasets"
    made = ask_as(running, f"{KCM}deployment-controller", "POST", path, {"metadata": metadata, "spec": spec})
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": name, "uid": made["metadata"]["uid"]}
    pods = f"/api/v1/namespaces/{namespace}/pods"
    names = [f"{name}-{place}" for place in range(replicas)]
    for each in names:
        metadata = {"name": each, "labels": {"app": "web"}, "ownerReferences": [{**owner, "controller": True}]}
        body = {"metadata": metadata, "spec": found["spec"]["template"]["spec"]}
        ask_as(running, f"{KCM}replicaset-controller", "POST", pods, body)
        state = {"running": {}} if ready else {"waiting": {"reason": "CrashLoopBackOff"}}
        container = {"name": "web", "image": "", "imageID": "", "ready": ready, "restartCount": 0, "state": state}
        conditions = [{"type": "Ready", "status": "True" if ready else "False"}]
        status = {"phase": "Running", "conditions": conditions, "containerStatuses": [container]}
        ask_as(running, "system:node:one", "PATCH", f"{pods}/{each}/status", {"status": status})
    return names


def make_story(running: Running, namespace: str = "shop") -> None:
    """Let alice deploy, ci break it, bob grant himself rights, and alice delete a ConfigMap and roll back."""
    ask_as(running, "alice@example.com", "POST", "/api/v1/namespaces", {"metadata": {"name": namespace}})
    path = f"{APPS}/{namespace}/deployments"
    ask_as(running, "alice@example.com", "POST", path, {"metadata": {"name": "web"}, "spec": deployment("r.io/web:1")})
    roll_out(running, namespace, 1, ready=True)
    maps = f"/api/v1/namespaces/{namespace}/configmaps"
    for number in range(4):
        body = {"metadata": {"name": f"flag-{number}"}, "data": {"on": "true"}}
        ask_as(running, "system:serviceaccount:ci:deployer", "POST", maps, body)
    for user, image, ready in (
        ("system:serviceaccount:ci:deployer", "r.io/web:2", False),
        ("alice@example.com", "r.io/web:1", True),
    ):
        patch = {"spec": {"template": deployment(image)["template"]}}
        ask_as(running, user, "PATCH", f"{path}/web", patch, reason="" if not ready else "2 crashes")
        roll_out(running, namespace, 3 if ready else 2, ready=ready)
    subjects = [{"kind": "User", "name": "bob", "apiGroup": "rbac.authorization.k8s.io"}]
    role = {"kind": "ClusterRole", "name": "cluster-admin", "apiGroup": "rbac.authorization.k8s.io"}
    body = {"metadata": {"name": f"bob-{namespace}"}, "roleRef": role, "subjects": subjects}
    ask_as(running, "bob", "POST", "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", body)
    ask_as(running, "alice@example.com", "DELETE", f"{maps}/flag-0")
