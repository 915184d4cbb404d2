"""A provider on a real socket with TLS, and a whole server in this process that trusts it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from in_process import open_server
from openid_provider import OpenIdProvider
from openid_server import Served, Server, StartProvider, StartServer

from kubechronicle.http.authentication.oidc.authenticator import JwtPlan
from kubechronicle.http.authorization.configuration import of_modes
from kubechronicle.http.authorization.current_authorizers import AuthorizationPlan


@pytest.fixture
def provider(wire: Any, authority: Any) -> StartProvider:
    """Return `provider(…fields of OpenIdProvider)`: it serves until the test ends, and its issuer is set."""

    async def start(path: str = "", **fields: Any) -> Served:
        openid_provider = OpenIdProvider(**fields)
        server = await wire(openid_provider)
        openid_provider.issuer = f"https://localhost:{server.server.port}{path}"
        return Served(openid_provider, authority.file.read_text())

    return start


@pytest.fixture
def believing() -> StartServer:
    """Return `async with believing(plan) as server`. The server is ready, unless ``wait`` is false."""

    @asynccontextmanager
    async def start(plan: JwtPlan, *, wait: bool = True, **options: Any) -> AsyncIterator[Server]:
        everything = AuthorizationPlan(configured=of_modes(["AlwaysAllow"]))
        async with open_server(authorization=everything, other={"jwt": plan, **options}) as inner:
            assert inner.assembly.jwt is not None
            server = Server(inner, inner.assembly.jwt)
            if wait:
                await server.ready()
            yield server

    return start
