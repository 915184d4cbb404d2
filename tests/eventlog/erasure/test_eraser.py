"""Erasure: erased data is in no table, file or memory; the rest verifies; readers see the erasure."""

from __future__ import annotations

import gzip
import os
import signal
import sys
from datetime import datetime
from hashlib import sha256
from pathlib import Path
from typing import Any
from uuid import uuid4

import orjson
import pytest
import trio
from erasing_shop import JANE, MARK, ROWS_OF_WEB, WEB, Command, Opener, RunSql, Shop, verified
from msgspec import structs

from kubechronicle.eventlog.erasure.eraser import Eraser
from kubechronicle.eventlog.erasure.plan import ErasureRequest
from kubechronicle.eventlog.erasure.statements import CHUNK
from kubechronicle.eventlog.integrity.digests import DIGESTED, encode_row
from kubechronicle.eventlog.integrity.verify import verify
from kubechronicle.eventlog.postgres.locks import MAINTENANCE, held
from kubechronicle.eventlog.records import Batch, Change, Key, Operation, Transaction
from kubechronicle.eventlog.retention import archives
from kubechronicle.eventlog.testing import open_stack
from kubechronicle.ops.maintenance.hold import matcher_of


def everything(run_sql: RunSql, directory: Path | None = None) -> str:
    """Return all rows of all tables, and the archives, as text."""
    tables = run_sql(
        "select c.oid::regclass from pg_class c join pg_namespace n on n.oid = c.relnamespace"
        " where nspname = 'kubechronicle' and relkind = 'r'"
    ).split()
    found = [run_sql(*(f"select t::text from {table} t" for table in tables))]
    for file in sorted(directory.iterdir()) if directory is not None else ():
        found.append(gzip.decompress(file.read_bytes()).decode())
    return "\n".join(found)


async def test_a_deleted_object_is_erased(shop: Shop, command: Command, run_sql: RunSql) -> None:
    others = run_sql("select l::text from kubechronicle.log l where name <> 'web' order by revision")
    assert MARK in everything(run_sql)
    code, output = await command("erase", *WEB[:-1], "--dry-run")
    assert (code, "6 in the database" in output) == (0, True)
    assert MARK in everything(run_sql)
    code, output = await command("erase", *WEB)
    assert (code, "erased 6 revisions; revision 25 records the erasure" in output) == (0, True), output
    assert MARK not in everything(run_sql)
    assert run_sql("select l::text from kubechronicle.log l where name <> 'web' and revision < 25 order by 1") == (
        "\n".join(sorted(others.splitlines()))
    )
    verdict = await verified(shop)
    assert (verdict.problem, verdict.rows) == (None, 25)
    ((erasure, revisions),) = verdict.erasures
    assert (erasure.count, erasure.reason, revisions) == (6, "asked for", "2, 4, 6, 8, 10, 12")
    code, output = await command("verify")
    assert (code, "erased: contents of configmaps shop/web in 6 revisions (2, 4, 6, 8, 10, 12)" in output) == (0, True)
    code, output = await command("erase", *WEB)
    assert (code, output) == (1, "there is nothing to erase of configmaps shop/web\n")


async def test_the_present_state_of_an_object_stays(shop: Shop, command: Command, run_sql: RunSql) -> None:
    other = ("configmap/other", "-n", "shop", "--reason", "r", "--yes")
    for arguments in (other, (*other, "--uid", "uid-other")):
        code, output = await command("erase", *arguments)
        assert (code, output.count("\n")) == (2, 1)
        assert "kubectl delete configmap/other -n shop" in output
    assert (await command("erase", *other, "--uid", "uid-of-another"))[0] == 1
    code, output = await command("erase", *other, "--revisions", "4-7")
    assert (code, "erased 2 revisions" in output) == (0, True)
    code, output = await command("erase", *other, "--before", "0s")
    assert (code, "erased 2 revisions" in output, "revision 11 stays" in output) == (0, True, True)
    assert "text-4" in run_sql("select object from kubechronicle.log where revision = 11")
    assert not any(f"text-{number}" in everything(run_sql) for number in range(4))
    assert (await verified(shop)).problem is None
    assert [len((await command("verify"))[1].splitlines())] == [4]


