"""WATCH as clients see it: initial events, bookmarks, selectors, expiry, ends, representations."""

from __future__ import annotations

import gc
import json
import weakref
from typing import Any, cast

import pytest
import trio
from in_process import ADMIN, MAPS, PODS, PROTOBUF, InProcess, Stream, configmap, open_server, pod
from trio.testing import MockClock, memory_stream_pair, wait_all_tasks_blocked
from wsproto.connection import Connection, ConnectionState, ConnectionType
from wsproto.events import CloseConnection, TextMessage

from kubechronicle.api.codecs import protobuf
from kubechronicle.eventlog.memory.memory_log import Fault, MemoryLog
from kubechronicle.eventlog.views import view
from kubechronicle.http.handlers.watch import WatchStream
from kubechronicle.http.messages import BufferedExchange, HeaderList, Push, Request

TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
PARTIAL = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"
WATCH = f"{MAPS}?watch=1"
INITIAL = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"


def is_initial_end(event: dict[str, Any]) -> bool:
    annotations = event["object"]["metadata"].get("annotations", {})
    return bool(event["type"] == "BOOKMARK" and annotations == {"k8s.io/initial-events-end": "true"})


async def quiet(watch: Stream) -> None:
    """Check that nothing more has been sent."""
    event: Any = None
    with trio.move_on_after(0):
        event = await watch.next()
    assert event is None, event


# -- where a watch begins ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("query", ["", "&resourceVersion=", "&resourceVersion=0"])
async def test_from_now_with_the_existing_objects(autojump_clock: MockClock, query: str) -> None:
    async with open_server() as server:
        for name in ("b", "a"):
            await server.post(MAPS, configmap(name))
        async with server.watch(WATCH + query) as watch:
            assert watch.response.header("content-type") == "application/json"
            assert await watch.event() == ("ADDED", "a", 3)
            assert await watch.event() == ("ADDED", "b", 2)
            await server.put(f"{MAPS}/a", configmap("a", x="1"))
            assert await watch.event() == ("MODIFIED", "a", 4)
            await server.delete(f"{MAPS}/b")
            assert await watch.event() == ("DELETED", "b", 5)
            await server.post(MAPS, configmap("c"))
            assert await watch.event() == ("ADDED", "c", 6)


async def test_the_header_is_sent_before_the_first_event(autojump_clock: MockClock) -> None:
    async with open_server() as server, server.watch(f"{WATCH}&resourceVersion=1") as watch:
        assert await watch.chunks.__anext__() == b""


async def test_from_a_revision_from_memory_and_from_the_log(autojump_clock: MockClock) -> None:
    log = MemoryLog()
    async with open_server(log) as server:
        await server.post(MAPS, configmap("a"))
        await server.put(f"{MAPS}/a", configmap("a", x="1"))
        await server.delete(f"{MAPS}/a")
        expected = [("MODIFIED", "a", 3), ("DELETED", "a", 4)]
        async with server.watch(f"{WATCH}&resourceVersion=2") as watch:
            assert [await watch.event() for _ in expected] == expected
        assert log.calls["read_resource"] == 0
    async with open_server(log) as restarted, restarted.watch(f"{WATCH}&resourceVersion=2") as watch:
        assert [await watch.event() for _ in expected] == expected
        assert log.calls["read_resource"] == 1


async def test_from_a_revision_to_come(autojump_clock: MockClock) -> None:
    """The client has seen a newer state on another replica and gets the events after that."""
    async with open_server() as server, server.watch(f"{WATCH}&resourceVersion=3") as watch:
        for name in ("a", "b", "c"):
            await server.post(MAPS, configmap(name))
        assert await watch.event() == ("ADDED", "c", 4)


async def test_send_initial_events(autojump_clock: MockClock) -> None:
    async with open_server() as server:
        await server.post(MAPS, configmap("a"))
        for query in ("", "&resourceVersion=0", "&resourceVersion=1"):
            async with server.watch(f"{WATCH}&{INITIAL}{query}") as watch:
                assert await watch.event() == ("ADDED", "a", 2)
                bookmark = await watch.next()
                assert bookmark is not None
                assert is_initial_end(bookmark)
                assert bookmark["object"]["metadata"]["resourceVersion"] == "2"
                assert (bookmark["object"]["kind"], bookmark["object"]["apiVersion"]) == ("ConfigMap", "v1")
        never = "sendInitialEvents=false&resourceVersionMatch=NotOlderThan"
        async with server.watch(f"{WATCH}&{never}") as watch:
            await server.post(MAPS, configmap("b"))
            assert await watch.event() == ("ADDED", "b", 3)
        found = (await server.ask("GET", f"{WATCH}&sendInitialEvents=true")).refused(422)
        assert "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan" in found["message"]


