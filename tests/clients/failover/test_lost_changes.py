"""A server with a primary and an asynchronous standby: restarts, and a promotion that loses changes, as operators see
them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import postgres_fixture
import pytest
from harness import Server, configmap, eventually, home, server_in
from outages.standby import promote, standby_of, stop_replication, wait_replayed
from postgres_fixture import PostgresServer

MAPS = "/api/v1/namespaces/lost/configmaps"


@pytest.fixture
def primary() -> Iterator[PostgresServer]:
    with postgres_fixture.running("fsync=off") as server:
        yield server


@pytest.fixture
def directory() -> Iterator[Path]:
    with home("lost") as directory:
        yield directory


def ready(server: Server) -> bool:
    with closing(server.api()) as api:
        return api.request("GET", "/readyz").status == 200


def reason(server: Server) -> str:
    with closing(server.api()) as api:
        return api.request("GET", "/readyz/log").body.decode()


def test_a_lost_primary_and_lost_changes_are_told(primary: PostgresServer, directory: Path) -> None:
    with standby_of(primary) as standby:
        url = f"postgresql://postgres@127.0.0.1:{primary.port},127.0.0.1:{standby.port}/postgres"
        server = server_in(directory / "data", database_url=url)
        try:
            check(server.start(), primary, standby)
        finally:
            server.close()


def check(server: Server, primary: PostgresServer, standby: PostgresServer) -> None:
    api = server.api()
    api.namespace("lost")
    api.create(MAPS, configmap("kept"))
    wait_replayed(primary, standby)

    # The primary is away: the standby is not used, and /readyz says why.
    primary.kill9()
    eventually(lambda: not ready(server), "the server is not ready without a primary")
    assert "no writable primary" in reason(server)
    assert api.request("GET", f"{MAPS}/kept").status == 503
    primary.start()
    eventually(lambda: ready(server), "the server is ready again")
    api.create(MAPS, configmap("kept-too"))
    log = server.new_log()
    assert log.count("database lost") == log.count("database back after") == 1, log

    # The standby is promoted without the last changes.
    wait_replayed(primary, standby)
    stop_replication(standby)
    lost = [api.create(MAPS, configmap(f"lost-{number}")) for number in range(3)]
    watch = server.watch(f"{MAPS}?watch=1&resourceVersion={lost[0]['metadata']['resourceVersion']}")
    assert [event["object"]["metadata"]["name"] for _, event in watch.take(2)] == ["lost-1", "lost-2"]
    primary.kill9()
    promote(standby)
    ended = watch.next()
    assert (ended["type"], ended["object"]["code"]) == ("ERROR", 410)
    watch.close()
    eventually(lambda: ready(server), "the server is ready on the new primary")
    names = {item["metadata"]["name"] for item in api.get(MAPS)["items"]}
    assert names == {"kept", "kept-too"}
    api.create(MAPS, configmap("lost-0"))

    log = server.new_log()
    assert log.count('"the database went back') == 1, log
    assert all(f"configmaps lost/lost-{number}" in log for number in range(3)), log
    assert "crashed" not in log
    metrics = api.request("GET", "/metrics").body.decode()
    assert "kubechronicle_log_went_back_total 1\n" in metrics
    assert "kubechronicle_lost_changes_total" in metrics

    def told() -> bool:
        events = api.get("/api/v1/namespaces/default/events")["items"]
        return any(one["reason"] == "ChangesLost" and "lost/lost-2" in one["message"] for one in events)

    eventually(told, "an Event names the lost objects")
    verified = json.loads(api.request("GET", f"{MAPS}/lost-0").body)
    assert verified["metadata"]["uid"] != lost[0]["metadata"]["uid"]
