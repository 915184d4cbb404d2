"""A backup holds the whole log, is proved without a database, and is restored whole or as of a moment."""

from __future__ import annotations

import gzip
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import orjson
import pytest
from erasing_shop import Command
from log_changes import create, open_session_of, put, update
from msgspec.structs import replace

from kubechronicle.eventlog.queries.branches import BranchOutcome
from kubechronicle.eventlog.records import Key, Who
from kubechronicle.eventlog.transfer.ends import bump_revisions

Opener = Callable[[], Awaitable[Any]]
Restore = Callable[..., Awaitable[tuple[int, str]]]


@pytest.fixture
async def log(replicas: Opener) -> Any:
    """Return a log of nine revisions: creates a to d and an event, updates a twice, deletes b, creates e."""
    log = await replicas()
    first = await put(log, create("a"))
    doomed = await put(log, create("b"))
    for name in ("c", "d"):
        await put(log, create(name))
    await put(log, create("happened", resource="events"))
    second = await put(log, update(first))
    await put(log, update(second))
    await put(log, update(doomed, delete=True))
    await put(log, create("e"))
    return log


@pytest.fixture
def backup(tmp_path: Path) -> Path:
    return tmp_path / "log.backup.gz"


@pytest.fixture
def restored(empty_database: str, capsys: pytest.CaptureFixture[str]) -> Restore:
    """Return a function that restores a backup into an empty database, and then verifies this database."""
    import trio

    from kubechronicle.ops import cli

    async def run(*arguments: str) -> tuple[int, str]:
        database = ("--database-url", empty_database)
        code = await trio.to_thread.run_sync(cli.main, ("restore-backup", *arguments, *database))
        if code == 0:
            code = await trio.to_thread.run_sync(cli.main, ("verify", *database))
        output = capsys.readouterr()
        return code, output.out + output.err

    return run


async def names_in(url: str, resource: str = "pods") -> list[str]:
    from kubechronicle.eventlog.postgres_log import open_postgres_log

    async with open_postgres_log(url, instance="test") as log:
        head = await log.head()
        found = await log.list_at(resource, revision=head.revision, limit=100)
    return [record.key.name for record in found]


async def test_a_backup_is_restored_with_the_same_chain(
    log: Any, command: Command, restored: Restore, backup: Path, empty_database: str
) -> None:
    code, output = await command("backup", "-o", str(backup))
    assert (code, "saved revision 9 of" in output) == (0, True), output
    anchor = output.split()[-1]
    code, output = await command("verify", "--backup", str(backup), "--anchor", anchor)
    assert (code, "verified revisions 1 to 9" in output) == (0, True), output
    code, output = await restored(str(backup))
    assert (code, output.count(anchor)) == (0, 2), output
    assert await names_in(empty_database) == ["a", "c", "d", "e"]


async def test_a_backup_is_compared_with_a_checkpoint(
    log: Any, command: Command, backup: Path, tmp_path: Path, run_sql: Callable[..., str]
) -> None:
    checkpoint = tmp_path / "checkpoint"
    data = ("--data-dir", str(tmp_path))
    code, output = await command("checkpoint", "-o", str(checkpoint), *data)
    assert code == 0, output
    await command("backup", "-o", str(backup))
    proof = ("verify", "--backup", str(backup), "--checkpoint", str(checkpoint), *data)
    code, output = await command(*proof)
    assert (code, "verified revisions 1 to 9" in output) == (0, True), output
    run_sql("update kubechronicle.head set log_id = gen_random_uuid()")
    other = str(tmp_path / "other.gz")
    await command("backup", "-o", other)
    code, output = await command("verify", "--backup", other, *proof[3:])
    assert (code, "is a backup of log" in output) == (1, True), output


async def test_compacted_and_dropped_history_is_restored(
    log: Any, command: Command, restored: Restore, backup: Path, empty_database: str, run_sql: Callable[..., str]
) -> None:
    run_sql("select kubechronicle.move_marks(9, '{}')")
    async with log._maintenance() as session:
        await bump_revisions(session, 999_991)  # the drop is recorded in the next partition
    run_sql("update kubechronicle.head set compacted_long = 1000000")
    run_sql(
        "select kubechronicle.copy_forward('kubechronicle.log_long_1', 'long')", "drop table kubechronicle.log_long_1"
    )
    assert (await command("backup", "-o", str(backup)))[0] == 0
    code, output = await restored(str(backup))
    assert (code, "2 by content, 8 by digest" in output) == (0, True), output
    assert await names_in(empty_database) == ["a", "c", "d", "e"]


