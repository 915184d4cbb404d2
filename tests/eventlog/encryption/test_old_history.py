"""Encrypted history after retention and erasure: archives and rows copied forward, in SQL, and what is erased."""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import trio

from kubechronicle.eventlog.encryption.encrypted_log import EncryptedLog
from kubechronicle.eventlog.integrity import drops
from kubechronicle.eventlog.integrity.verify import verify
from kubechronicle.eventlog.records import Operation
from kubechronicle.eventlog.retention import archives
from kubechronicle.ops import cli
from tests.eventlog.test_log_contract import batch, change, committed, key
from tests.support.encryption.providers import contents

Opener = Callable[[], Awaitable[Any]]
RunSql = Callable[..., str]
Command = Callable[..., Awaitable[tuple[int, str]]]
PLANTED = "planted-in-old-history"


async def test_archives_and_copied_rows_hold_ciphertext_and_verify_without_keys(
    replicas: Opener, run_sql: RunSql, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("long", "short"):
        run_sql(
            f"alter table kubechronicle.log_{name} detach partition kubechronicle.log_{name}_1",
            f"drop table kubechronicle.log_{name}_1",
            f"update kubechronicle.retention_classes set span = 10, partitioned_until = 1 where class = '{name}'",
            f"select kubechronicle.make_partition('{name}')",
        )
    below = await replicas()
    log = EncryptedLog(below, contents("secretbox:a", "identity"))
    kept = key("kept", resource="secrets")
    await log.append(batch(change(kept, Operation.CREATE, text=PLANTED)))
    revision = 0
    for number in range(25):
        operation = Operation.UPDATE if revision else Operation.CREATE
        one = change(key("b", resource="secrets"), operation, revision, text=f"{PLANTED}-{number}")
        revision = committed(await log.append(batch(one)))[0].revision
    directory = tmp_path / "archive"
    await below.compact(24, archive=directory)
    files = sorted(directory.glob(f"*{archives.SUFFIX}"))
    assert files
    for file in files:
        text = gzip.decompress(file.read_bytes()).decode()
        assert "k8s:enc:secretbox:v1:a:" in text
        assert PLANTED not in text
    assert PLANTED not in run_sql("select * from kubechronicle.kept")
    loaded = [record async for _, records in log.load() for record in records if record.key.resource != drops.RESOURCE]
    assert {record.key.name: record.problem for record in loaded} == {"kept": "", "b": ""}
    assert PLANTED.encode() in loaded[0].body
    session = await below._connect()
    log_id = (await session.fetch("select log_id from kubechronicle.head"))[0][0]
    archived = archives.rows_of_all(archives.of_log(directory, log_id))
    verdict = await verify(session, archived=archived)
    assert (verdict.problem, verdict.archived) == (None, 20)
    await session.close()
    read = ("archive", "read", str(directory), "--revisions", "1-2")
    assert await trio.to_thread.run_sync(cli.main, read) == 0
    assert [line.endswith("  (encrypted)") for line in capsys.readouterr().out.splitlines()] == [True, True]
    assert await trio.to_thread.run_sync(cli.main, (*read, "-o", "json")) == 0
    first, second = map(json.loads, capsys.readouterr().out.splitlines())
    assert (first["object"], second["encryption"]) == (None, "k8s:enc:secretbox:v1:a:")


async def test_sql_shows_the_change_and_the_key_but_no_contents(replicas: Opener, run_sql: RunSql) -> None:
    log = EncryptedLog(await replicas(), contents("aesgcm:a", "identity", resource="configmaps"))
    plain = EncryptedLog(log._log, contents("identity"))
    a = key("a")
    (first,) = committed(await plain.append(batch(change(a, Operation.CREATE, text="open"))))
    (second,) = committed(await log.append(batch(change(a, Operation.UPDATE, first.revision, text=PLANTED))))
    (third,) = committed(await plain.append(batch(change(a, Operation.UPDATE, second.revision, text="open again"))))
    await plain.append(batch(change(a, Operation.UPDATE, third.revision, text="last")))
    columns = "revision, kind, confidential, object is null, encryption"
    rows = run_sql(f"select {columns} from chronicle.changes order by 1").splitlines()
    assert rows == [
        "1|ConfigMap|f|f|",
        "2|ConfigMap|t|t|k8s:enc:aesgcm:v1:a:",
        "3|ConfigMap|f|f|",
        "4|ConfigMap|f|f|",
    ]
    assert run_sql("select revision, changed is null from chronicle.who_did_what order by 1").splitlines() == [
        "1|t", "2|t", "3|t", "4|f",
    ]  # fmt: skip
    for view in (
        "chronicle.changes",
        "chronicle.who_did_what",
        "chronicle.objects_at(2)",
        "chronicle.object_history('configmaps', 'default', 'a')",
    ):
        found = run_sql(f"select * from {view}")
        assert PLANTED not in found
        assert 'data": "k' not in found
    assert run_sql("select confidential, object is null from chronicle.objects_at(2)") == "t|t"
    history = "select revision, diff is null from chronicle.object_history('configmaps', 'default', 'a') order by 1"
    assert run_sql(history).splitlines() == ["1|t", "2|t", "3|t", "4|f"]


async def test_verify_reads_the_contents_with_keys(replicas: Opener, command: Command, tmp_path: Path) -> None:
    def configured(letter: str) -> tuple[str, str, str]:
        file = tmp_path / f"{letter}.json"
        keys = [{"name": "a", "secret": base64.b64encode(letter.encode() * 32).decode()}]
        entry = {"resources": ["secrets"], "providers": [{"aesgcm": {"keys": keys}}]}
        head = {"kind": "EncryptionConfiguration", "apiVersion": "apiserver.config.k8s.io/v1"}
        file.write_text(json.dumps({**head, "resources": [entry]}))
        return "verify", "--encryption-provider-config", str(file)

    log = EncryptedLog(await replicas(), contents("aesgcm:a", "identity", resource="secrets"))
    secret = change(key("b", resource="secrets"), Operation.CREATE)
    await log.append(batch(change(key("open"), Operation.CREATE), secret))
    code, output = await command("verify")
    assert (code, "decrypted" in output) == (0, False)
    code, output = await command(*configured("a"))
    assert (code, "decrypted 1 encrypted revisions" in output) == (0, True)
    code, output = await command(*configured("b"))
    assert code == 1
    assert "revision 2: 1 encrypted revisions cannot be decrypted, the first: cipher: message authentication" in output


async def test_an_erasure_needs_no_key_and_the_rest_verifies(
    replicas: Opener, run_sql: RunSql, command: Command
) -> None:
    below = await replicas()
    log = EncryptedLog(below, contents("aesgcm:a", resource="secrets"))
    target = key("a", resource="secrets")
    (created,) = committed(await log.append(batch(change(target, Operation.CREATE, text=PLANTED))))
    await log.append(batch(change(target, Operation.DELETE, created.revision, text=PLANTED)))
    code, output = await command("erase", "secrets/a", "-n", "default", "--reason", "asked", "--yes")
    assert code == 0, output
    bodies = run_sql("select object from kubechronicle.log where resource = 'secrets' order by revision").splitlines()
    assert [json.loads(body)["kind"] for body in bodies] == ["ConfigMap"] * 2
    assert not [body for body in bodies if "encrypted" in body]
    records = await log.read(after=0, limit=10)
    assert [(record.erased, record.problem) for record in records[:2]] == [(True, "")] * 2
    assert (await below.verify()).problem is None
