"""Archives: nothing is dropped before it is on disk, after any crash; archives are read and verified."""

from __future__ import annotations

import gzip
import os
import random
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from pathlib import Path
from typing import Any
from uuid import uuid4

import orjson
import pytest
import trio

from kubechronicle.eventlog.errors import LogError, NotArchived
from kubechronicle.eventlog.integrity.digests import DIGESTED, encode_row
from kubechronicle.eventlog.integrity.verify import verify
from kubechronicle.eventlog.records import Batch, Change, Key, Operation, Transaction, Who
from kubechronicle.eventlog.retention import archives
from kubechronicle.eventlog.retention.archives import ArchiveError, read_header, rows_of, rows_of_all
from kubechronicle.eventlog.retention.retention import RetentionPolicy
from kubechronicle.ops import cli
from kubechronicle.ops.exit_codes import MISTAKE

Opener = Callable[[], Awaitable[Any]]
RunSql = Callable[..., str]
Command = Callable[..., Awaitable[tuple[int, str]]]

ROWS = 90
PARTITIONS = 20  # revisions of a partition
COLUMNS = "revision, resource, name, user_name, object::text, encode(digest, 'hex')"
OWN = "drops.history.kubechronicle.dev"  # the entries of the log itself
STORED = f"select {COLUMNS} from kubechronicle.log where resource <> '{OWN}' order by revision"


@pytest.fixture
async def log(replicas: Opener, run_sql: RunSql) -> Any:
    """Return a log of pods and events, created, updated and deleted, in partitions of twenty revisions."""
    for retention_class in ("long", "short"):
        run_sql(
            f"alter table kubechronicle.log_{retention_class} detach partition kubechronicle.log_{retention_class}_1",
            f"drop table kubechronicle.log_{retention_class}_1",
            f"update kubechronicle.retention_classes set span = {PARTITIONS}, partitioned_until = 1"
            f" where class = '{retention_class}'",
            f"select kubechronicle.make_partition('{retention_class}')",
        )
    log = await replicas()
    dice = random.Random(3)
    state: dict[Key, int] = {}
    for number in range(ROWS):
        key = Key(dice.choice(("pods", "events", "pods")), "shop", dice.choice("abcdefgh"))
        expected = state.get(key, 0)
        delete = bool(expected) and dice.random() < 0.3
        operation = Operation.DELETE if delete else Operation.UPDATE if expected else Operation.CREATE
        body = f'{{"apiVersion":"v1","kind":"X","metadata":{{"name":"ü{number}"}}, "n":1.0}}'
        change = Change(key=key, uid="u", expected=expected, operation=operation, body=body.encode())
        who = Who(user=dice.choice(("jane", "bob")), groups=("a", "b"), extra={"k": ("v",)}, verb="update")
        result = await log.append(Batch(id=uuid4(), transactions=(Transaction(changes=(change,), who=who),)))
        state[key] = 0 if delete else result.head
    return log


def archived_rows(directory: Path) -> list[str]:
    """Return the archived rows in the format of STORED."""
    found = []
    for row in rows_of_all(archives.archives(directory)):
        columns = [row.columns[name] for name in ("revision", "resource", "name", "user_name", "object")]
        found.append("|".join(map(str, [*columns, row.digest.hex()])))
    return found


def files(directory: Path) -> list[Path]:
    return sorted(directory.iterdir())


async def verified(log: Any, directory: Path) -> Any:
    async with log._maintenance() as session:
        return await verify(session, archived=rows_of_all(archives.archives(directory)))


