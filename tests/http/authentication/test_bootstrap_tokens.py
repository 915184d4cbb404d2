"""Bootstrap tokens: a token is accepted only if its Secret keeps all rules."""

from __future__ import annotations

import base64
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from in_process import InProcess, open_server
from trio.testing import MockClock

TOKEN = "abcdef.0123456789abcdef"
SECRETS = "/api/v1/namespaces/kube-system/secrets"
REVIEWS = "/apis/authentication.k8s.io/v1/tokenreviews"
GOOD = {
    "token-id": "abcdef",
    "token-secret": "0123456789abcdef",
    "usage-bootstrap-authentication": "true",
}
NAMESPACES = ("default", "kube-system")


def later(**distance: float) -> str:
    return (datetime.now(UTC) + timedelta(**distance)).strftime("%Y-%m-%dT%H:%M:%SZ")


async def keep(
    server: InProcess,
    data: dict[str, str],
    *,
    kind: str = "bootstrap.kubernetes.io/token",
    name: str = "bootstrap-token-abcdef",
    namespace: str = "kube-system",
    **metadata: Any,
) -> None:
    encoded = {key: base64.b64encode(value.encode()).decode() for key, value in data.items()}
    body = {"metadata": {"name": name, **metadata}, "type": kind, "data": encoded}
    await server.post(f"/api/v1/namespaces/{namespace}/secrets", body)


async def user_of(server: InProcess, token: str = TOKEN) -> Any:
    """Return the UserInfo of the token, None if it is rejected."""
    review = (await server.post(REVIEWS, {"spec": {"token": token}}))["status"]
    status = (await server.ask("GET", "/api/v1/nodes", token=token)).status
    assert status == (403 if review.get("authenticated") else 401)
    assert review.get("error", "invalid bearer token") == "invalid bearer token"
    return review["user"] or None


@pytest.mark.parametrize(
    ("changes", "groups"),
    [
        ({}, ()),
        ({"auth-extra-groups": ""}, ()),
        ({"auth-extra-groups": "system:bootstrappers:b,system:bootstrappers:a:x-1"}, ("b", "a:x-1")),
        ({"expiration": later(days=1)}, ()),  # since collection: the whole suite takes minutes
        ({"expiration": "2999-01-01T00:00:00.5+02:00"}, ()),
    ],
)
async def test_a_node_is_authenticated(autojump_clock: MockClock, changes: Any, groups: Any) -> None:
    async with open_server(bootstrap_tokens=True, namespaces=NAMESPACES) as server:
        assert await user_of(server) is None
        await keep(server, {**GOOD, **changes})
        wanted = sorted(["system:bootstrappers", *(f"system:bootstrappers:{name}" for name in groups)])
        assert await user_of(server) == {
            "username": "system:bootstrap:abcdef",
            "groups": [*wanted, "system:authenticated"],
        }
        for wrong in ("abcdef.0123456789abcdeF", "abcdef.0123456789abcdee", "abcdef.", "abcdeg.0123456789abcdef"):
            assert await user_of(server, wrong) is None
        await server.delete(f"{SECRETS}/bootstrap-token-abcdef")
        assert await user_of(server) is None


@pytest.mark.parametrize(
    "changes",
    [
        {"token-id": "abcdeg"},
        {"token-secret": "0123456789abcdee"},
        {"token-secret": ""},
        {"usage-bootstrap-authentication": "yes"},
        {"usage-bootstrap-authentication": ""},
        {"expiration": later(minutes=-5)},
        {"expiration": "tomorrow"},
        {"expiration": "2999-01-01"},
        {"expiration": "2999-13-01T00:00:00Z"},
        {"auth-extra-groups": "system:masters"},
        {"auth-extra-groups": "system:bootstrappers:a,system:masters"},
        {"auth-extra-groups": "system:bootstrappers:a,"},
        {"auth-extra-groups": "system:bootstrappers:A"},
        {"auth-extra-groups": "system:bootstrappers:a\n"},
        {"auth-extra-groups": "system:bootstrappers"},
    ],
)
async def test_an_invalid_secret_is_rejected(autojump_clock: MockClock, changes: Any) -> None:
    async with open_server(bootstrap_tokens=True, namespaces=NAMESPACES) as server:
        await keep(server, {**GOOD, **changes})
        assert await user_of(server) is None


@pytest.mark.parametrize(
    "options",
    [
        {"kind": "Opaque"},
        {"namespace": "default"},
        {"name": "bootstrap-token-abcdeg"},
    ],
)
async def test_other_secrets_are_rejected(autojump_clock: MockClock, options: Any) -> None:
    async with open_server(bootstrap_tokens=True, namespaces=NAMESPACES) as server:
        await keep(server, GOOD, **options)
        assert await user_of(server) is None


async def test_a_secret_that_is_being_deleted_is_rejected(autojump_clock: MockClock) -> None:
    async with open_server(bootstrap_tokens=True, namespaces=NAMESPACES) as server:
        await keep(server, GOOD, finalizers=["example.com/stay"])
        assert await user_of(server) is not None
        await server.delete(f"{SECRETS}/bootstrap-token-abcdef")
        assert await user_of(server) is None


async def test_bootstrap_tokens_are_disabled_by_default(autojump_clock: MockClock) -> None:
    async with open_server(namespaces=NAMESPACES) as server:
        await keep(server, GOOD)
        assert await user_of(server) is None