async def test_initial_events_of_a_revision_that_does_not_come(autojump_clock: MockClock) -> None:
    async with open_server() as server:
        answer = await server.ask("GET", f"{WATCH}&{INITIAL}&resourceVersion=99")
        assert answer.refused(504)["details"]["causes"][0]["reason"] == "ResourceVersionTooLarge"


@pytest.mark.parametrize("revision", ["x", "-1", "1.5"])
async def test_revisions_that_are_none(autojump_clock: MockClock, revision: str) -> None:
    async with open_server() as server:
        assert (await server.ask("GET", f"{WATCH}&resourceVersion={revision}")).status in (400, 500)


async def test_many_initial_events_come_in_few_writes(autojump_clock: MockClock) -> None:
    async with open_server() as server:
        for number in range(200):
            await server.post(MAPS, configmap(f"m{number:03}", x="y" * 1000))
        async with server.watch(WATCH) as watch:
            writes: list[bytes] = []
            while sum(chunk.count(b"\n") for chunk in writes) < 200:
                chunk = await watch.chunk()
                assert chunk is not None
                writes.append(chunk)
            assert len(writes) < 10
            assert max(map(len, writes)) < 100_000
            names = [json.loads(line)["object"]["metadata"]["name"] for line in b"".join(writes).splitlines()]
            assert names == [f"m{number:03}" for number in range(200)]


# -- events for a watcher ---------------------------------------------------------------------------------------------


async def test_selectors_tell_of_objects_that_come_and_go(autojump_clock: MockClock) -> None:
    async with open_server() as server:
        await server.post(MAPS, configmap("in", labels={"app": "x"}))
        await server.post(MAPS, configmap("out"))
        async with server.watch(f"{WATCH}&labelSelector=app%3Dx") as watch:
            assert await watch.event() == ("ADDED", "in", 2)
            await server.patch(f"{MAPS}/out", {"metadata": {"labels": {"app": "x"}}})
            assert await watch.event() == ("ADDED", "out", 4)
            await server.patch(f"{MAPS}/in", {"data": {"x": "1"}})
            assert await watch.event() == ("MODIFIED", "in", 5)
            await server.patch(f"{MAPS}/in", {"metadata": {"labels": {"app": "y"}}})
            gone = await watch.next()
            assert gone is not None
            assert gone["type"] == "DELETED"
            # the last state that matched, at the revision of the change
            assert gone["object"]["metadata"]["labels"] == {"app": "x"}
            assert gone["object"]["metadata"]["resourceVersion"] == "6"
            await server.patch(f"{MAPS}/in", {"data": {"x": "2"}})
            await server.delete(f"{MAPS}/in")
            await server.delete(f"{MAPS}/out")
            assert await watch.event() == ("DELETED", "out", 9)


async def test_the_same_from_the_log(autojump_clock: MockClock) -> None:
    log = MemoryLog()
    async with open_server(log) as server:
        await server.post(MAPS, configmap("a", labels={"app": "x"}))
        await server.patch(f"{MAPS}/a", {"metadata": {"labels": {"app": "y"}}})
        await server.patch(f"{MAPS}/a", {"metadata": {"labels": {"app": "x"}}})
        await server.delete(f"{MAPS}/a")
    async with (
        open_server(log) as restarted,
        restarted.watch(f"{WATCH}&labelSelector=app%3Dx&resourceVersion=1") as watch,
    ):
        assert [await watch.event() for _ in range(4)] == [
            ("ADDED", "a", 2),
            ("DELETED", "a", 3),
            ("ADDED", "a", 4),
            ("DELETED", "a", 5),
        ]


