"""The history of a server with two logs: one order of times (docs/databases.md)."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import quote

import pytest
from databases.two_logs import EVENTS, LEASES, REVISIONS, begun, event, lease, two_logs
from in_process import MAPS, InProcess, Stream, configmap

from kubechronicle.api.history.positions import joined, revisions_of
from kubechronicle.eventlog.layout import SPAN
from kubechronicle.eventlog.memory.store import MemoryStore

DATABASE = "events,leases"
CLUSTER = "/apis/history.kubechronicle.dev/v1/clusterrevisions"
LEASES_ONLY = "fieldSelector=object.resource%3Dleases"


class Clock:
    """The clock of a database. Each commit takes a second; ``behind``: another database's clock is ahead by so much."""

    now = datetime(2026, 1, 1, tzinfo=UTC)

    def __init__(self, behind: timedelta = timedelta()) -> None:
        self._behind = behind

    def __call__(self) -> datetime:
        return Clock.now - self._behind

    @staticmethod
    def step(seconds: float = 1) -> None:
        Clock.now += timedelta(seconds=seconds)


@asynccontextmanager
async def timed(behind: timedelta = timedelta(), **options: Any) -> AsyncIterator[tuple[InProcess, Any]]:
    main, other = MemoryStore(), begun()
    main._now, other._now = Clock(), Clock(behind)
    async with two_logs(main, other, **options) as both:
        yield both


async def mixed(server: InProcess, seed: int, changes: int) -> list[int]:
    """Change objects of both logs in a random order, and return the revisions."""
    draw, made = random.Random(seed), list[int]()
    for number in range(changes):
        if draw.random() < 0.7:
            Clock.step(draw.choice((0.5, 1, 30)))
        path, body = draw.choice(((MAPS, configmap(f"m{number}")), (LEASES, lease(f"l{number}"))))
        made.append(int((await server.post(path, body))["metadata"]["resourceVersion"]))
    return made


def names(listed: Any) -> list[int]:
    return [int(item["metadata"]["name"]) for item in listed["items"]]


def in_order(listed: Any) -> list[tuple[str, int]]:
    return [(item["time"], int(item["metadata"]["name"])) for item in listed["items"]]


async def paged(server: InProcess, path: str, limit: int) -> list[int]:
    found, token = list[int](), ""
    while True:
        page = await server.get(f"{path}&limit={limit}" + (f"&continue={token}" if token else ""))
        assert len(page["items"]) <= limit
        found += names(page)
        token = page["metadata"].get("continue", "")
        if not token:
            return found


@pytest.mark.parametrize("seed", range(4))
async def test_changes_of_all_logs_are_one_list(seed: int) -> None:
    async with timed() as (server, _):
        made = await mixed(server, seed, 40)
        oldest = await server.get(f"{REVISIONS}?order=oldest")
        assert in_order(oldest) == sorted(in_order(oldest))
        assert sorted(names(oldest)) == sorted(made)
        newest = await server.get(REVISIONS)
        assert names(newest) == names(oldest)[::-1]
        assert {int(item["metadata"]["name"]) > SPAN: item.get("database") for item in newest["items"]} == {
            True: DATABASE,
            False: None,
        }
        for limit in (1, 3, 7, 40, 500):
            assert await paged(server, f"{REVISIONS}?order=oldest", limit) == names(oldest)
            assert await paged(server, f"{REVISIONS}?content=states", limit) == names(newest)
        states = await server.get(f"{REVISIONS}?content=states")
        assert [item.get("database") for item in states["items"]] == [item.get("database") for item in newest["items"]]


async def test_pages_are_as_of_the_first_one() -> None:
    async with timed() as (server, _):
        await mixed(server, 1, 10)
        page = await server.get(f"{REVISIONS}?limit=4")
        position = int(page["metadata"]["resourceVersion"])
        assert revisions_of(position).keys() == {0, 1}
        await mixed(server, 2, 0)
        await server.post(LEASES, lease("later"))
        await server.post(MAPS, configmap("later"))
        rest = await server.get(f"{REVISIONS}?limit=500&continue={page['metadata']['continue']}")
        assert len(rest["items"]) == 6
        assert int(rest["metadata"]["resourceVersion"]) == position
        exact = await server.get(f"{REVISIONS}?resourceVersion={position}&resourceVersionMatch=Exact")
        assert names(exact) == [*names(page), *names(rest)]
        await server.ask("GET", f"{REVISIONS}?limit=500&continue={page['metadata']['continue']}&{LEASES_ONLY}")


