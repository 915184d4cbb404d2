"""Events and Leases in a second Postgres (docs/databases.md), with real clients: kubectl, client-go, kills, moves."""

from __future__ import annotations

import contextlib
import io
import json
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import postgres_fixture
import pytest
from harness import BINARIES, Api, Server, configmap, eventually, home, prepare, server_in
from programs import Kubectl
from test_informers import WRITERS, churn

from kubechronicle.eventlog.layout import SPAN
from kubechronicle.ops import cli

LEASES = "/apis/coordination.k8s.io/v1/namespaces/default/leases"
EVENTS = "/api/v1/namespaces/default/events"
MAPS = "/api/v1/namespaces/default/configmaps"
OBJECTS = 60 * WRITERS
DATABASE = "events,leases.coordination.k8s.io"
START_TIMEOUT = 180.0  # seconds: two workers with two databases, on a machine busy with other tests
REVISIONS = "/apis/history.kubechronicle.dev/v1/namespaces/default/revisions"


@dataclass
class Databases:
    """Two databases, and servers on them that share DATA_DIR/pki's keys in no way: each is asked as its own admin."""

    directory: Path
    main: Any
    other: Any

    @property
    def overrides(self) -> list[str]:
        return ["--database-url-overrides", f"/events#{self.other.url},coordination.k8s.io/leases#{self.other.url}"]

    def server(self, name: str, *arguments: str, overridden: bool = True) -> Server:
        more = [*(self.overrides if overridden else []), *arguments]
        return server_in(self.directory / name, database_url=self.main.url, arguments=more)

    def run(self, *command: str, main: bool = True) -> subprocess.CompletedProcess[str]:
        """Run a command on one of the databases."""
        program = Server.command()
        url = self.main.url if main else self.other.url
        return subprocess.run(
            [*program, *command, "--database-url", url], capture_output=True, text=True, timeout=120, check=False
        )

    def move(self, *flags: str) -> subprocess.CompletedProcess[str]:
        return self.run("move-resources", *flags)


@contextmanager
def databases() -> Iterator[Databases]:
    with home("databases") as directory, postgres_fixture.running() as main, postgres_fixture.running() as other:
        yield Databases(directory, main, other)


@contextmanager
def started(*servers: Server) -> Iterator[Sequence[Server]]:
    try:
        for server in servers:
            server.start(timeout=START_TIMEOUT)
        yield servers
    finally:
        for server in servers:
            server.close()


def lease(name: str, holder: str = "a") -> dict[str, Any]:
    return {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": name},
            "spec": {"holderIdentity": holder}}  # fmt: skip


def names(api: Api, path: str) -> list[str]:
    return [item["metadata"]["name"] for item in api.get(path)["items"]]


def renew(api: Api, name: str, holder: str) -> int:
    patch = {"Content-Type": "application/merge-patch+json"}
    body = {"spec": {"holderIdentity": holder}}
    return api.request("PATCH", f"{LEASES}/{name}", body, headers=patch).status


@pytest.fixture(scope="module")
def shared() -> Iterator[tuple[Databases, Server]]:
    with databases() as both, started(both.server("server")) as (server,):
        yield both, server


def test_kubectl_sees_one_cluster(shared: tuple[Databases, Server], tmp_path: Path) -> None:
    prepare("kubectl")
    _, server = shared
    kubectl = Kubectl(str(BINARIES / "kubectl"), server, tmp_path, "default")
    with closing(server.api()) as api:
        api.create(LEASES, lease("one"))
        with kubectl.following("get", "leases", "one", "--watch", "--no-headers") as lines:
            lines.until(lambda line: line.startswith("one "))
            assert renew(api, "one", "b") == 200
            assert lines.until(lambda line: " b " in line)
    kubectl("create", "configmap", "m")
    assert "one" in kubectl("get", "leases")
    kubectl("apply", "--server-side", "-f", "-", stdin=str(lease("applied")))
    kubectl("delete", "lease", "applied")
    done = kubectl.call("get", "revisions")
    assert "Events and Leases are left out" in done.stderr
    found = kubectl("get", "revisions", "--field-selector", "object.resource=leases,object.name=one", "-o", "name")
    assert [int(line.rpartition("/")[2]) > SPAN for line in found.split()] == [True, True]