@pytest.mark.parametrize(("revision", "names"), [("1", ["a"]), ("7", ["a", "b", "c", "d"]), ("8", ["a", "c", "d"])])
async def test_the_state_of_a_revision_is_restored(
    log: Any, command: Command, restored: Restore, backup: Path, empty_database: str, revision: str, names: list[str]
) -> None:
    await command("backup", "-o", str(backup))
    code, output = await restored(str(backup), "--to-revision", revision)
    assert (code, f"restored revision {revision} of" in output, "--bump-revisions" in output) == (0, True, True), output
    assert await names_in(empty_database) == names


async def test_the_state_of_a_time_is_restored(
    log: Any, command: Command, restored: Restore, backup: Path, empty_database: str
) -> None:
    moment = (await log.moment_of(4)).time
    await command("backup", "-o", str(backup))
    code, output = await restored(str(backup), "--to-time", moment.isoformat())
    assert (code, "restored revision 4 of" in output) == (0, True), output
    assert await names_in(empty_database) == ["a", "b", "c", "d"]


async def test_a_restored_log_goes_on_at_a_higher_revision(
    log: Any, command: Command, restored: Restore, backup: Path, empty_database: str
) -> None:
    from kubechronicle.eventlog.postgres_log import open_postgres_log

    await command("backup", "-o", str(backup))
    code, output = await restored(str(backup), "--to-revision", "7", "--bump-revisions")
    assert (code, "the next revision is 1000000008" in output) == (0, True), output
    async with open_postgres_log(empty_database, instance="test") as again:
        record = await put(again, create("later"))
        assert record.revision == 1_000_000_008
        assert (await again.verify()).problem is None
        found = await again.get_at(Key("pods", "ns", "a"), revision=6)
        assert found is not None
        assert found.revision == 6


async def test_a_log_is_bumped_in_its_place(database: str, command: Command) -> None:
    """After a recovery by Postgres' means. A server that is connected may know the lost revisions itself."""
    from kubechronicle.eventlog.postgres_log import open_postgres_log

    code, output = await command("bump-revisions")
    assert (code, "the log is empty" in output) == (2, True), output
    async with open_postgres_log(database, instance="test") as log:
        await put(log, create("a"))
        code, output = await command("bump-revisions")
        assert (code, "stop all servers first: 'kubechronicle test'" in output) == (2, True), output
    code, output = await command("bump-revisions", "100000000000000")
    assert (code, "a number of revisions up to 10000000000000" in output) == (2, True), output
    code, output = await command("bump-revisions", "500")
    assert (code, "the next revision is 502; watches from a lost revision" in output) == (0, True), output
    async with open_postgres_log(database, instance="test") as log:
        assert (await put(log, create("b"))).revision == 502
        assert (await log.verify()).problem is None


def lines_of(backup: Path) -> list[Any]:
    return [orjson.loads(line) for line in gzip.decompress(backup.read_bytes()).splitlines()]


def write_lines(backup: Path, lines: list[Any], *, sealed: bool = True) -> None:
    """Write edited lines, with the checksum of an attacker who knows the format."""
    from hashlib import sha256

    text = b"".join(orjson.dumps(line) + b"\n" for line in lines[:-1])
    end = {"lines": len(lines) - 1, "sha256": sha256(text).hexdigest()} if sealed else lines[-1]
    backup.write_bytes(gzip.compress(text + orjson.dumps(end) + b"\n"))


def cut_short(backup: Path) -> None:
    backup.write_bytes(backup.read_bytes()[:-20])


@pytest.mark.parametrize("sealed", [True, False])
async def test_an_edited_backup_is_neither_proved_nor_restored(
    log: Any, command: Command, restored: Restore, backup: Path, sealed: bool
) -> None:
    await command("backup", "-o", str(backup))
    lines = lines_of(backup)
    row = next(line for line in lines[1:-1] if line[:2] == ["row", 3])
    row[row.index("alice")] = "mallory"
    write_lines(backup, lines, sealed=sealed)
    code, output = await command("verify", "--backup", str(backup))
    assert (code, "revision 3: the row was edited" in output) == (1, True), output
    code, output = await restored(str(backup))
    assert (code, "nothing was restored" in output) == (1, True), output


