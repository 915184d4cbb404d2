"""Two servers on one Postgres, and known failures of API servers on SQL stores, as clients see them."""

from __future__ import annotations

import os
import signal
import statistics
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import postgres_fixture
import pytest
from harness import Api, Cluster, Server, cluster_in, configmap, home, unique

from kubechronicle.ops.development.server_process import descendants

LATENCY = 0.050  # seconds (p99) from the writer's answer on one replica to the watcher's receipt on another
STALL = 5.0


@pytest.fixture(scope="module")
def shared() -> Iterator[Cluster]:
    """Two servers shared by tests that leave them healthy, each with a namespace of its own."""
    with home("shared-cluster") as directory, cluster_in(directory) as cluster:
        yield cluster


def path(namespace: str) -> str:
    return f"/api/v1/namespaces/{namespace}/configmaps"


def head(api: Api, namespace: str) -> str:
    return str(api.get(path(namespace) + "?limit=1")["metadata"]["resourceVersion"])


@pytest.mark.alone
def test_the_other_replica_sees_a_write_at_once(cluster: Cluster) -> None:
    """By notification, not at the next poll. The best of three counts, as other load only adds latency."""
    one, other = cluster.servers
    measured = []
    for turn in range(3):
        late = delays(one, other, f"latency-{turn}")
        p99 = late[int(len(late) * 0.99)]
        print(f"p50 {statistics.median(late) * 1000:.1f} ms, p99 {p99 * 1000:.1f} ms, max {late[-1] * 1000:.1f} ms")
        measured.append(p99)
        if p99 < LATENCY:
            break
    assert min(measured) < LATENCY


def delays(one: Server, other: Server, namespace: str) -> list[float]:
    """Return the sorted delays in seconds from answers at one server to a watcher's receipt at the other."""
    with closing(one.api()) as api:
        api.namespace(namespace)
        with closing(other.watch(f"{path(namespace)}?watch=true&resourceVersion={head(api, namespace)}")) as watch:
            answered = []
            for number in range(400):
                api.create(path(namespace), configmap(f"c-{number}"))
                answered.append(time.monotonic())
                time.sleep(0.005)  # with pauses, as a busy writer would hide the polling
            received = watch.take(len(answered))
    assert [event["object"]["metadata"]["name"] for _, event in received] == [f"c-{n}" for n in range(len(answered))]
    return sorted(at - done for (at, _), done in zip(received, answered, strict=True))


def test_a_read_on_the_other_replica_sees_every_answered_write(shared: Cluster) -> None:
    """A read without resourceVersion is as new as the newest answer of any replica."""
    one, other = shared.servers
    with closing(one.api()) as writing, closing(other.api()) as reading:
        namespace = writing.namespace("consistent")
        for number in range(100):
            made = writing.create(path(namespace), configmap(f"c-{number}"))
            assert reading.get(f"{path(namespace)}/c-{number}") == made
            assert len(reading.get(path(namespace))["items"]) == number + 1


def test_writers_on_both_replicas_to_the_same_objects(shared: Cluster) -> None:
    """Optimistic concurrency across replicas: exactly one of two updates of a revision wins, no increment is lost."""
    apis = [server.api() for server in shared.servers]
    namespace = apis[0].namespace("contended")
    for number in range(4):
        apis[0].create(path(namespace), configmap(f"counter-{number}", n="0"))
    conflicts = []

    def count(server: Server) -> None:
        with closing(server.api()) as api:
            for turn in range(100):
                url = f"{path(namespace)}/counter-{turn % 4}"
                while True:
                    obj = api.get(url)
                    obj["data"]["n"] = str(int(obj["data"]["n"]) + 1)
                    if api.request("PUT", url, obj).status == 200:
                        break
                    conflicts.append(1)

    threads = [threading.Thread(target=count, args=(server,)) for server in shared.servers * 2]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    values = [int(item["data"]["n"]) for item in apis[1].get(path(namespace))["items"]]
    assert values == [100] * 4
    assert conflicts, "no conflicts: the test proves nothing"
    shared.servers[0].verify()


