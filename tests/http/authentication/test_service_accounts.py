"""Service account tokens in use: valid tokens, and tokens after the deletion of the objects they name."""

from __future__ import annotations

import base64
import contextlib
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import trio
import trio.testing
from cryptography.hazmat.primitives.asymmetric import ec
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from in_process import ADMIN, ISSUER, ISSUER_NAME, PODS, SERVICE_ACCOUNT_KEY, InProcess, open_server
from service_account_tokens import (
    ACCOUNTS,
    NAME,
    REVIEWS,
    SECRETS,
    bound_to,
    claims_of,
    is_authenticated,
    pod_of_robot,
    request_token,
    robot,
    signed,
    token_of,
)
from trio.testing import MockClock

from kubechronicle.api.access import account_tokens
from kubechronicle.eventlog.memory.store import MemoryStore
from kubechronicle.http.authentication import jws, legacy_tokens, service_accounts
from kubechronicle.http.authentication.bootstrap_tokens import BootstrapTokens
from kubechronicle.http.authentication.chain import AuthenticationChain
from kubechronicle.http.authentication.service_accounts import ServiceAccountTokens
from kubechronicle.http.authentication.user import ANONYMOUS_USER, CredentialRejected

# -- deletion of named objects --------------------------------------------------------------------------------------

BINDABLE = {
    "Pod": (PODS, pod_of_robot()),
    "Secret": (SECRETS, {"metadata": {"name": "p"}}),
    "Node": ("/api/v1/nodes", {"metadata": {"name": "p"}}),
}


@pytest.mark.parametrize("kind", BINDABLE)
async def test_a_token_is_invalid_once_its_bound_object_is_deleted(autojump_clock: MockClock, kind: str) -> None:
    collection, body = BINDABLE[kind]
    async with open_server() as server:
        await robot(server)
        await server.post(collection, body)
        token, free = await token_of(server, bound_to(kind, "p")), await token_of(server)
        for _ in range(2):
            assert await is_authenticated(server, token)
        await server.delete(f"{collection}/p?gracePeriodSeconds=0")
        assert not await is_authenticated(server, token)
        await server.post(collection, body)
        assert not await is_authenticated(server, token)  # another object of that name
        assert await is_authenticated(server, free)


async def test_a_token_is_invalid_once_its_service_account_is_deleted(autojump_clock: MockClock) -> None:
    async with open_server() as server:
        await robot(server)
        token = await token_of(server)
        assert await is_authenticated(server, token)
        await server.delete(f"{ACCOUNTS}/robot")
        assert not await is_authenticated(server, token)
        await robot(server)
        assert not await is_authenticated(server, token)
        assert await is_authenticated(server, await token_of(server))


async def test_a_token_outlives_the_deletion_timestamp_by_a_minute(autojump_clock: MockClock) -> None:
    """A pod may use its token during its termination."""
    now = 0.0
    async with open_server() as server:
        await robot(server)
        await server.post(PODS, pod_of_robot(finalizers=["example.com/stay"]))
        token = await token_of(server, bound_to("Pod", "p"))
        tokens = ServiceAccountTokens(ISSUER, server.assembly.views, clock=lambda: now)
        now = time.time()
        assert tokens.user_of(token, [ISSUER_NAME]) is not None
        await server.delete(f"{PODS}/p?gracePeriodSeconds=0")
        now = time.time() + 30
        assert tokens.user_of(token, [ISSUER_NAME]) is not None
        now += 90
        with pytest.raises(CredentialRejected, match="invalidated"):
            tokens.user_of(token, [ISSUER_NAME])


async def test_the_times_of_a_token(autojump_clock: MockClock) -> None:
    now = 0.0
    async with open_server() as server:
        await robot(server)
        token = await token_of(server)
        tokens = ServiceAccountTokens(ISSUER, server.assembly.views, clock=lambda: now)
        begins = claims_of(token)["nbf"]
        for offset, good in ((-61, False), (-59, True), (0, True), (3659, True), (3661, False)):
            now = begins + offset
            if good:
                assert tokens.user_of(token, [ISSUER_NAME]) is not None
            else:
                with pytest.raises(CredentialRejected):
                    tokens.user_of(token, [ISSUER_NAME])


async def test_the_cache_of_tokens_is_bounded(autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service_accounts, "CACHE_SIZE", 2)
    async with open_server() as server:
        await robot(server)
        tokens = ServiceAccountTokens(ISSUER, server.assembly.views)
        for _ in range(5):
            assert tokens.user_of(await token_of(server), [ISSUER_NAME]) is not None
        assert len(tokens._known) == 2