async def test_a_backup_that_is_cut_short_is_one_line(
    log: Any, command: Command, restored: Restore, backup: Path
) -> None:
    await command("backup", "-o", str(backup))
    cut_short(backup)
    code, output = await command("verify", "--backup", str(backup))
    assert (code, len(output.splitlines()), "damaged" in output) == (1, 1, True), output
    code, output = await restored(str(backup))
    assert (code, len(output.splitlines())) == (1, 1), output


async def test_a_database_in_use_is_not_restored_into(log: Any, command: Command, backup: Path) -> None:
    await command("backup", "-o", str(backup))
    code, output = await command("restore-backup", str(backup))
    assert (code, "the database is not empty" in output) == (2, True), output


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--to-revision", "10"), "the backup has the revisions up to 9"),
        (("--to-revision", "x"), "--to-revision: must be a revision"),
        (("--to-time", "1999-01-01T00:00:00Z"), "has no history of 1999"),
        (("--to-time", "2999-01-01T00:00:00Z"), "the backup was taken at"),
        (("--bump-revisions", "-1"), "--bump-revisions"),
        (("--bump-revisions", "100000000000000"), "up to 10000000000000"),
    ],
)
async def test_an_impossible_target_is_one_line(
    log: Any, command: Command, restored: Restore, backup: Path, flags: tuple[str, ...], message: str
) -> None:
    await command("backup", "-o", str(backup))
    code, output = await restored(str(backup), *flags)
    assert (code, len(output.splitlines()), message in output) == (2, 1, True), output


async def test_a_jump_is_proved(log: Any, run_sql: Callable[..., str]) -> None:
    async with open_session_of(log) as session:
        await bump_revisions(session, 100)
    await put(log, create("after"))
    verdict = await log.verify()
    assert (verdict.problem, verdict.revision, len(verdict.jumps)) == (None, 110, 1)
    for edit, message in (
        ("update kubechronicle.jumps set about = replace(about, 'restore', 'gap')", "chain is broken"),
        ("update kubechronicle.jumps set last = 111", "other revisions"),
        ("delete from kubechronicle.jumps", "missing"),
    ):
        run_sql("create table saved as select * from kubechronicle.jumps", edit)
        verdict = await log.verify()
        assert message in str(verdict.problem), edit
        run_sql(
            "delete from kubechronicle.jumps", "insert into kubechronicle.jumps select * from saved", "drop table saved"
        )


async def test_recorded_reads_are_restored_into_their_weeks(
    log: Any, command: Command, restored: Restore, backup: Path, empty_database: str, run_sql: Callable[..., str]
) -> None:
    from kubechronicle.eventlog.postgres.connection import open_session

    run_sql(
        "insert into kubechronicle.reads (at, revision, resource, subresource, namespace, name, verb, form, user_name,"
        " user_uid, user_groups, impersonator, request_uri, user_agent, source_address, audit_id)"
        " select now() - n * interval '8 days', 9, 'secrets', '', 'ns', 's', 'get', 'object', 'jane', '', '{a,b}', '',"
        " '/x', 'k', '::1', '' from generate_series(0, 2) n",
        "insert into kubechronicle.read_recordings values (gen_random_uuid(), 's', now(), now(), 0, true, '{}')",
        "insert into kubechronicle.archived (file, class, first, last) values ('f', 'long', 1, 2)",
    )
    await command("backup", "-o", str(backup))
    code, output = await restored(str(backup))
    assert code == 0, output
    async with open_session(empty_database) as session:
        await session.fetch("select kubechronicle.retain_reads(0)")
        for table, rows in (("reads", 3), ("reads_other", 0), ("read_recordings", 1), ("archived", 1)):
            assert (await session.fetch(f"select count(*) from kubechronicle.{table}"))[0][0] == rows
        assert (await session.fetch("select user_groups from kubechronicle.reads limit 1"))[0][0] == ["a", "b"]