async def test_a_user_is_erased(shop: Shop, command: Command, run_sql: RunSql) -> None:
    objects = "select revision, object from kubechronicle.log where name <> 'web' and revision < 25 order by 1"
    before = run_sql(objects)
    assert (await command("erase", *WEB))[0] == 0  # a row may be erased twice
    code, output = await command("erase", "--user", "jane", "--reason", "asked for", "--yes")
    assert (code, "erased 24 revisions" in output) == (0, True), output  # also rows of bob, impersonated by jane
    left = everything(run_sql)
    assert not any(word in left for word in ("jane", "janes-laptop", "198.51.100.7", "audit-4711", MARK))
    assert run_sql("select count(*) from kubechronicle.log where user_name = '<erased>'") == "24"
    assert run_sql(objects) == before
    verdict = await verified(shop)
    assert (verdict.problem, [each.scope for each, _ in verdict.erasures]) == (None, ["contents", "who"])
    assert (await command("erase", "--user", "jane", "--reason", "asked for", "--yes"))[0] == 1


@pytest.mark.parametrize("first", [True, False])
async def test_archives_and_rows_copied_forward_are_erased(
    shop: Shop, command: Command, run_sql: RunSql, tmp_path: Path, first: bool
) -> None:
    """Erased rows are archived as such; archived rows are erased in the archive, and in all other places."""
    away = tmp_path / "away"
    where = ("--history-archive", str(away))
    if first:
        past = ("--before", "0s", "--reason", "r", "--yes")
        assert (await command("erase", "configmap/old", "-n", "shop", *past))[0] == 1
        assert (await command("erase", *WEB))[0] == 0
        await shop.log.compact(20, archive=away)
    else:
        await shop.log.compact(20, archive=away)
        code, output = await command("erase", *WEB)
        assert (code, "archives were not read" in output, ".jsonl.gz" in output) == (3, True, True)
        assert MARK not in everything(run_sql)
        assert MARK in everything(run_sql, away)
        code, output = await command("erase", *WEB[:-1], *where)
        assert (code, output.count("\n")) == (2, 5), output  # no question without a terminal
        code, output = await command("erase", *WEB, *where)
        assert (code, "2 archives rewritten" in output) == (0, True), output
    assert MARK not in everything(run_sql, away)
    code, output = await command("verify", "--archive", str(away))
    assert (code, "20 by content in archives, 0 by digest" in output, "6 revisions" in output) == (0, True, True), (
        output
    )
    assert (await command("erase", *WEB, *where))[0] == 1
    rows = list(archives.rows_of_all(archives.archives(away)))
    assert [row.revision for row in rows if row.erased] == [2, 4, 6, 8, 10, 12]
    assert [file.stat().st_mode & 0o777 for file in away.iterdir()] == [0o600] * 2
    assert (await command("erase", "--user", "jane", "--reason", "r", "--yes", *where))[0] == 0  # in kept as well
    assert "jane" not in everything(run_sql, away)
    verdict = await verified(shop, away)
    assert (verdict.problem, verdict.unerased, verdict.archived) == (None, 0, 20)
    file = min(away.iterdir())
    original = file.read_bytes()
    lines = gzip.decompress(original).splitlines(keepends=True)
    edited = orjson.loads(lines[2])
    edited |= {"uid": "edited", "committed_at": datetime.fromisoformat(edited["committed_at"])}
    edited["erased"] = sha256(encode_row([edited[name] for name, _ in DIGESTED])).hexdigest()
    file.write_bytes(gzip.compress(b"".join([*lines[:2], orjson.dumps(edited) + b"\n", *lines[3:]])))
    problem = (await verified(shop, away)).problem
    assert (problem.revision, problem.message) == (2, "the archived row is not the one that was appended")
    file.write_bytes(original)
    await shop.log.compact((await shop.log.head()).revision, archive=away)
    assert (await verified(shop, away)).problem is None
    for file in away.iterdir():
        file.unlink()
    assert (await verified(shop)).problem is None