async def test_a_node_gets_events_of_its_pods(autojump_clock: MockClock) -> None:
    async with (
        open_server() as server,
        server.watch("/api/v1/pods?watch=1&fieldSelector=spec.nodeName%3Dn1") as watch,
    ):
        await server.post(PODS, pod("other", node="n2"))
        await server.post(PODS, pod("mine", node="n1"))
        assert await watch.event() == ("ADDED", "mine", 3)
        await server.post(PODS, pod("waiting"))
        await server.patch(f"{PODS}/mine/status", {"status": {"phase": "Running"}})
        assert await watch.event() == ("MODIFIED", "mine", 5)
        await quiet(watch)


async def test_one_name_and_one_namespace(autojump_clock: MockClock) -> None:
    async with (
        open_server(namespaces=("one", "two")) as server,
        server.watch("/api/v1/namespaces/one/configmaps?watch=1&fieldSelector=metadata.name%3Da") as named,
        server.watch("/api/v1/namespaces/one/configmaps?watch=1") as scoped,
        server.watch("/api/v1/configmaps?watch=1&fieldSelector=metadata.name%3Da") as everywhere,
    ):
        for namespace, name in (("two", "a"), ("one", "b"), ("one", "a")):
            await server.post(f"/api/v1/namespaces/{namespace}/configmaps", configmap(name, namespace))
        assert await named.event() == ("ADDED", "a", 5)
        assert [await scoped.event() for _ in range(2)] == [("ADDED", "b", 4), ("ADDED", "a", 5)]
        assert [await everywhere.event() for _ in range(2)] == [("ADDED", "a", 3), ("ADDED", "a", 5)]


async def test_a_cluster_scoped_object_by_name(autojump_clock: MockClock) -> None:
    async with (
        open_server() as server,
        server.watch("/api/v1/namespaces?watch=1&fieldSelector=metadata.name%3Db") as watch,
    ):
        for name in ("a", "b"):
            await server.post("/api/v1/namespaces", {"metadata": {"name": name}})
        assert await watch.event() == ("ADDED", "b", 3)


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/api/v1/watch/configmaps", ["a", "b", "c"]),
        ("/api/v1/watch/namespaces/default/configmaps", ["a", "b"]),
        ("/api/v1/watch/namespaces/default/configmaps/b", ["b"]),
        ("/api/v1/watch/namespaces/default/configmaps/b?fieldSelector=metadata.name%3Db", ["b"]),
        ("/api/v1/watch/namespaces", ["default", "other"]),
    ],
)
async def test_the_deprecated_watch_paths(autojump_clock: MockClock, path: str, expected: list[str]) -> None:
    async with open_server(namespaces=("default", "other")) as server:
        for name, namespace in (("a", "default"), ("b", "default"), ("c", "other")):
            await server.post(f"/api/v1/namespaces/{namespace}/configmaps", configmap(name, namespace))
        async with server.watch(path) as watch:
            assert [(await watch.event())[1] for _ in expected] == expected
            await quiet(watch)
        (await server.ask("POST", path, {})).refused(405)


async def test_a_watch_path_and_its_selector_name_one_object(autojump_clock: MockClock) -> None:
    async with open_server() as server:
        for selector in ("metadata.name%3Dc", "metadata.namespace%3Ddefault"):
            refusal = await server.ask("GET", f"/api/v1/watch/namespaces/default/configmaps/b?fieldSelector={selector}")
            assert refusal.refused(400)["message"] == "fieldSelector metadata.name doesn't match requested name"


@pytest.mark.parametrize("start", ["", "&resourceVersion=0"])
async def test_the_state_at_the_start_ends_with_a_bookmark(autojump_clock: MockClock, start: str) -> None:
    async with open_server() as server:
        await server.post(MAPS, configmap("a"))
        async with server.watch(f"{MAPS}?watch=1&allowWatchBookmarks=1{start}") as watch:
            assert (await watch.event())[:2] == ("ADDED", "a")
            bookmark = await watch.next()
            assert bookmark is not None
            assert bookmark["object"]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}
        async with server.watch(f"{MAPS}?watch=1{start}") as watch:
            assert (await watch.event())[:2] == ("ADDED", "a")
            await quiet(watch)
        (await server.ask("GET", f"{MAPS}?watch=1&continue=abc{start}")).refused(422)


