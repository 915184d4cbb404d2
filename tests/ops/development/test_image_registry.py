"""The registry that a real node pulls from: what containerd has stored, by tag and by digest."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from kubechronicle.ops.development.real_node.registry import registry

KIND = "application/vnd.oci.image.manifest.v1+json"
MANIFEST = json.dumps({"schemaVersion": 2, "mediaType": KIND}).encode()
LAYER = b"layer"
NAME = "registry.k8s.io/e2e-test-images/agnhost:2.66.1"


def stored(folder: Path, data: bytes) -> str:
    blobs = folder / "io.containerd.content.v1.content" / "blobs" / "sha256"
    blobs.mkdir(parents=True, exist_ok=True)
    name = hashlib.sha256(data).hexdigest()
    (blobs / name).write_bytes(data)
    return f"sha256:{name}"


@pytest.fixture
def client(tmp_path: Path) -> Iterator[httpx.Client]:
    stored(tmp_path, LAYER)
    digest = stored(tmp_path, MANIFEST)
    with registry("127.0.0.1", tmp_path) as serving:
        serving.images = {NAME: digest}
        with httpx.Client(base_url=serving.url) as client:
            yield client


def test_a_pull(client: httpx.Client) -> None:
    assert client.get("/v2/").status_code == 200
    path = "/v2/e2e-test-images/agnhost/manifests/2.66.1?ns=registry.k8s.io"
    resolved = client.head(path)
    assert resolved.headers["content-type"] == KIND
    digest = resolved.headers["docker-content-digest"]
    assert client.get(f"/v2/e2e-test-images/agnhost/manifests/{digest}?ns=registry.k8s.io").content == MANIFEST
    layer = f"sha256:{hashlib.sha256(LAYER).hexdigest()}"
    assert client.get(f"/v2/e2e-test-images/agnhost/blobs/{layer}").content == LAYER


@pytest.mark.parametrize(
    "path",
    [
        "/v2/e2e-test-images/agnhost/manifests/2.66.1?ns=docker.io",
        "/v2/e2e-test-images/agnhost/manifests/2.0?ns=registry.k8s.io",
        "/v2/a/blobs/sha256:" + "0" * 64,
        "/v2/a/blobs/../../secret",
        "/other",
    ],
)
def test_what_is_not_stored(client: httpx.Client, path: str) -> None:
    assert client.get(path).status_code == 404