# -- invalid tokens -------------------------------------------------------------------------------------------------


def _unsigned(token: str) -> str:
    return ".".join((jws.encode(b'{"alg":"none"}'), token.split(".")[1], ""))


STRANGER = jws.signing_key(ec.generate_private_key(ec.SECP256R1()))


def _impostor(token: str) -> str:
    """Another key that claims to be ours."""
    key = replace(STRANGER, verifying=replace(STRANGER.verifying, key_id=SERVICE_ACCOUNT_KEY.verifying.key_id))
    return signed({}, token, key)


WRONG: dict[str, Callable[[str], str]] = {
    "another key": lambda token: signed({}, token, STRANGER),
    "another key under our name": _impostor,
    "no algorithm": _unsigned,
    "signature left out": lambda token: token.rpartition(".")[0] + ".",
    "signature of another": lambda token: ".".join([*token.split(".")[:2], signed({"jti": "x"}, token).split(".")[2]]),
    "something after it": lambda token: token + "x",
    "another issuer": lambda token: signed({"iss": "https://elsewhere"}, token),
    "no issuer": lambda token: signed({"iss": None}, token),
    "an issuer of another type": lambda token: signed({"iss": [ISSUER_NAME]}, token),
    "a legacy token's issuer": lambda token: signed({"iss": account_tokens.ISSUER}, token),
    "another audience": lambda token: signed({"aud": ["vault"]}, token),
    "an audience of another type": lambda token: signed({"aud": {"a": 1}}, token),
    "expired": lambda token: signed({"exp": int(time.time()) - 120}, token),
    "expiry of another type": lambda token: signed({"exp": "never"}, token),
    "not yet valid": lambda token: signed({"nbf": int(time.time()) + 120}, token),
    "issued in the future": lambda token: signed({"iat": int(time.time()) + 120}, token),
    "of nobody": lambda token: signed({"kubernetes.io": None}, token),
    "of nobody in particular": lambda token: signed({"kubernetes.io": {"namespace": "default"}}, token),
    "of something else": lambda token: signed({"kubernetes.io": "robot"}, token),
    "of another uid": lambda token: signed(
        {"kubernetes.io": {"namespace": "default", "serviceaccount": {"name": "robot", "uid": "x"}}}, token
    ),
    "of a uid of another type": lambda token: signed(
        {"kubernetes.io": {"namespace": "default", "serviceaccount": {"name": "robot", "uid": 7}}}, token
    ),
    "bound to nothing": lambda token: signed(
        {"kubernetes.io": {**claims_of(token)["kubernetes.io"], "pod": {}}}, token
    ),
    "too long": lambda token: signed({"x": "x" * jws.MAX_TOKEN}, token),
}


@pytest.mark.parametrize("how", WRONG)
async def test_wrong_tokens_are_rejected(autojump_clock: MockClock, how: str) -> None:
    async with open_server(bootstrap_tokens=True) as server:
        await robot(server)
        token = await token_of(server)
        assert await is_authenticated(server, token)
        for _ in range(2):
            assert not await is_authenticated(server, WRONG[how](token))


async def test_changed_tokens_are_rejected(autojump_clock: MockClock) -> None:
    async with open_server() as server:
        await robot(server)
        token = await token_of(server)
        views = server.assembly.views
        chain = AuthenticationChain(
            tokens=[ServiceAccountTokens(ISSUER, views), BootstrapTokens(views)], audiences=ISSUER.audiences
        )
        assert chain.authenticate(server.request("GET", "/api", token=token)).name == NAME
        edits = st.lists(
            st.tuples(st.integers(0, len(token)), st.integers(0, 3), st.text(max_size=4)), min_size=1, max_size=4
        )

        @settings(max_examples=3000, deadline=None, database=None, suppress_health_check=list(HealthCheck))
        @given(edits)
        def changed(edits: list[tuple[int, int, str]]) -> None:
            other = token
            for position, length, text in edits:
                other = other[:position] + text + other[position + length :]
            if other.split(" ")[0] == token or other.strip() == token:
                return  # text after a space is ignored
            if other.startswith(" "):  # a field without a token, which is no credential
                assert chain.authenticate(server.request("GET", "/api", token=other)) == ANONYMOUS_USER
            else:
                with pytest.raises(CredentialRejected):
                    chain.authenticate(server.request("GET", "/api", token=other or "x"))
            with pytest.raises(CredentialRejected):
                chain.authenticate_token(other)

        changed()


