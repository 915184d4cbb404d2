"""The commands against a server whose Leases and Events are in another database (docs/databases.md)."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from databases.two_logs import HELD, begun
from in_process import ADMIN
from server_in_thread import InThread, Running, server_in_thread

from kubechronicle.api.history.positions import SPAN, joined, revisions_of
from kubechronicle.eventlog.memory.memory_log import MemoryLog
from kubechronicle.ops.client.client import Client
from kubechronicle.ops.client.feeds.position import FeedPosition, StateFile
from kubechronicle.ops.client.revision_reader import RevisionQuery, follow, newest_position, scopes_in
from kubechronicle.ops.server.databases.units import OtherDatabase

Chronicle = Callable[..., Any]
DATABASE = "events,leases"


@pytest.fixture
def other() -> MemoryLog:
    return MemoryLog(begun())


@pytest.fixture
def running(other: MemoryLog) -> Iterator[Running]:
    database = OtherDatabase(name=DATABASE, log=other, resources=HELD, place=1)
    with server_in_thread(others=[database]) as running:
        yield running


_numbers = itertools.count(1)


@pytest.fixture
def space(running: Running) -> str:
    """Return a namespace with a ConfigMap between two changes of a Lease, and a ConfigMap after them."""
    name = f"space-{next(_numbers)}"
    running.ask("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
    write_lease(running, name, "a", "one")
    write_map(running, name, "between")
    write_lease(running, name, "a", "two")
    write_map(running, name, "after")
    return name


def write_map(running: Running, space: str, name: str) -> int:
    made = running.ask("POST", f"/api/v1/namespaces/{space}/configmaps", {"metadata": {"name": name}})
    return int(made["metadata"]["resourceVersion"])


def write_lease(running: Running, space: str, name: str, holder: str) -> int:
    path, spec = f"/apis/coordination.k8s.io/v1/namespaces/{space}/leases", {"spec": {"holderIdentity": holder}}
    if holder == "one":
        made = running.ask("POST", path, {"metadata": {"name": name}, **spec})
    else:
        made = running.ask("PATCH", f"{path}/{name}", spec)
    return int(made["metadata"]["resourceVersion"])


def summed_up(revisions: list[dict[str, Any]]) -> list[str]:
    kinds = ("configmaps", "leases")
    return [
        f"{each['operation']} {each['object']['name']}" for each in revisions if each["object"]["resource"] in kinds
    ]


def lines(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


STORY = ["Create a", "Create kube-root-ca.crt", "Create between", "Update a", "Create after"]


def without_ca(revisions: list[str]) -> list[str]:
    """Leave out the ConfigMap that a loop creates at any time."""
    return [each for each in revisions if "kube-root-ca" not in each]


def test_a_log_of_a_namespace_has_one_order(chronicle: Chronicle, space: str) -> None:
    found = chronicle("log", "-n", space, "--noise", "-o", "json").json()["items"]
    assert without_ca(summed_up(found))[::-1] == without_ca(STORY)
    assert {each["object"]["resource"] for each in found if "database" in each} == {"leases"}
    text = chronicle("log", "-n", space, "--noise")
    assert f"revision {SPAN + 1}" in text.out or f" in database {DATABASE}  " in text.out
    assert text.err == ""
    assert "in database" not in chronicle("log", "-n", space).out


def test_a_period_by_a_revision_says_that_it_is_of_one_database(chronicle: Chronicle, space: str) -> None:
    found = chronicle("log", "-n", space, "--noise", "-o", "json").json()["items"]
    between = next(each for each in found if each["object"]["name"] == "between")["metadata"]["name"]
    later = chronicle("log", "-n", space, "--noise", "--since", between, "-o", "json")
    assert without_ca(summed_up(later.json()["items"])) == ["Create after", "Update a"]
    assert f"revision {int(between) + 1} is of one database" in later.err


def test_who_and_bisect_name_the_database(chronicle: Chronicle, space: str) -> None:
    changed = chronicle("who", "changed", "lease/a", "-n", space)
    assert f"database  {DATABASE}" in changed.out
    assert chronicle("who", "created", "lease/a", "-n", space).code == 0
    held = chronicle("bisect", "self.spec.holderIdentity == 'two'", "lease/a", "-n", space)
    assert held.code == 0, held.err
    assert f" in database {DATABASE}  " in held.out
    assert "holderIdentity: two" in chronicle("blame", "lease/a", "-n", space).out
    groups = chronicle("between", "1h", "now", "-n", space, "--noise", "--by", "kind", "-o", "json").json()["groups"]
    assert {group["kind"]: group["changes"] for group in groups}["leases.coordination.k8s.io"] == 2


def test_a_negative_answer_tells_of_both_logs(chronicle: Chronicle, space: str) -> None:
    nobody = chronicle("who", "deleted", "lease/a", "-n", space)
    assert nobody.code == 1
    assert "in the main database, the history has no change of it; it begins at " in nobody.out
    assert f"in database {DATABASE}, 2 changes were searched" in nobody.out
    nothing = chronicle("log", "-n", space, "--noise", "--user", "nobody")
    assert f"in database {DATABASE}, 2 changes were searched" in nothing.err
    never = chronicle("log", "lease/b", "-n", space)
    assert "there is no lease.coordination.k8s.io/b" in never.err


def test_new_changes_of_both_logs_are_followed(running: Running, space: str) -> None:
    client = Client(InThread(running, ADMIN))
    for query in (RevisionQuery(scopes_in(space)), RevisionQuery(scopes_in(space)[:1])):
        position = newest_position(client, query)
        assert revisions_of(position).keys() == {0, 1}
        following = follow(client, query, position)
        found = []
        for number in range(4):
            if number % 2:
                made = write_lease(running, space, f"followed-{len(query.scopes)}-{number}", "one")
            else:
                made = write_map(running, space, f"followed-{len(query.scopes)}-{number}")
            found.append((int(next(following)["metadata"]["name"]), made))
        assert [seen for seen, _ in found] == [made for _, made in found]


def test_a_feed_has_a_position_of_all_logs(chronicle: Chronicle, running: Running, space: str, tmp_path: Path) -> None:
    state, file = tmp_path / "feed.state", tmp_path / "changes.jsonl"
    flags = ("-n", space, "--noise", "--state", str(state), "--to", f"file:{file}", "--no-follow", "--batch", "2")
    assert chronicle("feed", *flags, "--since", "oldest").code == 0
    assert without_ca(summed_up(lines(file.read_text()))) == without_ca(STORY)
    kept = StateFile(str(state)).read()
    assert kept is not None
    assert revisions_of(kept.revision).keys() == {0, 1}
    assert kept.time
    file.unlink()
    made = [write_lease(running, space, "a", "three"), write_map(running, space, "later")]
    assert chronicle("feed", *flags).code == 0
    assert [int(each["metadata"]["name"]) for each in lines(file.read_text())] == made
    # Without Events and Leases, the feed goes on in the main log alone; with them, it goes on in both.
    main = [flag for flag in flags if flag != "--noise"]
    write_lease(running, space, "a", "four")
    last = write_map(running, space, "last")
    assert chronicle("feed", *main).code == 0
    assert int(lines(file.read_text())[-1]["metadata"]["name"]) == last
    kept = StateFile(str(state)).read()
    assert kept is not None
    assert kept.revision < SPAN


def test_a_feed_misses_no_change_of_a_late_clock(
    chronicle: Chronicle, running: Running, space: str, tmp_path: Path, other: MemoryLog
) -> None:
    state = tmp_path / "feed.state"
    flags = ("-n", space, "--noise", "--state", str(state), "--no-follow")
    assert chronicle("feed", *flags).code == 0
    kept = StateFile(str(state)).read()
    assert kept is not None
    own = revisions_of(kept.revision)
    made = write_lease(running, space, "a", "late")
    write_map(running, space, "seen-first")
    # As if a feed had read the main log only, whose clock is ahead.
    newest = revisions_of(newest_position(Client(InThread(running, ADMIN)), RevisionQuery(scopes_in(space))))
    StateFile(str(state)).write(FeedPosition(joined({0: newest[0], 1: own[1]})))
    assert [int(each["metadata"]["name"]) for each in lines(chronicle("feed", *flags).out)] == [made]


def test_a_feed_notices_another_log_and_lost_changes(
    chronicle: Chronicle, running: Running, space: str, tmp_path: Path, other: MemoryLog
) -> None:
    state = tmp_path / "feed.state"
    flags = ("-n", space, "--noise", "--state", str(state), "--no-follow")
    StateFile(str(state)).write(FeedPosition(joined({0: 10, 1: SPAN + 10**9})))
    assert "but the feed has reached" in chronicle("feed", *flags).err
    StateFile(str(state)).write(FeedPosition(joined({0: 10, 3: 3 * SPAN + 1})))
    assert "is of a database that this server is not given" in chronicle("feed", *flags).err
    StateFile(str(state)).write(FeedPosition(joined({0: 10, 1: SPAN + 1}), "2020-01-01T00:00:00.000000Z"))
    assert "was committed at" in chronicle("feed", *flags).err
    running.run(compact, other)
    StateFile(str(state)).write(FeedPosition(joined({0: 10, 1: SPAN + 1})))
    lost = chronicle("feed", *flags)
    assert (lost.code, f"all resources in database {DATABASE} up to " in lost.err) == (2, True)
    assert chronicle("feed", *flags, "--accept-loss").code == 0


async def compact(other: MemoryLog) -> None:
    other.store.compact((await other.head()).revision)


def test_an_incident_ends_at_a_change_of_either_log(chronicle: Chronicle, running: Running, space: str) -> None:
    at = write_lease(running, space, "a", "crash")
    found = chronicle("incident", str(at), "-n", space, "-o", "json").json()
    assert {"between", "after"} <= {each["object"]["name"] for each in found["changes"]}


@pytest.mark.parametrize("kinds", ["leases", "configmaps"])
def test_moments_are_found_in_the_log_of_the_kind(
    chronicle: Chronicle, running: Running, space: str, kinds: str
) -> None:
    at = write_map(running, space, "moment")
    write_lease(running, space, "a", "later")
    found = chronicle("export", "-n", space, "--at", str(at), "-o", "json")
    assert found.code == 0, found.err
