"""Policies as Kubernetes' documentation teaches them, applied with kubectl and enforced."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import yaml
from custom_resources import merge
from harness import BINARIES, Api, Server, configmap, eventually, prepare, unique
from programs import Kubectl

POLICIES = Path(__file__).parent / "policies.yaml"


@pytest.fixture
def api(server: Server) -> Iterator[Api]:
    with closing(server.api()) as api:
        yield api


@pytest.fixture
def kubectl(api: Api, server: Server, tmp_path: Path) -> Iterator[Kubectl]:
    """kubectl in a namespace for which the policies are bound."""
    prepare("kubectl")
    kubectl = Kubectl(str(BINARIES / "kubectl"), server, tmp_path, api.namespace(unique("policies")))
    merge(api, f"/api/v1/namespaces/{kubectl.namespace}", {"metadata": {"labels": {"policies": "test"}}})
    account = f"/api/v1/namespaces/{kubectl.namespace}/serviceaccounts/default"
    eventually(lambda: api.request("GET", account).status == 200, "the default service account")
    yield kubectl
    kubectl.call("delete", "-f", str(POLICIES), "--ignore-not-found")
    api.request("DELETE", f"/api/v1/namespaces/{kubectl.namespace}").expect(200)


def deployment(image: str, replicas: int) -> str:
    labels = {"app": "web"}
    spec = {
        "replicas": replicas,
        "selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": image}]}},
    }
    return yaml.safe_dump({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}, "spec": spec})


def test_policies_of_the_documentation(api: Api, kubectl: Kubectl) -> None:
    assert kubectl("apply", "-f", str(POLICIES)).count(" created") == 8
    again = kubectl("apply", "-f", str(POLICIES))
    # The rules of the manifest lack a default, in a list that is replaced as a whole: kubectl patches them each time.
    assert (again.count(" configured"), again.count(" unchanged")) == (4, 4)
    good = deployment("registry.example.com/web:1", 3)
    refused = kubectl.refused("apply", "-f", "-", stdin=good)
    assert "no params found for policy binding with `Deny` parameterNotFoundAction" in refused
    kubectl("create", "configmap", "replica-limit", "--from-literal=maxReplicas=3")
    kubectl("apply", "-f", "-", stdin=good)
    refused = kubectl.refused("apply", "-f", "-", stdin=deployment("registry.example.com/web:1", 5))
    denial = (
        "ValidatingAdmissionPolicy 'replica-limit.example.com' with binding 'replica-limit-test.example.com' denied "
        "request: at most 3 replicas, not 5"
    )
    assert refused == f'The deployments "web" is invalid: : {denial}\n'
    kubectl("patch", "configmap", "replica-limit", "--type=merge", '--patch={"data":{"maxReplicas":"5"}}')
    warned = kubectl.call("apply", "-f", "-", stdin=deployment("docker.io/web:1", 5))
    assert warned.returncode == 0
    assert (
        "Warning: Validation failed for ValidatingAdmissionPolicy 'image-registry.example.com' with binding "
        "'image-registry-test.example.com': images of other registries: docker.io/web:1"
    ) in warned.stderr
    kubectl("label", "deployment", "web", "exempt=yes")
    assert "Warning" not in kubectl.call("annotate", "deployment", "web", "a=b").stderr


def test_objects_that_a_policy_seals(api: Api, kubectl: Kubectl) -> None:
    kubectl("apply", "-f", str(POLICIES))
    maps = f"/api/v1/namespaces/{kubectl.namespace}/configmaps"
    for name in ("closed", "open"):
        sealed: Any = configmap(name)
        sealed["metadata"]["labels"] = {"sealed": ""}
        api.create(maps, sealed)
    for arguments in (("delete", "configmap", "closed"), ("label", "configmap", "closed", "sealed-")):
        assert kubectl.refused(*arguments).startswith(
            'Error from server (Forbidden): configmaps "closed" is forbidden: '
        )
    kubectl("delete", "configmap", "open")
    kubectl("delete", "-f", str(POLICIES))
    kubectl("delete", "configmap", "closed")


def test_a_policy_adds_a_sidecar(kubectl: Kubectl) -> None:
    kubectl("apply", "-f", str(POLICIES))
    kubectl("run", "one", "--image=nginx:1")
    found = kubectl("get", "pod", "one", "-o", "jsonpath={.spec.initContainers[*].name} {.metadata.annotations.mesh}")
    assert found == "mesh-proxy on"
    assert "mesh-proxy" in kubectl("run", "two", "--image=nginx:1", "--dry-run=server", "-o", "yaml")
