"""Events expire a fixed time after their last write, by the log's clock; on memory and on Postgres."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, cast

import postgres_fixture
import pytest
import trio
from in_process import InProcess, open_server
from trio.testing import MockClock

from kubechronicle.actors.loops import event_ttl
from kubechronicle.actors.loops.event_ttl import EventExpiry
from kubechronicle.eventlog.memory.store import MemoryStore
from kubechronicle.eventlog.postgres.connection import migrate
from kubechronicle.eventlog.postgres_log import open_postgres_log
from kubechronicle.eventlog.records import Operation

EVENTS = "/api/v1/namespaces/default/events"
NEW_EVENTS = "/apis/events.k8s.io/v1/namespaces/default/events"
HOUR = timedelta(hours=1)


class Clock:
    """The log's clock, set by the test."""

    def __init__(self) -> None:
        self.now = datetime(2026, 3, 1, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.now

    def advance(self, **time: float) -> None:
        self.now += timedelta(**time)


def event(name: str, **fields: Any) -> dict[str, Any]:
    about = {"kind": "Pod", "namespace": "default", "name": "p"}
    metadata = {"name": name, **fields.pop("metadata", {})}
    return {"apiVersion": "v1", "kind": "Event", "metadata": metadata, "involvedObject": about, **fields}


def new_event(name: str) -> dict[str, Any]:
    return {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"name": name},
        "action": "Binding",
        "reason": "Scheduled",
        "type": "Normal",
        "eventTime": "2026-03-01T00:00:00.000000Z",
        "reportingController": "kubernetes.io/scheduler",
        "reportingInstance": "scheduler-1",
        "regarding": {"kind": "Pod", "namespace": "default", "name": "p"},
    }


async def test_an_event_expires_an_hour_after_its_last_write() -> None:
    clock = Clock()
    async with open_server(MemoryStore(now=clock)) as server:
        loop = EventExpiry(server.store, HOUR)
        await server.post(EVENTS, event("a"))
        await server.post(EVENTS, event("again", count=1))
        await server.post(NEW_EVENTS, new_event("b"))
        clock.advance(minutes=30)
        await server.patch(f"{EVENTS}/again", {"count": 2})
        await server.post(EVENTS, event("c"))
        clock.advance(minutes=29)
        assert await loop.expire() == 0
        await server.patch(f"{EVENTS}/a", {})  # no change, so no write
        clock.advance(minutes=1)
        assert await loop.expire() == 2
        assert await server.names(EVENTS) == await server.names(NEW_EVENTS) == ["again", "c"]
        assert await loop.expire() == 0
        clock.advance(minutes=30)
        assert await loop.expire() == 2
        assert await server.names(EVENTS) == []
        before = server.log.store.revision
        assert await loop.expire() == 0
        assert server.log.store.revision == before


async def test_watchers_see_the_deletion_and_the_log_its_author() -> None:
    clock = Clock()
    async with open_server(MemoryStore(now=clock)) as server:
        await server.post(EVENTS, event("a", reason="Started"))
        clock.advance(hours=1)
        async with server.watch(f"{EVENTS}?watch=true&resourceVersion={server.log.store.revision}") as stream:
            assert await EventExpiry(server.store, HOUR).expire() == 1
            change = await stream.next()
        assert change is not None
        assert (change["type"], change["object"]["metadata"]["name"], change["object"]["reason"]) == (
            "DELETED",
            "a",
            "Started",
        )
        revision = server.log.store.revision
        assert change["object"]["metadata"]["resourceVersion"] == str(revision)
        (record,) = await server.log.read(after=revision - 1, limit=1)
        assert record.operation is Operation.DELETE
        who = server.log.store.who[revision]
        assert (who.user, who.verb, who.user_agent) == ("system:apiserver", "delete", "kubechronicle/event-ttl")


async def test_finalizers_do_not_keep_an_event_and_other_objects_stay() -> None:
    clock = Clock()
    async with open_server(MemoryStore(now=clock)) as server:
        await server.post(EVENTS, event("held", metadata={"finalizers": ["example.com/hold"]}))
        await server.post(EVENTS, event("ending", metadata={"finalizers": ["example.com/hold"]}))
        await server.delete(f"{EVENTS}/ending")
        await server.post("/api/v1/namespaces/default/configmaps", {"metadata": {"name": "stays"}})
        clock.advance(hours=2)
        assert await EventExpiry(server.store, HOUR).expire() == 2
        assert await server.names(EVENTS) == []
        assert await server.names("/api/v1/namespaces/default/configmaps") == ["stays"]


async def test_many_expire_in_batches_the_oldest_first(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_ttl, "BATCH", 4)
    monkeypatch.setattr(event_ttl, "PAGE", 3)
    clock = Clock()
    async with open_server(MemoryStore(now=clock), namespaces=("default", "other")) as server:
        names = ["d", "k", "b", "a", "j", "c", "e", "i", "f", "h", "g"]
        for number, name in enumerate(names):
            namespace = ("default", "other")[number % 2]
            await server.post(
                f"/api/v1/namespaces/{namespace}/events",
                event(
                    name,
                    involvedObject={
                        "kind": "Pod",
                        "namespace": namespace,
                        "name": "p",
                    },
                ),
            )
        clock.advance(hours=1)
        before, begun = server.log.store.revision, trio.current_time()
        assert await EventExpiry(server.store, HOUR).expire() == len(names)
        records = await server.log.read(after=before, limit=100)
        gone = [record.key.name for record in records]
        assert [set(gone[start : start + 4]) for start in (0, 4, 8)] == [{*"dkba"}, {*"jcei"}, {*"fhg"}]
        assert trio.current_time() - begun >= 2 * event_ttl.PAUSE