async def test_partitions_are_archived_before_they_are_dropped(log: Any, run_sql: RunSql, tmp_path: Path) -> None:
    directory = tmp_path / "archive"
    before = run_sql(STORED).splitlines()
    hashes = run_sql("select encode(hash, 'hex') from kubechronicle.log order by revision").split()
    for mark, kept in ((30, 70), (70, 30)):
        await log.compact(mark, archive=directory)
        assert archived_rows(directory) == before[: ROWS - kept]
        assert run_sql(STORED).splitlines() == before[ROWS - kept :]
        verdict = await verified(log, directory)
        assert (verdict.problem, verdict.rows, verdict.archived) == (None, kept + len(verdict.drops), ROWS - kept)
        assert verdict.tombstones == verdict.archived
    assert [file.stat().st_mode & 0o777 for file in (directory, *files(directory))] == [0o700, *[0o600] * 6]
    for archive in archives.archives(directory):
        numbers = [row.revision for row in rows_of(archive)]
        assert (archive.first_row, archive.last_row) == (numbers[0], numbers[-1])
        assert archive.first <= numbers[0] <= numbers[-1] <= archive.last
        assert archive.hash_after.hex() == hashes[numbers[-1] - 1]
        start = sha256(archive.log_id.bytes).hexdigest()
        assert archive.hash_before is not None
        assert archive.hash_before.hex() == ([start, *hashes][numbers[0] - 1])


async def test_a_server_without_a_directory_drops_nothing_if_archives_are_required(
    log: Any, command: Command, database: str, run_sql: RunSql, tmp_path: Path
) -> None:
    """One of two servers on a database may lack the flag; that of the other applies to both."""
    everything = run_sql(STORED)
    await log.retain((), archive=tmp_path)
    day = (RetentionPolicy(resource="*", max_age=timedelta(days=1)),)
    later = datetime.now(UTC) + timedelta(days=2)
    done = await log.retain(day, now=later)
    assert done.compacted
    assert done.dropped == ()
    assert {"log_long_1", "log_short_1"} <= set(done.unarchived)
    assert run_sql(STORED) == everything
    with pytest.raises(NotArchived):
        await log.compact(ROWS)
    where = ("--database-url", database)
    code, output = await command("compact", "--revision", str(ROWS), *where)
    assert (code, output.count("\n")) == (2, 1)
    assert output.endswith("before it is dropped: give its directory here too, or --without-archive\n")
    # With a directory it is dropped without loss; once archives are not required, also without a directory.
    done = await log.retain(day, now=later, archive=tmp_path)
    assert "log_long_1" in done.dropped
    assert set(archived_rows(tmp_path)) | set(run_sql(STORED).splitlines()) >= set(everything.splitlines())
    assert run_sql("select bool_and(to_archive) from kubechronicle.retention_classes").strip() == "t"
    code, output = await command("compact", "--keep", "1000h", "--without-archive", *where)
    assert (code, output) == (0, "there is no history that old\n")
    assert run_sql("select bool_or(to_archive) from kubechronicle.retention_classes").strip() == "f"


class Crash(LogError):
    """The crash of a test."""