async def test_many_watchers_get_the_same_bytes(autojump_clock: MockClock) -> None:
    async with (
        open_server() as server,
        server.watch(WATCH) as one,
        server.watch(WATCH) as two,
        server.watch(WATCH, headers={"accept": PARTIAL}) as three,
        server.watch(WATCH, headers={"accept": PARTIAL}) as four,
    ):
        await server.post(MAPS, configmap("a", x="1"))
        assert await one.chunk() == await two.chunk()
        partial = await three.chunk()
        assert partial == await four.chunk()
        assert partial is not None
        assert b'"kind":"PartialObjectMetadata"' in partial
        assert b'"data"' not in partial


# -- bookmarks and ends -----------------------------------------------------------------------------------------------


async def test_a_bookmark_has_the_fields_that_every_object_of_its_kind_has(autojump_clock: MockClock) -> None:
    initial = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan"
    async with (
        open_server() as server,
        server.watch(f"{PODS}?watch=true&allowWatchBookmarks=true&{initial}&timeoutSeconds=300") as watch,
    ):
        event = await watch.next()
        assert event is not None
        assert event["type"] == "BOOKMARK"
        assert set(event["object"]["metadata"]) == {"resourceVersion", "annotations"}
        assert (event["object"]["spec"], event["object"]["status"]) == ({"containers": None}, {})


@pytest.mark.parametrize("resource", ["deployments", "replicasets", "statefulsets", "daemonsets"])
async def test_a_bookmark_of_workloads_has_what_a_conversion_sets(resource: str, autojump_clock: MockClock) -> None:
    target = f"/apis/apps/v1/{resource}?watch=1&{INITIAL}"
    generation = "deprecated.daemonset.template.generation"
    async with open_server() as server:
        async with server.watch(target) as watch:
            event = await watch.next()
        async with server.watch(target, headers={"accept": PARTIAL}) as watch:
            partial = await watch.next()
    assert event is not None
    assert partial is not None
    annotations = event["object"]["metadata"]["annotations"]
    if resource == "daemonsets":
        assert annotations.pop(generation) == "0"
    else:
        assert event["object"]["spec"]["replicas"] == 0
    assert is_initial_end(event)
    assert is_initial_end(partial)


async def test_bookmarks_come_about_once_a_minute_and_before_the_end(autojump_clock: MockClock) -> None:
    async with (
        open_server() as server,
        server.watch(f"{WATCH}&allowWatchBookmarks=true&timeoutSeconds=300&resourceVersion=1") as watch,
    ):
        await server.post(PODS, pod("of-no-concern"))
        started = trio.current_time()
        first = await watch.next()
        assert first is not None
        assert (first["type"], first["object"]["metadata"]["resourceVersion"]) == ("BOOKMARK", "2")
        assert 30 <= trio.current_time() - started <= 90
        await server.post(PODS, pod("of-no-concern-either"))
        assert [event["type"] for event in await watch.rest()] == ["BOOKMARK"]
        assert trio.current_time() - started == pytest.approx(300, abs=1)


@pytest.mark.parametrize(("seconds", "bookmarks"), [(2, []), (3, ["BOOKMARK"])])
async def test_watches_too_short_for_the_last_bookmark_have_none(
    seconds: int, bookmarks: list[str], autojump_clock: MockClock
) -> None:
    async with (
        open_server() as server,
        server.watch(f"{WATCH}&allowWatchBookmarks=true&timeoutSeconds={seconds}&resourceVersion=1") as watch,
    ):
        await server.post(PODS, pod("of-no-concern"))
        assert [event["type"] for event in await watch.rest()] == bookmarks


async def test_bookmarks_need_the_option_and_a_new_revision(autojump_clock: MockClock) -> None:
    async with open_server() as server:
        async with server.watch(f"{WATCH}&timeoutSeconds=300") as watch:
            await server.post(PODS, pod("p"))
            assert await watch.rest() == []
        async with server.watch(f"{WATCH}&timeoutSeconds=300&allowWatchBookmarks=1&resourceVersion=2") as watch:
            assert await watch.rest() == []


async def test_a_watch_from_0_with_bookmarks_ends_its_initial_events_with_one(autojump_clock: MockClock) -> None:
    async with open_server() as server:
        await server.post(MAPS, configmap("a"))
        async with server.watch(f"{WATCH}&allowWatchBookmarks=true&resourceVersion=0&{INITIAL}") as watch:
            assert (await watch.event())[0] == "ADDED"
            bookmark = await watch.next()
            assert bookmark is not None
            assert is_initial_end(bookmark)