async def test_branches_are_restored_with_their_changes(
    log: Any, command: Command, restored: Restore, backup: Path, empty_database: str, run_sql: Callable[..., str]
) -> None:
    from kubechronicle.eventlog.postgres_log import open_postgres_log

    early, late, who = uuid4(), uuid4(), Who(user="jane", groups=("a", "b"))
    (tried,) = await log.read(after=8, limit=1)
    records = [replace(tried, key=Key("pods", "x", name), body=b'{"at":"\\u00e9"}') for name in ("p", "q", "r")]
    changes = {early: [replace(one, revision=at) for at, one in enumerate(records, 6)], late: records[:1]}
    for branch, base in ((early, 5), (late, 8)):
        await log.branches.open(branch, base)
        answer = await log.branches.append(branch, uuid4(), 0, changes[branch], [who] * len(changes[branch]))
        assert answer.outcome is BranchOutcome.APPENDED
    heads = [await log.branches.head(early), await log.branches.head(late)]
    run_sql("update kubechronicle.branches set used_at = now() - interval '3 days'")
    await command("backup", "-o", str(backup))
    code, output = await restored(str(backup))
    assert code == 0, output
    async with open_postgres_log(empty_database, instance="test") as other:
        assert [await other.branches.head(early), await other.branches.head(late)] == heads
        found = await other.branches.read(early, after=5, limit=10)
        assert [(one.revision, one.key, one.body) for one in found] == [
            (one.revision, one.key, one.body) for one in changes[early]
        ]
        assert await other.branches.authors(early, [8]) == {8: who}
        oldest = min((await other.branches.unused_since()).values())
        assert datetime.now(UTC) - oldest < timedelta(days=1)  # an unused branch is deleted after a day


async def test_as_of_a_revision_later_branches_are_left_out(
    log: Any, command: Command, restored: Restore, backup: Path, empty_database: str
) -> None:
    from kubechronicle.eventlog.postgres_log import open_postgres_log

    early, late = uuid4(), uuid4()
    for branch, base in ((early, 5), (late, 8)):
        await log.branches.open(branch, base)
    await command("backup", "-o", str(backup))
    code, output = await restored(str(backup), "--to-revision", "6")
    assert code == 0, output
    async with open_postgres_log(empty_database, instance="test") as other:
        assert set(await other.branches.unused_since()) == {early}


IN_A_BACKUP = {
    "archived", "branch_changes", "branches", "confidential_resources", "erased", "jumps", "kept", "log",
    "mark_moves",
    "read_recordings", "reads", "resource_classes", "retention_classes", "tombstones",
}  # fmt: skip
DERIVED = {
    "batches",  # outcomes of the last day, for servers that wait for them
    "heads",  # the newest row is in the header
    "live",  # from the rows
    "lock_appends",
    "lock_maintenance",
    "migrations",  # the number is in the header
    "servers",  # of the present
    "shared_keys",  # of the servers: each has them in its pki, too
    "state",  # its marks are in the header
}


def test_every_table_is_in_a_backup_or_derived(run_sql: Callable[..., str]) -> None:
    """A new table must be added to backups, or to the list above with a reason."""
    tables = run_sql(
        "select relname from pg_class where relnamespace = 'kubechronicle'::regnamespace and relkind in ('r', 'p')"
        " and not relispartition"
    )
    assert set(tables.split()) <= IN_A_BACKUP | DERIVED


async def test_a_dump_of_postgres_is_restored_and_proved(
    log: Any, database: str, empty_database: str, backup: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The procedure with pg_dump (docs/backup.md)."""
    import postgres_fixture
    import trio

    from kubechronicle.ops import cli

    tools = postgres_fixture.binaries()
    assert tools is not None
    if not (tools / "pg_dump").exists():
        pytest.skip("no pg_dump on this machine")
    schemas = ("--schema=kubechronicle", "--schema=chronicle")
    dump = (str(tools / "pg_dump"), "--format=custom", *schemas, database, f"--file={backup}")
    restore = (str(tools / "pg_restore"), "--no-owner", f"--dbname={empty_database}", str(backup))
    for command in (dump, restore):
        done = await trio.run_process(command, capture_stdout=True, capture_stderr=True, check=False)
        assert done.returncode == 0, done.stderr
    assert await trio.to_thread.run_sync(cli.main, ("verify", "--database-url", empty_database)) == 0
    assert "verified revisions 1 to 9" in capsys.readouterr().out
    assert await names_in(empty_database) == ["a", "c", "d", "e"]