async def test_any_claims_with_a_valid_signature_are_accepted_or_rejected(autojump_clock: MockClock) -> None:
    """The holder of the key may sign nonsense. That must not crash the server."""
    values = st.recursive(
        st.none()
        | st.booleans()
        | st.integers(-(2**53), 2**53)
        | st.floats(allow_nan=False, allow_infinity=False)
        | st.text(max_size=8),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
        max_leaves=5,
    )
    issuers = [ISSUER_NAME, account_tokens.ISSUER]
    names = ["aud", "exp", "nbf", "iat", "jti", "sub", "kubernetes.io", f"{account_tokens.CLAIM}namespace"]
    async with open_server() as server:
        await robot(server)
        token = await token_of(server)
        tokens = ServiceAccountTokens(ISSUER, server.assembly.views)

        @settings(max_examples=500, deadline=None, database=None, suppress_health_check=list(HealthCheck))
        @given(st.dictionaries(st.sampled_from(names), values, min_size=1), st.sampled_from(issuers))
        def accepted_or_rejected(changes: dict[str, Any], issuer: str) -> None:
            with contextlib.suppress(CredentialRejected):
                tokens.user_of(signed({**changes, "iss": issuer}, token), [ISSUER_NAME])

        accepted_or_rejected()


# -- other keys and issuers -----------------------------------------------------------------------------------------


async def test_replaced_keys_and_issuers(autojump_clock: MockClock) -> None:
    """Tokens of the old key and the old issuer are valid until both are removed."""
    async with open_server() as server:
        await robot(server)
        old = await token_of(server)
        renewed = replace(
            ISSUER,
            issuers=("https://new", ISSUER_NAME),
            signing=STRANGER,
            verifying=(STRANGER.verifying, SERVICE_ACCOUNT_KEY.verifying),
        )
        views = server.assembly.views
        assert ServiceAccountTokens(renewed, views).user_of(old, [ISSUER_NAME]) is not None
        without_id = SERVICE_ACCOUNT_KEY.sign(claims_of(old))
        assert ServiceAccountTokens(renewed, views).user_of(without_id, [ISSUER_NAME]) is not None
        for gone in (replace(renewed, verifying=(STRANGER.verifying,)), replace(renewed, issuers=("https://new",))):
            try:
                identified = ServiceAccountTokens(gone, views).user_of(old, [ISSUER_NAME])
            except CredentialRejected:
                identified = None
            assert identified is None


async def test_without_an_issuer_there_are_no_tokens(autojump_clock: MockClock) -> None:
    async with open_server(issuer=None) as server:
        await robot(server)
        (await request_token(server)).refused(404)
        assert (await server.ask("GET", "/openid/v1/jwks")).status == 404


# -- tokens in Secrets ----------------------------------------------------------------------------------------------


def legacy_token(uid: str, **changes: Any) -> str:
    claims = {
        "iss": account_tokens.ISSUER,
        "sub": NAME,
        "kubernetes.io/serviceaccount/namespace": "default",
        "kubernetes.io/serviceaccount/secret.name": "robot-token",
        "kubernetes.io/serviceaccount/service-account.name": "robot",
        "kubernetes.io/serviceaccount/service-account.uid": uid,
    }
    return SERVICE_ACCOUNT_KEY.sign({**claims, **changes})


async def keep(server: InProcess, token: str, **metadata: Any) -> None:
    annotations = {"kubernetes.io/service-account.name": "robot"}
    data = {"token": base64.b64encode(token.encode()).decode()}
    body = {"metadata": {"name": "robot-token", "annotations": annotations, **metadata}, "data": data}
    await server.post(SECRETS, {**body, "type": "kubernetes.io/service-account-token"})


async def test_a_token_in_a_secret_without_a_lookup(autojump_clock: MockClock) -> None:
    """With --service-account-lookup=false the signature suffices."""
    async with open_server(other={"looks_tokens_up": False}) as server:
        assert await is_authenticated(server, legacy_token("of nobody"))
        assert not await is_authenticated(server, legacy_token("of nobody", sub="system:serviceaccount:default:other"))


