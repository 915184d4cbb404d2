"""Encryption at rest in server processes: nothing readable on disk, rotation of keys, and servers without a key."""

from __future__ import annotations

import subprocess
import threading
from pathlib import Path
from typing import Any

import postgres_fixture
from harness import Server, eventually

from kubechronicle.ops.postgres.cluster import socket_url
from tests.clients.encryption.plugin import SECRETS, files_with, key, secret, text_of, write_configuration

PLANTED = ("planted-in-data-7f3a", "planted-in-label-9c1e", "planted-in-history-55d0", "planted-in-note-b2b2")
IDENTITY: dict[str, Any] = {"identity": {}}


def aesgcm(*names: str) -> dict[str, Any]:
    return {"aesgcm": {"keys": [key(name) for name in names]}}


def chronicle(server: Server, *arguments: str) -> str:
    done = subprocess.run(
        [*server.command(), *arguments, "--kubeconfig", str(server.kubeconfig)],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def dump(server: Server) -> str:
    """Return a logical backup of the embedded database."""
    tools = postgres_fixture.binaries()
    assert tools is not None
    done = subprocess.run(
        [str(tools / "pg_dump"), "--inserts", socket_url(server.data_dir / "postgres")],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_planted_secrets_are_in_no_file_and_no_backup(place: Path, servers: Any) -> None:
    file = write_configuration(place / "encryption.json", aesgcm("a"), resources=("secrets", "configmaps"))
    server = servers(file).start()
    api = server.api()
    body = secret("a", PLANTED[0])
    body["metadata"] |= {"labels": {"x": PLANTED[1]}, "annotations": {"note": PLANTED[3]}}
    api.create(SECRETS, body)
    data = {"metadata": {"name": "c"}, "data": {"x": PLANTED[2]}}
    api.create("/api/v1/namespaces/default/configmaps", data)
    api.request("PUT", SECRETS + "/a", {**body, "stringData": {"text": PLANTED[2]}}).expect(200)
    api.request("POST", SECRETS, body).expect(409)
    api.request("PATCH", SECRETS + "/a", [{"op": "replace", "path": "/data/none/x", "value": PLANTED[0]}],
                headers={"Content-Type": "application/json-patch+json"}).expect(422)  # fmt: skip
    api.request("DELETE", SECRETS + "/a").expect(200)
    api.close()
    backup = dump(server)
    assert '"encrypted":"k8s:enc:aesgcm:v1:a:"' in backup
    assert not [planted for planted in PLANTED if planted in backup]
    server.stop()
    assert files_with(server.data_dir, *PLANTED) == []
    assert files_with(place, key("a")["secret"]) == [str(file)]
    server.verify()


def test_a_rotation_that_is_killed_goes_on_and_loses_nothing(place: Path, servers: Any) -> None:
    file = write_configuration(place / "encryption.json", aesgcm("old"), IDENTITY)
    server = servers(file).start()
    api = server.api()
    for number in range(20):
        api.create(SECRETS, secret(f"s-{number}", f"text {number}"))
    write_configuration(file, aesgcm("new", "old"), IDENTITY)
    eventually(lambda: "Reloaded" in server.new_log(), "the server reloads the file")
    rewriting = threading.Thread(target=lambda: subprocess.run(
        [*server.command(), "migrate-storage", "secrets", "--kubeconfig", str(server.kubeconfig)],
        capture_output=True, timeout=120, check=False,
    ))  # fmt: skip
    rewriting.start()
    first = api.get(SECRETS + "/s-0")["metadata"]["resourceVersion"]
    eventually(lambda: api.get(SECRETS + "/s-0")["metadata"]["resourceVersion"] != first, "the rotation has begun")
    server.kill9()
    api.close()
    rewriting.join()
    server.start()
    assert "failed" not in chronicle(server, "migrate-storage", "secrets")
    assert "20 objects, 0 rewritten" in chronicle(server, "migrate-storage", "secrets")
    server.stop()
    write_configuration(file, aesgcm("new"), IDENTITY)  # the old key is gone, and so is that history
    server.start()
    api = server.api()
    listed = {each["metadata"]["name"]: text_of(each) for each in api.get(SECRETS)["items"]}
    assert listed == {f"s-{number}": f"text {number}" for number in range(20)}
    past = api.request("GET", f"/history/at/{first}{SECRETS}/s-0")
    assert "no matching key was found" in past.expect(500)["message"]
    api.close()
    server.stop()
    server.verify()


def test_two_servers_of_which_one_has_no_key(place: Path, servers: Any, postgres: str) -> None:
    file = write_configuration(place / "encryption.json", aesgcm("a"), IDENTITY)
    keeper = servers(file, database_url=postgres).start()
    other = servers(database_url=postgres).start()
    api, without = keeper.api(), other.api()
    api.create("/api/v1/namespaces/default/configmaps", {"metadata": {"name": "open"}, "data": {"x": "y"}})
    api.create(SECRETS, secret("a", "hidden"))
    reason = "identity transformer tried to read encrypted data"
    refused = without.request("GET", SECRETS + "/a").expect(500)
    assert refused["message"] == f"Internal error occurred: {reason}"
    listed = without.request("GET", SECRETS).expect(500)
    assert listed["message"] == (
        f'Internal error occurred: unable to transform key "/registry/secrets/default/a": {reason}'
    )
    assert without.get("/api/v1/namespaces/default/configmaps/open")["data"] == {"x": "y"}
    for method, path in (("DELETE", SECRETS + "/a"), ("PUT", SECRETS + "/a"), ("DELETE", SECRETS)):
        body = secret("a", "overwritten") if method == "PUT" else None
        assert reason in without.request(method, path, body).expect(500)["message"]
    assert text_of(api.get(SECRETS + "/a")) == "hidden"
    api.request("DELETE", SECRETS + "/a").expect(200)
    eventually(lambda: without.request("GET", SECRETS).status == 200, "the list is readable again")
    api.close()
    without.close()
