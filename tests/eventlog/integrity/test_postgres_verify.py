"""`verify` detects every kind of edit of history."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any
from uuid import uuid4

import pytest
from msgspec.structs import replace

from kubechronicle.eventlog.integrity.digests import COLUMNS, digest_of
from kubechronicle.eventlog.integrity.verify import ChainCheck, ChainProblem, verify
from kubechronicle.eventlog.records import Batch, Change, Key, Operation, Transaction, Who
from kubechronicle.eventlog.transfer.ends import bump_revisions

Opener = Callable[[], Awaitable[Any]]
RunSql = Callable[..., str]

WHO = Who(
    user="alice ü",
    groups=("a", "", 'b"{},\\'),
    uid="u",
    extra={"k": ("v", "w"), "": ()},
    impersonator="bob",
    verb="create",
    request_uri="/api?x=é",
    user_agent="k",
    source_address="::1",
    field_manager="m",
    audit_id="x",
)


async def write(
    log: Any, *names: str, operation: Operation = Operation.CREATE, who: Who = WHO, expected: int = 0
) -> None:
    changes = [
        Change(
            key=Key("pods", "ns", name),
            uid="u",
            expected=expected,
            operation=operation,
            body=b'{"apiVersion":"v1","kind":"Pod","metadata":{"name":"\xc3\xbc"}, "n":1.0}',
        )
        for name in names
    ]
    batch = Batch(id=uuid4(), transactions=tuple(Transaction(changes=(change,), who=who) for change in changes))
    await log.append(batch)


@pytest.fixture
async def log(replicas: Opener) -> Any:
    """Return a log of ten revisions in batches of different sizes: creates a to h, updates a, deletes b."""
    log = await replicas()
    await write(log, "a")
    await write(log, "b", "c", "d", who=Who(user="nobody"))
    await write(log, *"efgh")
    await write(log, "a", operation=Operation.UPDATE, expected=1)
    await write(log, "b", operation=Operation.DELETE, expected=2)
    return log


async def test_an_untouched_log_verifies(log: Any) -> None:
    verdict = await log.verify()
    assert (verdict.problem, verdict.revision, verdict.rows, verdict.tombstones) == (None, 10, 10, 0)


async def test_an_empty_log_verifies(replicas: Opener) -> None:
    assert (await (await replicas()).verify()).problem is None


SWAP = (
    "update kubechronicle.log a set object = b.object, digest = b.digest, name = b.name from kubechronicle.log b"
    " where (a.revision, b.revision) in ((3, 4), (4, 3))"
)


@pytest.mark.parametrize(
    ("edit", "revision", "message"),
    [
        ("update kubechronicle.log set object = '{}' where revision = 5", 5, "edited"),
        ("update kubechronicle.log set user_name = 'mallory' where revision = 10", 10, "edited"),
        ("update kubechronicle.log set user_groups = '{a,b}' where revision = 1", 1, "edited"),
        ("update kubechronicle.log set user_extra = null where revision = 1", 1, "edited"),
        ("update kubechronicle.log set committed_at = committed_at + interval '1 us' where revision = 2", 2, "edited"),
        ("update kubechronicle.log set digest = sha256('x') where revision = 5", 5, "edited"),
        ("update kubechronicle.log set hash = sha256('x') where revision = 5", 5, "chain is broken"),
        ("delete from kubechronicle.log where revision = 5", 5, "missing"),
        ("delete from kubechronicle.log where revision = 1", 1, "missing"),
        ("delete from kubechronicle.log where revision = 10", 10, "newest row is 9"),
        ("delete from kubechronicle.log", 1, "newest row is 0"),
        (SWAP, 3, "edited"),
        ("update kubechronicle.log set revision = 1004 - revision where revision in (3, 4)", 3, "missing"),
        ("update kubechronicle.head set revision = 9", 10, "the head says 9"),
        ("update kubechronicle.head set hash = sha256('x')", 10, "head does not have the hash"),
        ("update kubechronicle.head set log_id = gen_random_uuid()", 1, "chain is broken"),
        ("delete from kubechronicle.live where name = 'e'", 5, "live"),
        ("update kubechronicle.log set reason = 'x' where revision = 5", 5, "edited"),
        ("update kubechronicle.live set revision = 1 where name = 'a'", 1, "live"),
        ("update kubechronicle.live set version = 7 where name = 'a'", 9, "live"),
        ("insert into kubechronicle.live values ('pods', 'ns', 'b', 2, 2, 1)", 2, "live"),
    ],
)
async def test_an_edit_is_detected(log: Any, run_sql: RunSql, edit: str, revision: int, message: str) -> None:
    run_sql(edit)
    problem = (await log.verify()).problem
    assert problem is not None
    assert problem.revision == revision
    assert message in problem.message


@pytest.mark.parametrize("removed", [False, True])
async def test_a_reason_is_covered_by_the_digest(log: Any, run_sql: RunSql, removed: bool) -> None:
    await write(log, "because", who=replace(WHO, reason="ticket 42"))
    assert (await log.verify()).problem is None
    revision = (await log.head()).revision
    run_sql(f"update kubechronicle.log set reason = '{'' if removed else 'ticket 43'}' where revision = {revision}")
    problem = (await log.verify()).problem
    assert problem is not None
    assert (problem.revision, "edited" in problem.message) == (revision, True)


@pytest.mark.parametrize(("reason", "edited"), [("", 0), ("", 3), ("ticket 42", 0)])
async def test_a_cause_is_covered_by_the_digest(log: Any, run_sql: RunSql, reason: str, edited: int) -> None:
    await write(log, "because", who=replace(WHO, reason=reason, cause=2))
    assert (await log.verify()).problem is None
    revision = (await log.head()).revision
    run_sql(f"update kubechronicle.log set cause = {edited} where revision = {revision}")
    problem = (await log.verify()).problem
    assert problem is not None
    assert (problem.revision, "edited" in problem.message) == (revision, True)


async def test_a_complete_recomputation_is_detected_by_a_noted_hash(log: Any, run_sql: RunSql) -> None:
    noted = await log.verify()
    columns = ", ".join(COLUMNS[:-2])  # without reason and cause
    run_sql(
        "update kubechronicle.log set user_name = 'mallory' where revision = 5",
        f"update kubechronicle.log set digest = sha256(record_send(row({columns})))",
        "update kubechronicle.log l set hash = c.hash from (select revision, kubechronicle.chain((select"
        " sha256(uuid_send(log_id)) from kubechronicle.head), digest) over (order by revision rows unbounded preceding)"
        " as hash from kubechronicle.log) c where c.revision = l.revision",
        "update kubechronicle.head set hash = (select hash from kubechronicle.log where revision = 10)",
    )
    assert (await log.verify()).problem is None
    async with log._maintenance() as session:
        problem = (await verify(session, anchors={noted.revision: noted.hash})).problem
    assert problem == ChainProblem(revision=10, message="history up to here does not match the noted hash")


@pytest.mark.parametrize(
    ("edit", "revision", "message"),
    [
        ("update kubechronicle.kept set object = '{}' where revision = 5", 5, "copied forward"),
        ("delete from kubechronicle.kept where revision = 5", 5, "live"),
        ("update kubechronicle.tombstones set digests[1] = sha256('x')", 11, "chain is broken"),
        (
            "update kubechronicle.tombstones set revisions = revisions[:4] || revisions[6:],"
            " digests = digests[:4] || digests[6:]",
            5,
            "missing",
        ),
    ],
)
async def test_an_edit_of_the_rest_of_a_dropped_partition_is_detected(
    log: Any, run_sql: RunSql, edit: str, revision: int, message: str
) -> None:
    async with log._maintenance() as session:
        await bump_revisions(session, 999_990)  # the drop is recorded in the next partition
    run_sql(
        "select kubechronicle.move_marks(1000000, '{}')",
        "select kubechronicle.copy_forward('kubechronicle.log_long_1', 'long')",
        "alter table kubechronicle.log_long detach partition kubechronicle.log_long_1",
        "drop table kubechronicle.log_long_1",
    )
    verdict = await log.verify()
    assert (verdict.problem, verdict.rows, verdict.tombstones) == (None, 1, 10)  # the row records the drop
    run_sql(edit)
    problem = (await log.verify()).problem
    assert problem is not None
    assert (
        problem.revision == revision
    )  # an edited tombstone is detected at the next comparison of the chain, at the head
    assert message in problem.message


# The chain without a database


class Row(tuple):  # type: ignore[type-arg]
    """Columns by position and by name, as in asyncpg."""

    def __getitem__(self, index: Any) -> Any:
        names = [*COLUMNS, "digest", "hash"]
        return super().__getitem__(names.index(index) if isinstance(index, str) else index)


def row(revision: int, before: bytes, **changed: Any) -> Row:
    values: dict[str, Any] = dict.fromkeys(COLUMNS, "") | {"cause": 0}
    values |= {"revision": revision, "create_revision": revision, "version": 1, "previous_revision": 0}
    values |= {"committed_at": datetime(2026, 1, 1, tzinfo=UTC), "operation": 1, "user_groups": [], "user_extra": None}
    values |= {"object": "{}"} | changed
    digest = digest_of(tuple(values.values()))
    return Row((*values.values(), digest, sha256(before + digest).digest()))


def test_the_chain_links_rows_and_tombstones() -> None:
    start = sha256(b"log").digest()
    first = row(1, start)
    second = row(2, first["hash"])
    third = row(3, second["hash"])
    check = ChainCheck(hash=start, kept={2: (digest_of(second),)})
    assert check.row(first) is None
    assert check.tombstone(2, second["digest"]) is None
    assert check.row(third) is None
    assert check.finish(3, third["hash"], {1, 2, 3}) is None
    assert check.finish(3, third["hash"], {1, 3}) == ChainProblem(
        revision=2, message="the table of live objects does not match the log"
    )


def test_commit_times_must_not_go_back() -> None:
    start = sha256(b"log").digest()
    first = row(1, start)
    check = ChainCheck(hash=start)
    assert check.row(first) is None
    problem = check.row(row(2, first["hash"], committed_at=datetime(2025, 1, 1, tzinfo=UTC)))
    assert problem is not None
    assert problem.revision == 2


def test_different_rows_have_different_encodings() -> None:
    start = sha256(b"log").digest()
    variants = [
        row(1, start),
        row(1, start, namespace="a", name="bc"),
        row(1, start, namespace="ab", name="c"),
        row(1, start, user_groups=["a,b"]),
        row(1, start, user_groups=["a", "b"]),
        row(1, start, user_groups=[""]),
        row(1, start, user_extra=""),
    ]
    assert len({variant["digest"] for variant in variants}) == len(variants)
