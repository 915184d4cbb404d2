"""Two databases (docs/databases.md) restored to one moment, by point-in-time recovery and from backups, and to two."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace

import postgres_fixture
import pytest
from harness import Api, configmap, home
from outages.archived import ARCHIVING, recovered, save_base, save_wal
from outages.standby import psql
from postgres_fixture import PostgresServer
from test_databases import REVISIONS, Databases, lease, names, started

from kubechronicle.eventlog.layout import SPAN

SHOP = "/apis/coordination.k8s.io/v1/namespaces/shop/leases"
LATE = SHOP.replace("shop", "late")
MAPS = "/api/v1/namespaces/shop/configmaps"
BUMP = 10**9


@dataclass
class Saved:
    """Two databases with base backups and WAL, and with backups, which were written one after the other.

    ``moment``: between two writes. ``known``: the changes of the namespace shop up to there.
    ``lost_lease``, ``lost_map``: the revisions of later changes; that of the map is between the two backups.
    ``saved_as``: the outputs of the commands that wrote the backups, that of the other database first.
    """

    both: Databases
    moment: str
    known: list[str]
    lost_lease: str
    lost_map: str
    saved_as: list[str]


def history(api: Api) -> list[str]:
    shop = REVISIONS.replace("default", "shop")
    listed = api.get(f"{shop}?order=oldest&fieldSelector=noise%3Dshown")
    return [item["metadata"]["name"] for item in listed["items"]]


@pytest.fixture(scope="module")
def saved() -> Iterator[Saved]:
    archiving = postgres_fixture.running(*ARCHIVING)
    with home("restored") as directory, archiving as main, postgres_fixture.running(*ARCHIVING) as other:
        both = Databases(directory, main, other)
        for database in (main, other):
            save_base(database)
        with started(both.server("server")) as (server,), closing(server.api()) as api:
            api.namespace("shop")
            api.create(SHOP, lease("till"))
            api.create(MAPS, configmap("cart"))
            known, moment = history(api), psql(main, "select clock_timestamp()")
            api.namespace("late")
            lost_lease = api.create(LATE, lease("late"))["metadata"]["resourceVersion"]
            saved_as = [back_up(both, main=False)]
            lost_map = api.create(MAPS, configmap("last"))["metadata"]["resourceVersion"]
            saved_as.append(back_up(both, main=True))
        for database in (main, other):
            save_wal(database)
        yield Saved(both, moment, known, lost_lease, lost_map, saved_as)


def back_up(both: Databases, *, main: bool) -> str:
    done = both.run("backup", "--output", str(both.directory / f"{main}.backup.gz"), main=main)
    assert done.returncode == 0, done.stderr
    return done.stdout


def bump(both: Databases, *, main: bool) -> None:
    done = both.run("bump-revisions", main=main)
    assert (done.returncode, "410 Expired" in done.stdout) == (0, True), done.stderr


def expired(api: Api, path: str, revision: str) -> bool:
    watched = api.request("GET", f"{path}?watch=1&resourceVersion={revision}&timeoutSeconds=1")
    return b'"code":410' in watched.body


@contextmanager
def restarted(both: Databases) -> Iterator[tuple[Api, list[str]]]:
    """Start the same server on restored databases; return the lines about their differences, too."""
    server = both.server("server")
    server.new_log()
    with started(server), closing(server.api()) as api:
        yield api, [line for line in server.new_log().splitlines() if "--database-url-overrides: " in line]


def test_both_are_recovered_to_one_moment(saved: Saved) -> None:
    with recovered(saved.both.main, saved.moment) as main, recovered(saved.both.other, saved.moment) as other:
        both = replace(saved.both, main=main, other=other)
        for each in (True, False):
            bump(both, main=each)
        with restarted(both) as (api, differences):
            assert differences == []
            assert (names(api, SHOP), names(api, LATE), names(api, MAPS)) == (["till"], [], ["cart"])
            assert api.request("GET", "/api/v1/namespaces/late").status == 404
            assert history(api) == saved.known
            # Clients of both logs are told that changes which they know are lost; new changes have other numbers.
            assert expired(api, SHOP, saved.lost_lease)
            assert expired(api, MAPS, saved.lost_map)
            later = [api.create(SHOP, lease("new")), api.create(MAPS, configmap("new"))]
            numbers = [int(each["metadata"]["resourceVersion"]) for each in later]
            assert [number > floor + BUMP for number, floor in zip(numbers, (SPAN, 0), strict=True)] == [True, True]
            assert history(api) == [*saved.known, *map(str, numbers)]
            assert names(api, f"/history/at/{saved.known[-1]}{SHOP}") == ["till"]
            refused = both.run("bump-revisions")
            assert (refused.returncode, "stop all servers first" in refused.stderr) == (2, True)
        for each in (True, False):
            done = both.run("verify", main=each)
            assert (done.returncode, "passed over by a restore" in done.stdout) == (0, True), done.stderr


def test_the_main_one_is_recovered_alone(saved: Saved) -> None:
    """The other database is the newer one: the server says so, and objects in absent namespaces can be deleted."""
    with recovered(saved.both.main, saved.moment) as main, recovered(saved.both.other) as other:
        both = replace(saved.both, main=main, other=other)
        bump(both, main=True)
        with restarted(both) as (api, (ends, absent)):
            assert "the main database has just been restored, as of " in ends
            assert "leases.coordination.k8s.io has not: it has changes up to " in ends
            assert "objects in namespaces that do not exist: late (1). " in absent
            assert history(api) == saved.known
            assert api.request("POST", LATE, lease("more")).status == 404
            assert names(api, LATE) == ["late"]
            assert api.request("DELETE", LATE).status == 200
            assert names(api, LATE) == []


def test_both_are_restored_from_backups(saved: Saved) -> None:
    """The backup that was written first names the moment for both."""
    saying = re.match(r"saved revision \d+ of (\S+) to ", saved.saved_as[0])
    assert saying, saved.saved_as
    copies = Databases(saved.both.directory, copy_of(saved.both.main), copy_of(saved.both.other))
    for main in (True, False):
        file = str(copies.directory / f"{main}.backup.gz")
        done = copies.run("restore-backup", file, "--to-time", saying[1], "--bump-revisions", main=main)
        assert done.returncode == 0, done.stderr
    with restarted(copies) as (api, differences):
        assert differences == []
        assert (names(api, SHOP), names(api, LATE), names(api, MAPS)) == (["till"], ["late"], ["cart"])
        assert history(api)[: len(saved.known)] == saved.known
        assert expired(api, MAPS, saved.lost_map)


@dataclass
class Empty:
    """A database by its URL alone."""

    url: str


def copy_of(server: PostgresServer) -> Empty:
    """Make an empty database beside the others of a Postgres."""
    psql(server, "create database restored")
    return Empty(server.url.rpartition("/")[0] + "/restored")
