"""BranchLog on both tables, memory and Postgres: appends of two servers, conflicts, unknown outcomes, bounds."""

from __future__ import annotations

import uuid
from collections.abc import Awaitable, Callable
from typing import Any, cast

import pytest
import trio
from erasing_shop import WEB, Command, Shop
from msgspec.structs import replace

from kubechronicle.eventlog.branch_log import BranchLog
from kubechronicle.eventlog.errors import Compacted, OutcomeUnknown
from kubechronicle.eventlog.memory import branches as memory_branches
from kubechronicle.eventlog.memory.memory_log import MemoryLog
from kubechronicle.eventlog.postgres import branch_rows
from kubechronicle.eventlog.queries.branches import BranchAnswer, BranchFull, BranchGone, BranchOutcome, BranchTable
from kubechronicle.eventlog.records import Batch, Change, Key, Operation, Record, Rejected, Transaction, Who

Opener = Callable[[], Awaitable[Any]]
BASE = 41
A, B = Key("configmaps", "default", "a"), Key("configmaps", "default", "b")
JANE = Who(user="jane", groups=("one", 'two"\\'), extra={"k": ("v",)}, verb="create", user_agent="a\0b")


@pytest.fixture(params=["memory", "postgres"])
async def main(request: pytest.FixtureRequest, replicas: Opener) -> Any:
    return MemoryLog() if request.param == "memory" else await replicas()


@pytest.fixture
async def branch(main: Any) -> uuid.UUID:
    made = uuid.uuid4()
    await main.branches.open(made, BASE)
    return made


def body(key: Key, value: int = 0) -> bytes:
    return b'{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"%b"},"data":{"v":"%d"}}' % (
        key.name.encode(),
        value,
    )


def write(key: Key, expected: int = 0, *, delete: bool = False, value: int = 0) -> Transaction:
    operation = Operation.DELETE if delete else Operation.UPDATE if expected else Operation.CREATE
    change = Change(key=key, uid="u", expected=expected, operation=operation, body=body(key, value))
    return Transaction(changes=(change,), who=JANE)


async def append(log: BranchLog, *transactions: Transaction) -> list[Any]:
    result = await log.append(Batch(id=uuid.uuid4(), transactions=transactions))
    return [each if isinstance(each, Rejected) else [record.revision for record in each] for each in result.outcomes]


async def test_changes_follow_the_base_without_gaps(main: Any, branch: uuid.UUID) -> None:
    log = BranchLog(main, branch, BASE)
    assert await append(log, write(A), write(B)) == [[42], [43]]
    assert await append(log, write(A, 42, value=1), write(B, 43, delete=True)) == [[44], [45]]
    records = await log.read(after=BASE, limit=10)
    assert [(record.revision, record.version, record.previous_revision) for record in records] == [
        (42, 1, 0),
        (43, 1, 0),
        (44, 2, 42),
        (45, 2, 43),
    ]
    assert records[2].body == body(A, 1)
    assert (await log.head()).revision == 45
    author = (await log.authors([44]))[44]
    assert (author.user, author.groups, author.extra) == (JANE.user, JANE.groups, JANE.extra)
    pairs = await log.read_resource("configmaps", after=42, until=44, limit=10, name="a")
    assert [(record.revision, before.revision if before else 0) for record, before in pairs] == [(44, 42)]
    found = await log.get_at(A, revision=43)
    assert found is not None
    assert found.revision == 42
    assert await log.get_at(B, revision=45) is None
    with pytest.raises(Compacted):
        await log.read_resource("configmaps", after=40, until=44, limit=10)


async def test_two_servers_append_to_one_branch(main: Any, branch: uuid.UUID) -> None:
    ours, theirs = BranchLog(main, branch, BASE), BranchLog(main, branch, BASE)
    assert await append(ours, write(A)) == [[42]]
    assert await append(theirs, write(B)) == [[43]]
    # Neither knows the other's change yet; both decide again on the newest state.
    (rejected,) = await append(ours, write(B))
    assert rejected == Rejected(key=B, expected=0, actual=43)
    assert await append(theirs, write(A, 42), write(B, 43)) == [[44], [45]]
    assert await append(ours, write(A, 42), write(B, 45, delete=True)) == [
        Rejected(key=A, expected=42, actual=44),
        [46],
    ]
    assert await append(theirs, write(B)) == [[47]]
    assert ours.changed_keys() == [A, B]


