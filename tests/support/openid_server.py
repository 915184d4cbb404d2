"""An OpenID provider behind a listener, and a whole server in this process that trusts it: for tests of JWT issuers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Any

import trio
from in_process import Answer, InProcess
from openid_provider import CLIENT_ID, OpenIdProvider

from kubechronicle.http.authentication.oidc.authenticator import JwtAuthenticators, JwtPlan
from kubechronicle.http.authentication.oidc.configuration import (
    AuthenticationConfiguration,
    ClaimMappings,
    Issuer,
    JWTAuthenticator,
    PrefixedClaimOrExpression,
)
from kubechronicle.http.authentication.oidc.validation import compile_configuration

PATIENCE = 60.0
REVIEW = "/apis/authentication.k8s.io/v1/selfsubjectreviews"


@dataclass
class Served:
    """A provider that accepts connections. ``ca``: the authority of its certificate (PEM)."""

    provider: OpenIdProvider
    ca: str

    def config(self, **parts: Any) -> JWTAuthenticator:
        """Return a plain configuration with these fields of the authenticator or its issuer."""
        names = Issuer.__dataclass_fields__
        issuer = {name: parts.pop(name) for name in list(parts) if name in names}
        usual = {"url": self.provider.issuer, "audiences": (CLIENT_ID,), "certificate_authority": self.ca}
        mappings: dict[str, Any] = {
            "username": PrefixedClaimOrExpression(claim="sub", prefix="oidc:"),
            "groups": PrefixedClaimOrExpression(claim="groups", prefix="oidc:"),
        }
        return authenticator(**{"issuer": Issuer(**{**usual, **issuer}), **mappings, **parts})


def authenticator(**parts: Any) -> JWTAuthenticator:
    """Return an authenticator with these fields; those of ClaimMappings may be among them."""
    names = ClaimMappings.__dataclass_fields__
    mappings = {name: parts.pop(name) for name in list(parts) if name in names}
    return JWTAuthenticator(claim_mappings=ClaimMappings(**mappings), **parts)


def jwt_plan(*configs: JWTAuthenticator, **options: Any) -> JwtPlan:
    return JwtPlan(mappers=compile_configuration(AuthenticationConfiguration(jwt=configs)), **options)


@dataclass
class Server:
    """A whole server, queried for the user of a token."""

    inner: InProcess
    jwt: JwtAuthenticators
    outcomes: list[int] = field(default_factory=list)

    async def ask(self, token: str) -> Answer:
        with trio.fail_after(PATIENCE):
            return await self.inner.ask("POST", REVIEW, {}, token=token)

    async def user(self, token: str) -> dict[str, Any]:
        """Return the userInfo of the token's user."""
        review = (await self.ask(token)).ok()
        return dict(review["status"]["userInfo"])

    async def refused(self, token: str) -> None:
        """Assert that the token is rejected with 401 and no details."""
        answer = (await self.ask(token)).refused(401)
        assert (answer["message"], answer["reason"]) == ("Unauthorized", "Unauthorized")
        assert "details" not in answer

    async def ready(self) -> None:
        with trio.fail_after(PATIENCE):
            await self.jwt.wait_ready()

    async def metric(self, name: str, **labels: str) -> float | None:
        return await self.inner.metric(f"apiserver_authentication_{name}", **labels)


StartProvider = Callable[..., Awaitable[Served]]
StartServer = Callable[..., AbstractAsyncContextManager[Server]]
