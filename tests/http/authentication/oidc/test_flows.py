"""Tokens on the wire, with real providers over TLS: key rotation, slow and broken answers."""

from __future__ import annotations

import logging
import random
import time
from typing import Any

import pytest
import trio
import trio.testing
from openid_provider import Key
from openid_server import PATIENCE, StartProvider, StartServer, jwt_plan

from kubechronicle.http.authentication.oidc import provider as provider_module
from kubechronicle.http.authentication.oidc.configuration import (
    ClaimOrExpression,
    ExtraMapping,
    PrefixedClaimOrExpression,
)
from kubechronicle.http.messages import Response

KEYS, WELL_KNOWN = "/keys", "/.well-known/openid-configuration"
TOKEN_REVIEWS = "/apis/authentication.k8s.io/v1/tokenreviews"


async def test_a_token_authenticates_its_user(provider: StartProvider, believing: StartServer) -> None:
    served = await provider()
    mapped = {
        "uid": ClaimOrExpression(claim="oid"),
        "extra": (ExtraMapping(key="example.org/t", value_expression="claims.tid"),),
    }
    async with believing(jwt_plan(served.config(**mapped))) as server:
        token = served.provider.token(groups=["a", "b"], oid="7", tid="blue", jti="x")
        expected = {
            "username": "oidc:jane",
            "uid": "7",
            "groups": ["oidc:a", "oidc:b", "system:authenticated"],
            "extra": {"authentication.kubernetes.io/credential-id": ["JTI=x"], "example.org/t": ["blue"]},
        }
        assert await server.user(token) == await server.user(token) == expected
        assert served.provider.requests == {WELL_KNOWN: 1, KEYS: 1}
        await server.inner.get("/version", token=token)
        issuer = {"result": "success", "jwt_issuer_hash": _hash(served.provider.issuer)}
        assert await server.metric("jwt_authenticator_latency_seconds_count", **issuer) == 1


def _hash(text: str) -> str:
    import hashlib

    return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"


async def test_a_review_has_the_user_or_the_error(provider: StartProvider, believing: StartServer) -> None:
    served = await provider()
    async with believing(jwt_plan(served.config())) as server:

        async def review(token: str, **spec: Any) -> dict[str, Any]:
            answer = await server.inner.post(TOKEN_REVIEWS, {"spec": {"token": token, **spec}})
            return dict(answer["status"])

        ours = "https://kubernetes.default.svc.cluster.local"
        answer = await review(served.provider.token())
        assert (answer["authenticated"], answer["user"]["username"]) == (True, "oidc:jane")
        assert answer["audiences"] == [ours]
        other = await review(served.provider.token(), audiences=["somebody"])
        assert "authenticated" not in other
        late = await review(served.provider.token(exp=5))
        assert "token is expired" in late["error"]


@pytest.mark.parametrize(
    ("key", "header", "claims"),
    [
        (None, {"alg": "none"}, {}),
        (None, {"alg": "HS256"}, {}),
        (None, {"alg": "RS512"}, {}),
        (None, {"alg": "PS256"}, {}),
        (None, {"crit": ["exp"]}, {}),
        (Key(number=1, key_id="RS256-0"), {}, {}),
        (Key(number=1), {"kid": None}, {}),
        (Key("ES256", key_id="RS256-0"), {}, {}),
        (None, {"kid": "nobody's"}, {}),
        (None, {}, {"exp": None}),
        (None, {}, {"exp": 1}),
        (None, {}, {"nbf": 4_000_000_000}),
        (None, {}, {"aud": "other"}),
        (None, {}, {"aud": None}),
        (None, {}, {"iss": "https://evil.example.com"}),
        (None, {}, {"iss": None}),
        (None, {}, {"sub": None}),
        (None, {}, {"sub": 5}),
        (None, {}, {"groups": 5}),
        (None, {}, {"pad": "x" * 20_000}),
    ],
)
async def test_a_wrong_token_is_rejected(
    provider: StartProvider, believing: StartServer, key: Key | None, header: dict[str, Any], claims: dict[str, Any]
) -> None:
    served = await provider()
    async with believing(jwt_plan(served.config())) as server:
        await server.refused(served.provider.token(key=key, header=header, **claims))
        assert (await server.user(served.provider.token()))["username"] == "oidc:jane"


