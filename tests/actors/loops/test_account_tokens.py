"""Tokens of service accounts in Secrets: added, valid for requests, and deleted with the account."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
from in_process import JOE, SERVICE_ACCOUNT_KEY, InProcess, open_server
from trio.testing import MockClock

from kubechronicle.actors.loops.service_account_tokens import AccountTokens
from kubechronicle.eventlog.memory.memory_log import Fault, MemoryLog

ACCOUNTS = "/api/v1/namespaces/default/serviceaccounts"
SECRETS = "/api/v1/namespaces/default/secrets"
BUNDLE = b"-----BEGIN CERTIFICATE-----\nours\n-----END CERTIFICATE-----\n"
NAME, UID = "kubernetes.io/service-account.name", "kubernetes.io/service-account.uid"
LONG = 200.0  # virtual seconds


@asynccontextmanager
async def running(log: MemoryLog | None = None, *, bundle: bytes = BUNDLE) -> AsyncIterator[InProcess]:
    async with open_server(log) as server:
        await server.nursery.start(AccountTokens(server.store, bundle, SERVICE_ACCOUNT_KEY.sign).run)
        yield server


def secret(
    name: str = "s", account: str = "robot", kind: str = "kubernetes.io/service-account-token", **data: str
) -> Any:
    metadata = {"name": name, "annotations": {NAME: account}}
    encoded = {key: base64.b64encode(value.encode()).decode() for key, value in data.items()}
    return {"metadata": metadata, "type": kind, "data": encoded}


async def robot(server: InProcess) -> str:
    made = await server.post(ACCOUNTS, {"metadata": {"name": "robot"}})
    return str(made["metadata"]["uid"])


async def final_secret(server: InProcess, name: str = "s") -> tuple[Any, dict[str, bytes]]:
    """Wait until nothing is left to do. Return the Secret and its data."""
    await trio.sleep(LONG)
    secret_object = await server.get(f"{SECRETS}/{name}")
    return secret_object, {key: base64.b64decode(value) for key, value in (secret_object.get("data") or {}).items()}


async def status_with(server: InProcess, token: bytes) -> int:
    return (await server.ask("GET", "/api/v1/nodes", token=token.decode())).status


async def test_a_secret_for_an_account_gets_its_token(autojump_clock: MockClock) -> None:
    async with running() as server:
        uid = await robot(server)
        await server.post(SECRETS, secret())
        secret_object, data = await final_secret(server)
        assert secret_object["metadata"]["annotations"] == {NAME: "robot", UID: uid}
        assert (data["namespace"], data["ca.crt"]) == (b"default", BUNDLE)
        assert "kube-controller-manager" in {entry["manager"] for entry in secret_object["metadata"]["managedFields"]}
        assert await status_with(server, data["token"]) == 403
        quiet = server.log.store.revision
        await trio.sleep(1000)
        assert server.log.store.revision == quiet
        await server.delete(f"{SECRETS}/s")
        assert await status_with(server, data["token"]) == 401


async def test_existing_data_is_kept(autojump_clock: MockClock) -> None:
    async with running() as server:
        await robot(server)
        await server.post(SECRETS, secret(**{"ca.crt": "theirs", "extra": "x"}))
        _, data = await final_secret(server)
        assert (data["ca.crt"], data["extra"]) == (b"theirs", b"x")
        before = data["token"]
        await server.patch(f"{SECRETS}/s", {"data": {"token": None}})
        _, data = await final_secret(server)
        assert len(data["token"]) > 100
        assert await status_with(server, data["token"]) == 403
        assert (await status_with(server, before) == 403) is (before == data["token"])


async def test_without_an_authority_the_secret_has_none(autojump_clock: MockClock) -> None:
    async with running(bundle=b"") as server:
        await robot(server)
        await server.post(SECRETS, secret())
        _, data = await final_secret(server)
        assert set(data) == {"token", "namespace"}


async def test_a_secret_is_deleted_with_its_account(autojump_clock: MockClock) -> None:
    async with running() as server:
        await robot(server)
        await server.post(SECRETS, secret())
        await server.post(SECRETS, secret("of-nobody", "ghost"))
        await server.post(SECRETS, secret("another-kind", kind="Opaque"))
        _, data = await final_secret(server)
        assert await server.names(SECRETS) == ["another-kind", "s"]
        await server.delete(f"{ACCOUNTS}/robot")
        assert await status_with(server, data["token"]) == 401
        await robot(server)
        await trio.sleep(LONG)
        assert await server.names(SECRETS) == ["another-kind"]


async def test_a_failed_write_is_retried(autojump_clock: MockClock) -> None:
    log = MemoryLog()
    async with running(log) as server:
        await robot(server)
        await server.post(SECRETS, secret())
        log.fail_next("append", Fault.UNAVAILABLE, Fault.LOST_BEFORE_COMMIT)
        _, data = await final_secret(server)
        assert data["token"]


@pytest.mark.parametrize("name", ["", "no such account"])
async def test_a_secret_must_name_an_account(autojump_clock: MockClock, name: str) -> None:
    async with running() as server:
        if not name:
            (await server.ask("POST", SECRETS, secret(account=""), token=JOE)).refused(403)
            (await server.ask("POST", SECRETS, secret(account=""))).refused(422)
            return
        await server.post(SECRETS, secret(account=name))
        await trio.sleep(LONG)
        assert await server.names(SECRETS) == []


async def test_controllers_setting_starts_the_loop(autojump_clock: MockClock) -> None:
    async with open_server(loops=True, controllers=frozenset({"serviceaccount-token"}), root_ca=BUNDLE) as server:
        await robot(server)
        await server.post(SECRETS, secret())
        _, data = await final_secret(server)
        assert await status_with(server, data["token"]) == 403
