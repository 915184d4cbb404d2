"""`--archive`: the commands answer from archives as they answer from the log, and name the archive and its range."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from uuid import UUID

import orjson
import pytest
from server_in_thread import Running

from kubechronicle.eventlog.integrity.digests import SHORT, columns_digest
from kubechronicle.eventlog.memory.store import MemoryStore
from kubechronicle.eventlog.retention import archives
from kubechronicle.ops import cli

pyarrow = pytest.importorskip("pyarrow")

Chronicle = Callable[..., Any]
PROGRAM = str(Path(sys.executable).with_name("kubectl-chronicle"))
PATIENCE = 120.0
ROOT = Path(__file__).resolve().parents[4]


LOG = UUID(int=36)


def write_archives(store: MemoryStore, directory: Path, *bounds: tuple[int, int]) -> None:
    """Write a file of each class for each range of revisions."""
    directory.mkdir(exist_ok=True)
    rows = [_columns(store, record) for record in store.rows(after=0)]
    for first, last in bounds:
        for retention_class in ("long", "short"):
            chosen = [row for row in rows if first <= row["revision"] <= last and row["class"] == retention_class]
            _write(directory, retention_class, (first, last), chosen)


def _write(directory: Path, retention_class: str, bounds: tuple[int, int], rows: Sequence[dict[str, Any]]) -> None:
    first, last = bounds
    path = directory / f"{LOG}-{retention_class}-{first:019}-{last:019}{archives.SUFFIX}"
    header = archives.Archive(
        path=path,
        log_id=LOG,
        retention_class=retention_class,
        first=first,
        last=last,
        first_row=rows[0]["revision"] if rows else first,
        last_row=rows[-1]["revision"] if rows else last,
        hash_before=None,
        hash_after=b"",
    )
    with gzip.open(path, "wb") as packed:
        packed.write(archives._header_line(header))
        for row in rows:
            packed.write(archives._line(row, columns_digest(row), b"\0", remains=()))
        packed.write(orjson.dumps({"rows": len(rows)}) + b"\n")


def _columns(store: MemoryStore, record: Any) -> dict[str, Any]:
    who = store.who[record.revision]
    return {
        "revision": record.revision,
        "create_revision": record.create_revision,
        "version": record.version,
        "previous_revision": record.previous_revision,
        "committed_at": record.committed_at,
        "operation": int(record.operation),
        "resource": record.key.resource,
        "namespace": record.key.namespace,
        "name": record.key.name,
        "uid": record.uid,
        "user_name": who.user,
        "user_uid": who.uid,
        "user_groups": list(who.groups),
        "user_extra": orjson.dumps({name: list(values) for name, values in who.extra.items()}).decode(),
        "impersonator": who.impersonator,
        "verb": who.verb,
        "request_uri": who.request_uri,
        "user_agent": who.user_agent,
        "source_address": who.source_address,
        "field_manager": who.field_manager,
        "audit_id": who.audit_id,
        "object": record.body.decode(),
        "class": "short" if record.key.resource in SHORT else "long",
        "reason": who.reason,
        "cause": who.cause,
    }


class Archive:
    """An archive of all that the running server has, in two files of each class."""

    def __init__(self, running: Running, directory: Path) -> None:
        store = running.server.log.store
        self.last, middle = store.revision, store.revision // 2
        self.whole = directory / "whole"
        write_archives(store, self.whole, (1, middle), (middle + 1, self.last))

    def run(self, *arguments: str, archive: str = "") -> subprocess.CompletedProcess[str]:
        whole = [PROGRAM, *arguments[:1], "--archive", archive or str(self.whole), *arguments[1:]]
        return subprocess.run(whole, capture_output=True, text=True, timeout=PATIENCE, check=False)


@pytest.fixture
def archive(running: Running, shop: tuple[str, int], tmp_path: Path) -> Archive:
    return Archive(running, tmp_path)


@pytest.mark.parametrize(
    "question",
    [
        ("who", "deleted", "configmap/settings"),
        ("who", "set", "deployment/web", "spec.replicas", "--all"),
        ("log", "deployment/web"),
        ("blame", "deployment/web", "-o", "json"),
        ("bisect", "self.spec.replicas == 5", "deploy/web"),
        ("between", "1", "now", "--by", "object"),
        ("why", "configmap/new"),
    ],
    ids=lambda words: words[0],
)
def test_an_archive_answers_as_the_log_does(
    chronicle: Chronicle, archive: Archive, shop: tuple[str, int], question: tuple[str, ...]
) -> None:
    name, _ = shop
    output = () if "-o" in question else ("-o", "json")
    of_log = chronicle(*question, "-n", name, *output)
    of_archive = archive.run(*question, "-n", name, *output)
    assert of_archive.returncode == of_log.code == 0, of_archive.stderr
    assert _plain(json.loads(of_archive.stdout)) == _plain(of_log.json())
    assert of_archive.stderr.startswith(f"asking the archive {archive.whole}: revisions 1-{archive.last}, from ")


def _plain(document: Any) -> Any:
    """Return a document without ages, and without the masks of one run."""
    if isinstance(document, dict):
        return {name: _plain(each) for name, each in document.items() if name not in ("answer", "text")}
    return [_plain(each) for each in document] if isinstance(document, list) else document


def test_the_cluster_of_an_archive_is_read_with_kubectl_and_compared(archive: Archive, shop: tuple[str, int]) -> None:
    name, revision = shop
    shown = archive.run("at", str(revision), "get", "configmaps", "-n", name, "-o", "name")
    assert "configmap/settings" in shown.stdout.split()
    found = archive.run("diff", "--from", str(revision), "--to", "now", "-n", name)
    assert found.returncode == 1
    assert "-  replicas: 3\n+  replicas: 5" in found.stdout
    assert "kind: Deployment" in archive.run("export", "deploy/web", "-n", name, "--at", str(revision)).stdout


def test_a_negative_answer_names_the_archive_and_its_range(archive: Archive, shop: tuple[str, int]) -> None:
    name, _ = shop
    nobody = archive.run("who", "deleted", "deployment/web", "-n", name)
    assert nobody.returncode == 1
    assert f"searched in the archive {archive.whole}: revisions 1-{archive.last}, from " in nobody.stdout
    mistyped = archive.run("who", "deleted", "deployment/wbe", "-n", name)
    assert mistyped.returncode == 2
    assert "did you mean deployment.apps/web?; searched in the archive" in mistyped.stderr


def test_an_archive_that_begins_later_says_what_it_lacks(
    running: Running, archive: Archive, shop: tuple[str, int], tmp_path: Path
) -> None:
    name, revision = shop
    answer = archive.run("log", "deployment/web", "-n", name, archive=f"{archive.whole}@{revision + 1}-")
    assert answer.returncode == 0
    assert "objects without a change in them are missing, and so is what an object was" in answer.stderr
    assert "is erased from history" in answer.stdout  # what the Deployment was before its first change there
    created = archive.run("who", "created", "deployment/web", "-n", name, archive=f"{archive.whole}@{revision + 1}-")
    assert created.returncode == 2
    assert "the creation of deployment.apps/web" in created.stderr
    write_archives(running.server.log.store, tmp_path / "gap", (1, 10), (21, archive.last))
    gap = archive.run("log", "deployment/web", "-n", name, archive=str(tmp_path / "gap"))
    assert f"revisions 21-{archive.last}, from" in gap.stderr
    assert "left out, before a gap: 1-10 of long, 1-10 of short" in gap.stderr


def test_a_moment_after_the_end_of_an_archive_is_not_known(archive: Archive, shop: tuple[str, int]) -> None:
    name, _ = shop
    for moment in ("0s", "2199-01-01T00:00Z"):
        shown = archive.run("at", moment, "get", "configmaps", "-n", name)
        assert shown.returncode == 1
        assert "Z lies after the end of the archive: 20" in shown.stderr
    assert archive.run("log", "deployment/web", "-n", name, "--since", "1h", "--until", "0s").returncode == 0


def test_an_archive_changes_nothing_and_mistakes_are_one_line(archive: Archive, tmp_path: Path) -> None:
    written = archive.run("at", "now", "create", "namespace", "x")
    assert written.returncode == 1
    assert "this server answers questions about an archive, and changes nothing" in written.stderr
    for path, problem in (
        (str(tmp_path / "none"), "is neither a directory of archives nor a file of `archive parquet`"),
        (str(tmp_path), "there are no archives in"),
        (f"{archive.whole}@999999-", "there are no archived changes in these revisions"),
    ):
        answer = archive.run("log", "-A", archive=path)
        assert (answer.returncode, answer.stderr.count("\n")) == (2, 1)
        assert problem in answer.stderr
    both = archive.run("log", "-A", "--server", "https://localhost")
    assert (both.returncode, "--archive and a server exclude each other" in both.stderr) == (2, True)


def test_a_parquet_file_answers_too_and_the_notebook_reads_it(
    archive: Archive, shop: tuple[str, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, _ = shop
    file = tmp_path / "history.parquet"
    assert cli.main(["archive", "parquet", str(archive.whole), "-o", str(file)]) == 0
    answer = archive.run("who", "set", "deployment/web", "spec.replicas", "-n", name, archive=str(file))
    assert f"admin set spec.replicas of deployment.apps/web in namespace {name} from 3 to 5" in answer.stdout
    assert f"archive {file}: revisions 1-{archive.last}, from " in answer.stderr
    monkeypatch.setenv("HISTORY", str(file))
    values = _run_notebook(ROOT / "docs" / "history.ipynb")
    assert list(values["replicas"][values["replicas"].deployment == f"{name}/web"].replicas) == [3, 5, 5]
    assert set(values["unexplained"].user_name) >= {"admin"}
    assert len(values["follows"]) == archive.last - 1


def _run_notebook(file: Path) -> dict[str, Any]:
    """Run the cells of a notebook, and return its variables."""
    pytest.importorskip("duckdb")
    pytest.importorskip("pandas")
    values: dict[str, Any] = {}
    for cell in json.loads(file.read_text())["cells"]:
        if cell["cell_type"] == "code":
            exec(compile("".join(cell["source"]), file.name, "exec"), values)
    return values