async def test_a_token_in_a_secret_lasts_as_long_as_the_secret(autojump_clock: MockClock) -> None:
    async with open_server() as server:
        token = legacy_token(await robot(server))
        assert not await is_authenticated(server, token)
        await keep(server, token)
        for _ in range(2):
            assert await is_authenticated(server, token)
        assert not await is_authenticated(server, legacy_token("x"))
        await server.patch(f"{SECRETS}/robot-token", {"data": {"token": "b3RoZXI="}})
        assert not await is_authenticated(server, token)
        await server.delete(f"{SECRETS}/robot-token")
        await keep(server, token)
        assert await is_authenticated(server, token)
        label = {"metadata": {"labels": {legacy_tokens.INVALID_SINCE: "2026-01-01"}}}
        await server.patch(f"{SECRETS}/robot-token", label)
        assert not await is_authenticated(server, token)


async def test_a_token_in_a_secret_has_no_leeway_after_a_deletion(autojump_clock: MockClock) -> None:
    async with open_server() as server:
        token = legacy_token(await robot(server))
        await keep(server, token, finalizers=["example.com/stay"])
        assert await is_authenticated(server, token)
        await server.delete(f"{SECRETS}/robot-token")
        assert not await is_authenticated(server, token)


async def test_a_token_in_a_secret_must_name_its_account(autojump_clock: MockClock) -> None:
    async with open_server() as server:
        uid = await robot(server)
        for changes in (
            {"sub": "system:serviceaccount:default:other"},
            {"sub": ""},
            {"kubernetes.io/serviceaccount/namespace": ""},
            {"kubernetes.io/serviceaccount/service-account.uid": "x"},
            {"kubernetes.io/serviceaccount/secret.name": "other"},
        ):
            token = legacy_token(uid, **changes)
            await keep(server, token)
            assert not await is_authenticated(server, token), changes
            await server.delete(f"{SECRETS}/robot-token")


# -- published keys -------------------------------------------------------------------------------------------------


async def test_issuer_and_keys_are_published(autojump_clock: MockClock) -> None:
    async with open_server(loops=True) as server:
        await robot(server)
        token = await token_of(server)
        configuration, keys = "/.well-known/openid-configuration", "/openid/v1/jwks"
        for path in (configuration, keys):
            (await server.ask("GET", path, token="")).refused(403)
            assert path in (await server.get("/"))["paths"]
        answer = await server.ask("GET", configuration, token=token)
        assert (answer.header("content-type"), answer.header("cache-control")) == (
            "application/json",
            "public, max-age=3600",
        )
        assert answer.ok() == {
            "issuer": ISSUER_NAME,
            "jwks_uri": "https://10.1.0.1:6443/openid/v1/jwks",
            "response_types_supported": ["id_token"],
            "subject_types_supported": ["public"],
            "id_token_signing_alg_values_supported": ["ES256"],
        }
        answer = await server.ask("GET", keys + "/", token=token)
        assert (answer.header("content-type"), answer.header("cache-control")) == (
            "application/jwk-set+json",
            "public, max-age=3600",
        )
        assert answer.ok() == {"keys": [SERVICE_ACCOUNT_KEY.verifying.web_key()]}
        assert keys + "/" in (await server.get("/openapi/v2"))["paths"]


@pytest.mark.parametrize("name", ["robots", "http://a", "https://a?b", "https://a#b", "https://["])
async def test_an_issuer_that_is_no_url_is_not_published(autojump_clock: MockClock, name: str) -> None:
    async with open_server(issuer=replace(ISSUER, issuers=(name,))) as server:
        assert (await server.ask("GET", "/openid/v1/jwks", token=ADMIN)).status == 404
        await robot(server)
        assert claims_of(await token_of(server))["iss"] == name


# -- several servers on one log -------------------------------------------------------------------------------------


async def test_a_token_of_another_server_is_valid_at_once(autojump_clock: MockClock) -> None:
    """Also if the service account is not in this server's views yet."""
    store = MemoryStore()
    async with open_server(store) as one, open_server(store) as two, trio.open_nursery() as nursery:
        answers: list[bool] = []

        async def ask(token: str) -> None:
            answers.append(await is_authenticated(two, token))
            answers.append((await two.post(REVIEWS, {"spec": {"token": token}}))["status"]["authenticated"])

        with two.log.hold("read.read") as gate:
            await robot(one)
            nursery.start_soon(ask, await token_of(one))
            await gate.wait_arrived()
            await trio.testing.wait_all_tasks_blocked()
            assert not answers
            gate.release()
        with trio.fail_after(60):
            while len(answers) < 2:
                await trio.testing.wait_all_tasks_blocked()
        assert answers == [True, True]
