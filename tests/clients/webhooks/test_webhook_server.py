"""A webhook server on the unchanged controller-runtime, behind a Service, in the configurations of a policy engine.

The bundles of its authority come later, and change while it runs: as with an injector of certificates.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import yaml
from admission.serving_certificates import issue
from certificates import CA
from custom_resources import merge
from harness import BINARIES, Api, Server, eventually, prepare, unique
from postgres_fixture import free_port
from programs import Kubectl, running

CONFIGS = "/apis/admissionregistration.k8s.io/v1"
HOST = "engine.policy-engine.svc"
CONFIGURATIONS = (
    f"{CONFIGS}/mutatingwebhookconfigurations/engine-resource-mutating",
    f"{CONFIGS}/validatingwebhookconfigurations/engine-validating",
)
UNKNOWN = "tls: failed to verify certificate: x509: certificate signed by unknown authority"


def inject(api: Api, authority: CA) -> None:
    """Patch the bundle of the authority into all webhooks."""
    bundle = base64.b64encode(authority.pem).decode()
    for path in CONFIGURATIONS:
        count = len(api.get(path)["webhooks"])
        change = [
            {"op": "add", "path": f"/webhooks/{index}/clientConfig/caBundle", "value": bundle} for index in range(count)
        ]
        api.request("PATCH", path, change, headers={"Content-Type": "application/json-patch+json"}).expect(200)


def pod(name: str, image: str = "nginx:1", **metadata: Any) -> Any:
    spec = {"containers": [{"name": "main", "image": image}]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, **metadata}, "spec": spec}


@pytest.fixture
def kubectl(server: Server, tmp_path: Path) -> Iterator[Kubectl]:
    prepare("kubectl", "webhooks")
    with closing(server.api()) as api:
        kubectl = Kubectl(str(BINARIES / "kubectl"), server, tmp_path, api.namespace(unique("webhooks")))
        account = f"/api/v1/namespaces/{kubectl.namespace}/serviceaccounts/default"
        eventually(lambda: api.request("GET", account).status == 200, "the default service account")
        yield kubectl
        for path in (*CONFIGURATIONS, "/api/v1/namespaces/policy-engine", f"/api/v1/namespaces/{kubectl.namespace}"):
            api.request("DELETE", path).expect(200, 404)


def test_a_webhook_server_of_controller_runtime(server: Server, kubectl: Kubectl, tmp_path: Path) -> None:
    port, first, second = free_port(), CA("first"), CA("second")
    issue(tmp_path, first, HOST)
    manifest = (Path(__file__).parent / "engines.yaml").read_text().replace("port: 443", f"port: {port}")
    pods = f"/api/v1/namespaces/{kubectl.namespace}/pods"
    command = [str(BINARIES / "webhook-server"), "--directory", str(tmp_path), "--port", str(port)]
    with closing(server.api()) as api, running(command, log=tmp_path / "server.log"):
        merge(
            api,
            f"/api/v1/namespaces/{kubectl.namespace}",
            {"metadata": {"labels": {"engine.example.com/watched": "yes"}}},
        )
        namespace, kubectl.namespace = kubectl.namespace, ""
        assert kubectl("apply", "-f", "-", stdin=manifest).count(" created") == 4
        kubectl("apply", "-f", "-", stdin=manifest)
        kubectl.namespace = namespace
        message = eventually(
            lambda: (text := api.request("POST", pods, pod("a")).expect(500)["message"]).endswith(UNKNOWN) and text,
            "the webhook server listens",
        )
        assert (
            f'failed calling webhook "mutate.engine.example.com-fail": failed to call webhook: Post "https://{HOST}'
            in message
        )

        inject(api, first)
        assert "example.com/created-by: " in kubectl("create", "-f", "-", "-o", "yaml", stdin=yaml.safe_dump(pod("a")))
        denied = kubectl.refused("create", "-f", "-", stdin=yaml.safe_dump(pod("b", "nginx")))
        why = 'admission webhook "validation.engine.example.com" denied the request: the image of main has no tag'
        assert denied == f'Error from server (Forbidden): error when creating "STDIN": {why}\n'
        latest = kubectl.call("create", "-f", "-", "--dry-run=server", stdin=yaml.safe_dump(pod("b", "nginx:latest")))
        assert "Warning: the tag latest moves" in latest.stderr
        skipped = api.create(pods, pod("s", labels={"engine.example.com/skip": ""}))
        assert skipped["metadata"]["labels"] == {"engine.example.com/skip": ""}

        kubectl("annotate", "pod", "a", "example.com/protected=yes")
        assert "it is protected" in kubectl.refused("delete", "pod", "a", "--now")
        assert "it is protected" in kubectl.refused("delete", "pods", "--all", "--now")
        kubectl("annotate", "pod", "a", "example.com/protected-")
        kubectl("delete", "pod", "a", "--now")

        issue(tmp_path, second, HOST)
        inject(api, second)
        created: Any = eventually(
            lambda: (answer := api.request("POST", pods, pod("c"))).status == 201 and answer.json(),
            "the webhook server has its second certificate",
        )
        assert created["metadata"]["labels"]["example.com/created-by"]
        inject(api, CA("third"))  # connections that were made with a former bundle are not used
        assert api.request("POST", pods, pod("d")).expect(500)["message"].endswith(UNKNOWN)
