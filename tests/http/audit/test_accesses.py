"""Recorded accesses: refusals, sessions, tokens; what bounds them; and what happens while they cannot be written."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio
from in_process import JOE, InProcess, open_server

from kubechronicle.api.audit import policy as policies
from kubechronicle.api.errors import status
from kubechronicle.api.meta.request_info import Query, resolve
from kubechronicle.http.audit import accesses as module
from kubechronicle.http.audit.accesses import AccessRecorder
from kubechronicle.http.authentication.user import User
from kubechronicle.http.context import Context
from kubechronicle.http.messages import SWITCHED, Request, Response
from kubechronicle.http.reloading import Unusable
from kubechronicle.ops.server.audit import ReadsPlan

RECORDS = "/apis/history.kubechronicle.dev/v1/accessrecords"
SECRETS = "/api/v1/namespaces/default/secrets"
POLICY = b"""\
apiVersion: audit.k8s.io/v1
kind: Policy
rules:
- {level: None, users: [quiet]}
- {level: Metadata}
"""


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "INTERVAL", 0.0)
    monkeypatch.setattr(module, "RETRY", 0.01)


@asynccontextmanager
async def recording(tmp_path: Path) -> AsyncIterator[InProcess]:
    policy, _ = policies.load(POLICY)
    plan = ReadsPlan(policy=policy, file=tmp_path / "record.yaml", content=POLICY, days=0)
    plan.file.write_bytes(POLICY)
    async with open_server(other={"accesses": plan}) as server:
        yield server


async def records(server: InProcess, type_: str, count: int = 1) -> list[dict[str, Any]]:
    """Return the records of a type once there are so many."""
    with trio.fail_after(30):
        while True:
            items = (await server.get(f"{RECORDS}?labelSelector=history.kubechronicle.dev/type={type_}"))["items"]
            if len(items) >= count:
                return [each["spec"] for each in items]
            await trio.lowlevel.checkpoint()


async def test_a_refusal_is_recorded_once_with_its_number(tmp_path: Path) -> None:
    async with recording(tmp_path) as server:
        for _ in range(5):
            answer = await server.ask("DELETE", f"{SECRETS}/db", token=JOE, headers={"user-agent": "curl/8"})
            assert answer.status == 403
        (spec,) = await records(server, "Denied")
        assert (spec["user"], spec["verb"], spec["resource"], spec["name"]) == ("joe", "delete", "secrets", "db")
        assert (spec["namespace"], spec["userAgent"]) == ("default", "curl/8")
        assert "cannot delete resource" in spec["message"]
        listed = await server.get("/apis/history.kubechronicle.dev/v1/clusterrevisions"
                                  "?fieldSelector=object.resource=accessrecords.history.kubechronicle.dev")  # fmt: skip
        assert {each["who"]["username"] for each in listed["items"]} == {"system:apiserver"}
        (recorder_spec,) = await records(server, "Recording")
        assert recorder_spec["policy"]


async def test_an_issued_token_is_recorded_without_its_secret(tmp_path: Path) -> None:
    async with recording(tmp_path) as server:
        await server.post("/api/v1/namespaces/default/serviceaccounts", {"metadata": {"name": "ci"}})
        made = await server.post(
            "/api/v1/namespaces/default/serviceaccounts/ci/token", {"spec": {"expirationSeconds": 600}}
        )
        (spec,) = await records(server, "Token")
        assert (spec["user"], spec["name"], spec["namespace"]) == ("admin", "ci", "default")
        assert spec["expires"] == made["status"]["expirationTimestamp"]
        assert spec["tokenID"]
        assert made["status"]["token"] not in str(spec)
        refused = await server.ask("POST", "/api/v1/namespaces/default/serviceaccounts/ci/token", {}, token=JOE)
        assert refused.status == 403
        (spec,) = await records(server, "Denied")
        assert (spec["resource"], spec["subresource"]) == ("serviceaccounts", "token")


class FakeUpgrade:
    protocol = "SPDY/3.1"

    async def accept(self, headers: Any = ()) -> Any:
        return None

    async def take_over(self) -> Any:
        return None


def session_request(path: str, user: str = "ann") -> tuple[Request, Context]:
    request = Request.of("POST", path)
    request.upgrade = FakeUpgrade()
    query = Query(request.query_string)
    info = resolve("POST", request.path, query)
    return request, Context(info=info, query=query, audit_id="7", received=0.0, user=User(name=user))


def recorder_of(server: InProcess) -> AccessRecorder:
    policy, _ = policies.load(POLICY)
    return AccessRecorder(server.store, policy, server="one")


EXEC = "/api/v1/namespaces/shop/pods/web-1/exec?command=sh&command=-c&command=ls&container=web"


async def test_a_session_has_a_begin_and_an_end() -> None:
    async with open_server() as server, trio.open_nursery() as nursery:
        recorder = recorder_of(server)
        await nursery.start(recorder.run)
        ends = trio.Event()

        async def handler(request: Request, context: Context) -> Response:
            assert request.upgrade is not None
            await request.upgrade.accept()
            await ends.wait()
            return SWITCHED

        nursery.start_soon(recorder.recorded(handler), *session_request(EXEC))
        (spec,) = await records(server, "Session")
        assert (spec["user"], spec["name"], spec["namespace"], spec["subresource"]) == ("ann", "web-1", "shop", "exec")
        assert (spec["command"], spec["container"]) == ("sh -c ls", "web")
        assert spec["began"]
        assert "ended" not in spec
        ends.set()
        with trio.fail_after(30):
            while "ended" not in spec:
                (spec,) = await records(server, "Session")
        nursery.cancel_scope.cancel()


async def test_a_session_that_never_began_is_none() -> None:
    async with open_server() as server, trio.open_nursery() as nursery:
        recorder = recorder_of(server)
        await nursery.start(recorder.run)

        async def handler(request: Request, context: Context) -> Response:
            raise status.bad_request("no such container")

        for user in ("ann", "quiet"):
            with pytest.raises(status.StatusError):
                await recorder.recorded(handler)(*session_request(EXEC, user))
        await records(server, "Recording")
        assert await records(server, "Session", 0) == []
        nursery.cancel_scope.cancel()


def refusing(message: str) -> Any:
    async def handler(request: Request, context: Context) -> Response:
        raise status.forbidden("pods", "x", message)

    return handler


async def test_a_user_has_few_records_a_minute_and_all_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_A_USER", 3)
    async with open_server() as server, trio.open_nursery() as nursery:
        recorder = recorder_of(server)
        for number in range(10):
            request, context = session_request(f"/api/v1/namespaces/shop/pods/{'x' * 400}{number}")
            context.audit_id = str(number)
            with pytest.raises(status.StatusError):
                await recorder.recorded(refusing(f"no {number}"))(request, context)
        await nursery.start(recorder.run)
        found = await records(server, "Denied", 4)
        assert sorted(each.get("count", 1) for each in found) == [1, 1, 1, 7]
        assert all(len(each.get("name", "")) <= 256 for each in found)
        nursery.cancel_scope.cancel()


async def test_what_does_not_fit_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_WAITING", 2)
    async with open_server() as server, trio.open_nursery() as nursery:
        recorder = recorder_of(server)
        for number in range(5):
            with pytest.raises(status.StatusError):
                await recorder.recorded(refusing(f"no {number}"))(*session_request("/api/v1/pods", f"u{number}"))
        monkeypatch.setattr(module, "MOST_WAITING", 10)
        await nursery.start(recorder.run)
        with trio.fail_after(30):
            while (await records(server, "Recording"))[0].get("lost") != 3:
                await trio.lowlevel.checkpoint()
        assert [metric.samples[0].value for metric in recorder.collect()][1] == 3
        nursery.cancel_scope.cancel()


async def test_another_policy_begins_another_recording(tmp_path: Path) -> None:
    async with open_server() as server, trio.open_nursery() as nursery:
        recorder = recorder_of(server)
        await nursery.start(recorder.run)
        (before,) = await records(server, "Recording")
        assert not await recorder.reload(POLICY)
        assert await recorder.reload(POLICY.replace(b"quiet", b"still"))
        with trio.fail_after(30):
            while (await records(server, "Recording"))[0]["policy"] == before["policy"]:
                await trio.lowlevel.checkpoint()
        with pytest.raises(Unusable):
            await recorder.reload(b"kind: Pod")
        nursery.cancel_scope.cancel()


async def test_records_are_read_only_and_bounded(tmp_path: Path) -> None:
    async with recording(tmp_path) as server:
        body = {"metadata": {"name": "denied-000"}, "spec": {"type": "Denied", "user": "someone"}}
        assert (await server.ask("POST", RECORDS, body)).status == 405
        assert module.name_for("Denied", "x").startswith("denied-")
        assert len({module.name_for("Denied", str(number)) for number in range(20_000)}) <= 1000