async def test_a_bookmark_never_runs_ahead_of_the_events(autojump_clock: MockClock) -> None:
    """A client that resumes at any event or bookmark misses nothing."""
    async with open_server() as server:

        async def write() -> None:
            for number in range(40):
                await trio.sleep(10)
                if number % 2:
                    await server.post(MAPS, configmap(f"m{number}"))
                else:
                    await server.post(PODS, pod(f"p{number}"))

        server.nursery.start_soon(write)
        target = f"{WATCH}&allowWatchBookmarks=true&timeoutSeconds=450&resourceVersion=1"
        async with server.watch(target) as watch:
            events = await watch.rest()
        revisions = [int(event["object"]["metadata"]["resourceVersion"]) for event in events]
        assert revisions == sorted(revisions)
        assert len([event for event in events if event["type"] == "ADDED"]) == 20
        assert len([event for event in events if event["type"] == "BOOKMARK"]) >= 4


async def test_a_watch_ends_after_its_time(autojump_clock: MockClock) -> None:
    async with open_server(min_request_timeout=1800) as server:
        spans = {"&timeoutSeconds=7": (7, 7.1), "": (1800, 3600.1), "&timeoutSeconds=0": (1800, 3600.1)}
        for query, (low, high) in spans.items():
            started = trio.current_time()
            async with server.watch(WATCH + query) as watch:
                assert await watch.rest() == []
            assert low <= trio.current_time() - started <= high
        for wrong in ("x", "1.5"):
            (await server.ask("GET", f"{WATCH}&timeoutSeconds={wrong}")).refused(400)


@pytest.mark.parametrize("query", ["", "&resourceVersion=0", "&resourceVersion=1", f"&{INITIAL}"])
async def test_a_watch_with_a_negative_time_ends_without_events(autojump_clock: MockClock, query: str) -> None:
    async with open_server() as server:
        await server.post(MAPS, configmap("a"))
        started = trio.current_time()
        async with server.watch(f"{WATCH}&timeoutSeconds=-1{query}") as watch:
            assert await watch.rest() == []
        assert trio.current_time() == started


async def test_a_busy_watch_ends_in_time_too(autojump_clock: MockClock) -> None:
    async with open_server() as server:

        async def write() -> None:
            await server.post(MAPS, configmap("a", n="0"))
            for number in range(200):
                await trio.sleep(0.1)
                await server.put(f"{MAPS}/a", configmap("a", n=str(number)))

        server.nursery.start_soon(write)
        started = trio.current_time()
        async with server.watch(f"{WATCH}&timeoutSeconds=5") as watch:
            events = await watch.rest()
        assert 40 <= len(events) <= 60
        assert trio.current_time() - started == pytest.approx(5, abs=0.2)


async def test_draining_ends_watches_and_those_that_come_late(autojump_clock: MockClock) -> None:
    async with open_server() as server:
        await server.post(MAPS, configmap("a"))
        ended: list[int] = []

        async def follow() -> None:
            async with server.watch(WATCH) as watch:
                ended.append(len(await watch.rest()))

        for _ in range(3):
            server.nursery.start_soon(follow)
        await wait_all_tasks_blocked(0.001)
        before = trio.current_time()
        server.assembly.application.drain.begin()
        await wait_all_tasks_blocked(0.001)
        assert ended == [1, 1, 1]
        async with server.watch(WATCH) as late:
            assert len(await late.rest()) == 1
        assert trio.current_time() - before < 10


async def test_cancelled_watches_leave_nothing_behind(autojump_clock: MockClock) -> None:
    async with open_server() as server:
        for _ in range(5):
            async with server.watch(WATCH):
                pass
            with trio.move_on_after(1):
                async with server.watch(WATCH) as watch:
                    await watch.next()
        assert server.assembly.views["configmaps"].statistics().waiting_watchers == 0
        labels = {"group": "", "version": "v1", "kind": "ConfigMap"}
        assert await server.metric("apiserver_registered_watchers", **labels) in (0, None)
        labels = {"verb": "WATCH", "group": "", "version": "v1", "resource": "configmaps"}
        assert await server.metric("apiserver_longrunning_requests", **labels) in (0, None)


