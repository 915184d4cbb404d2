"""A log founded by an import: it is proved, goes on, forgets, erases and is backed up as any other."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from erasing_shop import Command
from log_changes import create, open_session_of, put, update

from kubechronicle.eventlog.errors import Compacted, SetupError
from kubechronicle.eventlog.records import Key, Operation
from kubechronicle.eventlog.transfer.ends import bump_revisions
from kubechronicle.eventlog.transfer.founding import Founder, ImportedChange
from kubechronicle.eventlog.transfer.loader import loading

Opener = Callable[[], Awaitable[Any]]
NOW = datetime.now(UTC) - timedelta(minutes=1)
COMPACTED = 5_000_000


def imported(
    name: str, revision: int, *, previous: int = 0, operation: Operation = Operation.CREATE, version: int = 1
) -> ImportedChange:
    body = b'{"apiVersion":"v1","kind":"Pod","metadata":{"name":"%s","namespace":"ns","uid":"u"}}' % name.encode()
    return ImportedChange(
        revision=revision,
        create_revision=previous or revision,
        version=version,
        previous_revision=previous,
        operation=operation,
        key=Key("pods", "ns", name),
        uid="u",
        body=body,
        at=NOW - timedelta(days=1),
        manager="kubectl",
    )


@pytest.fixture
async def log(replicas: Opener) -> Any:
    """Return a log with the objects a, b and c of another cluster, as of revision 5,000,000, and four later changes:
    an update of a, a gap, the deletion of b, the creation of d."""
    log = await replicas()
    async with open_session_of(log) as session, loading(session) as loader:
        founder = Founder(loader, "etcd snapshot test.db", NOW)
        await founder.add_object(imported("a", 17))
        await founder.add_object(imported("b", 4_000_000, version=7, operation=Operation.UPDATE))
        await founder.add_object(imported("c", 5_000_000))
        await founder.end_objects(COMPACTED)
        await founder.add_change(imported("a", 5_000_001, previous=17, operation=Operation.UPDATE, version=2))
        await founder.add_change(imported("b", 5_000_009, previous=4_000_000, operation=Operation.DELETE, version=8))
        await founder.add_change(imported("d", 5_000_010))
        await founder.add_gap(5_000_020)
        await founder.finish(COMPACTED)
    return log


async def names_at(log: Any, revision: int) -> list[tuple[str, int]]:
    found = await log.list_at("pods", revision=revision, limit=10)
    return [(record.key.name, record.revision) for record in found]


async def test_a_founded_log_has_the_objects_at_their_revisions(log: Any) -> None:
    assert await names_at(log, COMPACTED) == [("a", 17), ("b", 4_000_000), ("c", 5_000_000)]
    assert await names_at(log, 5_000_020) == [("a", 5_000_001), ("c", 5_000_000), ("d", 5_000_010)]
    with pytest.raises(Compacted):
        await names_at(log, COMPACTED - 1)


async def test_it_is_proved_and_goes_on(log: Any) -> None:
    assert (await put(log, create("e"))).revision == 5_000_021
    a = await log.get_at(Key("pods", "ns", "a"), revision=5_000_021)
    changed = await put(log, update(a))
    assert (changed.revision, changed.version) == (5_000_022, 3)
    verdict = await log.verify()
    assert (verdict.problem, verdict.rows, verdict.tombstones, len(verdict.jumps)) == (None, 5, 3, 3)


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        ("update kubechronicle.kept set name = 'z' where revision = 17", "not the one that was appended"),
        ("update kubechronicle.tombstones set digests[1] = sha256('x') where thousand = 0", "not"),
        ("delete from kubechronicle.tombstones where thousand = 0", "2 of the 3 objects of the import"),
        ("delete from kubechronicle.jumps where first = 5000002", "missing"),
        (
            "insert into kubechronicle.kept select 18, create_revision, version, previous_revision, committed_at,"
            " operation, class, resource, namespace, 'x', uid, user_name, user_uid, user_groups, user_extra,"
            " impersonator, verb, request_uri, user_agent, source_address, field_manager, audit_id, digest, hash,"
            " object from kubechronicle.kept where revision = 17",
            "a row was copied forward that was never appended",
        ),
    ],
)
async def test_an_edit_is_found(log: Any, run_sql: Callable[..., str], edit: str, message: str) -> None:
    run_sql(edit)
    verdict = await log.verify()
    assert message in str(verdict.problem), verdict


async def test_old_history_is_dropped_from_it(log: Any) -> None:
    await put(log, create("e"))
    head = await log.head()
    async with log._maintenance() as session:
        await bump_revisions(session, 2_000_000)  # the drop is recorded in the next partition
    await log.compact(head.revision + 2_000_000)
    verdict = await log.verify()
    assert (verdict.problem, verdict.tombstones) == (None, 7)
    assert [name for name, _ in await names_at(log, head.revision + 2_000_000)] == ["a", "c", "d", "e"]


async def test_contents_of_imported_objects_are_erased(log: Any, command: Command) -> None:
    code, output = await command("erase", "pod/b", "-n", "ns", "--reason", "asked", "--yes")
    assert code == 0, output
    verdict = await log.verify()
    assert (verdict.problem, len(verdict.erasures)) == (None, 1)


async def test_it_is_backed_up_and_restored(
    log: Any, command: Command, tmp_path: Path, empty_database: str, capsys: pytest.CaptureFixture[str]
) -> None:
    import trio

    from kubechronicle.eventlog.postgres_log import open_postgres_log
    from kubechronicle.ops import cli

    backup = tmp_path / "log.backup.gz"
    assert (await command("backup", "-o", str(backup)))[0] == 0
    assert (await command("verify", "--backup", str(backup)))[0] == 0
    arguments = ("restore-backup", str(backup), "--to-revision", "5000009", "--database-url", empty_database)
    assert await trio.to_thread.run_sync(cli.main, arguments) == 0, capsys.readouterr()
    async with open_postgres_log(empty_database, instance="test") as again:
        assert await names_at(again, 5_000_009) == [("a", 5_000_001), ("c", 5_000_000)]
        assert (await again.verify()).problem is None


async def test_a_log_in_use_is_not_founded(replicas: Opener) -> None:
    log = await replicas()
    await put(log, create("a"))
    async with open_session_of(log) as session:
        with pytest.raises(SetupError, match="is not empty"):
            async with loading(session):
                pass
