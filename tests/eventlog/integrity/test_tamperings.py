"""`verify` names every tampering with rows, marks, classes, views, functions, triggers and rights."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import pytest
import trio

from kubechronicle.eventlog.integrity.digests import COLUMNS
from kubechronicle.eventlog.records import Batch, Change, Key, Operation, Transaction, Who
from kubechronicle.ops import cli

Opener = Callable[[], Awaitable[Any]]
RunSql = Callable[..., str]
Command = Callable[..., Awaitable[tuple[int, str]]]

LOG: Final = "kubechronicle.log"
EDITED = "its content does not have its digest"
REHASHED: Final = (
    f"update {LOG} set digest = sha256(record_send(row({', '.join(COLUMNS[:-2])}))) where cause = 0 and reason = ''",
    "update kubechronicle.log l set hash = c.hash from (select revision, kubechronicle.chain((select"
    " sha256(uuid_send(log_id)) from kubechronicle.head), digest) over (order by revision rows unbounded preceding)"
    " as hash from kubechronicle.log) c where c.revision = l.revision",
    "update kubechronicle.head set hash = (select hash from kubechronicle.log order by revision desc limit 1)",
)
MOVED: Final = """
insert into kubechronicle.mark_moves select m.number + 1, m.moved_at, m.actor, m.role, m.reason, 12, m.compacted_of,
    m.revision, {}, sha256(m.hash || sha256(record_send(row(m.number + 1, m.moved_at, m.actor, m.role, m.reason,
    12::bigint, m.compacted_of, m.revision, {})))) from kubechronicle.mark_moves m order by m.number desc limit 1