class Pushable(BufferedExchange):
    """Accept no push."""

    @property
    def push(self) -> Push | None:
        return lambda chunk: False


async def test_a_client_that_leaves_early_costs_nothing_more() -> None:
    async with open_server() as server:
        for number in range(12):
            await server.post(MAPS, configmap(f"m{number:02}", x="y" * 100_000))
        request = server.request("GET", WATCH)
        request.exchange = Pushable()
        stream = Stream(await server.assembly.application.application(request))
        await stream.chunk()
        gc.collect()
        gc.disable()
        try:
            body = cast(WatchStream, cast(Any, stream.response.body)._body)  # this one is counted
            # For a slow reader, only one part of the initial events is encoded.
            assert sum(map(len, body._writes)) < 400_000
            await stream.chunks.aclose()
            gone = weakref.ref(body)
            del body, stream, request
            assert gone() is None
        finally:
            gc.enable()


# -- history that is gone, a log that does not answer -----------------------------------------------------------------


async def compact(server: InProcess) -> int:
    revision = server.log.store.revision
    await server.post("/api/v1/namespaces", {"metadata": {"name": f"ns{revision}"}})
    server.log.store.compact(revision)
    await server.get(MAPS)
    return revision


async def test_a_compacted_revision_is_an_error_event_410(autojump_clock: MockClock) -> None:
    async with open_server() as server:
        for name in ("a", "b", "c"):
            await server.post(MAPS, configmap(name))
        compacted = await compact(server)
        async with server.watch(f"{WATCH}&resourceVersion=2") as watch:
            (event,) = await watch.rest()
        assert event["type"] == "ERROR"
        found = event["object"]
        assert (found["kind"], found["apiVersion"], found["code"], found["reason"]) == ("Status", "v1", 410, "Expired")
        assert found["message"] == f"too old resource version: 2 ({compacted + 1})"
        async with server.watch(f"{WATCH}&resourceVersion={compacted}") as watch:
            await server.post(MAPS, configmap("d"))
            assert (await watch.event())[:2] == ("ADDED", "d")


