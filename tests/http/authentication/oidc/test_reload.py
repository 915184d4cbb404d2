"""Changes of the AuthenticationConfiguration file while the server runs."""

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


class ServeFile:
    """Starts a server that reloads a file."""

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
        """Replace the file atomically."""
        other = self.file.with_suffix(".new")
        other.write_bytes(data)
        other.replace(self.file)


@pytest.fixture
def serve_file(tmp_path: Path, believing: StartServer) -> ServeFile:
    return ServeFile(tmp_path / "authentication.yaml", believing)


async def reloads(server: Server, status: str) -> float:
    labels = {"status": status, "apiserver_id_hash": ""}
    return await server.inner.metric(f"{RELOADS}_automatic_reloads_total", **labels) or 0.0


async def wait_for_reloads(server: Server, status: str, number: int) -> None:
    """Wait until there have been ``number`` reloads with this status."""
    with trio.fail_after(PATIENCE):
        while await reloads(server, status) < number:
            await trio.testing.wait_all_tasks_blocked()


def digest(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


async def is_current(server: Server, data: bytes) -> bool:
    labels = {"apiserver_id_hash": "", "hash": digest(data)}
    return await server.inner.metric(f"{RELOADS}_last_config_info", **labels) == 1


async def test_a_new_file_has_effect_at_once(provider: StartProvider, serve_file: ServeFile) -> None:
    served, other = await provider(), await provider()
    first = content(served)
    async with serve_file(first) as server:
        token = served.provider.token()
        assert (await server.user(token))["username"] == "one:jane"
        assert await is_current(server, first)
        assert await reloads(server, "success") == 0
        second = content(served, other, prefix="two:")
        serve_file.write(second)
        await wait_for_reloads(server, "success", 1)
        assert await is_current(server, second)
        # A cached token is decided again.
        assert (await server.user(token))["username"] == "two:jane"
        assert (await server.user(other.provider.token()))["username"] == "two:jane"
        serve_file.write(content(other))
        await wait_for_reloads(server, "success", 2)
        await server.refused(token)
        assert (await server.user(other.provider.token()))["username"] == "one:jane"
        serve_file.write(content())
        await wait_for_reloads(server, "success", 3)
        await server.refused(other.provider.token())
        labels = {"status": "success", "apiserver_id_hash": ""}
        stamp = await server.inner.metric(f"{RELOADS}_automatic_reload_last_timestamp_seconds", **labels)
        assert stamp is not None
        assert stamp > 1_700_000_000


async def test_issuers_may_be_added_to_a_file_without_any(provider: StartProvider, serve_file: ServeFile) -> None:
    served = await provider()
    async with serve_file(content()) as server:
        await server.refused(served.provider.token())
        serve_file.write(content(served))
        await wait_for_reloads(server, "success", 1)
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
async def test_a_bad_file_keeps_the_former_configuration(
    provider: StartProvider, serve_file: ServeFile, caplog: pytest.LogCaptureFixture, bad: bytes, why: str
) -> None:
    served = await provider()
    good = content(served)
    async with serve_file(good) as server:
        token = served.provider.token()
        await server.user(token)
        serve_file.write(bad)
        await wait_for_reloads(server, "failure", 1)
        assert why in " ".join(str(vars(record).get("err")) for record in caplog.records)
        assert await is_current(server, good)
        assert (await server.user(token))["username"] == "one:jane"
        fetches = served.provider.requests["/keys"]
        serve_file.write(content(served, prefix="better:"))
        await wait_for_reloads(server, "success", 1)
        assert (await server.user(token))["username"] == "better:jane"
        assert served.provider.requests["/keys"] == fetches + 1
        assert await reloads(server, "failure") == 1  # an invalid file is not retried


async def test_a_file_has_effect_once_its_providers_answer(
    provider: StartProvider, serve_file: ServeFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(authenticator, "UPDATE_TIMEOUT", 0.2)
    served, late = await provider(), await provider(status=503)
    async with serve_file(content(served)) as server:
        token = served.provider.token()
        serve_file.write(content(served, late, prefix="both:"))
        await wait_for_reloads(server, "failure", 2)  # it is retried
        assert (await server.user(token))["username"] == "one:jane"
        await server.refused(late.provider.token())
        late.provider.status = 200
        await wait_for_reloads(server, "success", 1)
        assert (await server.user(token))["username"] == "both:jane"
        await server.user(late.provider.token())


async def test_a_file_that_is_missing_for_a_while(
    provider: StartProvider, serve_file: ServeFile, caplog: pytest.LogCaptureFixture
) -> None:
    served = await provider()
    caplog.set_level(logging.ERROR)
    async with serve_file(content(served)) as server:
        serve_file.file.unlink()
        await wait_for_reloads(server, "failure", 1)
        await server.user(served.provider.token())
        serve_file.write(content(served))
        serve_file.write(content(served, prefix="back:"))
        await wait_for_reloads(server, "success", 1)
        assert (await server.user(served.provider.token()))["username"] == "back:jane"


async def test_a_replaced_configuration_is_released(provider: StartProvider, serve_file: ServeFile) -> None:
    served = await provider()
    async with serve_file(content(served)) as server:
        await server.user(served.provider.token())
        clients = server.jwt._outgoing._clients
        before = len(clients)
        for number in range(1, 5):
            serve_file.write(content(served, prefix=f"{number}:"))
            await wait_for_reloads(server, "success", number)
        with trio.fail_after(PATIENCE):
            while len(clients) != before:
                await trio.testing.wait_all_tasks_blocked()
        metrics = server.jwt.metrics
        assert len(metrics._key_sets) == 1
