"""Workloads on a real node: rollouts with probes, Jobs, StatefulSets with volumes, Services by name, drain."""

from __future__ import annotations

import json
from typing import Any

import pytest
from harness import eventually

from kubechronicle.ops.development.real_node.images import BUSYBOX
from kubechronicle.ops.development.real_node.node import NAME, Node
from tests.clients.real_node.pods import Pod, run_pod

PAGE = "mkdir /tmp/www; echo $VERSION $(hostname) > /tmp/www/index.html; exec httpd -f -p 8080 -h /tmp/www"


def container(script: str, **more: Any) -> dict[str, Any]:
    return {"name": "c", "image": BUSYBOX, "command": ["sh", "-c", script], **more}


def web(name: str, *, replicas: int, version: str) -> dict[str, Any]:
    """Return a Deployment of web servers with a readiness probe."""
    labels = {"app": name}
    probe = {"httpGet": {"path": "/", "port": 8080}, "periodSeconds": 1}
    server = container(PAGE, env=[{"name": "VERSION", "value": version}], readinessProbe=probe)
    pods = {"metadata": {"labels": labels}, "spec": {"containers": [server], "terminationGracePeriodSeconds": 1}}
    rolling = {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 0, "maxSurge": 1}}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name},
        "spec": {"replicas": replicas, "selector": {"matchLabels": labels}, "strategy": rolling, "template": pods},
    }


def apply(node: Node, namespace: str, *objects: dict[str, Any]) -> None:
    node.kubectl("--namespace", namespace, "apply", "-f", "-", stdin="\n---\n".join(map(json.dumps, objects)))


def test_a_rollout_with_readiness_probes_and_a_service(node: Node, namespace: str) -> None:
    if not node.proxied:
        pytest.skip("kube-proxy does not run on this machine")
    own = ("--namespace", namespace)
    apply(node, namespace, web("web", replicas=2, version="one"))
    node.kubectl(*own, "rollout", "status", "deployment/web", "--timeout=120s")
    node.kubectl(*own, "expose", "deployment", "web", "--port=80", "--target-port=8080")
    client = run_pod(node, namespace)
    url = f"http://web.{namespace}.svc.cluster.local"
    eventually(lambda: client.shell(f"timeout 5 wget -qO - {url}").stdout.startswith("one "), "the Service answers")
    asking = f"while :; do timeout 5 wget -qO - {url} || echo failed; sleep 0.1; done"
    with client.following("exec", client.name, "--", "sh", "-c", asking) as (_, lines):
        lines.until(lambda line: line.startswith("one "))
        apply(node, namespace, web("web", replicas=2, version="two"))
        node.kubectl(*own, "rollout", "status", "deployment/web", "--timeout=120s")
        lines.until(lambda line: line.startswith("two "))
    node.kubectl(*own, "rollout", "undo", "deployment/web")
    node.kubectl(*own, "rollout", "status", "deployment/web", "--timeout=120s")
    eventually(
        lambda: client.shell(f"timeout 5 wget -qO - {url}").stdout.startswith("one "), "the first version is back"
    )
    # The server itself by the name of its Service, as programs in pods reach it.
    token = "/var/run/secrets/kubernetes.io/serviceaccount/token"
    found = client.shell(f"wc -c < {token}; nslookup kubernetes.default.svc.cluster.local")
    assert "10.96.0.1" in found.stdout, found.stdout + found.stderr


def test_a_failing_rollout_keeps_the_old_pods(node: Node, namespace: str) -> None:
    own = ("--namespace", namespace)
    apply(node, namespace, web("web", replicas=1, version="one"))
    node.kubectl(*own, "rollout", "status", "deployment/web", "--timeout=120s")
    broken = web("web", replicas=1, version="two")
    broken["spec"]["template"]["spec"]["containers"][0]["readinessProbe"]["httpGet"]["path"] = "/absent"
    broken["spec"]["progressDeadlineSeconds"] = 5
    apply(node, namespace, broken)
    refused = node.call(*own, "rollout", "status", "deployment/web", "--timeout=120s")
    assert refused.returncode != 0
    assert "exceeded its progress deadline" in refused.stderr + refused.stdout
    assert node.kubectl(*own, "get", "deployment", "web", "-o", "jsonpath={.status.availableReplicas}") == "1"


