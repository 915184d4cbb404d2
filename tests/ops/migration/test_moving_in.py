"""A snapshot of a real etcd behind kube-apiserver v1.36 is imported, served, and imported again from this server.

``snapshot/`` has the snapshot, its EncryptionConfiguration, and the answers of that kube-apiserver to some requests.
etcd was compacted at revision 246. The revisions after it have creations, updates and deletions. Secrets, ConfigMaps
and custom objects are encrypted in it.
"""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from kubechronicle.ops.client.client import ApiError, Client
from kubechronicle.ops.development.server_process import ServerProcess, running
from kubechronicle.ops.migration.cluster_command import open_cluster

HERE = Path(__file__).parent / "snapshot"
ENCRYPTION = ("--encryption-provider-config", str(HERE / "encryption.yaml"))
COMPACTED, NEWEST = 246, 254


@dataclass(frozen=True)
class Home:
    """A directory with the snapshot, and the data of a server that it was imported into."""

    directory: Path
    output: str

    @property
    def snapshot(self) -> Path:
        return self.directory / "etcd.db"

    @property
    def data(self) -> Path:
        return self.directory / "data"


def kubechronicle(*arguments: str | Path) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, "-m", "kubechronicle.ops.cli", *map(str, arguments)],
        capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip
    lines = (done.stdout + done.stderr).splitlines(keepends=True)
    return done.returncode, "".join(line for line in lines if "embedded_postgres.py" not in line)


@pytest.fixture(scope="module")
def home() -> Iterator[Home]:
    with tempfile.TemporaryDirectory(prefix="kubechronicle-test-") as name:
        directory = Path(name)
        directory.chmod(0o755)
        (directory / "etcd.db").write_bytes(gzip.decompress((HERE / "etcd.db.gz").read_bytes()))
        source = ("--from-etcd", directory / "etcd.db", "--data-dir", directory / "data", *ENCRYPTION)
        code, output = kubechronicle("import", *source)
        assert code == 0, output
        yield Home(directory, output)


@pytest.fixture(scope="module")
def server(home: Home) -> Iterator[Client]:
    with running(ServerProcess(home.data, arguments=[*ENCRYPTION, "--controllers", ""])):
        yield open_cluster(str(home.data / "admin.kubeconfig"), "").client


def test_the_import_tells_its_result(home: Home) -> None:
    assert f"imported 207 objects as of revision {COMPACTED} and 8 later changes" in home.output
    assert f"the newest revision is {NEWEST}" in home.output
    assert "1 values of masterleases" in home.output
    assert "not imported" not in home.output


def test_the_imported_log_is_proved_and_compared(home: Home) -> None:
    code, output = kubechronicle("verify", "--data-dir", home.data, *ENCRYPTION)
    assert (code, f"verified revisions 1 to {NEWEST}: 8 by content, 207 by digest" in output) == (0, True), output
    assert "decrypted 13 encrypted revisions" in output
    source = ("--from-etcd", home.snapshot, "--data-dir", home.data, *ENCRYPTION)
    code, output = kubechronicle("import", *source, "--verify")
    assert (code, "no difference: 207 objects at revision 254, 8 changes" in output) == (0, True), output
    code, output = kubechronicle("import", *source)
    assert (code, "the database is not empty" in output, output.count("\n")) == (2, True, 1), output


def answers() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(gzip.decompress((HERE / "answers.json.gz").read_bytes()))
    return found


@pytest.mark.parametrize("path", sorted(answers()))
def test_objects_are_served_as_by_kube_apiserver(server: Client, path: str) -> None:
    assert server.get(path) == answers()[path]


