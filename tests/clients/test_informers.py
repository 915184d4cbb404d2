"""client-go: several writers create, change and delete up to 2,000 objects while informers of every kind follow.

In each test one follower uses WatchList and one does not. The tests differ in the disturbance of the server. Every test
checks the same (``check``): the caches equal a fresh list, no revision is missed or seen twice, and the writers' own
records agree with the objects.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from harness import Cluster, Server, eventually, postgres_of
from programs import GoProgram

OBJECTS = int(os.environ.get("KUBECHRONICLE_TEST_OBJECTS", "2000"))
FEWER = OBJECTS // 2  # for tests about a disturbance, not about the number of objects
WRITERS = 8
READY = 90.0  # two followers, each with four factories of 30 informers, on a machine busy with the server
WRITING = 300.0
SETTLING = 120.0

pytestmark = pytest.mark.usefixtures("informers")


@contextmanager
def followers(servers: list[Server], directory: Path) -> Iterator[list[tuple[str, GoProgram]]]:
    """Start a follower with WatchList and one without: both on one server, or each on its own. Wait for full caches."""
    with ExitStack() as stack:
        programs = []
        for number, server in enumerate(servers):
            for watch_list in ("true", "false") if len(servers) == 1 else ("true",) if number == 0 else ("false",):
                program = GoProgram(
                    directory,
                    "follow",
                    "--kubeconfig",
                    str(server.kubeconfig),
                    environment={"KUBE_FEATURE_WatchListClient": watch_list},
                )
                stack.enter_context(closing(program))
                programs.append((watch_list, program))
        for _, program in programs:
            program.wait("ready", timeout=READY)
        yield programs


def churn(
    servers: list[Server],
    directory: Path,
    *,
    seed: int,
    objects: int = OBJECTS,
    disturb: Callable[[], None] = lambda: None,
    times: int = 1,
) -> list[tuple[str, Any]]:
    """Run writers and followers on the servers. Call ``disturb`` ``times`` times while they work."""
    with followers(servers, directory) as following:
        kubeconfigs = ",".join(str(server.kubeconfig) for server in servers)
        writing = GoProgram(
            directory,
            "write",
            "--kubeconfig",
            kubeconfigs,
            f"--objects={objects}",
            f"--writers={WRITERS}",
            f"--seed={seed}",
        )
        with closing(writing):
            for turn in range(times):
                mark = objects * (turn + 1) // (times + 1)
                writing.wait("progress", timeout=WRITING, wanted=lambda found, mark=mark: found["done"] >= mark)
                disturb()
            written = writing.wait("report", timeout=WRITING)
        reports = [(watch_list, program.finish(timeout=SETTLING)) for watch_list, program in following]
        check_writers(written, writing.full(), objects)
        for (_, report), (_, program) in zip(reports, following, strict=True):
            check(report, objects)
            check_accounts(writing.full(), program.full())
    return reports


def check_writers(written: Any, full: Any, objects: int) -> None:
    assert written["failures"] == []
    assert written["created"] == objects
    assert written["updated"] >= objects
    assert written["deleted"] >= objects // 4
    acknowledged = full["acknowledged"]
    assert len(set(acknowledged)) == len(acknowledged), "one revision was acknowledged to two writes"


def check(report: Any, objects: int) -> None:
    """Check the report of a follower."""
    for factory in report["factories"]:
        assert factory["informers"] >= 20
        assert factory["objects"] > objects // 4, factory["name"]
        assert factory["differences"] == [], factory["name"]
        assert factory["different"] == 0, factory["name"]
        assert factory["backwards"] == [], factory["name"]
    watches = report["watches"]
    assert watches["problems"] == []
    assert watches["missed"] == 0, watches
    assert watches["repeated"] == 0, watches
    assert watches["events"] == watches["expected"], "the revisions of a log are gapless, so events are as many"
    assert watches["bookmarks"] > 0


def check_accounts(written: Any, followed: Any) -> None:
    """Compare the answers the writers got with the objects and with the events seen."""
    seen = set(followed["revisions"])
    assert [revision for revision in written["acknowledged"] if revision not in seen] == []
    state = followed["state"]
    wrong = {
        key: (revision, state.get(key, 0))
        for key, revision in written["objects"].items()
        if state.get(key, 0) != revision
    }
    assert wrong == {}, "object: (the writer's revision, the server's); 0: deleted"


def test_without_disturbance(own_server: Server, tmp_path: Path) -> None:
    own_server.start()
    for watch_list, report in churn([own_server], tmp_path, seed=1):
        requests = report["requests"]
        informers = sum(factory["informers"] for factory in report["factories"])
        assert requests["failed"] == 0
        if watch_list == "true":
            assert requests["watchLists"] >= informers
            assert requests["lists"] == 0, "a WatchList failed"
        else:
            assert requests["lists"] >= informers
            assert requests["watchLists"] == 0
    own_server.verify()


def test_the_server_is_restarted(own_server: Server, tmp_path: Path) -> None:
    """Once drained, once killed."""
    own_server.start()
    ways = ["drained", "killed"]

    def restart() -> None:
        if ways.pop(0) == "drained":
            assert own_server.stop() == 0
        else:
            own_server.kill9()
        own_server.start()

    churn([own_server], tmp_path, seed=2, disturb=restart, times=2)
    own_server.verify()


def test_the_embedded_postgres_is_killed(own_server: Server, tmp_path: Path) -> None:
    """The server restarts its Postgres by itself."""
    own_server.start()

    def kill() -> None:
        before = postgres_of(own_server)
        os.kill(before, signal.SIGKILL)
        eventually(lambda: own_server.embedded_postgres() not in (None, before), "another postmaster")

    churn([own_server], tmp_path, seed=3, objects=FEWER, disturb=kill, times=2)
    assert own_server.running
    own_server.verify()


def test_two_servers_on_one_postgres(cluster: Cluster, tmp_path: Path) -> None:
    """Writers and informers on both servers: the totals are the same. The heads differ, as the servers renew Leases
    between the two reports. ``check`` asserts that each follower has seen everything up to its head."""
    reports = [report for _, report in churn(cluster.servers, tmp_path, seed=4, objects=FEWER)]
    assert len({factory["objects"] for report in reports for factory in report["factories"]}) == 1
    cluster.servers[0].verify()


def test_two_servers_lose_their_postgres(cluster: Cluster, tmp_path: Path) -> None:
    """Postgres and all its backends are killed and restarted under two servers."""

    def crash() -> None:
        cluster.postgres.kill9()
        cluster.postgres.start()

    churn(cluster.servers, tmp_path, seed=5, objects=FEWER, disturb=crash, times=2)
    assert all(server.running for server in cluster.servers)
    cluster.servers[1].verify()
