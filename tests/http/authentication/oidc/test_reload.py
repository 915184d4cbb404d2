"""The AuthenticationConfiguration file changes while the server runs: what counts from when, and what does not."""

from __future__ import annotations

import hashlib
import logging
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing
import yaml
from openid_provider import CLIENT_ID
from openid_server import PATIENCE, Served, Server, StartProvider, StartServer

from kubechronicle.http import reloading
from kubechronicle.http.authentication.oidc import authenticator, configuration
from kubechronicle.http.authentication.oidc.authenticator import JwtPlan
from kubechronicle.http.authentication.oidc.validation import compile_configuration

RELOADS = "apiserver_authentication_config_controller"


@pytest.fixture(autouse=True)
def quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reloading, "POLL_INTERVAL", 0.005)
    monkeypatch.setattr(reloading, "READ_INTERVAL", 0.05)


def content(*served: Served, prefix: str = "one:", **fields: Any) -> bytes:
    jwt = [
        {
            "issuer": {"url": each.provider.issuer, "audiences": [CLIENT_ID], "certificateAuthority": each.ca},
            "claimMappings": {"username": {"claim": "sub", "prefix": prefix}},
        }
        for each in served
    ]
    head = {"apiVersion": "apiserver.config.k8s.io/v1", "kind": "AuthenticationConfiguration"}
    return yaml.safe_dump({**head, "jwt": jwt, **fields}).encode()


class Following:
    """A server that follows a file."""

    def __init__(self, file: Path, believing: StartServer) -> None:
        self.file = file
        self._believing = believing

    def __call__(self, data: bytes) -> AbstractAsyncContextManager[Server]:
        self.file.write_bytes(data)
        config = configuration.parse(data)
        plan = JwtPlan(
            mappers=compile_configuration(config),
            file=self.file,
            content=data,
            anonymous=config.anonymous,
            disallowed=("https://this.server",),
        )
        return self._believing(plan)

    def write(self, data: bytes) -> None:
        """As whoever replaces a file in one step."""
        other = self.file.with_suffix(".new")
        other.write_bytes(data)
        other.replace(self.file)


@pytest.fixture
def following(tmp_path: Path, believing: StartServer) -> Following:
    return Following(tmp_path / "authentication.yaml", believing)


async def reloads(server: Server, status: str) -> float:
    labels = {"status": status, "apiserver_id_hash": ""}
    return await server.inner.metric(f"{RELOADS}_automatic_reloads_total", **labels) or 0.0


async def counted(server: Server, status: str, number: int) -> None:
    """Wait until there have been so many reloads of this outcome."""
    with trio.fail_after(PATIENCE):
        while await reloads(server, status) < number:
            await trio.testing.wait_all_tasks_blocked()


