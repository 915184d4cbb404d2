"""Attacks by a writer of the database that remove history as retention does: `verify` detects each of them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
import trio

from kubechronicle.eventlog.integrity.digests import DIGESTED
from kubechronicle.eventlog.records import Batch, Change, Key, Operation, Transaction, Who
from kubechronicle.ops import cli

Opener = Callable[[], Awaitable[Any]]
RunSql = Callable[..., str]
Command = Callable[..., Awaitable[tuple[int, str]]]

COLUMNS = ", ".join(name for name, _ in DIGESTED)
REDIGEST = (
    f"update kubechronicle.log set digest = sha256(record_send(row({COLUMNS})))",
    "update kubechronicle.log l set hash = c.hash from (select revision, kubechronicle.chain((select"
    " sha256(uuid_send(log_id)) from kubechronicle.head), digest) over (order by revision rows unbounded preceding)"
    " as hash from kubechronicle.log) c where c.revision = l.revision",
    "update kubechronicle.head set hash = (select hash from kubechronicle.log order by revision desc limit 1)",
)
"""Digests without class, as they were before schema 21."""


def bury(revisions: str, *, retention_class: str = "long") -> tuple[str, ...]:
    """Return statements that turn rows into tombstones."""
    return (
        "insert into kubechronicle.tombstones as t select revision / 1000, '" + retention_class + "',"
        f" array_agg(revision order by revision), array_agg(digest order by revision) from kubechronicle.log"
        f" where revision in ({revisions}) group by 1 on conflict (thousand, class) do update set"
        " revisions = t.revisions || excluded.revisions, digests = t.digests || excluded.digests",
        f"delete from kubechronicle.live where revision in ({revisions})",
        f"delete from kubechronicle.log where revision in ({revisions})",
    )


async def write(log: Any, *names: str, resource: str = "pods") -> None:
    for name in names:
        body = b'{"apiVersion":"v1","kind":"X","metadata":{"name":"x"}}'
        change = Change(key=Key(resource, "ns", name), uid="u", expected=0, operation=Operation.CREATE, body=body)
        await log.append(Batch(id=uuid4(), transactions=(Transaction(changes=(change,), who=Who(user="a")),)))


@pytest.fixture
def command(database: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Command:
    async def run(*arguments: str) -> tuple[int, str]:
        where = ["--database-url", database, "--data-dir", str(tmp_path)]
        code = await trio.to_thread.run_sync(cli.main, [*arguments, *where])
        output = capsys.readouterr()
        return code, output.out + output.err

    return run


@pytest.fixture
async def log(replicas: Opener, run_sql: RunSql) -> Any:
    """Return a log of twenty objects in partitions of five revisions: p1 to p18, and two Events."""
    log = await replicas()
    for name in ("long", "short"):
        run_sql(
            f"drop table kubechronicle.log_{name}_1",
            f"update kubechronicle.retention_classes set span = 5, partitioned_until = 1 where class = '{name}'",
            f"select kubechronicle.make_partition('{name}')",
        )
    await write(log, *(f"p{number}" for number in range(1, 8)))
    await write(log, "e1", "e2", resource="events")
    await write(log, *(f"p{number}" for number in range(8, 19)))
    return log


async def noted(command: Command, tmp_path: Path) -> str:
    file = tmp_path / f"{uuid4()}.checkpoint"
    assert (await command("checkpoint", "-o", str(file)))[0] == 0
    return str(file)


async def test_drops_are_recorded_and_verified(log: Any, command: Command, tmp_path: Path) -> None:
    before = await noted(command, tmp_path)
    await log.compact(16)
    after = await noted(command, tmp_path)
    code, output = await command("verify", "--checkpoint", before, "--checkpoint", after)
    assert code == 0, output
    assert "dropped: 3 partitions of the class long, revisions 1 to 15, 13 changes; the newest recorded by" in output
    assert "dropped: 1 partition of the class short, revisions 6 to 10, 2 changes" in output
    verdict = await log.verify()
    assert [(drop.retention_class, drop.first, drop.last, drop.revisions) for drop in verdict.drops] == [
        ("long", 1, 5, 5),
        ("long", 6, 10, 3),
        ("long", 11, 15, 5),
        ("short", 6, 10, 2),
    ]
    await log.compact(20)
    assert (await command("verify", "--checkpoint", after))[0] == 0


ATTACKS: dict[str, tuple[tuple[str, ...], str]] = {
    "a row": (bury("17"), "no drop of its partition is recorded"),
    "a row among dropped ones": (bury("3"), "no drop of its partition is recorded"),
    "a row, and the marks": ((*bury("17"), "select kubechronicle.move_marks(20, '{}')"), "no drop of its partition"),
    "a partition": (bury("1, 2, 3, 4, 5"), "no drop of its partition is recorded"),
    "a row as one of another class": (bury("17", retention_class="short"), "no drop of its partition is recorded"),
    "a class": (("update kubechronicle.log set class = 'short' where revision = 17",), "edited"),
    "no confidential resources": (("delete from kubechronicle.confidential_resources",), "confidential resources are"),
    "another confidential resource": (
        ("insert into kubechronicle.confidential_resources values ('pods')",),
        "confidential resources are pods, secrets, but the log says secrets",
    ),
}


@pytest.mark.parametrize("attack", ATTACKS)
async def test_an_attack_is_detected(attack: str, log: Any, command: Command, run_sql: RunSql, tmp_path: Path) -> None:
    checkpoint = await noted(command, tmp_path)
    statements, message = ATTACKS[attack]
    run_sql(*statements)
    for arguments in ((), ("--checkpoint", checkpoint)):
        code, output = await command("verify", *arguments)
        assert (code, message in output) == (1, True), output


LATER_ATTACKS: dict[str, tuple[tuple[str, ...], str]] = {
    "a row after the drops": (bury("17"), "no drop of its partition is recorded"),
    "a row copied forward": (
        ("delete from kubechronicle.kept where revision = 2", "delete from kubechronicle.live where revision = 2"),
        "the rows copied forward are not those after the newest drop",
    ),
    "one more tombstone": (
        (
            "update kubechronicle.tombstones set revisions = revisions || 8::bigint, digests = digests ||"
            " (select digests[1] from kubechronicle.tombstones where class = 'short') where class = 'long'",
            "delete from kubechronicle.tombstones where class = 'short'",
        ),
        "",
    ),
    "the marks": (("update kubechronicle.head set compacted_long = 3",), "the marks are *=3, but move 1 says *=16"),
}


@pytest.mark.parametrize("attack", LATER_ATTACKS)
async def test_an_attack_on_what_drops_left_is_detected(
    attack: str, log: Any, command: Command, run_sql: RunSql, tmp_path: Path
) -> None:
    await log.compact(16)
    checkpoint = await noted(command, tmp_path)
    statements, message = LATER_ATTACKS[attack]
    run_sql(*statements)
    code, output = await command("verify", "--checkpoint", checkpoint)
    assert (code, message in output) == (1, True), output


async def test_a_drop_above_the_mark_is_detected(log: Any, command: Command, run_sql: RunSql, tmp_path: Path) -> None:
    """A writer of the database calls the functions of retention: the drop is recorded, but nothing allowed it."""
    run_sql(
        "select kubechronicle.copy_forward('kubechronicle.log_long_1', 'long')", "drop table kubechronicle.log_long_1"
    )
    code, output = await command("verify")
    assert (code, "it records a drop up to revision 5, above the mark 0" in output) == (1, True), output
    checkpoint = await noted(command, tmp_path)
    run_sql("select kubechronicle.move_marks(20, '{}')")
    assert (await command("verify"))[0] == 0
    code, output = await command("verify", "--checkpoint", checkpoint)
    assert (code, "above the mark 0" in output) == (1, True), output


async def test_the_confidential_resources_are_entries_of_the_log(log: Any, command: Command, run_sql: RunSql) -> None:
    assert (await command("history", "confidential", "--add", "vaults.example.com"))[0] == 0
    assert (await command("verify"))[0] == 0
    assert (await command("history", "confidential", "--add", "pods", "--remove", "vaults.example.com"))[0] == 0
    code, output = await command("verify")
    assert code == 0, output
    run_sql("delete from kubechronicle.confidential_resources where resource = 'pods'")
    code, output = await command("verify")
    assert (code, "the confidential resources are secrets, but the log says pods, secrets" in output) == (1, True)


async def test_earlier_rows_and_drops_verify_after_an_upgrade(log: Any, command: Command, run_sql: RunSql) -> None:
    """Rows before schema 21 have digests without class, and drops no entries."""
    run_sql(*REDIGEST)
    assert (await command("verify"))[0] == 0
    run_sql("update kubechronicle.log set class = 'short' where revision = 17")
    code, output = await command("verify")
    assert (code, "revision 17: the row was edited: its class cannot be short" in output) == (1, True), output
    run_sql(
        "update kubechronicle.log set class = 'long' where revision = 17",
        "select kubechronicle.move_marks(10, '{}')",
        *bury("1, 2, 3, 4, 5"),
    )
    assert (await command("verify"))[0] == 1
    run_sql("select kubechronicle.record_earlier_drops()")  # as the migration does
    code, output = await command("verify")
    assert code == 0, output
    assert "dropped: 1 partition of the class long, revisions 1 to 5, 5 changes" in output
    await write(log, "later")
    assert (await log.verify()).problem is None