def test_moments_of_both_logs(shared: tuple[Databases, Server]) -> None:
    _, server = shared
    with closing(server.api()) as api:
        api.create(LEASES, lease("timed", "first"))
        moment = api.create(MAPS, configmap("marks"))["metadata"]["resourceVersion"]
        assert renew(api, "timed", "second") == 200
        past = api.request("GET", f"/history/at/{moment}{LEASES}/timed")
        assert past.expect(200)["spec"]["holderIdentity"] == "first"
        assert "revisions of their own" in past.headers["warning"]


def test_history_is_one_list(shared: tuple[Databases, Server], tmp_path: Path) -> None:
    """Written through one server, read with the commands, with kubectl, and as a feed that goes on."""
    prepare("kubectl")
    _, server = shared
    state, feed = tmp_path / "feed.state", tmp_path / "feed.jsonl"
    with closing(server.api()) as api:
        api.namespace("merged")
        space = "/apis/coordination.k8s.io/v1/namespaces/merged/leases"
        flags = ("--kubeconfig", str(server.kubeconfig), "-n", "merged")
        feeding = ("feed", *flags, "--noise", "--no-follow", "--state", str(state), "--to", f"file:{feed}")
        assert asked(*feeding)[0] == 0
        made = []
        for number in range(6):
            body = lease(f"l{number}") if number % 2 else configmap(f"m{number}")
            path = space if number % 2 else "/api/v1/namespaces/merged/configmaps"
            made.append(api.create(path, body)["metadata"]["resourceVersion"])
        code, text = asked("log", *flags, "--noise", "-o", "json")
        listed = [each["metadata"]["name"] for each in json.loads(text)["items"]]
        assert (code, [name for name in listed if name in made]) == (0, made[::-1])
        assert asked(*feeding)[0] == 0
        fed = [json.loads(line)["metadata"]["name"] for line in feed.read_text().splitlines()]
        assert [name for name in fed if name in made] == made
        code, text = asked("who", "created", "lease/l1", *flags)
        assert (code, f"database  {DATABASE}" in text) == (0, True)
        code, text = asked("who", "deleted", "lease/l1", *flags)
        assert (code, "in the main database, " in text, f"in database {DATABASE}, 1 change" in text) == (1, True, True)
        pages, token = list[str](), ""
        shop = REVISIONS.replace("default", "merged")
        while not pages or token:
            page = api.get(f"{shop}?limit=2&order=oldest&continue={token}")
            pages += [item["metadata"]["name"] for item in page["items"]]
            token = page["metadata"].get("continue", "")
        assert [name for name in pages if name in made] == made
        kubectl = Kubectl(str(BINARIES / "kubectl"), server, tmp_path, "merged")
        with kubectl.following("get", "revisions", "--field-selector", "noise=shown", "-w", "--no-headers") as lines:
            lines.until(lambda line: line.startswith(made[-1]))
            more = [
                api.create(space, lease("more")),
                api.create("/api/v1/namespaces/merged/configmaps", configmap("n")),
            ]
            for each in more:
                lines.until(lambda line, each=each: line.startswith(each["metadata"]["resourceVersion"]))


def asked(*arguments: str) -> tuple[int, str]:
    """Run `kubechronicle …`; return its exit code and output."""
    output, errors = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(errors):
        code = cli.main(arguments)
    assert code != 2, errors.getvalue()
    return code, output.getvalue()


def test_the_second_database_is_killed(shared: tuple[Databases, Server]) -> None:
    both, server = shared
    with closing(server.api()) as api:
        api.create(LEASES, lease("killed"))
        both.other.kill9()
        assert renew(api, "killed", "b") in (500, 503)
        assert api.request("GET", f"{LEASES}/killed").status in (500, 503)
        api.create(MAPS, configmap("meanwhile"))
        assert api.get(f"{REVISIONS}?fieldSelector=noise%3Dhidden")["items"]
        assert api.request("GET", REVISIONS).status in (500, 503)
        assert "meanwhile" in names(api, MAPS)
        assert api.request("GET", "/livez").status == 200
        ready = api.request("GET", "/readyz?verbose")
        assert (ready.status, b"[-]log-override-0" in ready.body, b"[+]log ok" in ready.body) == (500, True, True)
        both.other.start()
        eventually(lambda: renew(api, "killed", "b") == 200, "Leases are written again")
        assert api.get(f"{LEASES}/killed")["spec"]["holderIdentity"] == "b"
        eventually(lambda: api.request("GET", "/readyz").status == 200, "the server is ready")