async def test_a_token_of_other_logs_has_expired() -> None:
    async with timed() as (server, _):
        await mixed(server, 1, 10)
        page = await server.get(f"{REVISIONS}?limit=4&fieldSelector=object.resource%3Dconfigmaps")
        answer = await server.ask("GET", f"{REVISIONS}?limit=4&continue={page['metadata']['continue']}")
        answer.refused(410)


async def test_a_bound_in_one_log_is_a_time_in_the_other() -> None:
    async with timed() as (server, _):
        first = int((await server.post(LEASES, lease("a")))["metadata"]["resourceVersion"])
        Clock.step()
        second = int((await server.post(MAPS, configmap("m")))["metadata"]["resourceVersion"])
        Clock.step()
        third = int((await server.post(LEASES, lease("b")))["metadata"]["resourceVersion"])
        Clock.step()

        async def between(*terms: str) -> list[int]:
            answer = await server.ask("GET", f"{REVISIONS}?order=oldest&fieldSelector={quote(','.join(terms))}")
            if any(term.startswith("revision") and len(term) < 40 for term in terms):
                assert "is of one database" in answer.header("warning")
            return names(answer.ok())

        assert await between(f"revision.from={second}") == [second, third]
        assert await between(f"revision.after={second}") == [third]
        assert await between(f"revision.to={second}", f"revision.from={first}") == [first, second]
        assert await between(f"revision.from={first}", f"revision.to={third}") == [first, second, third]
        # From a revision on is after the one before it: what came between the two in the other log is there.
        assert await between(f"revision.from={third}") == [second, third]
        assert await between(f"revision.after={joined({0: second - 1, 1: third})}") == [second]
        assert (await between(f"revision.to={joined({0: second, 1: first})}"))[-2:] == [first, second]
        assert await between("time.from=2026-01-01", f"metadata.name={third}") == [third]
        answer = await server.ask("GET", f"{REVISIONS}?fieldSelector=revision.after%3D{2 * SPAN + 5}")
        assert "is of a database that this server is not given" in answer.refused(410)["message"]
        one = await server.get(f"{REVISIONS}/{third}")
        assert (one["object"]["name"], one["metadata"]["resourceVersion"], one["database"]) == (
            "b",
            str(third),
            DATABASE,
        )


async def test_the_past_has_both_logs() -> None:
    async with timed() as (server, _):
        await server.post(LEASES, lease("a"))
        Clock.step()
        second = (await server.post(MAPS, configmap("m")))["metadata"]["resourceVersion"]
        Clock.step()
        third = (await server.post(LEASES, lease("b")))["metadata"]["resourceVersion"]
        Clock.step()
        at = f"/history/at/{{}}{REVISIONS}?order=oldest"
        assert names(await server.get(at.format(second)))[-2:] == [SPAN + 1, int(second)]
        assert names(await server.get(at.format(third)))[-1] == int(third)
        moment = (await server.get(f"{REVISIONS}/{second}"))["time"]
        assert names(await server.get(at.format(moment))) == names(await server.get(at.format(second)))


async def events_of(stream: Stream, number: int) -> list[tuple[int, int]]:
    """Return the revisions of the next events, with their positions."""
    found = []
    for _ in range(number):
        one = await stream.next()
        assert one is not None
        metadata = one["object"]["metadata"]
        found.append((int(metadata["name"]), int(metadata["resourceVersion"])))
    return found


async def test_a_watch_merges_what_arrives() -> None:
    async with timed() as (server, _):
        await mixed(server, 1, 6)
        listed = await server.get(REVISIONS)
        start = listed["metadata"]["resourceVersion"]
        async with server.watch(f"{REVISIONS}?watch=1&resourceVersion={start}") as stream:
            made = await mixed(server, 2, 0)
            for number in range(6):
                path, body = (MAPS, configmap(f"w{number}")) if number % 2 else (LEASES, lease(f"w{number}"))
                made.append(int((await server.post(path, body))["metadata"]["resourceVersion"]))
            seen = await events_of(stream, 6)
        assert sorted(revision for revision, _ in seen) == sorted(made)
        places = [position for _, position in seen]
        assert places == sorted(set(places))
        # A client that comes back with the resourceVersion of any event gets exactly the others.
        for number, place in enumerate(places[:-1]):
            async with server.watch(f"{REVISIONS}?watch=1&resourceVersion={place}") as stream:
                rest = await events_of(stream, 5 - number)
                assert {revision for revision, _ in rest} == {revision for revision, _ in seen[number + 1 :]}