async def test_a_slow_watcher_reads_on_from_the_log_or_learns_that_it_is_gone(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(view, "RECENT_EVENTS", 4)
    monkeypatch.setattr(view, "SLACK", 4)
    async with open_server() as server:
        async with server.watch(WATCH) as slow, server.watch(WATCH) as slower:
            for number in range(20):
                await server.post(MAPS, configmap(f"m{number:02}"))
            assert [(await slow.event())[1] for _ in range(20)] == [f"m{number:02}" for number in range(20)]
            assert server.log.calls["read_resource"] >= 1
            await compact(server)
            events = await slower.rest()
        assert [event["type"] for event in events] in (["ERROR"], ["ADDED"] * len(events[:-1]) + ["ERROR"])
        assert events[-1]["object"]["code"] == 410


async def test_a_log_that_does_not_answer_delays_a_watch_and_ends_none(autojump_clock: MockClock) -> None:
    log = MemoryLog()
    async with open_server(log) as server:
        for name in ("a", "b", "c"):
            await server.post(MAPS, configmap(name))
    async with open_server(log) as restarted:
        log.fail_next("read_resource", *[Fault.UNAVAILABLE] * 5)
        async with restarted.watch(f"{WATCH}&resourceVersion=2&timeoutSeconds=60") as watch:
            assert await watch.event() == ("ADDED", "b", 3)
            assert await watch.event() == ("ADDED", "c", 4)
        log.fail_next("read_resource", *[Fault.UNAVAILABLE] * 100)
        started = trio.current_time()
        async with restarted.watch(f"{WATCH}&resourceVersion=2&timeoutSeconds=20") as watch:
            assert await watch.rest() == []
        assert trio.current_time() - started <= 22


async def test_draining_does_not_wait_for_a_log_that_does_not_answer(autojump_clock: MockClock) -> None:
    log = MemoryLog()
    async with open_server(log) as server:
        await server.post(MAPS, configmap("a"))
    async with open_server(log) as restarted:
        log.fail_next("read_resource", *[Fault.UNAVAILABLE] * 1000)
        async with restarted.watch(f"{WATCH}&resourceVersion=1&timeoutSeconds=1000") as watch:
            with trio.move_on_after(10):
                await watch.next()
                raise AssertionError("nothing could be read")
        ended = trio.Event()

        async def follow() -> None:
            async with restarted.watch(f"{WATCH}&resourceVersion=1&timeoutSeconds=1000") as watch:
                await watch.rest()
            ended.set()

        restarted.nursery.start_soon(follow)
        await trio.sleep(10)
        restarted.assembly.application.drain.begin()
        with trio.fail_after(5):
            await ended.wait()


# -- representations --------------------------------------------------------------------------------------------------


async def test_a_table_per_event_and_columns_once(autojump_clock: MockClock) -> None:
    async with open_server() as server:
        await server.post(MAPS, configmap("a", x="1"))
        async with server.watch(WATCH, headers={"accept": TABLE}) as watch:
            first = await watch.next()
            await server.post(MAPS, configmap("b"))
            second = await watch.next()
            await server.delete(f"{MAPS}/b")
            third = await watch.next()
        assert first is not None
        assert second is not None
        assert third is not None
        assert (first["type"], first["object"]["kind"]) == ("ADDED", "Table")
        assert [column["name"] for column in first["object"]["columnDefinitions"]] == ["Name", "Data", "Age"]
        assert first["object"]["rows"][0]["cells"][:2] == ["a", 1]
        assert first["object"]["rows"][0]["object"]["metadata"]["name"] == "a"
        assert not second["object"].get("columnDefinitions")
        assert (third["type"], third["object"]["rows"][0]["cells"][0]) == ("DELETED", "b")


async def test_a_table_watch_with_bookmarks_and_errors(autojump_clock: MockClock) -> None:
    async with open_server() as server:
        target = f"{WATCH}&{INITIAL}&timeoutSeconds=200"
        async with server.watch(target, headers={"accept": TABLE}) as watch:
            bookmark = await watch.next()
            assert bookmark is not None
            assert (bookmark["type"], bookmark["object"]["kind"]) == ("BOOKMARK", "Table")
            assert bookmark["object"]["metadata"]["resourceVersion"] == "1"
        await server.post(MAPS, configmap("a"))
        await compact(server)
        async with server.watch(f"{WATCH}&resourceVersion=1", headers={"accept": TABLE}) as watch:
            (error,) = await watch.rest()
        assert (error["type"], error["object"]["kind"]) == ("ERROR", "Status")


async def test_partial_metadata_watches(autojump_clock: MockClock) -> None:
    async with open_server() as server:
        await server.post(MAPS, configmap("a", x="1"))
        async with server.watch(f"{WATCH}&{INITIAL}", headers={"accept": PARTIAL}) as watch:
            first, bookmark = await watch.next(), await watch.next()
        assert first is not None
        assert bookmark is not None
        assert set(first["object"]) == {"kind", "apiVersion", "metadata"}
        assert first["object"]["apiVersion"] == "meta.k8s.io/v1"
        assert is_initial_end(bookmark)
        assert bookmark["object"]["kind"] == "PartialObjectMetadata"


@pytest.mark.parametrize("query", ["", f"&{INITIAL}", "&resourceVersion=2"])
async def test_a_watch_as_a_list_ends_at_its_first_event(autojump_clock: MockClock, query: str) -> None:
    accept = PARTIAL.replace("PartialObjectMetadata", "PartialObjectMetadataList")
    async with open_server() as server:
        await server.post(MAPS, configmap("a", x="1"))
        async with server.watch(WATCH + query, headers={"accept": accept}) as watch:
            await server.post(MAPS, configmap("b"))
            assert await watch.rest() == []
        async with server.watch(f"{WATCH}&resourceVersion=3&timeoutSeconds=7", headers={"accept": accept}) as watch:
            started = trio.current_time()
            assert await watch.rest() == []
            assert trio.current_time() - started >= 7
        await compact(server)
        async with server.watch(f"{WATCH}&resourceVersion=1", headers={"accept": accept}) as watch:
            (error,) = await watch.rest()
            assert (error["type"], error["object"]["code"]) == ("ERROR", 410)


async def test_protobuf_frames(autojump_clock: MockClock) -> None:
    async with open_server() as server:
        await server.post(PODS, pod("a"))
        target = f"{PODS}?watch=1&{INITIAL}"
        response = await server.respond("GET", target, headers={"accept": f"{PROTOBUF};stream=watch"})
        assert response.header("content-type") == f"{PROTOBUF};stream=watch"
        watch = Stream(response)
        data = b""
        for _ in range(2):
            data += await watch.chunk() or b""
        await watch.chunks.aclose()
        frames = []
        while data:
            size = int.from_bytes(data[:4], "big")
            frames.append(data[4 : 4 + size])
            data = data[4 + size :]
        assert len(frames) == 2
        kinds = [kind for frame in frames for kind in (b"ADDED", b"BOOKMARK") if kind in frame]
        assert kinds == [b"ADDED", b"BOOKMARK"]
        start = frames[0].index(b"k8s\x00")
        assert protobuf.decode(frames[0][start:])["metadata"]["name"] == "a"


@pytest.mark.parametrize("accept", ["text/html", "application/xml"])
async def test_forms_without_a_watch_are_406(autojump_clock: MockClock, accept: str) -> None:
    async with open_server() as server:
        (await server.ask("GET", WATCH, headers={"accept": accept})).refused(406)


class Socket:
    """A client that asks for a WebSocket, and its side of the connection."""

    protocol = "websocket"

    def __init__(self) -> None:
        self.near, self._far = memory_stream_pair()
        self.accepted = False

    async def take_over(self) -> trio.abc.HalfCloseableStream:
        self.accepted = True
        return self._far

    async def accept(self, headers: HeaderList = ()) -> trio.abc.HalfCloseableStream:
        return await self.take_over()

    async def messages(self) -> list[str]:
        """Return the messages until the server's closing frame."""
        connection, found = Connection(ConnectionType.CLIENT), list[str]()
        while connection.state is ConnectionState.OPEN:
            connection.receive_data(bytes(await self.near.receive_some()))
            for event in connection.events():
                if isinstance(event, TextMessage):
                    found.append(event.data)
                elif isinstance(event, CloseConnection):
                    assert event.code == 1000
                    await self.near.send_all(connection.send(event.response()))
        return found


def websocket_request(server: InProcess, target: str, *, token: str = ADMIN) -> tuple[Request, Socket]:
    fields = {"connection": "Upgrade", "upgrade": "websocket", "sec-websocket-version": "13"}
    fields["sec-websocket-key"] = "MDEyMzQ1Njc4OWFiY2RlZg=="
    request = server.request("GET", target, token=token, headers=fields)
    request.upgrade = socket = Socket()
    return request, socket


async def test_over_a_websocket_each_event_is_a_message(autojump_clock: MockClock) -> None:
    async with open_server() as server:
        await server.post(MAPS, configmap("a"))
        request, socket = websocket_request(server, f"{WATCH}&timeoutSeconds=30")
        done = trio.Event()

        async def run() -> None:
            await server.assembly.application.application(request)
            done.set()

        server.nursery.start_soon(run)
        await trio.sleep(1)
        await server.post(MAPS, configmap("b"))
        sent = await socket.messages()
        await done.wait()
        assert [json.loads(message)["object"]["metadata"]["name"] for message in sent] == ["a", "b"]


async def test_a_websocket_client_that_leaves_ends_its_watch(autojump_clock: MockClock) -> None:
    async with open_server() as server:
        request, socket = websocket_request(server, WATCH)
        with trio.fail_after(10):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(server.assembly.application.application, request)
                await trio.sleep(1)
                await socket.near.aclose()
        assert server.assembly.views["configmaps"].statistics().waiting_watchers == 0


async def test_a_rejected_websocket_is_not_accepted(autojump_clock: MockClock) -> None:
    async with open_server() as server:
        request, socket = websocket_request(server, WATCH, token="")
        response = await server.assembly.application.application(request)
        assert response.status == 403
        assert not socket.accepted


async def test_a_watch_from_a_revision_that_does_not_come_ends_with_504(autojump_clock: MockClock) -> None:
    """After a restore, that revision may be given to another change later."""
    async with open_server() as server, server.watch(f"{WATCH}&resourceVersion=99999") as watch:
        event = await watch.next()
        assert event["type"] == "ERROR"
        assert event["object"]["code"] == 504
        assert event["object"]["details"]["causes"][0]["reason"] == "ResourceVersionTooLarge"