async def test_a_batch_is_appended_once_and_a_lost_one_never(main: Any, branch: uuid.UUID) -> None:
    table: BranchTable = main.branches
    record = await _record(main, branch)
    batch, lost = uuid.uuid4(), uuid.uuid4()
    first = await table.append(branch, batch, 0, [record], [JANE])
    assert first.outcome is BranchOutcome.APPENDED
    assert await table.append(branch, batch, 0, [record], [JANE]) == first
    assert (await table.settle(branch, batch)) == first
    settled = await table.settle(branch, lost)
    assert (settled.outcome, settled.epoch) == (BranchOutcome.BEHIND, 1)
    # The straggler of the lost batch arrives after all: its epoch has passed.
    late = await table.append(branch, lost, 0, [_after(record)], [JANE])
    assert late == BranchAnswer(BranchOutcome.BEHIND, 1)
    log = BranchLog(main, branch, BASE)
    assert await append(log, write(B)) == [[43]]


class Lossy:
    """A table whose answers to appends are lost. ``arrives``: the append itself is not."""

    def __init__(self, table: BranchTable, *, arrives: bool) -> None:
        self._table, self._arrives = table, arrives

    async def append(self, branch: uuid.UUID, batch: uuid.UUID, *arguments: Any) -> BranchAnswer:
        if self._arrives:
            await self._table.append(branch, batch, *arguments)
        raise OutcomeUnknown(batch)


async def test_an_append_whose_outcome_was_unknown_is_settled(main: Any, branch: uuid.UUID) -> None:
    log = BranchLog(main, branch, BASE)
    for arrives in (True, False):
        log.branches = cast("BranchTable", Lossy(main.branches, arrives=arrives))
        batch = Batch(id=uuid.uuid4(), transactions=(write(A if arrives else B),))
        with pytest.raises(OutcomeUnknown):
            await log.append(batch)
        log.branches = main.branches
        settled = await log.settle(batch)
        assert (settled is not None) is arrives
        if settled is not None:
            assert [record.revision for record in settled.outcomes[0]] == [42]  # type: ignore[union-attr]
    assert await append(log, write(B), write(A, 42)) == [[43], [44]]


async def test_a_full_branch_rejects_changes(main: Any, branch: uuid.UUID, monkeypatch: pytest.MonkeyPatch) -> None:
    log = BranchLog(main, branch, BASE)
    for module in (memory_branches, branch_rows):
        monkeypatch.setattr(module, "MOST_CHANGES", 2)
    assert await append(log, write(A), write(B)) == [[42], [43]]
    with pytest.raises(BranchFull, match="this branch is full"):
        await append(log, write(A, 42))
    for module in (memory_branches, branch_rows):
        monkeypatch.setattr(module, "MOST_CHANGES", 3)
        monkeypatch.setattr(module, "MOST_BYTES", 2 * len(body(A)) + 1)
    with pytest.raises(BranchFull):
        await append(log, write(A, 42))
    assert (await log.head()).revision == 43


async def test_a_removed_branch_is_gone(main: Any, branch: uuid.UUID) -> None:
    log = BranchLog(main, branch, BASE)
    await append(log, write(A))
    assert set(await main.branches.unused_since()) == {branch}
    await main.branches.remove([branch])
    with pytest.raises(BranchGone, match="it was deleted"):
        await append(log, write(B))
    with pytest.raises(BranchGone):
        await log.head()
    assert await main.branches.unused_since() == {}


async def _record(main: Any, branch: uuid.UUID) -> Record:
    log = BranchLog(main, branch, BASE)
    return log._decide(Batch(id=uuid.uuid4(), transactions=(write(A),))).records[0]


def _after(record: Record) -> Record:
    return replace(record, revision=record.revision + 1, key=B)


async def test_an_erasure_drops_the_changes_of_all_branches(
    shop: Shop, command: Command, run_sql: Callable[..., str]
) -> None:
    branch = uuid.uuid4()
    await shop.log.branches.open(branch, BASE)
    log = BranchLog(shop.log, branch, BASE)
    await append(log, write(A))
    code, output = await command("erase", *WEB)
    assert code == 0, output
    assert run_sql("select count(*) from kubechronicle.branch_changes") == "0"
    with pytest.raises(BranchGone, match="dropped when contents of history were erased"):
        await append(log, write(B))
    assert (await shop.log.branches.open(branch, BASE)).erased
    assert (await command("verify"))[0] == 0


async def test_a_server_hears_of_the_changes_of_others(replicas: Opener) -> None:
    ours, theirs = await replicas(), await replicas()
    branch = uuid.uuid4()
    await ours.branches.open(branch, BASE)
    with trio.fail_after(20):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(theirs.branches.wait_changed, branch)
            await append(BranchLog(ours, branch, BASE), write(A))
    assert [record.key for record in await BranchLog(theirs, branch, BASE).read(after=BASE, limit=9)] == [A]