def test_servers_with_other_overrides_refuse(shared: tuple[Databases, Server]) -> None:
    both, server = shared
    without = both.server("without", overridden=False)
    with pytest.raises(Exception, match="are in another database"):
        without.start()
    without.close()
    swapped = server_in(both.directory / "swapped", database_url=both.other.url)
    with pytest.raises(Exception, match="holds the overridden resources"):
        swapped.start()
    swapped.close()
    with postgres_fixture.running() as third:
        url = f"/events#{both.other.url},coordination.k8s.io/leases#{third.url}"
        elsewhere = server_in(
            both.directory / "elsewhere",
            database_url=both.main.url,
            arguments=["--database-url-overrides", url],
        )
        with pytest.raises(Exception, match="but the given database has log"):
            elsewhere.start()
        elsewhere.close()
    assert "stop all servers first" in both.move(*both.overrides, "--back").stderr
    with closing(server.api()) as api:
        assert api.request("GET", "/readyz").status == 200


def test_each_database_is_verified_and_saved(shared: tuple[Databases, Server], tmp_path: Path) -> None:
    both, _ = shared
    for main in (True, False):
        done = both.run("verify", main=main)
        assert done.returncode == 0, done.stderr
        assert "run this command there, too" in done.stderr
        saved = tmp_path / f"{main}.backup"
        assert both.run("backup", "--output", str(saved), main=main).returncode == 0
    assert "belong to other logs" in both.run("verify", main=False).stdout


def test_two_servers_lose_the_second_database(tmp_path: Path) -> None:
    """Informers of every kind follow, and no revision of either log is missed, while it is killed and restarted."""
    prepare("informers")
    with databases() as both, started(both.server("one"), both.server("two")) as servers:

        def crash() -> None:
            both.other.kill9()
            both.other.start()

        reports = churn(list(servers), tmp_path, seed=6, objects=OBJECTS, disturb=crash)
        assert all(report["watches"]["logs"] == 2 for _, report in reports)
        servers[0].verify()
        assert both.run("verify", main=False).returncode == 0


def test_resources_are_moved_there_and_back() -> None:
    with databases() as both:
        with started(both.server("server", overridden=False)) as (server,), closing(server.api()) as api:
            api.create(LEASES, lease("kept"))
            uid = api.get(f"{LEASES}/kept")["metadata"]["uid"]
        refused = both.server("server")
        with pytest.raises(Exception, match="move-resources"):
            refused.start()
        refused.close()
        done = both.move(*both.overrides)
        assert done.returncode == 0, done.stderr
        with started(both.server("server", "--workers", "2")) as (server,), closing(server.api()) as api:
            kept = api.get(f"{LEASES}/kept")
            assert (kept["metadata"]["uid"], int(kept["metadata"]["resourceVersion"]) > SPAN) == (uid, True)
            # A client knows a revision of the main log: it has to list again.
            watched = api.request("GET", f"{LEASES}?watch=1&resourceVersion=50&timeoutSeconds=5")
            assert b'"code":410' in watched.body
            # Its history is that of both logs, in the order of time, and of the search for a condition, too.
            history = api.get(f"{REVISIONS}?order=oldest&fieldSelector=object.resource%3Dleases,object.name%3Dkept")
            found = [(each["operation"], each.get("database", "")) for each in history["items"]]
            assert found == [("Create", ""), ("Create", DATABASE), ("Delete", "")]
            api.create(LEASES, lease("new"))
            last = api.create(MAPS, configmap("last"))["metadata"]["resourceVersion"]
            recorded = api.get(
                "/apis/history.kubechronicle.dev/v1/clusterrevisions?fieldSelector=object.name%3Doverrides"
            )
            assert recorded["items"][0]["object"]["resource"] == "databases"
        done = both.move(*both.overrides, "--back")
        assert done.returncode == 0, done.stderr
        with started(both.server("server", overridden=False)) as (server,), closing(server.api()) as api:
            assert {"kept", "new"} <= set(names(api, LEASES))
            assert api.get(f"{LEASES}/kept")["metadata"]["uid"] == uid
            former = api.request("GET", f"{REVISIONS}?fieldSelector=object.resource%3Dleases")
            assert "which this server is not given any more" in former.headers["warning"]
            between = api.request("GET", f"/history/at/{last}{LEASES}")
            assert (between.status, b"a database that this server is not given" in between.body) == (410, True)
            stale = api.request("GET", f"{LEASES}?watch=1&resourceVersion={SPAN + 5}&timeoutSeconds=5")
            assert b"Too large resource version" in stale.body
        lost = both.move("--lost", "/events")
        assert (lost.returncode, "has no database" in lost.stderr) == (2, True)
        assert both.run("verify").returncode == both.run("verify", main=False).returncode == 0
