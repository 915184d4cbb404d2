"""kubectl on workloads, nodes and pods. The tests act as controllers and kubelet: they write the ReplicaSets, statuses
and finalizers that kubectl reads."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from harness import BINARIES, Api, Server, prepare, unique
from programs import Kubectl


@pytest.fixture(scope="module")
def api(server: Server) -> Iterator[Api]:
    connection = server.api()
    yield connection
    connection.close()


@pytest.fixture(scope="module")
def kubectl(server: Server, api: Api, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kubectl]:
    prepare("kubectl")
    name = api.namespace(unique("workloads"))
    yield Kubectl(str(BINARIES / "kubectl"), server, tmp_path_factory.mktemp("workloads-home"), name)
    api.request("DELETE", f"/api/v1/namespaces/{name}")


@dataclass
class Shop:
    """A Deployment, and the writes of its controller."""

    name: str
    kubectl: Kubectl
    api: Api

    @property
    def title(self) -> str:
        return f"deployment.apps/{self.name}"

    @property
    def path(self) -> str:
        return f"/apis/apps/v1/namespaces/{self.kubectl.namespace}"

    def get(self) -> Any:
        return self.api.get(f"{self.path}/deployments/{self.name}")

    def field(self, path: str) -> str:
        return self.kubectl("get", self.title, "-o", f"jsonpath={{{path}}}")

    def merge(self, path: str, patch: Any) -> None:
        headers = {"Content-Type": "application/merge-patch+json"}
        self.api.request("PATCH", path, json.dumps(patch).encode(), headers=headers).expect(200)

    def roll(self, revision: int, cause: str) -> None:
        """Act as the controller on the current template: create a ReplicaSet of this revision, and write a status."""
        deployment = self.get()
        labels = {"app": self.name, "pod-template-hash": f"h{revision}"}
        template = deployment["spec"]["template"]
        notes = {"deployment.kubernetes.io/revision": str(revision)}
        metadata = {
            "name": f"{self.name}-h{revision}",
            "labels": labels,
            "annotations": notes | {"kubernetes.io/change-cause": cause},
            "ownerReferences": [
                {
                    "apiVersion": "apps/v1",
                    "kind": "Deployment",
                    "name": self.name,
                    "uid": deployment["metadata"]["uid"],
                    "controller": True,
                    "blockOwnerDeletion": True,
                }
            ],
        }
        spec = {
            "replicas": deployment["spec"]["replicas"],
            "selector": {"matchLabels": labels},
            "template": {**template, "metadata": {**template["metadata"], "labels": labels}},
        }
        self.api.create(f"{self.path}/replicasets", {"metadata": metadata, "spec": spec})
        self.merge(f"{self.path}/deployments/{self.name}", {"metadata": {"annotations": notes}})
        self.report()

    def report(self) -> None:
        """Write the status of a complete rollout."""
        deployment = self.get()
        count = deployment["spec"]["replicas"]
        conditions = [
            {"type": "Available", "status": "True", "reason": "MinimumReplicasAvailable", "message": "fine"},
            {"type": "Progressing", "status": "True", "reason": "NewReplicaSetAvailable", "message": "done"},
        ]
        counts = dict.fromkeys(("replicas", "updatedReplicas", "readyReplicas", "availableReplicas"), count)
        status = {"observedGeneration": deployment["metadata"]["generation"], "conditions": conditions, **counts}
        self.merge(f"{self.path}/deployments/{self.name}/status", {"status": status})


@pytest.fixture
def shop(kubectl: Kubectl, api: Api) -> Shop:
    shop = Shop(unique("shop"), kubectl, api)
    kubectl("create", "deployment", shop.name, "--image=example.invalid/shop:1", "--replicas=2", "--port=8080")
    return shop


def screen(text: str) -> list[str]:
    """Return the lines of an output, with single spaces."""
    return [" ".join(line.split()) for line in text.splitlines()]


# -- rollouts ---------------------------------------------------------------------------------------------------------


def test_rollout(shop: Shop, kubectl: Kubectl) -> None:
    waiting = kubectl.call("rollout", "status", shop.title, "--timeout=1s")
    assert waiting.stdout == "Waiting for deployment spec update to be observed...\n"
    assert waiting.stderr == "error: timed out waiting for the condition\n"
    assert kubectl("rollout", "history", shop.title) == f"{shop.title} \nNo rollout history found.\n"
    shop.roll(1, "first")
    assert kubectl("rollout", "status", shop.title) == f'deployment "{shop.name}" successfully rolled out\n'
    kubectl("set", "image", shop.title, "*=example.invalid/shop:2")
    with kubectl.following("rollout", "status", shop.title) as lines:
        assert lines.next() == "Waiting for deployment spec update to be observed..."
        shop.roll(2, "second")
        lines.until(lambda line: line == f'deployment "{shop.name}" successfully rolled out')
    history = kubectl("rollout", "history", shop.title)
    assert screen(history) == [shop.title, "REVISION CHANGE-CAUSE", "1 first", "2 second", ""]
    one = screen(kubectl("rollout", "history", shop.title, "--revision=1"))
    assert one[0] == f"{shop.title} with revision #1"
    assert "Image: example.invalid/shop:1" in one
    assert kubectl("rollout", "undo", shop.title, "--dry-run=server") == f"{shop.title} rolled back (server dry run)\n"
    assert shop.field(".spec.template.spec.containers[0].image") == "example.invalid/shop:2"
    assert kubectl("rollout", "undo", shop.title) == f"{shop.title} rolled back\n"
    assert shop.field(".spec.template.spec.containers[0].image") == "example.invalid/shop:1"
    assert "pod-template-hash" not in shop.field(".spec.template.metadata.labels")
    assert kubectl("rollout", "undo", shop.title) == (
        f"{shop.title} skipped rollback (current template already matches revision 0)\n"
    )
    missing = kubectl.refused("rollout", "undo", shop.title, "--to-revision=7")
    assert missing == "error: unable to find specified revision 7 in history\n"
    described = screen(kubectl("describe", shop.title))
    assert "Replicas: 2 desired | 2 updated | 2 total | 2 available | 0 unavailable" in described
    assert "Available True MinimumReplicasAvailable" in described
    listed = screen(kubectl("get", "deploy", shop.name, "-o", "wide"))[1].split()
    assert [*listed[:4], *listed[5:]] == [
        shop.name,
        "2/2",
        "2",
        "2",
        "shop",
        "example.invalid/shop:1",
        f"app={shop.name}",
    ]


def test_pause_resume_and_restart(shop: Shop, kubectl: Kubectl) -> None:
    assert kubectl("rollout", "pause", shop.title) == f"{shop.title} paused\n"
    assert (
        kubectl.refused("rollout", "pause", shop.title) == f'error: deployments.apps "{shop.name}" is already paused\n'
    )
    assert kubectl.refused("rollout", "restart", shop.title).startswith("error: deployments.apps ")
    assert kubectl("rollout", "resume", shop.title) == f"{shop.title} resumed\n"
    assert kubectl.refused("rollout", "resume", shop.title) == f'error: deployments.apps "{shop.name}" is not paused\n'
    before = int(shop.field(".metadata.generation"))
    assert kubectl("rollout", "restart", shop.title) == f"{shop.title} restarted\n"
    assert int(shop.field(".metadata.generation")) == before + 1
    assert shop.field(".spec.template.metadata.annotations.kubectl\\.kubernetes\\.io/restartedAt").startswith("20")


def test_scale_autoscale_and_expose(shop: Shop, kubectl: Kubectl) -> None:
    assert kubectl("scale", shop.title, "--replicas=5") == f"{shop.title} scaled\n"
    assert kubectl.refused("scale", shop.title, "--current-replicas=4", "--replicas=6") == (
        "error: Expected replicas to be 4, was 5\n"
    )
    assert shop.field(".spec.replicas") == "5"
    scaler = f"horizontalpodautoscaler.autoscaling/{shop.name}"
    assert kubectl("autoscale", shop.title, "--min=2", "--max=5", "--cpu=80%") == f"{scaler} autoscaled\n"
    row = screen(kubectl("get", "hpa", shop.name, "--no-headers"))[0]
    assert row.startswith(f"{shop.name} Deployment/{shop.name} cpu: <unknown>/80% 2 5 0 ")
    assert "resource cpu on pods (as a percentage of request): <unknown> / 80%" in screen(kubectl("describe", scaler))
    assert kubectl("expose", shop.title, "--port=80") == f"service/{shop.name} exposed\n"
    service = screen(kubectl("get", "svc", shop.name, "-o", "wide", "--no-headers"))[0].split()
    assert (service[1], *service[3:5], service[6]) == ("ClusterIP", "<none>", "80/TCP", f"app={shop.name}")
    described = screen(kubectl("describe", "svc", shop.name))
    assert {"TargetPort: 80/TCP", "Session Affinity: None", "Internal Traffic Policy: Cluster"} <= set(described)
    other = (
        "expose",
        "svc",
        shop.name,
        f"--name={shop.name}-out",
        "--port=81",
        "--target-port=http",
        "--type=NodePort",
    )
    assert kubectl(*other) == f"service/{shop.name}-out exposed\n"
    assert "already exists" in kubectl.refused("expose", shop.title, "--port=80")


# -- kubectl set ------------------------------------------------------------------------------------------------------


def test_set(shop: Shop, kubectl: Kubectl) -> None:
    container = ".spec.template.spec.containers[0]"
    assert kubectl("set", "image", shop.title, "shop=example.invalid/shop:3") == f"{shop.title} image updated\n"
    assert kubectl.refused("set", "image", shop.title, "none=x") == 'error: unable to find container named "none"\n'
    assert kubectl("set", "env", shop.title, "A=1", "B=2") == f"{shop.title} env updated\n"
    assert screen(kubectl("set", "env", shop.title, "--list"))[1:] == ["A=1", "B=2"]
    assert kubectl("set", "env", shop.title, "A-") == f"{shop.title} env updated\n"
    assert shop.field(f"{container}.env") == '[{"name":"B","value":"2"}]'
    kubectl("create", "configmap", f"{shop.name}-env", "--from-literal=level=info")
    assert kubectl("set", "env", shop.title, f"--from=configmap/{shop.name}-env") == f"{shop.title} env updated\n"
    limits = ("set", "resources", shop.title, "--limits=cpu=200m,memory=0.5Gi", "--requests=cpu=0.1")
    assert kubectl(*limits) == f"{shop.title} resource requirements updated\n"
    assert shop.field(f"{container}.resources") == (
        '{"limits":{"cpu":"200m","memory":"512Mi"},"requests":{"cpu":"100m"}}'
    )
    assert kubectl("set", "serviceaccount", shop.title, "robot") == f"{shop.title} serviceaccount updated\n"
    assert shop.field(".spec.template.spec['serviceAccountName','serviceAccount']") == "robot robot"
    kubectl("create", "service", "clusterip", shop.name, "--tcp=80")
    assert kubectl("set", "selector", "service", shop.name, "app=other") == f"service/{shop.name} selector updated\n"
    kubectl("create", "rolebinding", shop.name, "--clusterrole=view", "--user=u")
    subject = ("set", "subject", "rolebinding", shop.name, "--user=zoe", "--serviceaccount=demo:s2")
    assert kubectl(*subject) == f"rolebinding.rbac.authorization.k8s.io/{shop.name} subjects updated\n"
    wide = screen(kubectl("get", "rolebinding", shop.name, "-o", "wide", "--no-headers"))[0].split()
    assert [wide[1], *wide[3:]] == ["ClusterRole/view", "u,", "zoe", "demo/s2"]
    assert shop.field(".metadata.managedFields[*].manager") == "kubectl-create kubectl-set"
    assert "managedFields" not in kubectl("get", shop.title, "-o", "yaml")


# -- deletion, waiting, watching --------------------------------------------------------------------------------------


def test_delete_and_orphan(shop: Shop, kubectl: Kubectl, api: Api) -> None:
    """The deployment waits until the garbage collector has orphaned its dependents. Then only it is deleted."""
    shop.roll(1, "first")
    with kubectl.following("delete", shop.title, "--cascade=orphan") as lines:
        assert lines.next() == f'deployment.apps "{shop.name}" deleted from {kubectl.namespace} namespace'
        # Without a garbage collector, the test does its work.
        headers = {"Content-Type": "application/merge-patch+json"}
        release = {"metadata": {"finalizers": None}}
        api.request("PATCH", f"{shop.path}/deployments/{shop.name}", release, headers=headers).expect(200, 404)
        assert lines.next() is None
    assert "(NotFound)" in kubectl.refused("get", shop.title)
    assert kubectl("get", "rs", "-l", f"app={shop.name}", "-o", "name") == f"replicaset.apps/{shop.name}-h1\n"
    assert kubectl("delete", "rs", "-l", f"app={shop.name}").startswith(f'replicaset.apps "{shop.name}-h1" deleted')


def test_wait(shop: Shop, kubectl: Kubectl, api: Api) -> None:
    met = f"{shop.title} condition met\n"
    late = kubectl.refused("wait", shop.title, "--for=condition=Available", "--timeout=1s")
    assert late == f"error: timed out waiting for the condition on deployments/{shop.name}\n"
    with kubectl.following("wait", shop.title, "--for=condition=Available", "--timeout=60s") as lines:
        threading.Timer(0.3, shop.report).start()
        assert lines.next() == met.strip()
    assert kubectl("wait", shop.title, "--for=jsonpath={.status.readyReplicas}=2", "--timeout=60s") == met
    assert kubectl("wait", shop.title, "--for=create", "--timeout=60s") == met
    name = unique("later")
    with kubectl.following("wait", f"cm/{name}", "--for=create", "--timeout=60s") as lines:
        body = {"metadata": {"name": name}}
        api.create(f"/api/v1/namespaces/{kubectl.namespace}/configmaps", body)
        assert lines.next() == f"configmap/{name} condition met"
    assert kubectl("wait", f"cm/{unique('never')}", "--for=delete", "--timeout=60s") == ""


def test_watch(kubectl: Kubectl) -> None:
    name = unique("watched")
    kubectl("create", "deployment", name, "--image=i:1")
    with kubectl.following("get", "deploy", name, "--watch") as lines:
        assert lines.next() == "NAME" + " " * (len(name) - 1) + "READY   UP-TO-DATE   AVAILABLE   AGE"
        assert screen(lines.next() or "")[0].startswith(f"{name} 0/1 0 0 ")
        kubectl("scale", "deploy", name, "--replicas=3")
        assert screen(lines.next() or "")[0].startswith(f"{name} 0/3 0 0 ")


# -- nodes and pods ---------------------------------------------------------------------------------------------------

STATUS = {
    "capacity": {"cpu": "4", "memory": "8Gi", "pods": "110"},
    "allocatable": {"cpu": "3900m", "memory": "7Gi", "pods": "110"},
    "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "fine"}],
    "addresses": [{"type": "InternalIP", "address": "192.0.2.1"}],
    "nodeInfo": {
        "kubeletVersion": "v1.36.0",
        "osImage": "Linux",
        "kernelVersion": "6.12",
        "containerRuntimeVersion": "containerd://2.1",
        "architecture": "amd64",
    },
}


@pytest.fixture
def node(api: Api) -> Iterator[str]:
    name = unique("node")
    labels = {"node-role.kubernetes.io/worker": ""}
    api.create("/api/v1/nodes", {"metadata": {"name": name, "labels": labels}})
    headers = {"Content-Type": "application/merge-patch+json"}
    api.request("PATCH", f"/api/v1/nodes/{name}/status", {"status": STATUS}, headers=headers).expect(200)
    yield name
    api.request("DELETE", f"/api/v1/nodes/{name}")


def test_nodes(node: str, kubectl: Kubectl) -> None:
    assert kubectl("taint", "node", node, "a=b:NoSchedule") == f"node/{node} tainted\n"
    again = kubectl.refused("taint", "node", node, "a=b:NoSchedule")
    assert again == f"error: node {node} already has a taint(s) with same effect(s) and --overwrite is false\n"
    assert kubectl("taint", "node", node, "a=c:NoSchedule", "--overwrite") == f"node/{node} modified\n"
    assert kubectl("taint", "node", node, "a-") == f"node/{node} untainted\n"
    assert kubectl("cordon", node) == f"node/{node} cordoned\n"
    assert kubectl("cordon", node) == f"node/{node} already cordoned\n"
    wide = screen(kubectl("get", "node", node, "-o", "wide"))
    assert wide[0].startswith("NAME STATUS ROLES AGE VERSION INTERNAL-IP EXTERNAL-IP OS-IMAGE KERNEL-VERSION")
    row = wide[1].split()
    assert row[:3] == [node, "Ready,SchedulingDisabled", "worker"]
    assert row[4:] == ["v1.36.0", "192.0.2.1", "<none>", "Linux", "6.12", "(amd64)", "containerd://2.1"]
    assert kubectl("uncordon", node) == f"node/{node} uncordoned\n"


def test_pods_on_a_node(node: str, kubectl: Kubectl) -> None:
    name = unique("pod")
    where = f'--overrides={{"spec":{{"nodeName":"{node}"}}}}'
    limits = ("set", "resources", f"pod/{name}", "--limits=cpu=1")
    assert kubectl("run", name, "--image=busybox", "--labels=x=1", where, "--", "sleep", "1") == f"pod/{name} created\n"
    assert f'Pod "{name}" is invalid: spec: Forbidden: pod updates may not change fields' in kubectl.refused(*limits)
    alone = f"{kubectl.namespace}/{name}"
    kept = kubectl.call("drain", node, "--dry-run=server")
    assert kept.stdout == f"node/{node} cordoned (server dry run)\n"
    assert f"cannot delete Pods that declare no controller (use --force to override): {alone}" in kept.stderr
    forced = kubectl.call("drain", node, "--dry-run=server", "--force")
    assert forced.stdout.splitlines() == [
        f"node/{node} cordoned (server dry run)",
        f"evicting pod {alone} (server dry run)",
        f"node/{node} drained (server dry run)",
    ]
    assert forced.stderr == f"Warning: deleting Pods that declare no controller: {alone}\n"
    described = screen(kubectl("describe", "node", node))
    assert "Roles: worker" in described
    assert any(line.startswith(f"{kubectl.namespace} {name} 0 (0%) 0 (0%)") for line in described)
    pod = screen(kubectl("describe", "pod", name))
    assert {f"Node: {node}/", "Status: Pending", "QoS Class: BestEffort", "Service Account: default"} <= set(pod)
    wide = screen(kubectl("get", "pod", name, "-o", "wide", "--no-headers"))[0].split()
    assert (*wide[:4], *wide[5:]) == (name, "0/1", "Pending", "0", "<none>", node, "<none>", "<none>")
    deleted = kubectl("delete", "pod", name, "--grace-period=0", "--force")
    assert deleted == f'pod "{name}" force deleted from {kubectl.namespace} namespace\n'


def test_run_and_expose(kubectl: Kubectl) -> None:
    name = unique("run")
    arguments = ("--image=busybox", "--restart=Never", "--env=A=1", "--port=80", "--expose")
    assert kubectl("run", name, *arguments) == f"pod/{name} created\nservice/{name} created\n"
    pod = json.loads(kubectl("get", "pod", name, "-o", "json"))
    assert (pod["spec"]["restartPolicy"], pod["status"]) == (
        "Never",
        {"phase": "Pending", "qosClass": "BestEffort"},
    )
    kubectl("delete", "pod,svc", name)


def test_events(kubectl: Kubectl, api: Api) -> None:
    about = {"apiVersion": "v1", "kind": "Pod", "name": "p", "namespace": kubectl.namespace, "uid": "u"}
    for name, reason, kind in (("p.1", "Scheduled", "Normal"), ("p.2", "BackOff", "Warning")):
        event = {
            "metadata": {"name": name},
            "involvedObject": about,
            "reason": reason,
            "message": "it is",
            "type": kind,
        }
        api.create(f"/api/v1/namespaces/{kubectl.namespace}/events", event)
    warnings = screen(kubectl("events", "--types=Warning", "--for=pod/p"))
    assert warnings == ["LAST SEEN TYPE REASON OBJECT MESSAGE", "<unknown> Warning BackOff Pod/p it is"]
    listed = screen(kubectl("get", "events", "--field-selector=reason=Scheduled", "--no-headers"))
    assert listed == ["<unknown> Normal Scheduled pod/p it is"]


# -- explain, api-resources -------------------------------------------------------------------------------------------


def test_explain(kubectl: Kubectl) -> None:
    pod = screen(kubectl("explain", "pod.spec.containers.resources"))
    assert pod[:4] == ["KIND: Pod", "VERSION: v1", "", "FIELD: resources <ResourceRequirements>"]
    assert "limits <map[string]Quantity>" in pod
    deployment = kubectl("explain", "deploy", "--recursive")
    assert deployment.startswith("GROUP:      apps\nKIND:       Deployment\nVERSION:    v1\n")
    assert "\n    template\t<PodTemplateSpec> -required-\n" in deployment
    assert "FIELD: schedule <string>" in screen(kubectl("explain", "cronjob.spec.schedule"))
    older = screen(kubectl("explain", "hpa.spec", "--api-version=autoscaling/v1"))
    assert "targetCPUUtilizationPercentage <integer>" in older
    assert kubectl.refused("explain", "deploy.spec.nothing") == 'error: field "nothing" does not exist\n'


def test_api_resources_and_versions(kubectl: Kubectl) -> None:
    assert {"v1", "apps/v1", "autoscaling/v1", "autoscaling/v2"} <= set(kubectl("api-versions").split())
    by_kind = screen(kubectl("api-resources", "--sort-by=kind", "--no-headers"))
    assert [line.split()[-1] for line in by_kind] == sorted(line.split()[-1] for line in by_kind)
    assert "deployments.apps" in kubectl("api-resources", "--categories=all", "-o", "name").split()