def test_watches_go_on_from_revisions_of_the_former_cluster(server: Client) -> None:
    events = server.watch(
        "/api/v1/namespaces/shop/configmaps", {"resourceVersion": str(COMPACTED), "timeoutSeconds": "1"}
    )
    seen = [(event["type"], event["object"]["metadata"]["name"]) for event in events]
    assert seen == [
        ("MODIFIED", "prices"),
        ("DELETED", "doomed"),
        ("ADDED", "fleeting"),
        ("DELETED", "fleeting"),
        ("ADDED", "doomed"),
    ]
    with pytest.raises(ApiError) as error:
        list(server.watch("/api/v1/namespaces/shop/configmaps", {"resourceVersion": str(COMPACTED - 1)}))
    assert error.value.code == 410


def test_history_of_the_former_cluster_is_read(server: Client) -> None:
    at = server.get("/history/at/251/api/v1/namespaces/shop/configmaps")
    assert [item["metadata"]["name"] for item in at["items"]] == ["fleeting", "prices"]


def test_a_running_cluster_is_imported_with_its_resource_versions(home: Home, server: Client) -> None:
    target = home.directory / "second"
    source = ("--from-kubeconfig", home.data / "admin.kubeconfig", "--data-dir", target)
    code, output = kubechronicle("import", *source)
    assert (code, "not imported" in output) == (0, False), output
    code, output = kubechronicle("import", *source, "--verify")
    assert (code, "no difference" in output) == (0, True), output
    code, output = kubechronicle("verify", "--data-dir", target)
    assert (code, "stand for" in output) == (0, True), output
    with running(ServerProcess(target, arguments=["--controllers", ""])):
        second = open_cluster(str(target / "admin.kubeconfig"), "").client
        for path, answer in answers().items():
            assert second.get(path) == answer


def test_an_interrupted_import_goes_on(home: Home, server: Client) -> None:
    """It keeps the revision at which it began, and refuses another cluster's unfinished import."""
    import trio

    from kubechronicle.eventlog.postgres.connection import migrate, open_session
    from kubechronicle.eventlog.transfer.staging import open_staging
    from kubechronicle.ops.postgres.embedded_postgres import embedded_postgres

    target = home.directory / "interrupted"
    source = ("--from-kubeconfig", home.data / "admin.kubeconfig", "--data-dir", target)
    identity = server.get("/api/v1/namespaces/kube-system")["metadata"]["uid"]

    async def begin(identity: str, *, restart: bool) -> None:
        async with embedded_postgres(target) as url:
            await migrate(url)
            async with open_session(url) as session:
                await open_staging(session, name="s", identity=identity, revision=NEWEST, restart=restart)

    trio.run(lambda: begin("another", restart=False))
    code, output = kubechronicle("import", *source)
    assert (code, "an import from another cluster, s, is unfinished" in output) == (2, True), output
    trio.run(lambda: begin(identity, restart=True))
    code, output = kubechronicle("import", *source)
    assert (code, f"imported 207 objects as of revision {NEWEST} " in output) == (0, True), output


def test_without_its_key_an_object_is_reported(home: Home) -> None:
    target, report = home.directory / "without", home.directory / "report"
    code, output = kubechronicle("import", "--from-etcd", home.snapshot, "--data-dir", target, "--report", report)
    assert (code, "not imported: /registry/secrets/shop/card: it is encrypted" in output) == (1, True), output
    assert len(report.read_text().splitlines()) == 7


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (lambda data: data[:-33], "no bbolt|cut short|checksum"),
        (lambda data: data[:70000] + b"x" + data[70001:], "its checksum is wrong: it is damaged"),
        (lambda data: b"nonsense", "it is no bbolt database"),
        (lambda data: b"", "it is empty"),
    ],
)
def test_a_damaged_snapshot_is_one_line(home: Home, edit: Any, message: str) -> None:
    damaged = home.directory / "damaged.db"
    damaged.write_bytes(edit(home.snapshot.read_bytes()))
    code, output = kubechronicle("import", "--from-etcd", damaged, "--data-dir", home.directory / "damaged")
    assert code == 2, output
    assert output.count("\n") == 1
    assert any(part in output for part in message.split("|")), output