@pytest.mark.parametrize("step", ["insert into kubechronicle.erased", "commit"])
async def test_a_crash_in_the_database_transaction(
    shop: Shop, command: Command, run_sql: RunSql, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    from kubechronicle.eventlog.errors import LogError

    async with shop.log._maintenance() as session:
        kind = type(session)
    with monkeypatch.context() as patched:
        for call in ("fetch", "execute"):
            original = getattr(kind, call)

            async def cut(self: Any, sql: str, *arguments: Any, original: Any = original) -> Any:
                if step in sql:
                    self.terminate()
                    raise LogError("cut")
                return await original(self, sql, *arguments)

            patched.setattr(kind, call, cut)
        await command("erase", *WEB)
    assert run_sql("select count(*) from kubechronicle.erased") == "0"
    assert (await verified(shop)).problem is None
    assert (await command("erase", *WEB))[0] == 0
    assert (await verified(shop)).problem is None


async def test_a_crash_between_the_archives(
    shop: Shop, command: Command, run_sql: RunSql, tmp_path: Path, database: str
) -> None:
    """kill -9 after the commit in the database, before all files are rewritten."""
    await shop.log.compact(20, archive=tmp_path)
    script = (
        "import os, signal\nfrom kubechronicle.eventlog.retention import archives\nfrom kubechronicle.ops import cli\n"
        "whole = archives._finish\n"
        "def finish(file, unfinished, path):\n"
        "    os.kill(os.getpid(), signal.SIGKILL) if '011-' in path.name else whole(file, unfinished, path)\n"
        "archives._finish = finish\n"
        f"cli.main(['erase', '--database-url', {database!r}, '--history-archive', {str(tmp_path)!r}, *{WEB!r}])\n"
    )
    done = await trio.run_process([sys.executable, "-c", script], check=False, capture_stdout=True)
    assert done.returncode == -signal.SIGKILL
    assert MARK in everything(run_sql, tmp_path)
    assert any(name.startswith(".") for name in os.listdir(tmp_path))
    verdict = await verified(shop, tmp_path)
    assert (verdict.problem, verdict.unerased) == (None, 1)
    assert "1 erased revisions are still in archives" in (await command("verify", "--archive", str(tmp_path)))[1]
    code, output = await command("erase", *WEB, "--history-archive", str(tmp_path))
    assert (code, "already erased in the database" in output, "1 archive rewritten" in output) == (0, True, True), (
        output
    )
    assert MARK not in everything(run_sql, tmp_path)
    assert not any(name.startswith(".") for name in os.listdir(tmp_path))
    verdict = await verified(shop, tmp_path)
    assert (verdict.problem, verdict.unerased, len(verdict.erasures)) == (None, 0, 1)


async def test_erasure_and_retention_exclude_each_other(
    shop: Shop, command: Command, run_sql: RunSql, tmp_path: Path
) -> None:
    request = ErasureRequest(scope="contents", resource="configmaps", namespace="shop", name="web", whole=True)
    async with (
        shop.log._maintenance() as session,
        Eraser.locked(session, request, archive=None, selector_of=matcher_of) as eraser,
    ):
        assert (await eraser.plan()).rows == ROWS_OF_WEB
        assert (await shop.log.retain()).busy
        await shop.change("web", "made again")  # after the plan; now it exists and cannot be erased
        with pytest.raises(Exception, match="exists"):
            await eraser.erase(None)  # type: ignore[arg-type]
    await shop.change("web", None)
    async with trio.open_nursery() as nursery, shop.log._maintenance() as other, held(other, MAINTENANCE):
        nursery.start_soon(command, "erase", *WEB)
        waiting = "select count(*) from pg_locks where relation = 'kubechronicle.lock_maintenance'::regclass"
        while run_sql(f"{waiting} and not granted") != "1":
            await trio.lowlevel.checkpoint()
        assert MARK in everything(run_sql)
    assert MARK not in everything(run_sql)


async def test_sql_shows_that_a_row_is_erased(shop: Shop, command: Command, run_sql: RunSql) -> None:
    await command("erase", *WEB, "--as", "data protection officer")
    columns = "revision, kind, operation, object is null, erased"
    assert run_sql(f"select {columns} from chronicle.changes where name = 'web' order by 1").splitlines()[:2] == [
        "2|ConfigMap|create|t|t",
        "4|ConfigMap|update|t|t",
    ]
    assert run_sql("select distinct changed is null, erased from chronicle.who_did_what where name = 'web'") == "t|t"
    assert run_sql("select distinct erased from chronicle.who_did_what where name <> 'web'") == "f"
    past = "chronicle.objects_at(6, 'configmaps') where name = 'web'"
    assert run_sql(f"select object is null, erased from {past}") == "t|t"
    changes = "chronicle.object_history('configmaps', 'shop', 'web')"
    assert run_sql(f"select distinct object is null, diff is null, erased from {changes}") == "t|t|t"
    assert run_sql('select what, resource, name, revisions, reason, "by" from chronicle.erasures') == (
        "contents|configmaps|web|6|asked for|data protection officer"
    )
    assert "hunter2" not in run_sql("select * from chronicle.changes", "select * from chronicle.who_did_what")


async def test_statistics_of_the_planner_are_erased(shop: Shop, command: Command, run_sql: RunSql) -> None:
    """Postgres stores the most common values of each column, such as the most frequent user."""
    await shop.change("jane-doe", "text", uid="u")
    await shop.change("jane-doe", None, uid="u")
    occurrences = "select count(*) from pg_stats s where schemaname = 'kubechronicle' and s::text ~ '{}'"
    run_sql("analyze")
    assert [run_sql(occurrences.format(text)) != "0" for text in ("jane", MARK, "audit-4711")] == [True] * 3
    assert (await command("erase", "configmap/jane-doe", *WEB[1:], "--anonymize-name"))[0] == 0
    assert (await command("erase", *WEB))[0] == 0
    assert (await command("erase", "--user", "jane", "--reason", "r", "--yes"))[0] == 0
    assert [run_sql(occurrences.format(text)) for text in ("jane", MARK, "audit-4711")] == ["0"] * 3


async def test_mistakes_are_one_line(shop: Shop, command: Command, run_sql: RunSql) -> None:
    other = "\udcff"  # an argument that is not UTF-8
    for arguments in (
        (),
        ("configmap/web",),
        ("configmap/web", "--user", "x"),
        ("configmap", "-n", "shop"),
        ("nothing/web",),
        ("namespace/web", "-n", "shop"),
        ("configmap/web", "-n", "shop", "--revisions", "x"),
        ("configmap/web", "-n", "shop", "--before", "x"),
        ("--user", "x", "-n", "shop"),
        ("erasures.history.kubechronicle.dev/x",),
        ("configmap/web", "-n", "shop", "--history-archive", "/none"),
        ("configmap/web", "-n", "shop"),
        ("--user", other),
        (f"{other}/web",),
        (f"x.{other}/web", "-n", other),
        ("configmap/web", "-n", "shop", "--uid", other),
        ("configmap/web", "-n", "shop", "--before", other),
    ):
        code, output = await command("erase", *arguments, "--reason", "r")
        assert (code, output.splitlines()[-1].startswith("kubechronicle: ")) == (2, True), (arguments, output)
    assert (await command("erase", "configmap/web", "-n", "shop"))[0] == 2
    assert (await command("erase", "vaults.example.com/x", "--reason", "r"))[0] == 1
    odd = "a'b\"; drop table x; --\\ {,} ü"
    await shop.change("odd", "text", who=structs.replace(JANE, user=odd))
    assert "1 in the database" in (await command("erase", "--user", odd, "--reason", odd, "--yes"))[1]
    run_sql("alter table kubechronicle.erased rename column was to before")
    code, output = await command("erase", *WEB)  # an error of Postgres
    assert (code, output.splitlines()[-1].startswith("kubechronicle: Postgres: ")) == (2, True), output


async def test_the_name_can_be_erased_as_well(shop: Shop, command: Command, run_sql: RunSql, tmp_path: Path) -> None:
    where = ("--history-archive", str(tmp_path))
    await shop.log.compact(10, archive=tmp_path)
    await command("erase", *WEB[:-1], "--revisions", "4", "--yes", *where)
    assert (await command("erase", *WEB, "--anonymize-name", "--before", "1"))[0] == 2
    code, output = await command("erase", *WEB, "--anonymize-name", *where)
    assert (code, "its name in history is erased-" in output) == (0, True), output
    # The first erasure names the object, and uids stay.
    assert everything(run_sql, tmp_path).replace("uid-web", "").count("web") == 1
    assert (await verified(shop, tmp_path)).problem is None
    objects = await shop.log.list_at("configmaps", revision=11, limit=99)
    assert [row.key.name.partition("-")[0] for row in objects] == ["erased", "old", "other"]
    assert "hunter2" not in str(objects)
    assert (await command("erase", *WEB, "--anonymize-name", *where))[0] == 1


async def test_servers_drop_erased_history_from_memory(
    shop: Shop, command: Command, replicas: Opener, run_sql: RunSql
) -> None:
    """Running servers receive the erasure of a Secret as every change, and drop its history."""
    for text in ("one", "two", "three", None):
        await shop.change("key", f"{MARK}-{text}" if text else None, resource="secrets")
    async with open_stack(await replicas()) as one, open_stack(await replicas()) as other:
        revisions = []
        for text in ("four", "five", None):
            revisions.append(await shop.change("key", f"{MARK}-{text}" if text else None, resource="secrets"))
        views = [stack.views for stack in (one, other)]
        for stack in (one, other):
            await stack.reads.wait()
            assert MARK in str([event.entry.json for event in stack.views["secrets"].events])
        code, output = await command("erase", "secret/key", "-n", "shop", "--reason", "leaked", "--yes")
        assert (code, "erased 7 revisions" in output) == (0, True), output
        head = await shop.log.head()
        for stack in (one, other):  # without a request
            await stack.views.wait_applied(head.revision)
            assert stack.views["secrets"].events == []
            cursor = stack.views.watch("secrets", after=revisions[0] - 1)
            (event,) = await cursor.next_batch(trio.current_time() + 10)
            assert (event.operation, event.entry.erased) == (Operation.DELETE, True)
            assert MARK not in event.entry.json.decode()
        assert {view.erasures for view in views} == {2}  # with the first load
    assert MARK not in run_sql("select * from kubechronicle.log where name = 'key'")


async def test_more_rows_than_one_chunk(replicas: Opener, command: Command, run_sql: RunSql) -> None:
    """More rows than are read at once."""
    log = await replicas()
    body = b'{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"x"}}'
    changes = [
        Change(key=Key("configmaps", "", f"n{number}"), uid="u", expected=0, operation=Operation.CREATE, body=body)
        for number in range(2 * CHUNK + 1)
    ]
    await log.append(Batch(id=uuid4(), transactions=(Transaction(changes=tuple(changes), who=JANE),)))
    code, output = await command("erase", "--user", "jane", "--reason", "r", "--yes")
    assert (code, f"erased {len(changes)} revisions" in output) == (0, True), output
    assert "jane" not in everything(run_sql)
    async with log._maintenance() as session:
        verdict = await verify(session)
    assert (verdict.problem, [ranges for _, ranges in verdict.erasures]) == (None, [f"1-{len(changes)}"])


_READ = """
insert into kubechronicle.reads (at, revision, resource, subresource, namespace, name, verb, form, user_name, user_uid,
    user_groups, impersonator, request_uri, user_agent, source_address, audit_id)
values (now(), 3, 'configmaps', '', 'shop', 'web', 'get', 'object', '{}', 'u', array['g'], '{}', '/{}', 'janes-laptop',
    '198.51.100.7', 'audit-4711')
"""


async def test_recorded_reads_lose_the_user(shop: Shop, command: Command, run_sql: RunSql) -> None:
    run_sql(_READ.format("jane", "", "jane"), _READ.format("bob", "jane", "jane"), _READ.format("bob", "", "web"))
    assert (await command("erase", "--user", "jane", "--reason", "asked for", "--yes"))[0] == 0
    rows = run_sql("select user_name, user_groups, request_uri, source_address from kubechronicle.reads order by id")
    assert rows.splitlines() == ["<erased>|{}||", "<erased>|{}||", "bob|{g}|/web|198.51.100.7"]


async def test_recorded_reads_lose_an_anonymized_name(shop: Shop, command: Command, run_sql: RunSql) -> None:
    run_sql(_READ.format("bob", "", "web"))
    run_sql("update kubechronicle.reads set resource = 'configmaps', namespace = 'shop', name = 'web'")
    assert (await command("erase", *WEB, "--anonymize-name"))[0] == 0
    assert run_sql("select user_name, name, request_uri from kubechronicle.reads") == "bob|<erased>|"