def test_a_job_with_a_retry(node: Node, namespace: str) -> None:
    own = ("--namespace", namespace)
    script = "test -e /shared/tried || { touch /shared/tried; exit 1; }; echo done"
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "once"},
        "spec": {
            "template": {
                "spec": {
                    "restartPolicy": "OnFailure",
                    "containers": [container(script, volumeMounts=[{"name": "shared", "mountPath": "/shared"}])],
                    "volumes": [{"name": "shared", "emptyDir": {}}],
                }
            }
        },
    }
    apply(node, namespace, job)
    node.kubectl(*own, "wait", "job/once", "--for=condition=Complete", "--timeout=120s")
    assert node.kubectl(*own, "logs", "job/once") == "done\n"


def volumes(count: int, prefix: str) -> list[dict[str, Any]]:
    """Return local volumes of the node: folders that the kubelet creates."""
    return [
        {
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {"name": f"{prefix}-{number}"},
            "spec": {
                "capacity": {"storage": "1Mi"},
                "accessModes": ["ReadWriteOnce"],
                "storageClassName": prefix,
                "persistentVolumeReclaimPolicy": "Retain",
                "hostPath": {"path": f"/run/{prefix}-{number}", "type": "DirectoryOrCreate"},
            },
        }
        for number in range(count)
    ]


def test_a_stateful_set_keeps_its_volumes(node: Node, namespace: str) -> None:
    own, labels = ("--namespace", namespace), {"app": "store"}
    script = "hostname >> /data/names; exec sleep 3600"
    claim = {
        "metadata": {"name": "data"},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": namespace,
            "resources": {"requests": {"storage": "1Mi"}},
        },
    }
    keeper = container(script, volumeMounts=[{"name": "data", "mountPath": "/data"}])
    template = {"metadata": {"labels": labels}, "spec": {"containers": [keeper], "terminationGracePeriodSeconds": 1}}
    spec = {
        "replicas": 2,
        "serviceName": "store",
        "selector": {"matchLabels": labels},
        "template": template,
        "volumeClaimTemplates": [claim],
    }
    headless = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "store"},
        "spec": {"clusterIP": "None", "selector": labels, "ports": [{"port": 80}]},
    }
    named = {"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "store"}, "spec": spec}
    apply(node, namespace, headless, *volumes(2, namespace), named)
    node.kubectl(*own, "rollout", "status", "statefulset/store", "--timeout=120s")
    pod = Pod(node, namespace, "store-0")
    before = node.kubectl(*own, "get", "pod", "store-0", "-o", "jsonpath={.metadata.uid}")
    node.kubectl(*own, "delete", "pod", "store-0")
    uid = ("get", "pod", "store-0", "-o", "jsonpath={.metadata.uid}")
    eventually(lambda: (now := node.call(*own, *uid).stdout) and now != before, "the pod is created again")
    node.kubectl(*own, "wait", "pod/store-0", "--for=condition=Ready", "--timeout=120s")
    assert pod.shell("cat /data/names").stdout == "store-0\nstore-0\n"
    if node.proxied:
        found = pod.shell("nslookup store-1.store.$(sed 's/.*search \\([^ ]*\\).*/\\1/;q' /etc/resolv.conf)")
        assert "Address" in found.stdout
    node.kubectl(*own, "delete", "statefulset", "store")
    node.kubectl("delete", "persistentvolume", *(f"{namespace}-{number}" for number in range(2)), "--wait=false")


def test_drain(node: Node, namespace: str) -> None:
    own = ("--namespace", namespace)
    apply(node, namespace, web("web", replicas=2, version="one"))
    node.kubectl(*own, "create", "poddisruptionbudget", "web", "--selector=app=web", "--min-available=2")
    node.kubectl(*own, "rollout", "status", "deployment/web", "--timeout=120s")
    allowed = "jsonpath={.status.currentHealthy}=2"
    node.kubectl(*own, "wait", "poddisruptionbudget/web", f"--for={allowed}", "--timeout=60s")
    drain = ("drain", NAME, "--ignore-daemonsets", "--delete-emptydir-data", "--force")
    try:
        only = ("--pod-selector=app=web", "--timeout=5s")
        refused = node.call(*drain, *only)
        assert refused.returncode != 0
        assert "violate the pod's disruption budget" in refused.stderr
        node.kubectl(*own, "delete", "poddisruptionbudget", "web")
        node.kubectl(*drain, "--pod-selector=app=web", "--timeout=120s")
        assert "SchedulingDisabled" in node.kubectl("get", "node", NAME)
        pending = "jsonpath={range .items[*]}{.status.phase} {end}"
        phases = lambda: node.kubectl(*own, "get", "pods", "-o", pending).split()  # noqa: E731
        eventually(lambda: phases() == ["Pending"] * 2, "the pods wait for a node")
    finally:
        node.kubectl("uncordon", NAME)
    node.kubectl(*own, "rollout", "status", "deployment/web", "--timeout=120s")