async def test_an_event_rewritten_during_a_pass_stays(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rewritten here between two batches, or by another server without this one having seen it."""
    monkeypatch.setattr(event_ttl, "BATCH", 1)
    clock = Clock()
    store = MemoryStore(now=clock)
    async with open_server(store) as server, open_server(store) as other:
        for name in ("a", "b", "c"):
            await server.post(EVENTS, event(name, count=1))
        clock.advance(hours=1)
        loop, rewritten = EventExpiry(server.store, HOUR), False
        commit = server.store.writes.commit_own_changes

        async def rewriting(*arguments: Any) -> bool:
            nonlocal rewritten
            if not rewritten:
                rewritten = True
                await server.patch(f"{EVENTS}/b", {"count": 2})
                await other.patch(f"{EVENTS}/a", {"count": 2})
            return bool(await commit(*arguments))

        monkeypatch.setattr(server.store.writes, "commit_own_changes", rewriting)
        assert await loop.expire() == 1
        assert await server.names(EVENTS) == ["a", "b"]
        clock.advance(hours=1)
        assert await loop.expire() == 2


async def test_several_servers_may_expire_at_once() -> None:
    clock = Clock()
    store = MemoryStore(now=clock)
    async with open_server(store) as one, open_server(store) as other:
        for number in range(50):
            await one.post(EVENTS, event(f"e{number}"))
        assert len(await other.names(EVENTS)) == 50
        clock.advance(hours=1)
        before = store.revision
        gone: list[int] = []

        async def expire(server: InProcess) -> None:
            gone.append(await EventExpiry(server.store, HOUR).expire())

        async with trio.open_nursery() as nursery:
            nursery.start_soon(expire, one)
            nursery.start_soon(expire, other)
        assert sum(gone) == 50
        assert store.revision == before + 50
        assert await one.names(EVENTS) == await other.names(EVENTS) == []


async def test_history_compacted_sooner_than_events_expire() -> None:
    clock = Clock()
    async with open_server(MemoryStore(now=clock)) as server:
        loop = EventExpiry(server.store, HOUR)
        for name in ("a", "b", "c", "d"):
            await server.post(EVENTS, event(name))
            clock.advance(minutes=10)
        await server.patch(f"{EVENTS}/a", {"count": 2})
        server.log.store.compact(server.log.store.revision)
        clock.advance(minutes=19)
        assert await loop.expire() == 0
        clock.advance(minutes=11)  # b was written 60 minutes ago, c 50, and the history begins 30 minutes ago
        assert await loop.expire() == 1
        assert await server.names(EVENTS) == ["a", "c", "d"]
        clock.advance(minutes=30)
        assert await loop.expire() == 3


async def test_it_runs_by_itself_unless_events_are_kept_forever(autojump_clock: MockClock) -> None:
    for seconds, left in ((2, []), (0, ["a"])):
        clock = Clock()
        async with open_server(MemoryStore(now=clock), loops=True, other={"event_ttl": seconds}) as server:
            await server.post(EVENTS, event("a"))
            clock.advance(minutes=1)
            await trio.sleep(5)
            assert [name for name in await server.names(EVENTS) if name == "a"] == left


@pytest.mark.parametrize(("hours", "interval"), [(24, 60), (1, 60), (0.01, 1.8), (0.001, 1)])
async def test_interval_between_passes(hours: float, interval: float) -> None:
    async with open_server() as server:
        assert EventExpiry(server.store, timedelta(hours=hours)).interval == pytest.approx(interval)


def test_over_postgres(monkeypatch: pytest.MonkeyPatch) -> None:
    if postgres_fixture.binaries() is None:
        pytest.skip("no Postgres on this machine")

    async def check(url: str) -> None:
        await migrate(url)
        async with (
            open_postgres_log(url, instance="one") as first,
            open_postgres_log(url, instance="other") as second,
            open_server(cast(Any, first)) as one,
            open_server(cast(Any, second)) as other,
        ):
            for name in ("a", "b"):
                await one.post(EVENTS, event(name))
            last_b = await first.moment_of(one.store.reads.applied)
            await one.patch(f"{EVENTS}/a", {"count": 2})
            assert await other.names(EVENTS) == ["a", "b"]
            assert await EventExpiry(one.store, HOUR).expire() == 0
            loop, revision_at = EventExpiry(one.store, HOUR), first.revision_at
            with monkeypatch.context() as patch:
                patch.setattr(first, "revision_at", lambda _: revision_at(last_b.time))  # an hour after b was written
                assert await loop.expire() == 1
            assert await other.names(EVENTS) == ["a"]
            gone: list[int] = []

            async def expire(server: InProcess) -> None:
                gone.append(await EventExpiry(server.store, timedelta(microseconds=1)).expire())

            async with trio.open_nursery() as nursery:
                nursery.start_soon(expire, one)
                nursery.start_soon(expire, other)
            assert sum(gone) == 1
            assert await one.names(EVENTS) == await other.names(EVENTS) == []

    with postgres_fixture.running("fsync=off") as server:
        trio.run(check, server.url)