async def test_a_change_of_a_late_clock_is_not_missed() -> None:
    """The other database's clock is ten seconds behind. Its next change has an earlier time than one seen already."""
    async with timed(behind=timedelta(seconds=10)) as (server, _):
        await server.post(LEASES, lease("before"))
        await server.post(MAPS, configmap("m"))
        listed = await server.get(REVISIONS)
        late = int((await server.post(LEASES, lease("late")))["metadata"]["resourceVersion"])
        position = listed["metadata"]["resourceVersion"]
        after = await server.get(f"{REVISIONS}?fieldSelector=revision.after%3D{position}")
        assert names(after) == [late]
        async with server.watch(f"{REVISIONS}?watch=1&resourceVersion={position}") as stream:
            assert [revision for revision, _ in await events_of(stream, 1)] == [late]


async def test_a_watch_begins_with_the_newest_of_all_logs() -> None:
    async with timed() as (server, _):
        made = await mixed(server, 3, 8)
        async with server.watch(f"{REVISIONS}?watch=1") as stream:
            seen = await events_of(stream, 8)
            assert [revision for revision, _ in seen] == names(await server.get(f"{REVISIONS}?order=oldest"))
            assert sorted(revision for revision, _ in seen) == sorted(made)
            assert revisions_of(seen[-1][1]).keys() == {0, 1}


async def test_counts_are_of_all_logs() -> None:
    async with timed() as (server, _):
        for number in range(3):
            await server.post(LEASES, lease(f"l{number}"))
            await server.post(MAPS, configmap(f"m{number}"))
            Clock.step(60)
        await server.post(EVENTS, event("e"))
        density = await server.get(f"{REVISIONS}?summary=density&bucket=1m")
        assert {each["name"]: each["count"] for each in density["series"]} == {
            "configmaps": 3,
            "leases.coordination.k8s.io": 3,
            "events": 1,
        }
        assert density["total"] == 7
        assert [bucket["count"] for bucket in density["buckets"]][:3] == [2, 2, 2]
        by_user = await server.get(f"{REVISIONS}?summary=density&by=user")
        assert by_user["series"] == [{"name": "admin", "count": 7}]
        groups = await server.get(f"{REVISIONS}?summary=groups&by=user,operation")
        assert (groups["total"], len(groups["groups"])) == (7, 1)
        (group,) = groups["groups"]
        assert (group["changes"], int(group["last"]) < SPAN, "database" in group) == (7, True, False)
        assert group["others"] == [{"database": DATABASE, "first": str(SPAN + 1), "last": str(SPAN + 4)}]
        leases = await server.get(f"{REVISIONS}?summary=groups&{LEASES_ONLY}&by=operation")
        assert (leases["total"], leases["groups"][0]["database"]) == (3, DATABASE)
        cluster = await server.get(
            "/apis/history.kubechronicle.dev/v1/revisions?summary=groups&by=resource&include=clusterrevisions"
        )
        assert {"namespaces", "leases.coordination.k8s.io"} <= {each["resource"] for each in cluster["groups"]}


async def test_an_extent_tells_what_each_log_has_and_since_when() -> None:
    async with timed() as (server, _):
        await server.post(MAPS, configmap("m"))
        Clock.step(3600)
        await server.post(LEASES, lease("a"))
        extent = await server.get(f"{REVISIONS}?summary=extent&{LEASES_ONLY}")
        assert (extent["searched"]["changes"], extent["complete"], extent["whole"]) == (1, True, True)
        main, other = extent["databases"]
        assert (main["database"], main["held"]["changes"]) == ("main", 0)
        assert (other["database"], other["held"]["changes"], other["since"]["revision"]) == (DATABASE, 1, str(SPAN + 1))
        assert "in the main database, the history has no change of it; it begins at 2026-01-01" in extent["message"]
        assert f"in database {DATABASE}, 1 change was searched" in extent["message"]
        maps = await server.get(f"{REVISIONS}?summary=extent&fieldSelector=object.resource%3Dconfigmaps")
        assert "databases" not in maps
        nobody = await server.get(f"{REVISIONS}?summary=extent&fieldSelector=time.from%3D1m,who.username%3Dbob")
        assert nobody["searched"]["changes"] == 1


async def test_retention_has_a_position_of_all_logs() -> None:
    async with timed() as (server, log):
        await server.post(MAPS, configmap("m"))
        for number in range(4):
            await server.post(LEASES, lease(f"l{number}"))
        whole = await server.get(f"{REVISIONS}?summary=retention")
        assert revisions_of(int(whole["newest"]["revision"]))[1] == SPAN + 4
        log.store.compact(SPAN + 3)
        begun_at = joined({0: 1, 1: SPAN + 1})
        found = await server.get(f"{REVISIONS}?summary=retention&fieldSelector=revision.after%3D{begun_at}")
        assert [(each["database"], each["until"]["revision"]) for each in found["lost"]] == [(DATABASE, str(SPAN + 3))]