"""
ROW: Final = f"update {LOG} set {{}} where revision = 14"
VIEW: Final = (
    "do $$ begin execute 'create or replace view chronicle.{0} as '"
    " || regexp_replace(pg_get_viewdef('chronicle.{0}'), ';\\s*$', '') || ' limit 100'; end $$"
)

ROWS: Final = {
    "a user": (ROW.format("user_name = 'bob'"), EDITED),
    "a user's uid": (ROW.format("user_uid = 'bob'"), EDITED),
    "groups": (ROW.format("user_groups = '{a}'"), EDITED),
    "extra": (ROW.format("user_extra = '{\"a\":[]}'"), EDITED),
    "an impersonator": (ROW.format("impersonator = 'bob'"), EDITED),
    "a time": (ROW.format("committed_at = committed_at + interval '1 microsecond'"), EDITED),
    "an object": (ROW.format("object = '{\"a\": 1}'"), EDITED),
    "a program": (ROW.format("user_agent = 'x'"), EDITED),
    "an address": (ROW.format("source_address = '1.2.3.4'"), EDITED),
    "a manager": (ROW.format("field_manager = 'x'"), EDITED),
    "an audit id": (ROW.format("audit_id = 'x'"), EDITED),
    "a request": (ROW.format("request_uri = '/x'"), EDITED),
    "a verb": (ROW.format("verb = 'x'"), EDITED),
    "a reason": (ROW.format("reason = 'x'"), EDITED),
    "a cause": (ROW.format("cause = 3"), EDITED),
    "a name": (ROW.format("name = 'zz'"), EDITED),
    "a namespace": (ROW.format("namespace = 'zz'"), EDITED),
    "a uid": (ROW.format("uid = 'zz'"), EDITED),
    "a version": (ROW.format("version = version + 1"), EDITED),
    "a creation": (ROW.format("create_revision = 2"), EDITED),
    "a previous revision": (ROW.format("previous_revision = 2"), EDITED),
    "an operation": (ROW.format("operation = 2"), EDITED),
    "a digest": (ROW.format("digest = sha256('x')"), "revision 14"),
    "a hash": (ROW.format("hash = sha256('x')"), "revision 14"),
    "a row in the middle": (f"delete from {LOG} where revision = 14", "14"),
    "the newest row": (f"delete from {LOG} where revision = 20", "20"),
    "swapped objects": (
        f"with a as (select revision r, object o from {LOG} where revision in (14, 15)) update {LOG} l"
        " set object = (select o from a where r <> l.revision) where revision in (14, 15)",
        "14",
    ),
    "swapped revisions": (
        f"update {LOG} set revision = 900 where revision = 14; update {LOG} set revision = 14 where revision = 15;"
        f" update {LOG} set revision = 15 where revision = 900",
        "14",
    ),
    "a forged tombstone": (
        f"update {LOG} set object = '{{}}' where revision = 14; insert into kubechronicle.erased"
        f" select 14, gen_random_uuid(), digest, digest from {LOG} where revision = 14",
        "14",
    ),
    "a forged jump": (
        f"delete from {LOG} where revision between 14 and 15; insert into kubechronicle.jumps values"
        " (14, 15, '{}', sha256('x'))",
        "14",
    ),
    "a forged drop": (
        "insert into kubechronicle.tombstones select 0, 'long', array[14], array[digest]"
        f" from {LOG} where revision = 14; delete from {LOG} where revision = 14",
        "14",
    ),
    "a hidden object": ("delete from kubechronicle.live where name = 'n14'", "live"),
    "an old version": ("update kubechronicle.live set revision = create_revision where name = 'n1'", ""),
    "a log id": ("update kubechronicle.state set log_id = gen_random_uuid()", "revision 1"),
    "a head": ("update kubechronicle.heads set hash = sha256('y')", "hash"),
}
STATE: Final = {
    "a raised mark": ("update kubechronicle.state set compacted_long = 12", "the marks are *=12, but move 1 says *=5"),
    "a raised mark of one": (
        "update kubechronicle.state set compacted_of = '{\"pods\": 12}'",
        "the marks are *=5 pods=12, but move 1 says *=5",
    ),
    "a lowered mark": ("update kubechronicle.state set compacted_long = 0", "the marks are *=0, but move 1 says *=5"),
    "no moves": ("delete from kubechronicle.mark_moves", "no move is recorded"),
    "the author of a move": ("update kubechronicle.mark_moves set actor = 'x'", "move 1 of the marks was edited"),
    "the reason of a move": ("update kubechronicle.mark_moves set reason = 'x'", "move 1 of the marks was edited"),
    "the time of a move": ("update kubechronicle.mark_moves set moved_at = now()", "move 1 of the marks was edited"),
    "the role of a move": ("update kubechronicle.mark_moves set role = 'x'", "move 1 of the marks was edited"),
    "the marks of a move": (
        "update kubechronicle.mark_moves set compacted_long = 12; update kubechronicle.state set compacted_long = 12",
        "move 1 of the marks was edited",
    ),
    "a move without a hash": (
        "insert into kubechronicle.mark_moves select number + 1, moved_at, actor, role, reason, 12, compacted_of,"
        " revision, revision_hash, hash from kubechronicle.mark_moves;"
        " update kubechronicle.state set compacted_long = 12",
        "move 2 of the marks was edited",
    ),
    "a move at another hash of the log": (
        MOVED.format("sha256('x')", "sha256('x')") + "; update kubechronicle.state set compacted_long = 12",
        "does not match the noted hash",
    ),
    "confidential resources": (
        "delete from kubechronicle.confidential_resources",
        "the confidential resources are none",
    ),
    "more confidential resources": (
        "insert into kubechronicle.confidential_resources values ('pods')",
        "the confidential resources are",
    ),
    "retention classes": (
        "insert into kubechronicle.resource_classes values ('pods', 'short')",
        "the retention class of pods is short, not long",
    ),
    "fewer retention classes": (
        "delete from kubechronicle.resource_classes where resource = 'events'",
        "the retention class of events is long, not short",
    ),
    "times of batches": (
        "update kubechronicle.batches set committed_at = committed_at - interval '1 day'",
        "has another time than its changes",
    ),
    "a recorded migration": (
        "update kubechronicle.migrations set sha256 = 'z' where number = 20",
        "migration 0020_shared_keys is recorded with another text",
    ),
}
DEFINITIONS: Final = {
    "a function of readers": (
        "create or replace function chronicle.revision_at(moment timestamptz) returns bigint language sql"
        " as 'select 1::bigint'",
        "function chronicle.revision_at(moment timestamp with time zone) is another one",
    ),
    "a view": (VIEW.format("who_did_what"), "view chronicle.who_did_what is another one"),
    "a view of changes": (VIEW.format("changes"), "view chronicle.changes is another one"),
    "a view without its barrier": (
        "alter view chronicle.changes reset (security_barrier)",
        "view chronicle.changes is another one",
    ),
    "a function of the server": (
        "create or replace function kubechronicle.oldest_mark() returns bigint language sql as 'select 9::bigint'",
        "function kubechronicle.oldest_mark() is another one",
    ),
    "a new function": (
        "create function kubechronicle.extra() returns int language sql as 'select 1'",
        "function kubechronicle.extra() is none of this version",
    ),
    "a dropped view": ("drop view chronicle.tags", "view chronicle.tags of this version is missing"),
    "a trigger": (
        f"create trigger hide before insert on {LOG}_long for each row execute function"
        " suppress_redundant_updates_trigger()",
        "",
    ),
    "a trigger of the state": (
        "create trigger hide before update on kubechronicle.state for each row execute function"
        " suppress_redundant_updates_trigger()",
        "trigger hide on kubechronicle.state is none of this version",
    ),
    "a rule": (
        "create rule hide as on delete to kubechronicle.mark_moves do instead nothing",
        "rule hide on kubechronicle.mark_moves is none of this version",
    ),
    "a default": (
        "alter table kubechronicle.log alter column cause set default 7",
        "column kubechronicle.log.cause is another one",
    ),
    "a constraint": (
        "alter table kubechronicle.heads drop constraint heads_pkey",
        "constraint kubechronicle.heads.heads_pkey of this version is missing",
    ),
    "an index": ("drop index kubechronicle.kept_resource_namespace_name_revision_idx", "index kubechronicle.kept_"),
    "a table": (
        "create table kubechronicle.more (a int)",
        "table kubechronicle.more is none of this version",
    ),
    "row security": ("alter table kubechronicle.kept enable row level security", "table kubechronicle.kept is another"),
    "a right for everybody": (
        f"grant select on {LOG} to public",
        "right select on kubechronicle.log for everybody is none of this version",
    ),
    "a right to write": (
        f"create role tampering_writer; grant update on {LOG} to tampering_writer",
        "right update on kubechronicle.log for tampering_writer is none of this version",
    ),
    "a right to a schema": (
        "grant create on schema chronicle to public",
        "right create on schema chronicle for everybody is none of this version",
    ),
}
WITH_CHECKPOINT: Final = {
    "a rewritten log": ("; ".join((ROW.format("user_name = 'bob'"), *REHASHED)), ""),
    "a shortened log": (
        f"delete from {LOG} where revision > 15; delete from kubechronicle.live where revision > 15;"
        " delete from kubechronicle.batches where head > 15; update kubechronicle.head set revision = 15,"
        f" hash = (select hash from {LOG} where revision = 15)",
        "",
    ),
    "forgotten moves": (
        "delete from kubechronicle.mark_moves; update kubechronicle.state set compacted_long = 0",
        "the moves of marks up to here are not those of the time of a checkpoint",
    ),
}
ALL: Final = [
    *((name, sql, message, False) for of in (ROWS, STATE, DEFINITIONS) for name, (sql, message) in of.items()),
    *((name, sql, message, True) for name, (sql, message) in WITH_CHECKPOINT.items()),
]


@pytest.fixture
def command(database: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Command:
    """Return a function: ``await command("verify", …)`` returns the exit code and all output."""

    async def run(*arguments: str) -> tuple[int, str]:
        where = ["--database-url", database, "--data-dir", str(tmp_path)]
        code = await trio.to_thread.run_sync(cli.main, [*arguments, *where])
        output = capsys.readouterr()
        return code, output.out + output.err

    return run


@pytest.fixture
async def noted(replicas: Opener, command: Command, tmp_path: Path) -> str:
    """Write 20 changes, of which the first 5 are compacted, and a checkpoint."""
    log = await replicas()
    for number in range(1, 21):
        body = b'{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"n%d"}}' % number
        key = Key("configmaps", "ns", f"n{number}" if number < 20 else "n1")
        operation, expected = (Operation.CREATE, 0) if number < 20 else (Operation.UPDATE, 1)
        change = Change(key=key, uid=f"u{key.name}", expected=expected, operation=operation, body=body)
        transaction = Transaction(changes=(change,), who=Who(user="jane", verb="create"))
        await log.append(Batch(id=uuid4(), transactions=(transaction,)))
    await log.compact(5, actor="ann", reason="ticket 7")
    file = tmp_path / "noted.checkpoint"
    assert (await command("checkpoint", "-o", str(file)))[0] == 0
    return str(file)


async def test_an_untouched_log_is_proved(noted: str, command: Command) -> None:
    code, output = await command("verify", "--checkpoint", noted)
    assert code == 0, output
    assert "marks: moved once, last to *=5 at 20" in output
    assert "by ann (database role " in output
    assert "ticket 7" in output
    assert "the definitions of the database are those of this version" in output


@pytest.mark.parametrize(
    ("sql", "message", "with_checkpoint"), [each[1:] for each in ALL], ids=[each[0] for each in ALL]
)
async def test_a_tampering_is_named(
    noted: str, command: Command, run_sql: RunSql, sql: str, message: str, *, with_checkpoint: bool
) -> None:
    run_sql(sql)
    code, output = await command("verify")
    if with_checkpoint:
        code, output = await command("verify", "--checkpoint", noted)
    assert code == 1, output
    assert message in output


def test_there_are_many() -> None:
    assert len(ALL) >= 60