async def test_a_partition_that_cannot_be_archived_is_not_dropped(
    log: Any, run_sql: RunSql, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = run_sql(STORED).splitlines()

    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    for mark, step in enumerate(("_open", "_write_rows", "_finish"), 70):
        with monkeypatch.context() as patched:
            patched.setattr(archives, step, fail)
            with pytest.raises(ArchiveError, match="No space left"):
                await log.compact(mark, archive=tmp_path)
        assert run_sql(STORED).splitlines() == before
    await log.compact(75, archive=tmp_path)
    assert sorted([*run_sql(STORED).splitlines(), *archived_rows(tmp_path)]) == sorted(before)
    assert all(not file.name.startswith(".") for file in files(tmp_path))


@pytest.mark.parametrize("step", ["copy_forward", "detach", "drop table"])
async def test_an_interruption_at_any_statement_loses_nothing(
    log: Any, run_sql: RunSql, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    before = run_sql(STORED).splitlines()
    with monkeypatch.context() as patched:
        async with log._maintenance() as session:
            kind = type(session)
        for call in ("fetch", "execute"):
            original = getattr(kind, call)

            async def cut(self: Any, sql: str, *arguments: Any, original: Any = original) -> Any:
                if step in sql:
                    raise Crash(step)
                return await original(self, sql, *arguments)

            patched.setattr(kind, call, cut)
        with pytest.raises(Crash):
            await log.compact(70, archive=tmp_path)
    stored = run_sql(STORED).splitlines()
    assert sorted({*stored, *archived_rows(tmp_path)}) == sorted(before)
    assert (await verified(log, tmp_path)).problem is None
    await log.compact(71, archive=tmp_path)  # the next run continues there
    assert sorted([*run_sql(STORED).splitlines(), *archived_rows(tmp_path)]) == sorted(before)
    assert all(not file.name.startswith(".") for file in files(tmp_path))
    assert (await verified(log, tmp_path)).archived == 60


async def test_a_killed_command_loses_nothing(log: Any, database: str, run_sql: RunSql, tmp_path: Path) -> None:
    """kill -9 when the first files appear."""
    before = run_sql(STORED).splitlines()
    command = [str(Path(sys.executable).with_name("kubechronicle")), "compact", "--revision", "70"]
    where = ["--database-url", database, "--history-archive", str(tmp_path)]
    process = subprocess.Popen([*command, *where], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)  # noqa: ASYNC220
    while not files(tmp_path) and process.poll() is None:
        await trio.lowlevel.checkpoint()
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    assert {*run_sql(STORED).splitlines(), *archived_rows(tmp_path)} == set(before)
    await log.compact(71, archive=tmp_path)
    assert sorted([*run_sql(STORED).splitlines(), *archived_rows(tmp_path)]) == sorted(before)
    assert (await verified(log, tmp_path)).archived == 60


@pytest.fixture
def command(database: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Command:
    async def run(*arguments: str) -> tuple[int, str]:
        code = await trio.to_thread.run_sync(cli.main, arguments)
        output = capsys.readouterr()
        return code, output.out + output.err

    return run


def rewritten(file: Path, edit: Callable[[list[bytes]], None]) -> None:
    lines = gzip.decompress(file.read_bytes()).splitlines(keepends=True)
    edit(lines)
    file.write_bytes(gzip.compress(b"".join(lines)))


def _edited(lines: list[bytes]) -> None:
    lines[3] = lines[3].replace(b"bob", b"eve").replace(b"jane", b"eve")


def _with_its_digest(lines: list[bytes]) -> None:
    row = orjson.loads(lines[3])
    row |= {"user_name": "eve", "committed_at": datetime.fromisoformat(row["committed_at"])}
    row["digest"] = sha256(encode_row([row[name] for name, _ in DIGESTED])).hexdigest()
    lines[3] = orjson.dumps(row) + b"\n"


def _left_out(lines: list[bytes]) -> None:
    del lines[3]


def _cut_short(lines: list[bytes]) -> None:
    del lines[-1]


def _no_json(lines: list[bytes]) -> None:
    lines[3] = b"}\n"


def _another(lines: list[bytes]) -> None:
    lines[0] = b"{}\n"


EDITS: tuple[tuple[Callable[[list[bytes]], None], str], ...] = (
    (_edited, "was edited: its content does not have its digest"),
    (_with_its_digest, "the archived row is not the one that was appended"),
    (_left_out, "is cut short"),
    (_cut_short, "is cut short"),
    (_no_json, "a line is no JSON object"),
    (_another, "is no archive of kubechronicle"),
)


async def test_an_edit_is_detected(log: Any, command: Command, database: str, run_sql: RunSql, tmp_path: Path) -> None:
    verify_it = ("verify", "--database-url", database, "--archive", str(tmp_path))
    assert (await command(*verify_it))[0] == 0  # no archive exists yet
    code, found = await command(*verify_it[:-1], str(tmp_path / "none"))
    assert (code, found) == (1, f"there is no directory {tmp_path / 'none'}\n")
    await log.compact(70, archive=tmp_path)
    code, untouched = await command(*verify_it)
    assert (code, "36 by content, 60 by content in archives, 0 by digest" in untouched) == (0, True)
    file = files(tmp_path)[0]
    content = file.read_bytes()
    for edit, message in EDITS:
        rewritten(file, edit)
        code, found = await command(*verify_it)
        assert (code, found.count("\n")) == (1, 1), message
        assert message in found
        file.write_bytes(content)
    run_sql("update kubechronicle.head set log_id = gen_random_uuid()")
    assert "are of another log than" in (await command(*verify_it))[1]


async def test_a_damaged_file_is_one_line(log: Any, command: Command, tmp_path: Path) -> None:
    await log.compact(30, archive=tmp_path)
    file = files(tmp_path)[0]
    content = file.read_bytes()
    for damage in (content[:-30], content[:50] + b"????" + content[54:], b"", b"text"):
        file.write_bytes(damage)
        code, output = await command("archive", "read", str(tmp_path))
        assert (code, str(file) in output.splitlines()[-1]) == (1, True)


async def test_other_rows_of_the_same_name_are_not_overwritten(log: Any, run_sql: RunSql, tmp_path: Path) -> None:
    await log.compact(30, archive=tmp_path)
    taken = files(tmp_path)[0]
    for name in ("log_long_21", "log_short_21"):
        retention_class = name.split("_")[1]
        bounds = f"{21:019}-{40:019}"
        (tmp_path / f"{read_header(taken).log_id}-{retention_class}-{bounds}.jsonl.gz").write_bytes(taken.read_bytes())
    with pytest.raises(ArchiveError, match="holds other rows"):
        await log.compact(60, archive=tmp_path)
    assert run_sql(f"select count(*) from kubechronicle.log where resource <> '{OWN}'") == "70"


async def test_archives_and_the_log_are_parquet(
    log: Any, command: Command, run_sql: RunSql, database: str, tmp_path: Path
) -> None:
    pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    wanted = run_sql("select count(*), sum(revision) from kubechronicle.log where revision <= 60").split("|")
    await log.compact(60, archive=tmp_path)
    old, now = tmp_path / "old.parquet", tmp_path / "now.parquet"
    code, output = await command("archive", "parquet", str(tmp_path), "-o", str(old))
    assert code == 0, output
    assert output == f"wrote {wanted[0]} changes to {old}\n"
    table = parquet.read_table(old)
    assert [str(table.num_rows), str(sum(table["revision"].to_pylist()))] == wanted
    row = next(each for each in table.to_pylist() if each["user_name"] == "jane" and each["object"])
    assert orjson.loads(row["object"])["kind"] == "X"
    assert (row["operation"] in ("create", "update", "delete"), orjson.loads(row["user_extra"])) == (True, {"k": ["v"]})
    code, output = await command("archive", "parquet", "-o", str(now), "--revisions", "61-", "--database-url", database)
    assert code == 0, output
    live = parquet.read_table(now)
    assert live.schema.equals(table.schema)
    assert str(live.num_rows) == run_sql("select count(*) from kubechronicle.log where revision > 60")
    both = pyarrow.concat_tables([table, live])
    assert both.num_rows == len(set(both["revision"].to_pylist()))
    code, output = await command("archive", "parquet", str(tmp_path), "-o", str(old), "--user", "jane")
    assert set(parquet.read_table(old)["user_name"].to_pylist()) == {"jane"}
    code, output = await command("archive", "parquet", "/none", "-o", str(tmp_path / "none"))
    assert (code, "there is no directory /none" in output, (tmp_path / "none").exists()) == (2, True, False)


async def test_archives_are_read_with_filters(log: Any, command: Command, run_sql: RunSql, tmp_path: Path) -> None:
    jane = run_sql(
        "select revision from kubechronicle.log where user_name = 'jane' and resource = 'pods'"
        " and revision between 10 and 50 order by revision"
    ).split()
    await log.compact(70, archive=tmp_path)
    code, listed = await command("archive", "list", str(tmp_path))
    assert (code, listed.count("\n")) == (0, 7)
    filters = ("--user", "jane", "--resource", "pods", "--revisions", "10-50", "--since", "2020-01-01T00:00:00Z")
    code, output = await command("archive", "read", str(tmp_path), *filters)
    assert [line.split()[0] for line in output.splitlines()] == jane
    assert "jane created pods shop/" in output or "jane updated pods shop/" in output
    code, output = await command("archive", "read", str(tmp_path), *filters, "-o", "json")
    first = orjson.loads(output.splitlines()[0])
    assert (str(first["revision"]), first["object"]["kind"], first["user_extra"]) == (jane[0], "X", {"k": ["v"]})
    assert await command("archive", "read", str(tmp_path), "--until", "2020-01-01") == (0, "")
    for arguments in (
        ("list", "/none"),
        ("read", str(tmp_path), "--revisions", "x"),
        ("read", str(tmp_path), "--since", "x"),
    ):
        code, output = await command("archive", *arguments)
        assert (code, output.count("\n")) == (MISTAKE, 1)
