"""A log that workers share: every process sees every change once, and each write has exactly one, true outcome."""

from __future__ import annotations

import random
import socket
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime
from functools import partial

import pytest
import trio
from msgspec import structs
from trio.testing import wait_all_tasks_blocked

from kubechronicle.eventlog.consistency import ConsistentRead
from kubechronicle.eventlog.errors import (
    Blocked,
    ChangesRefused,
    LogError,
    LogUnavailable,
    OutcomeUnknownForNow,
    RejectedError,
)
from kubechronicle.eventlog.integrity import erasures
from kubechronicle.eventlog.memory.memory_log import Fault, MemoryLog
from kubechronicle.eventlog.memory.store import MemoryStore
from kubechronicle.eventlog.postgres.postmaster_epoch import PostmasterEpoch
from kubechronicle.eventlog.records import Change, Key, Rejected
from kubechronicle.eventlog.restarts import TaskFailures
from kubechronicle.eventlog.sharing import page as pages
from kubechronicle.eventlog.sharing.hub import LogHub
from kubechronicle.eventlog.sharing.messages import error_of, failed
from kubechronicle.eventlog.sharing.shared_log import SharedLog
from kubechronicle.eventlog.testing import Stack, commit, delete, open_stack, put, transaction

SOON = 60.0


class Stored(MemoryLog):
    """The log of a worker's own connections, which is hardly asked for news."""

    claimed = True

    async def watch_claim(self) -> Callable[[], bool] | None:
        return (lambda: self._connection == 0) if self.claimed else None

    def branch_changed(self, branch: str) -> None:
        self.branch = branch


def pod(name: str) -> Key:
    return Key("pods", "a", name)


class Worker:
    """A worker's stack, with its log."""

    def __init__(self, stored: Stored, log: SharedLog, stack: Stack) -> None:
        self.stored, self.log, self.stack = stored, log, stack
        self.reads = ConsistentRead(log, stack.tail, log.claim_of_hub)

    async def write(self, name: str, *, expected: int = 0, text: str = "") -> int:
        change = put(pod(name), expected=expected, text=text)
        (record,) = await self.stack.appender.append(transaction(change), deadline=trio.current_time() + SOON)
        return record.revision

    async def outcome(self, change: Change) -> int | Rejected:
        """Return the revision of a change, or why it was rejected."""
        try:
            (record,) = await self.stack.appender.append(transaction(change), deadline=trio.current_time() + SOON)
        except RejectedError as error:
            return error.rejected
        return record.revision

    def state(self) -> dict[Key, tuple[int, bytes]]:
        return {entry.key: (entry.revision, entry.json) for entry in self.stack.views["pods"].entries()}


class Server:
    """A hub with workers, over a store."""

    def __init__(self, *, alone: bool = True) -> None:
        self.store = MemoryStore()
        self.log = MemoryLog(self.store)
        self.epoch = PostmasterEpoch() if alone else None
        self.hub = LogHub(self.log, epoch=self.epoch)
        self.nursery: trio.Nursery

    async def worker(self) -> Worker:
        return await self.nursery.start(self._hold)  # type: ignore[no-any-return]

    async def _hold(self, *, task_status: trio.TaskStatus[Worker]) -> None:
        connection, page = self.hub.connect()
        stored = Stored(self.store)
        log = SharedLog(stored, connection, page)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(log.run)
            nursery.start_soon(log.claim_of_hub.run)
            async with open_stack(log) as stack:
                task_status.started(Worker(stored, log, stack))
                await trio.sleep_forever()


async def running(made: Server) -> AsyncIterator[Server]:
    async with trio.open_nursery() as made.nursery:
        await made.nursery.start(partial(made.hub.run, TaskFailures()))
        yield made
        made.nursery.cancel_scope.cancel()


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    """Return a server that alone appends."""
    async for made in running(Server()):
        yield made


@pytest.fixture
async def one_of_several() -> AsyncIterator[Server]:
    """Return a server beside which others append."""
    async for made in running(Server(alone=False)):
        yield made


async def test_a_change_by_one_worker_reaches_the_others_without_a_query(server: Server) -> None:
    one, other = await server.worker(), await server.worker()
    before = dict(other.stored.calls)
    revision = await one.write("x")
    await other.stack.tail.reach(revision)
    assert other.state() == one.state()
    assert [key.name for key in other.state()] == ["x"]
    assert dict(other.stored.calls) == before
    assert one.stored.calls["append"] == one.stored.calls["read"] == 0