async def test_random_and_mutated_tokens_are_rejected(provider: StartProvider, believing: StartServer) -> None:
    served = await provider()
    random_ = random.Random(5)
    async with believing(jwt_plan(served.config())) as server:
        good = [served.provider.token(sub=f"user-{number}") for number in range(5)]
        alphabet = good[0] + ".._-~ "
        for number in range(1000):
            token = list(good[number % 5])
            for _ in range(random_.randint(1, 4)):
                place = random_.randrange(len(token))
                match random_.randrange(3):
                    case 0:
                        token[place] = random_.choice(alphabet)
                    case 1:
                        del token[place]
                    case _:
                        token.insert(place, random_.choice(alphabet))
            text = "".join(token)
            if text.strip() not in good:
                answer = await server.ask(text)
                assert answer.status == 401, text
        assert served.provider.requests[KEYS] <= 1 + provider_module.REFETCHES + 20


async def test_a_new_key_is_fetched_when_it_is_first_seen(
    provider: StartProvider, believing: StartServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(provider_module, "REFETCHES", 10)
    served = await provider()
    async with believing(jwt_plan(served.config())) as server:
        old = served.provider.token()
        await server.user(old)
        served.provider.keys.append(Key("ES256"))
        for _ in range(3):
            assert (await server.user(served.provider.token()))["username"] == "oidc:jane"
        await server.user(old)
        assert served.provider.requests[KEYS] == 2
        # The provider withdraws the old key: cached tokens with it are rejected as well.
        served.provider.keys = [Key("ES256"), Key("ES384")]
        await server.user(served.provider.token())
        await server.refused(old)
        served.provider.keys = [Key(number=3, key_id="RS256-0")]
        await server.user(served.provider.token())


async def test_concurrent_requests_share_one_fetch(provider: StartProvider, believing: StartServer) -> None:
    served = await provider()
    async with believing(jwt_plan(served.config())) as server:
        await server.user(served.provider.token())  # the first token has the keys fetched
        served.provider.keys.append(Key("ES256"))
        gate = served.provider.blocked[KEYS] = trio.Event()
        seen: list[str] = []

        async def ask(number: int) -> None:
            seen.append((await server.user(served.provider.token(sub=f"u{number}")))["username"])

        async with trio.open_nursery() as nursery:
            for number in range(20):
                nursery.start_soon(ask, number)
            old = served.provider.token(key=Key())
            with trio.fail_after(PATIENCE):
                while served.provider.requests[KEYS] < 2:
                    await server.user(old)  # a token with a known key does not wait
                    await trio.lowlevel.checkpoint()
            assert not seen
            gate.set()
        assert len(seen) == 20
        assert served.provider.requests[KEYS] == 2


async def test_a_fetch_survives_the_cancellation_of_its_first_request(
    provider: StartProvider, believing: StartServer
) -> None:
    """The first request is cancelled during the fetch. A request that waits for the same keys succeeds."""
    served = await provider()
    async with believing(jwt_plan(served.config())) as server, trio.open_nursery() as nursery:
        await server.user(served.provider.token())
        served.provider.keys.append(Key("ES256"))
        gate = served.provider.blocked[KEYS] = trio.Event()
        impatient = trio.CancelScope()

        async def leave() -> None:
            with impatient:
                await server.ask(served.provider.token(sub="impatient"))

        async def stay() -> None:
            assert (await server.user(served.provider.token(sub="patient")))["username"] == "oidc:patient"

        nursery.start_soon(leave)
        with trio.fail_after(PATIENCE):
            while served.provider.requests[KEYS] < 2:
                await trio.testing.wait_all_tasks_blocked()
        nursery.start_soon(stay)
        await trio.testing.wait_all_tasks_blocked()
        impatient.cancel()
        await trio.testing.wait_all_tasks_blocked()
        gate.set()
    assert served.provider.requests[KEYS] == 2


async def test_unknown_keys_cause_few_fetches(provider: StartProvider, believing: StartServer) -> None:
    served = await provider()
    async with believing(jwt_plan(served.config())) as server:
        (issuer,) = server.jwt._generation.issuers.values()
        now = issuer.provider._now()
        issuer.provider._now = lambda: now
        assert KEYS not in served.provider.requests
        for number in range(100):
            await server.refused(served.provider.token(header={"kid": f"random-{number}"}))
        assert served.provider.requests[KEYS] == provider_module.REFETCHES
        served.provider.keys = [Key("ES256")]
        await server.refused(served.provider.token())
        now += provider_module.REFETCH_INTERVAL
        await server.user(served.provider.token())
        assert served.provider.requests[KEYS] == 1 + provider_module.REFETCHES


async def test_known_keys_stay_while_the_provider_is_down(provider: StartProvider, believing: StartServer) -> None:
    served = await provider()
    async with believing(jwt_plan(served.config())) as server:
        await server.user(served.provider.token())
        for broken in (
            {"status": 500},
            {"status": 404},
            {"pages": {KEYS: _says(b"<html>")}},
            {"pages": {KEYS: _says(b"{}")}},
        ):
            for name, value in broken.items():
                setattr(served.provider, name, value)
            await server.refused(served.provider.token(key=Key("ES256")))
            assert (await server.user(served.provider.token(jti=str(broken))))["username"] == "oidc:jane"
            served.provider.status, served.provider.pages = 200, {}
        issuer = _hash(served.provider.issuer)
        for result in ("success", "failure"):
            labels = {"result": result, "jwt_issuer_hash": issuer, "apiserver_id_hash": ""}
            name = "jwt_authenticator_jwks_fetch_last_timestamp_seconds"
            assert (await server.metric(name, **labels) or 0) > time.time() - 60
        labels = {"jwt_issuer_hash": issuer, "apiserver_id_hash": "", "hash": _hash(served.provider.key_set().decode())}
        assert await server.metric("jwt_authenticator_jwks_fetch_last_key_set_info", **labels) == 1


def _says(body: bytes) -> Any:
    return lambda request: Response(200, [("content-type", "text/html")], body)


async def test_all_tokens_are_rejected_before_discovery(provider: StartProvider, believing: StartServer) -> None:
    served = await provider()
    gate = served.provider.blocked[WELL_KNOWN] = trio.Event()
    async with believing(jwt_plan(served.config()), wait=False) as server:
        await server.refused(served.provider.token())
        gate.set()
        await server.ready()
        await server.user(served.provider.token())


@pytest.mark.parametrize(
    "broken",
    [
        {"discovery": {"issuer": "https://other"}},
        {"discovery": {"issuer": ""}},
        {"discovery": {"issuer": None}},
        {"discovery": {"jwks_uri": ""}},
        {"discovery": {"jwks_uri": None}},
        {"discovery": {"jwks_uri": 5}},
        {"discovery": {"jwks_uri": "http://localhost/keys"}},
        {"discovery": {"jwks_uri": "file:///etc/passwd"}},
        {"discovery": {"jwks_uri": "https://[x"}},
        {"pages": {WELL_KNOWN: _says(b"<html>")}},
        {"status": 503},
        {"pages": {WELL_KNOWN: _says(b"[]")}},
        {"pages": {WELL_KNOWN: _says(b"x" * (2 << 20))}},
    ],
)
async def test_discovery_is_retried_after_an_invalid_answer(
    provider: StartProvider, believing: StartServer, monkeypatch: pytest.MonkeyPatch, broken: dict[str, Any]
) -> None:
    monkeypatch.setattr(provider_module, "DISCOVERY_INTERVAL", 0.01)
    served = await provider(**broken)
    async with believing(jwt_plan(served.config()), wait=False) as server:
        with trio.fail_after(PATIENCE):
            while served.provider.requests.get(WELL_KNOWN, 0) < 2:
                await server.refused(served.provider.token())
                await trio.lowlevel.checkpoint()
        served.provider.discovery, served.provider.pages, served.provider.status = {}, {}, 200
        await server.ready()
        await server.user(served.provider.token())


async def test_a_provider_with_another_certificate_is_not_trusted(
    provider: StartProvider, believing: StartServer, authority: Any, tmp_path_factory: pytest.TempPathFactory
) -> None:
    served = await provider()
    stranger = type(authority)(tmp_path_factory.mktemp("stranger"), "stranger")
    for ca in (stranger.file.read_text(), ""):
        async with believing(jwt_plan(served.config(certificate_authority=ca)), wait=False) as server:
            await server.refused(served.provider.token())
    assert not served.provider.requests


async def test_the_discovery_url_may_differ(provider: StartProvider, believing: StartServer) -> None:
    served = await provider()
    origin = served.provider.issuer
    served.provider.issuer = "https://issuer.example.com/tenant"
    served.provider.discovery = {"jwks_uri": f"{origin}/keys"}
    config = served.config(discovery_url=f"{origin}/elsewhere{WELL_KNOWN}")
    async with believing(jwt_plan(config)) as server:
        await server.user(served.provider.token())
    assert served.provider.requests == {f"/elsewhere{WELL_KNOWN}": 1, KEYS: 1}


@pytest.mark.parametrize(
    ("path", "discovery"), [("/tenant", "/tenant" + WELL_KNOWN), ("/tenant/", "/tenant" + WELL_KNOWN)]
)
async def test_an_issuer_may_have_a_path(
    provider: StartProvider, believing: StartServer, path: str, discovery: str
) -> None:
    served = await provider(path)
    async with believing(jwt_plan(served.config())) as server:
        await server.user(served.provider.token())
        await server.refused(served.provider.token(iss=served.provider.issuer.rstrip("/") + "//"))
    assert served.provider.requests == {discovery: 1, KEYS: 1}


async def test_an_issuer_is_trusted_for_its_own_tokens_only(provider: StartProvider, believing: StartServer) -> None:
    one, other = await provider(), await provider(keys=[Key("ES384")])
    several = {"audiences": ("x", "my-client"), "audience_match_policy": "MatchAny"}
    named = other.config(username=PrefixedClaimOrExpression(claim="sub", prefix="other:"), **several)
    async with believing(jwt_plan(one.config(), named)) as server:
        assert (await server.user(one.provider.token()))["username"] == "oidc:jane"
        assert (await server.user(other.provider.token()))["username"] == "other:jane"
        assert (await server.user(other.provider.token(aud=["x", "y"])))["username"] == "other:jane"
        await server.refused(one.provider.token(aud="x"))
        await server.refused(one.provider.token(iss=other.provider.issuer))
        await server.refused(other.provider.token(iss=one.provider.issuer))
        await server.refused(one.provider.token(key=Key("ES384")))


async def test_the_algorithms_may_be_restricted(provider: StartProvider, believing: StartServer) -> None:
    keys = [Key("RS256"), Key("ES256"), Key("PS256")]
    served = await provider(keys=keys)
    async with believing(jwt_plan(served.config(), algorithms=frozenset({"RS256", "PS256"}))) as server:
        await server.user(served.provider.token(key=keys[0]))
        await server.user(served.provider.token(key=keys[2]))
        await server.refused(served.provider.token(key=keys[1]))


async def test_a_cached_token_expires(provider: StartProvider, believing: StartServer) -> None:
    served = await provider()
    async with believing(jwt_plan(served.config())) as server:
        now = time.time()
        server.jwt._clock = lambda: now
        token = served.provider.token(exp=int(now) + 10)
        await server.user(token)
        now += 9
        await server.user(token)
        now += 2
        await server.refused(token)


async def test_the_log_has_the_reason_and_no_token(
    provider: StartProvider, believing: StartServer, caplog: pytest.LogCaptureFixture
) -> None:
    served = await provider()
    caplog.set_level(logging.INFO)
    async with believing(jwt_plan(served.config())) as server:
        tokens = [served.provider.token(exp=number) for number in range(1, 40)]
        for token in tokens:
            await server.refused(token)
    refusals = [record for record in caplog.records if record.getMessage() == "Refused a token"]
    assert 1 <= len(refusals) < 20
    assert "oidc: verify token: oidc: token is expired" in vars(refusals[0])["err"]
    everything = " ".join(str(vars(record)) for record in caplog.records)
    assert not any(part in everything for token in tokens for part in token.split(".")[1:])
