"""Recorded reads: which requests are recorded, how they are listed, and what happens while the database is away."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio
from in_process import JOE, InProcess, open_server

from kubechronicle.api.audit import policy as policies
from kubechronicle.eventlog.errors import LogUnavailable
from kubechronicle.eventlog.memory.store import MemoryReads
from kubechronicle.eventlog.queries.reads import ReadRecord, Recording
from kubechronicle.http.audit import reads as module
from kubechronicle.http.audit.reads import ReadRecorder
from kubechronicle.ops.server.audit import ReadsPlan

SECRETS = "/api/v1/namespaces/default/secrets"
API = "/apis/history.kubechronicle.dev/v1"
POLICY = b"""\
apiVersion: audit.k8s.io/v1
kind: Policy
rules:
- {level: Metadata, resources: [{group: "", resources: [secrets]}]}
"""


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "INTERVAL", 0.0)
    monkeypatch.setattr(module, "RETRY", 0.01)


@asynccontextmanager
async def recording(tmp_path: Path) -> AsyncIterator[InProcess]:
    policy, _ = policies.load(POLICY)
    plan = ReadsPlan(policy=policy, file=tmp_path / "reads.yaml", content=POLICY, days=0)
    plan.file.write_bytes(POLICY)
    async with open_server(other={"reads": plan}) as server:
        yield server


async def listed(server: InProcess, path: str, count: int) -> list[dict[str, Any]]:
    """Return the items of a list once it has so many."""
    with trio.fail_after(30):
        while True:
            items: list[dict[str, Any]] = (await server.get(f"{API}/{path}"))["items"]
            if len(items) >= count:
                return items
            await trio.lowlevel.checkpoint()


async def test_reads_of_the_policys_resources_are_recorded(tmp_path: Path) -> None:
    async with recording(tmp_path) as server:
        await server.post(SECRETS, {"metadata": {"name": "db"}})
        await server.get(f"{SECRETS}/db", headers={"user-agent": "curl/8"})
        await server.get(SECRETS, headers={"accept": "application/json;as=Table;v=v1;g=meta.k8s.io"})
        await server.get(
            f"{SECRETS}/db", headers={"accept": "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"}
        )
        await server.get("/api/v1/secrets")
        await server.get("/api/v1/namespaces/default/configmaps")
        (await server.ask("GET", f"{SECRETS}/none")).refused(404)
        (await server.ask("GET", f"{SECRETS}/db", token=JOE)).refused(403)
        await server.patch(f"{SECRETS}/db", {})
        await server.patch(f"{SECRETS}/db?dryRun=All", {"metadata": {"labels": {"a": "b"}}})
        await server.patch(f"{SECRETS}/db", {"metadata": {"labels": {"a": "b"}}})
        items = await listed(server, "namespaces/default/reads", 5)
        assert [(item["verb"], item["form"], item["object"].get("name")) for item in items[::-1]] == [
            ("get", "object", "db"),
            ("list", "table", None),
            ("get", "metadata", "db"),
            ("patch", "no-op", "db"),
            ("patch", "dry-run", "db"),
        ]
        get = items[-1]
        assert (get["who"]["username"], get["who"]["userAgent"]) == ("admin", "curl/8")
        assert get["request"]["uri"] == f"{SECRETS}/db"
        (everywhere,) = await listed(server, "clusterreads", 1)
        assert (everywhere["verb"], everywhere["object"]) == ("list", {"resource": "secrets"})


async def test_a_watch_is_recorded_when_it_begins(tmp_path: Path) -> None:
    async with recording(tmp_path) as server, server.watch(f"{SECRETS}?watch=1"):
        (item,) = await listed(server, "namespaces/default/reads", 1)
        assert item["verb"] == "watch"


async def test_reads_are_selected_and_paged(tmp_path: Path) -> None:
    async with recording(tmp_path) as server:
        for name in ("a", "b"):
            await server.post(SECRETS, {"metadata": {"name": name}})
            await server.get(f"{SECRETS}/{name}")
        await server.get(SECRETS)
        await listed(server, "namespaces/default/reads", 3)
        of_a = "namespaces/default/reads?fieldSelector=object.resource%3Dsecrets,object.name%3Da"
        found = [item["object"].get("name") for item in await listed(server, of_a, 2)]
        assert found == [None, "a"]  # the list has shown it, too
        assert not (await server.get(f"{API}/reads?fieldSelector=who.username%3Djoe"))["items"]
        assert not (await server.get(f"{API}/reads?fieldSelector=time.to%3D1h"))["items"]
        assert len((await server.get(f"{API}/reads?fieldSelector=time.from%3D1h"))["items"]) == 3
        page = await server.get(f"{API}/reads?limit=2")
        rest = await server.get(f"{API}/reads?limit=2&continue={page['metadata']['continue']}")
        names = [item["object"].get("name") for item in (*page["items"], *rest["items"])]
        assert names == [None, "b", "a"]
        assert "continue" not in rest["metadata"]


@pytest.mark.parametrize(
    "query",
    [
        "fieldSelector=who.username!%3Djoe",
        "fieldSelector=time.from%3D12",
        "fieldSelector=nope%3D1",
        "labelSelector=a%3Db",
    ],
)
async def test_other_selectors_are_rejected(query: str, tmp_path: Path) -> None:
    async with recording(tmp_path) as server:
        (await server.ask("GET", f"{API}/reads?{query}")).refused(400)


async def test_reads_have_only_lists(tmp_path: Path) -> None:
    async with recording(tmp_path) as server:
        (await server.ask("GET", f"{API}/reads?watch=1")).refused(405)
        (await server.ask("GET", f"{API}/namespaces/default/reads/1")).refused(404)


async def test_the_recording_tells_what_was_recorded(tmp_path: Path) -> None:
    async with recording(tmp_path) as server:
        (item,) = await listed(server, "readrecordings", 1)
    assert item["policy"] == {
        "rules": [{"level": "Metadata", "resources": [{"group": "", "resources": ["secrets"]}]}],
    }
    assert (item["lost"], item["clean"]) == (0, False)


class Away(MemoryReads):
    """Recorded reads whose database can be away."""

    def __init__(self) -> None:
        super().__init__()
        self.away = False
        self.attempts = 0

    async def record(self, reads: Sequence[ReadRecord], recording: Recording) -> None:
        self.attempts += 1
        if self.away:
            raise LogUnavailable("away")
        await super().record(reads, recording)


async def test_reads_wait_while_the_database_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_WAITING", 3)
    policy, _ = policies.load(POLICY)
    database = Away()
    recorder = ReadRecorder(database, policy, revision=lambda: 7)
    context, request = made_read()
    async with trio.open_nursery() as nursery:
        await nursery.start(lambda *, task_status: recorder.run(task_status=task_status))
        database.away, before = True, database.attempts
        for _ in range(5):
            recorder.note(request, context, "object")
        with trio.fail_after(30):
            while database.attempts < before + 3:
                await trio.lowlevel.checkpoint()
        database.away = False
        nursery.cancel_scope.cancel()
    (found,) = await database.recordings(limit=10)
    assert (found.lost, found.clean) == (2, True)
    reads = await database.list(module_query(), limit=10)
    assert [read.revision for read in reads] == [7, 7, 7]


async def test_another_policy_is_another_recording() -> None:
    policy, _ = policies.load(POLICY)
    database = MemoryReads()
    recorder = ReadRecorder(database, policy, revision=lambda: 7)
    async with trio.open_nursery() as nursery:
        await nursery.start(lambda *, task_status: recorder.run(task_status=task_status))
        assert await recorder.reload(POLICY) is False
        assert await recorder.reload(POLICY.replace(b"secrets", b"configmaps"))
        nursery.cancel_scope.cancel()
    found = await database.recordings(limit=10)
    assert [each.clean for each in found] == [True, True]
    assert [each.policy["rules"][0]["resources"][0]["resources"][0] for each in found] == ["configmaps", "secrets"]


def made_read() -> tuple[Any, Any]:
    import time

    from kubechronicle.api.meta.request_info import Query, resolve
    from kubechronicle.http.context import Context
    from kubechronicle.http.messages import Request

    request = Request.of("GET", f"{SECRETS}/db")
    info = resolve("GET", request.path, Query(""))
    context = Context(info=info, query=Query(""), audit_id="x", deadline=0.0, received=time.time())
    return context, request


def module_query() -> Any:
    from kubechronicle.eventlog.queries.reads import ReadQuery

    return ReadQuery()