async def test_workers_that_write_at_the_same_time_share_batches_and_agree(server: Server) -> None:
    workers = [await server.worker() for _ in range(3)]
    outcomes: list[int] = []

    async def write(worker: Worker, seed: int) -> None:
        chosen = random.Random(seed)
        for number in range(40):
            name = f"n{chosen.randrange(12)}"
            entry = worker.stack.views["pods"].get("a", name)
            expected = entry.revision if entry is not None else 0
            change = put(pod(name), expected=expected, text=f"{seed}-{number}")
            if entry is not None and chosen.random() < 0.3:
                change = delete(pod(name), expected=expected)
            outcome = await worker.outcome(change)
            if isinstance(outcome, Rejected):
                assert outcome.expected == expected != outcome.actual
            else:
                outcomes.append(outcome)
            assert worker.stack.views.applied >= (outcome.actual if isinstance(outcome, Rejected) else outcome)

    async with trio.open_nursery() as nursery:
        for seed, worker in enumerate(workers * 4):
            nursery.start_soon(write, worker, seed)
    assert sorted(outcomes) == list(range(1, server.store.revision + 1))
    assert server.log.calls["append"] < server.store.revision
    for worker in workers:
        await worker.stack.tail.reach(server.store.revision)
        assert worker.state() == workers[0].state()
        assert len(worker.state()) == len(server.store.live())
        assert worker.stored.calls["read"] == 0


async def test_a_change_of_a_worker_keeps_its_cause(server: Server) -> None:
    worker = await server.worker()
    change = structs.replace(put(pod("x"), expected=0), cause=7)
    (record,) = await worker.stack.appender.append(transaction(change), deadline=trio.current_time() + SOON)
    assert record.who is not None
    assert (record.who.cause, server.store.who[record.revision].cause) == (7, 7)


async def test_changes_of_other_servers_are_read_once_for_all_workers(one_of_several: Server) -> None:
    server = one_of_several
    one, other = await server.worker(), await server.worker()
    commit(server.store, put(pod("x"), expected=0), put(pod("y"), expected=0))
    for worker in (one, other):
        assert await worker.reads.wait() == 2
        assert worker.stored.calls["read"] == 0
    assert {key.name for key in other.state()} == {"x", "y"}


async def test_a_worker_that_starts_later_has_everything(server: Server) -> None:
    one = await server.worker()
    for number in range(5):
        await one.write(f"n{number}")
    later = await server.worker()
    assert later.state() == one.state()
    revision = await later.write("x")
    await one.stack.tail.reach(revision)
    assert later.state() == one.state()


