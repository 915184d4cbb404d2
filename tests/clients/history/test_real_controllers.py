"""Causes of the writes of a real kube-controller-manager, which records none: they end at the person who began it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from harness import ROOT, Api, Server, eventually, home, server_in

MANAGER = ROOT / ".cache" / "node" / "bin" / "kube-controller-manager"
PATIENCE = 240.0
IMAGE = "example.invalid/web"
SPACE = "/api/v1/namespaces/shop"
APPS = "/apis/apps/v1/namespaces/shop"
Who = Callable[..., list[str]]


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """A server without control loops of its own, beside a kube-controller-manager."""
    if not MANAGER.exists():
        pytest.skip("kube-controller-manager has not been built; `make test-node` does that")
    with home("manager") as directory:
        started = server_in(directory / "data", arguments=["--controllers", ""])
        try:
            kubeconfig = directory / "manager.kubeconfig"
            kubeconfig.write_text(_kubeconfig(started.start(), "system:kube-controller-manager"))
            pki = started.data_dir / "pki"
            arguments = [
                *(f"--{each}={kubeconfig}" for each in ("kubeconfig", "authentication-kubeconfig")),
                f"--authorization-kubeconfig={kubeconfig}",
                "--use-service-account-credentials",
                "--leader-elect=false",
                f"--service-account-private-key-file={pki / 'sa.key'}",
                f"--root-ca-file={pki / 'ca.crt'}",
                "--bind-address=127.0.0.1",
                "--secure-port=0",
                "--horizontal-pod-autoscaler-sync-period=2s",
            ]
            with (directory / "manager.log").open("w") as log:
                manager = subprocess.Popen([str(MANAGER), *arguments], stderr=log)
            yield started
            manager.terminate()
            manager.wait()
        finally:
            started.close()


def _kubeconfig(server: Server, user: str) -> str:
    command = [*server.command(), "kubeconfig", "--user", user, "--data-dir", str(server.data_dir)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


@pytest.fixture
def api(server: Server) -> Api:
    made = server.api(timeout=PATIENCE)
    made.namespace("shop")
    eventually(lambda: made.request("GET", f"{SPACE}/serviceaccounts/default").status == 200, "it", timeout=PATIENCE)
    return made


@pytest.fixture
def who(server: Server) -> Who:
    """Return a function that asks `who …`, and returns the users from the one who did it to the first cause."""

    def ask(*words: str) -> list[str]:
        program = Path(sys.executable).with_name("kubectl-chronicle")
        command = [str(program), "who", *words, "-n", "shop", "-o", "json"]
        environment = os.environ | {"KUBECONFIG": str(server.kubeconfig)}
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False, env=environment)
        assert done.returncode == 0, done.stdout + done.stderr
        link = json.loads(done.stdout)["answers"][0]
        users = []
        while link:
            users.append(link["revision"]["who"]["username"].removeprefix("system:serviceaccount:kube-system:"))
            link = next(iter(link.get("because") or ()), None)
        return users

    return ask


def as_user(api: Api, user: str, method: str, path: str, body: Any = None) -> Any:
    headers = {"Impersonate-User": user, "Impersonate-Group": "system:masters"}
    if method == "PATCH":
        headers["Content-Type"] = "application/merge-patch+json"
    return api.request(method, path, body, headers=headers).expect(200, 201)


def named(api: Api, path: str, app: str) -> list[str]:
    """Return the names of the objects of an application, the oldest first."""
    items = api.get(f"{path}?labelSelector=app={app}")["items"]
    items.sort(key=lambda each: int(each["metadata"]["resourceVersion"]))
    return [each["metadata"]["name"] for each in items]


def template(app: str, image: str) -> dict[str, Any]:
    return {"metadata": {"labels": {"app": app}}, "spec": {"containers": [{"name": "main", "image": image}]}}


def deployment(app: str, replicas: int) -> dict[str, Any]:
    spec = {"replicas": replicas, "selector": {"matchLabels": {"app": app}}, "template": template(app, f"{IMAGE}:1")}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": app}, "spec": spec}


def until(look: Callable[[], Any], condition: str) -> Any:
    return eventually(look, condition, timeout=PATIENCE, pause=0.5)


def test_a_rollout_its_scaling_and_its_end(api: Api, who: Who) -> None:
    as_user(api, "ann", "POST", f"{APPS}/deployments", deployment("web", 2))
    pods = until(lambda: len(found := named(api, f"{SPACE}/pods", "web")) == 2 and found, "two Pods")
    chain = who("created", f"pod/{pods[0]}")
    assert (chain[0], chain[-1]) == ("replicaset-controller", "ann")
    as_user(api, "jane", "PATCH", f"{APPS}/deployments/web", {"spec": {"template": template("web", f"{IMAGE}:2")}})
    sets = until(lambda: len(found := named(api, f"{APPS}/replicasets", "web")) == 2 and found, "a rollout")
    newest = max(sets, key=lambda name: api.get(f"{APPS}/replicasets/{name}")["metadata"]["creationTimestamp"])
    assert {who("created", f"replicaset/{name}")[-1] for name in sets} == {"ann", "jane"}
    before = named(api, f"{SPACE}/pods", "web")
    as_user(api, "carl", "PATCH", f"{APPS}/deployments/web", {"spec": {"replicas": 1}})
    until(lambda: len(named(api, f"{SPACE}/pods", "web")) < len(before), "a Pod to go")
    (gone, *_) = set(before) - set(named(api, f"{SPACE}/pods", "web"))
    assert who("deleted", f"pod/{gone}")[-1] == "carl"
    left = named(api, f"{SPACE}/pods", "web")
    as_user(api, "bob", "DELETE", f"{APPS}/deployments/web")
    until(lambda: not named(api, f"{SPACE}/pods", "web"), "the Pods to be collected")
    assert who("deleted", f"pod/{left[0]}") == ["generic-garbage-collector", "generic-garbage-collector", "bob"]
    assert who("deleted", f"replicaset/{newest}") == ["generic-garbage-collector", "bob"]


def test_a_job_and_the_slices_of_a_service(api: Api, who: Who) -> None:
    spec = {"template": template("once", f"{IMAGE}:1")}
    spec["template"]["spec"]["restartPolicy"] = "Never"
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "once"}, "spec": spec}
    as_user(api, "ann", "POST", "/apis/batch/v1/namespaces/shop/jobs", job)
    (pod,) = until(lambda: named(api, f"{SPACE}/pods", "once"), "the Pod of the Job")
    assert who("created", f"pod/{pod}") == ["job-controller", "ann"]
    service = {"metadata": {"name": "once", "labels": {"app": "once"}}, "spec": {"ports": [{"port": 80}]}}
    as_user(
        api,
        "eva",
        "POST",
        f"{SPACE}/services",
        service | {"spec": {"ports": [{"port": 80}], "selector": {"app": "once"}}},
    )
    slices = "/apis/discovery.k8s.io/v1/namespaces/shop/endpointslices"
    (found,) = until(lambda: named(api, slices, "once"), "the slice of the Service")
    assert who("created", f"endpointslice/{found}") == ["endpointslice-controller", "eva"]


def test_an_autoscaler(api: Api, who: Who) -> None:
    as_user(api, "ann", "POST", f"{APPS}/deployments", deployment("api", 1))
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "api"}
    autoscaler = {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": "of-api"},
        "spec": {"minReplicas": 3, "maxReplicas": 5, "scaleTargetRef": target},
    }
    as_user(api, "eva", "POST", "/apis/autoscaling/v2/namespaces/shop/horizontalpodautoscalers", autoscaler)
    until(lambda: api.get(f"{APPS}/deployments/api")["spec"]["replicas"] == 3, "three replicas")
    assert who("set", "deployment/api", "spec.replicas") == ["horizontal-pod-autoscaler", "eva"]
    pods = until(lambda: len(found := named(api, f"{SPACE}/pods", "api")) == 3 and found, "three Pods")
    assert {who("created", f"pod/{name}")[-1] for name in pods} == {"ann", "eva"}


def test_a_namespace(api: Api, who: Who) -> None:
    as_user(api, "ann", "POST", f"{SPACE}/configmaps", {"metadata": {"name": "settings"}})
    as_user(api, "mallory", "DELETE", SPACE)
    until(lambda: api.request("GET", SPACE).status == 404, "the namespace to be gone")
    assert who("deleted", "configmap/settings") == ["namespace-controller", "mallory"]