@contextmanager
def writing(servers: list[Server], namespace: str) -> Iterator[list[str]]:
    """Create objects on every server within the block. Yield the names answered with 201, complete after the block."""
    made: list[str] = []
    stop = threading.Event()

    def write(server: Server, number: int) -> None:
        with closing(server.api()) as api:
            while not stop.is_set():
                name = unique(f"w{number}")
                if api.request("POST", path(namespace), configmap(name)).status == 201:
                    made.append(name)

    threads = [threading.Thread(target=write, args=(server, n)) for n, server in enumerate(servers * 2)]
    for thread in threads:
        thread.start()
    try:
        yield made
    finally:
        stop.set()
        for thread in threads:
            thread.join(60)


def check_watches(cluster: Cluster, namespace: str, disturb: object) -> None:
    """Check that watchers on both replicas see every write during a disturbance, once and in one order."""
    assert callable(disturb)
    api = cluster.servers[0].api()
    api.namespace(namespace)
    start = head(api, namespace)
    watches = [server.watch(f"{path(namespace)}?watch=true&resourceVersion={start}") for server in cluster.servers]
    with writing(cluster.servers, namespace) as made:
        time.sleep(0.5)
        disturb()
        time.sleep(0.5)
    seen = [[event for _, event in watch.take(len(made))] for watch in watches]
    for watch in watches:
        watch.close()
    orders = [[event["object"]["metadata"]["resourceVersion"] for event in events] for events in seen]
    assert orders[0] == orders[1]
    assert orders[0] == sorted(orders[0], key=int)
    assert sorted(event["object"]["metadata"]["name"] for event in seen[0]) == sorted(made)
    listed = {item["metadata"]["name"] for item in api.get(path(namespace))["items"]}
    assert listed == set(made)
    cluster.servers[1].verify()


def test_a_transaction_stalled_before_its_commit_loses_no_event(shared: Cluster) -> None:
    """A transaction locks the head row for five seconds: writers wait, no watcher misses an event."""
    psql = Path(str(postgres_fixture.binaries())) / "psql"
    hold = f"begin; select 1 from kubechronicle.head for update; select pg_sleep({STALL}); commit"

    def stall() -> None:
        began = time.monotonic()
        subprocess.run([psql, "-qAt", shared.postgres.url, "-c", hold], check=True, stdout=subprocess.DEVNULL)
        assert time.monotonic() - began >= STALL

    check_watches(shared, "stalled", stall)


def test_a_stopped_backend_loses_no_event(shared: Cluster) -> None:
    """Every backend of Postgres is stopped for a moment, one after another, some in the middle of an append."""

    def stop_each() -> None:
        backends = [process.pid for process in descendants(shared.postgres.process.pid)][1:]
        for pid in backends:
            os.kill(pid, signal.SIGSTOP)
            time.sleep(0.3)
            os.kill(pid, signal.SIGCONT)

    check_watches(shared, "stopped", stop_each)


def test_a_stopped_replica_holds_nobody_up_for_good(shared: Cluster) -> None:
    """A replica stopped for five seconds misses no event when it continues."""

    def stop_one() -> None:
        os.kill(shared.servers[1].pid, signal.SIGSTOP)
        time.sleep(STALL)
        os.kill(shared.servers[1].pid, signal.SIGCONT)

    check_watches(shared, "standing", stop_one)


@pytest.mark.alone
def test_a_list_costs_by_live_objects_not_by_history(server: Server) -> None:
    """A thousand old revisions of each object do not change the cost."""
    objects, revisions, writers = 5, 1000, 5
    api = server.api()
    namespace = api.namespace("history")
    for number in range(objects):
        api.create(path(namespace), configmap(f"c-{number}", n="0"))

    def cost() -> float:
        samples = []
        for _ in range(200):
            began = time.perf_counter()
            api.request("GET", path(namespace)).expect(200)
            samples.append(time.perf_counter() - began)
        return statistics.median(samples)

    def update(first: int) -> None:
        with closing(server.api()) as mine:
            for turn in range(revisions):
                for number in range(first, objects, writers):
                    mine.request("PUT", f"{path(namespace)}/c-{number}", configmap(f"c-{number}", n=str(turn + 1)))

    before = cost()
    threads = [threading.Thread(target=update, args=(first,)) for first in range(writers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    items = api.get(path(namespace))["items"]
    assert [item["data"]["n"] for item in items] == [str(revisions)] * objects
    after = min(cost() for _ in range(3))  # other load only adds to it
    print(f"median {before * 1000:.2f} ms before, {after * 1000:.2f} ms after {objects * revisions} updates")
    assert after < before * 1.5 + 0.002