async def test_the_main_log_answers_while_the_other_database_is_away() -> None:
    async with timed() as (server, log):
        await server.post(MAPS, configmap("m"))
        await server.post(LEASES, lease("a"))
        log.away = True
        for selector in ("noise=hidden", "object.resource=configmaps"):
            assert names(await server.get(f"{REVISIONS}?fieldSelector={quote(selector)}"))
        table = await server.ask("GET", REVISIONS, headers=[("accept", "application/json;as=Table;v=v1;g=meta.k8s.io")])
        assert table.status == 200
        answer = await server.ask("GET", REVISIONS)
        assert answer.status == 503
        assert (await server.ask("GET", f"{REVISIONS}?summary=density")).status == 503


async def test_a_condition_is_searched_in_both_logs() -> None:
    async with timed() as (server, _):
        await server.post(LEASES, lease("a"))
        Clock.step()
        await server.patch(f"{LEASES}/a", {"spec": {"holderIdentity": "b"}})
        expression = quote("has(self.spec) && self.spec.holderIdentity == 'b'")
        path = f"{REVISIONS}?summary=bisect&watch=1&expression={expression}&{LEASES_ONLY}"
        async with server.watch(path) as stream:
            lines = await stream.rest()
        flips = [each for each in lines if each["type"] == "FLIP"]
        assert [(flip["revision"], flip["database"], flip["holds"]) for flip in flips] == [
            (str(SPAN + 2), DATABASE, True)
        ]
        assert lines[-1]["others"] == [{"database": DATABASE, "after": "0"}]


async def test_a_tree_has_the_newest_events() -> None:
    """Also those after the last change of the main log."""
    async with timed() as (server, _):
        made = await server.post("/api/v1/namespaces/default/pods", POD)
        for number in range(2):
            Clock.step(60)
            about = event(f"e{number}")
            about["involvedObject"]["uid"] = made["metadata"]["uid"]
            await server.post(EVENTS, {**about, "message": f"said {number}"})
        tree = await server.get(f"{REVISIONS}?summary=tree&fieldSelector=object.resource%3Dpods,object.name%3Dp")
        assert [(each["message"], each["database"]) for each in tree["objects"][0]["events"]] == [
            ("said 0", DATABASE),
            ("said 1", DATABASE),
        ]


POD = {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}


async def test_the_readers_of_one_namespace_see_both_logs_of_it() -> None:
    async with timed(namespaces=("default", "n")) as (server, _):
        await server.post("/apis/coordination.k8s.io/v1/namespaces/n/leases", lease("of-n"))
        await server.post(LEASES, lease("of-default"))
        listed = await server.get("/apis/history.kubechronicle.dev/v1/namespaces/n/revisions")
        assert [item["object"]["name"] for item in listed["items"]] == ["of-n"]


async def test_a_watch_of_both_logs_goes_on_while_one_is_away() -> None:
    async with timed() as (server, log):
        position = (await server.get(REVISIONS))["metadata"]["resourceVersion"]
        async with server.watch(f"{REVISIONS}?watch=1&resourceVersion={position}") as stream:
            await server.post(LEASES, lease("unread"))
            log.away = True
            made = int((await server.post(MAPS, configmap("m")))["metadata"]["resourceVersion"])
            assert [revision for revision, _ in await events_of(stream, 1)] == [made]
            log.away = False
            assert [revision for revision, _ in await events_of(stream, 1)] == [SPAN + 1]


async def test_writes_of_both_logs_are_judged_with_the_state_of_their_moment() -> None:
    group = "/apis/admissionregistration.k8s.io/v1"
    rule = {"apiGroups": ["coordination.k8s.io"], "apiVersions": ["v1"], "operations": ["*"], "resources": ["leases"]}
    judged = "object == null || namespaceObject.metadata.labels.team == 'red'"
    policy = {"matchConstraints": {"resourceRules": [rule]}, "validations": [{"expression": judged}]}
    async with timed() as (server, _):
        await server.patch("/api/v1/namespaces/default", {"metadata": {"labels": {"team": "blue"}}})
        Clock.step()
        await server.post(LEASES, lease("early"))
        Clock.step()
        await server.patch("/api/v1/namespaces/default", {"metadata": {"labels": {"team": "red"}}})
        Clock.step()
        await server.post(LEASES, lease("late"))
        await server.post(f"{group}/validatingadmissionpolicies", {"metadata": {"name": "p"}, "spec": policy})
        binding = {"policyName": "p", "validationActions": ["Audit"]}
        path = f"{group}/validatingadmissionpolicybindings"
        await server.post(path, {"metadata": {"name": "p"}, "spec": binding})
        found = await server.get(f"{REVISIONS}?verdicts=audited")
        assert [(each["object"]["name"], each["database"]) for each in found["items"]] == [("early", DATABASE)]
