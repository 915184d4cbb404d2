"""Distributed groups: the token names the server that holds them."""

from __future__ import annotations

import time
from typing import Any

import pytest
from openid_provider import Key, OpenIdProvider
from openid_server import Served, StartProvider, StartServer, jwt_plan

from kubechronicle.http.authentication.oidc.configuration import (
    PrefixedClaimOrExpression,
)
from kubechronicle.http.messages import Request, Response

KEYS, WELL_KNOWN = "/keys", "/.well-known/openid-configuration"
TOKEN_REVIEWS = "/apis/authentication.k8s.io/v1/tokenreviews"


def _says(body: bytes) -> Any:
    return lambda request: Response(200, [("content-type", "text/html")], body)


def _elsewhere(served: Served, **source: Any) -> dict[str, Any]:
    endpoint = {"endpoint": f"{served.provider.issuer}/groups", "access_token": "let me in", **source}
    return {"_claim_names": {"groups": "src1"}, "_claim_sources": {"src1": endpoint}}


def _gives(provider: OpenIdProvider, seen: list[str] | None = None, **claims: Any) -> Any:
    def page(request: Request) -> Response:
        if seen is not None:
            seen.append(request.headers.get("authorization"))
        return Response(200, [], provider.token(**claims).encode())

    return page


async def test_distributed_groups(provider: StartProvider, believing: StartServer) -> None:
    served = await provider()
    seen: list[str] = []
    served.provider.pages["/groups"] = _gives(served.provider, seen, groups=["a", "b"])
    async with believing(jwt_plan(served.config())) as server:
        now = time.time()
        server.jwt._clock = lambda: now
        token = served.provider.token(**_elsewhere(served))
        for _ in range(3):
            assert (await server.user(token))["groups"] == ["oidc:a", "oidc:b", "system:authenticated"]
        assert seen == ["Bearer let me in"]
        now += 11
        served.provider.pages["/groups"] = _gives(served.provider, seen, groups="only")
        assert (await server.user(token))["groups"] == ["oidc:only", "system:authenticated"]
        bare = served.provider.token(**_elsewhere(served, access_token=None))
        await server.user(bare)
        assert seen[2:] == [""]
        own = served.provider.token(groups=["mine"], **_elsewhere(served))
        assert (await server.user(own))["groups"] == ["oidc:mine", "system:authenticated"]
        assert len(seen) == 3


async def test_distributed_groups_of_another_issuer(provider: StartProvider, believing: StartServer) -> None:
    served, other = await provider(), await provider(keys=[Key("ES512")])
    other.provider.pages["/groups"] = _gives(other.provider, groups=["theirs"])
    async with believing(jwt_plan(served.config())) as server:
        token = served.provider.token(**_elsewhere(other))
        assert (await server.user(token))["groups"] == ["oidc:theirs", "system:authenticated"]
        await server.refused(other.provider.token())  # the issuer of groups is no issuer of users
        other.provider.keys = [Key("ES256")]
        await server.user(served.provider.token(jti="2", **_elsewhere(other)))


@pytest.mark.parametrize("source", [{"endpoint": None}, {"endpoint": ""}, {"endpoint": None, "JWT": "a.b.c"}], ids=str)
async def test_aggregated_groups_are_ignored(provider: StartProvider, believing: StartServer, source: Any) -> None:
    served = await provider()
    async with believing(jwt_plan(served.config())) as server:
        user = await server.user(served.provider.token(**_elsewhere(served, **source)))
        assert user["groups"] == ["system:authenticated"]


async def test_groups_are_not_fetched_without_a_mapping(provider: StartProvider, believing: StartServer) -> None:
    served = await provider()
    async with believing(jwt_plan(served.config(groups=PrefixedClaimOrExpression()))) as server:
        assert (await server.user(served.provider.token(**_elsewhere(served))))["groups"] == ["system:authenticated"]
    assert "/groups" not in served.provider.requests


@pytest.mark.parametrize(
    "page",
    [
        lambda provider: _gives(provider),
        lambda provider: _gives(provider, groups=["a"], aud="other"),
        lambda provider: _gives(provider, groups=["a"], exp=5),
        lambda provider: _gives(provider, groups=["a"], iss="https://localhost:1"),
        lambda provider: _gives(provider, groups=["a"], iss="http://localhost:1"),
        lambda provider: _gives(provider, groups=["a"], key=Key(number=1, key_id="RS256-0")),
        lambda provider: _gives(provider, groups=["a"], header={"alg": "none"}),
        lambda provider: _gives(provider, groups=5),
        lambda provider: _says(b""),
        lambda provider: _says(b'{"groups":["a"]}'),
        lambda provider: lambda request: Response(500, [], b""),
        lambda provider: lambda request: Response(302, [("location", "/keys")], b""),
    ],
)
async def test_untrusted_groups(provider: StartProvider, believing: StartServer, page: Any) -> None:
    served = await provider()
    served.provider.pages["/groups"] = page(served.provider)
    async with believing(jwt_plan(served.config())) as server:
        await server.refused(served.provider.token(**_elsewhere(served)))
        await server.user(served.provider.token())


async def test_groups_are_fetched_over_https_only(provider: StartProvider, believing: StartServer) -> None:
    served = await provider()
    async with believing(jwt_plan(served.config())) as server:
        for endpoint in ("http://localhost/groups", "file:///etc/passwd", "nonsense", "https://"):
            await server.refused(served.provider.token(jti=endpoint, **_elsewhere(served, endpoint=endpoint)))
        await server.refused(served.provider.token(**_elsewhere(served, access_token="a\r\nb: c")))