async def test_records_that_a_worker_does_not_take_in_time_are_read_from_the_log(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = await server.worker(), await server.worker()
    monkeypatch.setattr(pages, "RING_BYTES", 4096)
    async with trio.open_nursery() as nursery:
        for number in range(20):
            nursery.start_soon(partial(one.write, f"n{number}", text="t" * 900))
    await other.stack.tail.reach(20)
    assert other.state() == one.state()
    assert other.stored.calls["read"] > 0
    before = other.stored.calls["read"]
    await other.stack.tail.reach(await one.write("x"))
    assert other.stored.calls["read"] == before


async def test_a_record_that_is_too_large_for_the_page_is_read_from_the_log(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = await server.worker(), await server.worker()
    monkeypatch.setattr(pages, "LARGEST", 2000)
    await other.stack.tail.reach(await one.write("large", text="t" * 3000))
    await other.stack.tail.reach(await one.write("small"))
    assert other.state() == one.state()
    assert other.stored.calls["read"] == 1


async def test_an_erasure_leaves_nothing_on_the_page(server: Server) -> None:
    erased: list[int] = []
    server.hub._published._on_erased = lambda: erased.append(server.hub._published.applied)
    one, other = await server.worker(), await server.worker()
    await one.write("x", text="born-1970")
    assert b"born-1970" in bytes(server.hub._page._ring)
    about = erasures.Erasure(
        id="e", scope="who", reason="r", by="b", os_user="u", role="r", count=0, first=0, last=0, digest=b""
    )
    change = structs.replace(put(Key(erasures.RESOURCE, "", "e"), expected=0), body=about.body(datetime.now(UTC)))
    await one.stack.appender.append(transaction(change), deadline=trio.current_time() + SOON)
    assert not any(server.hub._page._ring)
    assert erased == [1]
    await other.stack.tail.reach(await other.write("y"))
    assert other.state() == one.state()


async def test_what_the_hub_missed_may_be_an_erasure(server: Server) -> None:
    erased: list[int] = []
    server.hub._published._on_erased = lambda: erased.append(server.hub._published.applied)
    one, other = await server.worker(), await server.worker()
    await one.write("x", text="born-1970")
    server.hub._published.load({}, await server.log.head())  # as after a read of the log that met erased rows
    assert not any(server.hub._page._ring)
    assert erased == [1]
    await other.stack.tail.reach(await one.write("y"))
    assert other.state() == one.state()


async def test_errors_of_the_log_reach_the_writer_as_they_are(server: Server) -> None:
    one = await server.worker()
    server.log.fail_next("append", *[Fault.UNAVAILABLE] * 6)
    with pytest.raises(LogUnavailable, match="scripted: append found no database"):
        await one.write("x")
    assert one.state() == {}
    await one.write("x")


@pytest.mark.parametrize("fault", [Fault.LOST_BEFORE_COMMIT, Fault.LOST_AFTER_COMMIT])
async def test_an_unknown_outcome_is_settled_by_the_hub(server: Server, fault: Fault) -> None:
    one, other = await server.worker(), await server.worker()
    server.log.fail_next("append", fault)
    assert await one.write("x") == 1
    await other.stack.tail.reach(1)
    assert other.state() == one.state()
    assert server.store.revision == 1


async def test_the_outcome_is_unknown_if_the_hub_ends(server: Server) -> None:
    one, ended = await server.worker(), trio.Event()

    async def write() -> None:
        with pytest.raises(OutcomeUnknownForNow):
            await one.write("x")
        ended.set()

    with server.log.hold("append.committed") as gate:
        server.nursery.start_soon(write)
        await gate.wait_arrived()
        one.log._channel._socket.shutdown(socket.SHUT_RDWR)  # as when the hub's process has ended
        await ended.wait()


async def test_reads_need_no_query_while_the_hub_alone_appends(server: Server) -> None:
    one, other = await server.worker(), await server.worker()
    await wait_all_tasks_blocked()
    heads = other.stored.calls["head"]
    for number in range(5):
        revision = await one.write(f"n{number}")
        assert await other.reads.wait() >= revision  # at once: no time to take the hub's message
    assert other.stored.calls["head"] == heads
    assert server.epoch is not None
    server.epoch.begin()  # another postmaster is about to be launched
    await other.reads.wait()
    assert other.stored.calls["head"] == heads + 1


async def test_reads_query_when_the_worker_has_lost_its_postmaster(server: Server) -> None:
    one = await server.worker()
    await wait_all_tasks_blocked()
    assert one.log.claim_of_hub.required_revision() == 0
    one.stored.disconnect()
    heads = one.stored.calls["head"]
    await one.reads.wait()
    assert one.stored.calls["head"] == heads + 1


async def test_a_log_that_went_back_is_loaded_again_by_every_worker(server: Server) -> None:
    one, other = await server.worker(), await server.worker()
    await other.stack.tail.reach(await one.write("kept"))
    await other.stack.tail.reach(await one.write("lost"))
    before, after = server.store, MemoryStore()
    after._hashes[0] = before._hashes[0]
    same = before._rows[0]
    after._now = lambda: same.committed_at
    commit(after, put(pod("kept"), expected=0))
    after._now = before._now
    commit(after, put(pod("other"), expected=0))
    for log in (server.log, one.stored, other.stored):
        log.store = after
        after.listen(log)
    lost = [worker.stack.tail.lost for worker in (one, other)]
    server.log.notified.set()
    for worker, event in zip((one, other), lost, strict=True):
        await event.wait()
        assert {key.name for key in worker.state()} == {"kept", "other"}
        assert [key.name for loss in worker.stack.tail.losses for key in loss.objects] == ["lost"]
    await other.stack.tail.reach(await one.write("new"))
    assert other.state() == one.state()


async def test_trouble_of_the_database_is_known_to_every_worker(server: Server) -> None:
    one = await server.worker()
    blocked = Blocked("waits for PID 7")
    server.log.availability.refuse(blocked, "pods")
    await wait_all_tasks_blocked()
    assert "waits for PID 7" in one.log.availability.append_problem()
    late = await server.worker()
    await wait_all_tasks_blocked()
    assert "waits for PID 7" in late.log.availability.append_problem()
    server.log.availability.accept()
    await wait_all_tasks_blocked()
    assert one.log.availability.append_problem() == late.log.availability.append_problem() == ""


async def test_a_branch_that_another_server_changed_is_passed_on(server: Server) -> None:
    one = await server.worker()
    server.hub.branch_changed("b")
    await wait_all_tasks_blocked()
    assert one.stored.branch == "b"


@pytest.mark.parametrize(
    "error",
    [
        LogUnavailable("no connection"),
        Blocked("waits for PID 7"),
        ChangesRefused("refused for 3 s: read only", Blocked("read only")),
        OutcomeUnknownForNow("the server stopped"),
        LogError("a value is too long"),
    ],
)
def test_an_error_keeps_its_kind_and_words(error: LogError) -> None:
    error.sqlstate, error.public = "25006", "read only"
    again = error_of(failed(error))
    assert type(again) is type(error)
    assert (str(again), again.sqlstate, again.public) == (str(error), "25006", "read only")
    if isinstance(error, ChangesRefused):
        assert isinstance(again, ChangesRefused)
        assert (again.blocked, again.passes) == (True, True)


async def test_a_record_keeps_what_its_writer_knows_of_it(server: Server) -> None:
    one = await server.worker()
    change = structs.replace(put(pod("x"), expected=0), mark="known")
    await one.stack.appender.append(transaction(change), deadline=trio.current_time() + SOON)
    entry = one.stack.views["pods"].get("a", "x")
    assert entry is not None
    assert entry.mark == "known"
