"""kubectl delete --cascade: deletion of a Deployment with its ReplicaSet and Pods. The test writes their owners."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from harness import Api, eventually, home, server_in, unique
from programs import Kubectl

LABELS = {"app": "cascade"}
TEMPLATE = {"metadata": {"labels": LABELS}, "spec": {"containers": [{"name": "main", "image": "example.invalid/m:1"}]}}
WORKLOAD = {"replicas": 2, "selector": {"matchLabels": LABELS}, "template": TEMPLATE}


@dataclass
class Family:
    """A Deployment, its ReplicaSet, and the two Pods of the ReplicaSet."""

    api: Api
    namespace: str
    name: str

    def __post_init__(self) -> None:
        apps, core = (f"/{base}/namespaces/{self.namespace}" for base in ("apis/apps/v1", "api/v1"))
        self.deployment, self.replica_set = f"{apps}/deployments/{self.name}", f"{apps}/replicasets/{self.name}"
        self.pods = [f"{core}/pods/{self.name}-{number}" for number in range(2)]
        body = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": self.name}, "spec": WORKLOAD}
        top = self.api.create(f"{apps}/deployments", body)
        middle = self.api.create(
            f"{apps}/replicasets",
            {
                "apiVersion": "apps/v1",
                "kind": "ReplicaSet",
                "metadata": self._metadata(self.name, top),
                "spec": WORKLOAD,
            },
        )
        for path in self.pods:
            metadata = self._metadata(path.rsplit("/", 1)[1], middle) | {"labels": LABELS}
            pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": TEMPLATE["spec"]}
            self.api.create(f"{core}/pods", pod)

    @staticmethod
    def _metadata(name: str, owner: Any) -> dict[str, Any]:
        reference = {
            "apiVersion": owner["apiVersion"],
            "kind": owner["kind"],
            "name": owner["metadata"]["name"],
            "uid": owner["metadata"]["uid"],
            "controller": True,
            "blockOwnerDeletion": True,
        }
        return {"name": name, "ownerReferences": [reference]}

    def is_there(self, path: str) -> bool:
        return self.api.request("GET", path).status == 200

    def wait_gone(self, path: str) -> None:
        eventually(lambda: not self.is_there(path), f"{path} goes")

    def owners(self, path: str) -> list[str]:
        metadata = self.api.get(path)["metadata"]
        return [reference["kind"] for reference in metadata.get("ownerReferences", [])]

    def deleted(self, kind: str) -> tuple[str, ...]:
        """Return the output of kubectl before 1.34 and since."""
        line = f'{kind} "{self.name}" deleted'
        return f"{line}\n", f"{line} from {self.namespace} namespace\n"


@pytest.fixture
def family(kubectl: Kubectl, api: Api) -> Family:
    return Family(api, kubectl.namespace, unique("cascade"))


@pytest.fixture
def api(kubectl: Kubectl) -> Any:
    api = kubectl.server.api()
    yield api
    api.close()


def test_in_the_background(kubectl: Kubectl, family: Family) -> None:
    output = kubectl("delete", "deployment", family.name, "--cascade=background")
    assert output in family.deleted("deployment.apps")
    assert not family.is_there(family.deployment)
    for path in (family.replica_set, *family.pods):
        family.wait_gone(path)


def test_in_the_background_by_default(kubectl: Kubectl, family: Family) -> None:
    assert kubectl("delete", "replicaset", family.name) in family.deleted("replicaset.apps")
    for path in family.pods:
        family.wait_gone(path)
    assert family.is_there(family.deployment)


def test_in_the_foreground(kubectl: Kubectl, family: Family) -> None:
    """kubectl waits until the Deployment is deleted. By then its dependents are deleted, too."""
    output = kubectl("delete", "deployment", family.name, "--cascade=foreground")
    assert output in family.deleted("deployment.apps")
    for path in (family.deployment, family.replica_set, *family.pods):
        assert not family.is_there(path), path


def test_in_the_foreground_without_waiting(kubectl: Kubectl, family: Family) -> None:
    output = kubectl("delete", "deployment", family.name, "--cascade=foreground", "--wait=false")
    assert output in family.deleted("deployment.apps")
    family.wait_gone(family.deployment)
    for path in (family.replica_set, *family.pods):
        assert not family.is_there(path), path


def test_orphans(kubectl: Kubectl, family: Family) -> None:
    output = kubectl("delete", "deployment", family.name, "--cascade=orphan")
    assert output in family.deleted("deployment.apps")
    assert not family.is_there(family.deployment)
    assert family.owners(family.replica_set) == []
    assert [family.owners(path) for path in family.pods] == [["ReplicaSet"]] * 2
    assert kubectl("delete", "replicaset", family.name, "--cascade=orphan") in family.deleted("replicaset.apps")
    assert [family.owners(path) for path in family.pods] == [[]] * 2
    kubectl("delete", "pod", *(path.rsplit("/", 1)[1] for path in family.pods))


def test_a_deletion_continues_after_a_restart(kubectl_binary: str, tmp_path: Any) -> None:
    """Deleted without a collector; one that starts later finishes it. Every namespace has its CA ConfigMap, too."""
    with home("cascade") as directory:
        without = server_in(directory / "data", arguments=["--controllers", "*,-garbage-collector"])
        collecting = server_in(directory / "data", arguments=["--controllers", "garbagecollector"])
        try:
            without.start()
            api = without.api()
            family = Family(api, api.namespace("cascade"), "f")
            kubectl = Kubectl(kubectl_binary, without, tmp_path, "cascade")
            output = kubectl("delete", "deployment", "f", "--cascade=foreground", "--wait=false")
            assert output in family.deleted("deployment.apps")
            assert family.is_there(family.deployment)
            bundle = (without.data_dir / "pki" / "ca.crt").read_text()
            published = api.get("/api/v1/namespaces/cascade/configmaps/kube-root-ca.crt")
            assert published["data"] == {"ca.crt": bundle}
            api.close()
            assert without.stop() == 0
            collecting.start()
            family.api = collecting.api()
            for path in (family.deployment, family.replica_set, *family.pods):
                family.wait_gone(path)
            family.api.close()
        finally:
            without.close()
            collecting.close()