def digest(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


async def in_force(server: Server, data: bytes) -> bool:
    labels = {"apiserver_id_hash": "", "hash": digest(data)}
    return await server.inner.metric(f"{RELOADS}_last_config_info", **labels) == 1


async def test_a_new_file_counts_from_then_on(provider: StartProvider, following: Following) -> None:
    served, other = await provider(), await provider()
    first = content(served)
    async with following(first) as server:
        token = served.provider.token()
        assert (await server.user(token))["username"] == "one:jane"
        assert await in_force(server, first)
        assert await reloads(server, "success") == 0
        second = content(served, other, prefix="two:")
        following.write(second)
        await counted(server, "success", 1)
        assert await in_force(server, second)
        # Whoever was let in before is looked at anew.
        assert (await server.user(token))["username"] == "two:jane"
        assert (await server.user(other.provider.token()))["username"] == "two:jane"
        following.write(content(other))
        await counted(server, "success", 2)
        await server.refused(token)
        assert (await server.user(other.provider.token()))["username"] == "one:jane"
        following.write(content())
        await counted(server, "success", 3)
        await server.refused(other.provider.token())
        labels = {"status": "success", "apiserver_id_hash": ""}
        stamp = await server.inner.metric(f"{RELOADS}_automatic_reload_last_timestamp_seconds", **labels)
        assert stamp is not None
        assert stamp > 1_700_000_000


async def test_issuers_may_be_added_to_a_file_without_any(provider: StartProvider, following: Following) -> None:
    served = await provider()
    async with following(content()) as server:
        await server.refused(served.provider.token())
        following.write(content(served))
        await counted(server, "success", 1)
        assert (await server.user(served.provider.token()))["username"] == "one:jane"


@pytest.mark.parametrize(
    ("bad", "why"),
    [
        (b"", "empty config data"),
        (b"a: [", "yaml: "),
        (b"kind: AuthenticationConfiguration", "apiVersion"),
        (content(unknown="x"), 'unknown field "unknown"'),
        (content(anonymous={"enabled": True}), "anonymous: Forbidden: changed from initial configuration file"),
        (content(jwt=[{"issuer": {"url": "http://x"}}]), "URL scheme must be https"),
        (content(jwt=[{"issuer": {"url": "https://this.server"}}]), "must not overlap with disallowed issuers"),
        (
            content(
                jwt=[
                    {
                        "issuer": {"url": "https://x", "audiences": ["a"], "egressSelectorType": "cluster"},
                        "claimMappings": {"username": {"claim": "sub", "prefix": ""}},
                    }
                ]
            ),
            "oidc: egress lookup required",
        ),
    ],
)
async def test_a_bad_file_leaves_everything_as_it_was(
    provider: StartProvider, following: Following, caplog: pytest.LogCaptureFixture, bad: bytes, why: str
) -> None:
    served = await provider()
    good = content(served)
    async with following(good) as server:
        token = served.provider.token()
        await server.user(token)
        following.write(bad)
        await counted(server, "failure", 1)
        assert why in " ".join(str(vars(record).get("err")) for record in caplog.records)
        assert await in_force(server, good)
        assert (await server.user(token))["username"] == "one:jane"
        asked = served.provider.requests["/keys"]
        following.write(content(served, prefix="better:"))
        await counted(server, "success", 1)
        assert (await server.user(token))["username"] == "better:jane"
        assert served.provider.requests["/keys"] == asked + 1
        assert await reloads(server, "failure") == 1  # a file that can't be right is not tried again and again


async def test_a_file_counts_when_its_providers_answer(
    provider: StartProvider, following: Following, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(authenticator, "UPDATE_TIMEOUT", 0.2)
    served, late = await provider(), await provider(status=503)
    async with following(content(served)) as server:
        token = served.provider.token()
        following.write(content(served, late, prefix="both:"))
        await counted(server, "failure", 2)  # and is tried again
        assert (await server.user(token))["username"] == "one:jane"
        await server.refused(late.provider.token())
        late.provider.status = 200
        await counted(server, "success", 1)
        assert (await server.user(token))["username"] == "both:jane"
        await server.user(late.provider.token())


async def test_a_file_that_is_gone_for_a_while(
    provider: StartProvider, following: Following, caplog: pytest.LogCaptureFixture
) -> None:
    served = await provider()
    caplog.set_level(logging.ERROR)
    async with following(content(served)) as server:
        following.file.unlink()
        await counted(server, "failure", 1)
        await server.user(served.provider.token())
        following.write(content(served))
        following.write(content(served, prefix="back:"))
        await counted(server, "success", 1)
        assert (await server.user(served.provider.token()))["username"] == "back:jane"


async def test_a_configuration_that_is_replaced_leaves_nothing_behind(
    provider: StartProvider, following: Following
) -> None:
    served = await provider()
    async with following(content(served)) as server:
        await server.user(served.provider.token())
        clients = server.jwt._outgoing._clients
        before = len(clients)
        for number in range(1, 5):
            following.write(content(served, prefix=f"{number}:"))
            await counted(server, "success", number)
        with trio.fail_after(PATIENCE):
            while len(clients) != before:
                await trio.testing.wait_all_tasks_blocked()
        metrics = server.jwt.metrics
        assert len(metrics._key_sets) == 1
