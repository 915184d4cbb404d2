"""Encryption with a real KMS v2 plugin: rotated, slow, killed, and back."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

from harness import Server, eventually

from tests.clients.encryption.plugin import SECRETS, Plugin, files_with, secret, text_of, write_configuration

PLANTED = "planted-with-kms-31c7"


def rewrite(server: Server) -> str:
    command = [*server.command(), "migrate-storage", "secrets", "--kubeconfig", str(server.kubeconfig)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout


def metric(server: Server, name: str) -> list[str]:
    api = server.api()
    text = api.request("GET", "/metrics").body.decode()
    api.close()
    return [line for line in text.splitlines() if line.startswith(name) and not line.endswith(" 0.0")]


def test_a_plugin_is_rotated_slow_killed_and_back(place: Path, plugin: Plugin, servers: Any) -> None:
    plugin.set(annotations={"version.encryption.example": "1"})
    file = write_configuration(place / "encryption.json", plugin.provider, {"identity": {}})
    server: Server = servers(file).start()
    api = server.api()
    api.create(SECRETS, secret("a", PLANTED))
    assert [line.split()[0] for line in plugin.calls if "serving" not in line] == ["status", "encrypt"]
    assert api.request("GET", "/healthz/kms-providers").body == b"ok"

    api.close()
    server.stop()
    plugin.set(key="2")
    server.start()
    api = server.api()
    assert text_of(api.get(SECRETS + "/a")) == PLANTED
    assert "1 rewritten" in rewrite(server)
    assert "0 rewritten" in rewrite(server)
    api.create(SECRETS, secret("b", PLANTED))
    used = metric(server, "apiserver_envelope_encryption_key_id_hash_total")
    assert len([line for line in used if "to_storage" in line]) == 1
    assert len([line for line in used if "from_storage" in line]) == 2

    api.close()
    server.stop()
    plugin.set(delay="3s")  # longer than the timeout
    server.start(healthy=False)
    api = server.api()
    slow = api.request("GET", SECRETS + "/a").expect(500)["message"]
    assert slow.startswith("Internal error occurred: failed to decrypt DEK, error: rpc error: code = DeadlineExceeded")
    assert '"/registry/secrets/default/a": failed to decrypt DEK' in api.request("GET", SECRETS).expect(500)["message"]
    assert "got unexpected nil transformer" in api.request("POST", SECRETS, secret("c", PLANTED)).expect(500)["message"]
    assert b"kms-provider-0: failed to perform status section" in api.request("GET", "/healthz/kms-providers").body
    assert api.request("GET", "/readyz").status == 500
    assert api.request("GET", "/livez").status == 200
    plugin.kill9()
    assert "failed to decrypt DEK" in api.request("GET", SECRETS + "/b").expect(500)["message"]
    plugin.set(delay="")
    plugin.start()
    eventually(lambda: api.request("GET", SECRETS + "/a").status == 200, "the plugin is back", timeout=20)
    assert [text_of(each) for each in api.get(SECRETS)["items"]] == [PLANTED, PLANTED]

    def writes() -> bool:
        api.request("GET", "/healthz")  # asks for a check, which is otherwise made every ten seconds
        return api.request("POST", SECRETS, secret("c", PLANTED)).status in (201, 409)

    eventually(writes, "writes work", timeout=20, pause=0.5)
    refused = 'apiserver_envelope_encryption_kms_operations_latency_seconds_count{grpc_status_code="DeadlineExceeded"'
    assert metric(server, refused)
    api.close()
    server.stop()
    assert files_with(server.data_dir, PLANTED) == []
    server.verify()


def test_a_plugin_of_kms_v1(place: Path, plugin: Plugin, servers: Any) -> None:
    """Each value has a key of its own; a plugin that is gone refuses writes, and reads of memory go on."""
    plugin.kill9()
    plugin.set(protocol="v1beta1")
    plugin.start()
    provider = {"kms": plugin.provider["kms"] | {"apiVersion": "v1", "cachesize": 10}}
    file = write_configuration(place / "encryption.json", provider, {"identity": {}})
    server: Server = servers(file, "--feature-gates=KMSv1=true").start()
    api = server.api()
    for name in ("a", "b"):
        api.create(SECRETS, secret(name, PLANTED))
    calls = [line.split()[0] for line in plugin.calls if line.split()[0] in ("version", "encrypt", "decrypt")]
    assert calls == ["version", "encrypt", "decrypt", "encrypt", "encrypt"]  # the first pair is the check of the health
    assert api.request("GET", "/healthz/kms-providers").body == b"ok"
    api.close()
    server.stop()
    server.start()
    api = server.api()
    assert [text_of(each) for each in api.get(SECRETS)["items"]] == [PLANTED, PLANTED]
    assert metric(server, "apiserver_envelope_encryption_dek_cache_fill_percent") == [
        "apiserver_envelope_encryption_dek_cache_fill_percent 0.2"
    ]
    plugin.kill9()
    assert "rpc error: code = " in api.request("POST", SECRETS, secret("c", PLANTED)).expect(500)["message"]
    assert text_of(api.get(SECRETS + "/a")) == PLANTED
    plugin.set(version="v1beta0")
    plugin.start()
    api.close()
    server.stop()
    server.start(healthy=False)
    api = server.api()
    wrong = "KMS provider api version v1beta0 is not supported, only v1beta1 is supported now"
    assert wrong in api.request("GET", SECRETS + "/a").expect(500)["message"]
    api.close()
    server.stop()
    assert files_with(server.data_dir, PLANTED) == []
    server.verify()
