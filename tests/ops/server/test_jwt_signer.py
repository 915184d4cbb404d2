"""--service-account-signing-endpoint: tokens that another program signs, with a real gRPC server."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import orjson
import pytest
import trio
from in_process import InProcess, open_server
from service_account_tokens import claims_of, is_authenticated, request_token, robot, token_of

from kubechronicle.api.features.gates import FeatureGates
from kubechronicle.api.values.objects import Object
from kubechronicle.eventlog.encryption import protobuf
from kubechronicle.http.authentication import jws
from kubechronicle.http.authentication.token_issuer import ServiceAccountIssuer
from kubechronicle.ops.errors import OperatorError
from kubechronicle.ops.server import service_account_keys
from kubechronicle.ops.server.outside.jwt_signer import BadSignerAnswer, key_id_of, keys_of
from kubechronicle.ops.settings.settings import load
from tests.support.encryption.jwt_signer import SignerServer

ISSUED_FOR = {"service-account-issuer": "https://issuer.example"}


async def issuer_at(path: Path, **flags: str) -> ServiceAccountIssuer:
    given = {name.replace("_", "-"): value for name, value in flags.items()}
    settings = load({**ISSUED_FOR, "service-account-signing-endpoint": str(path / "s"), **given}, environment={})
    service_account_keys.check(settings, FeatureGates())
    return await service_account_keys.make_issuer(settings, path / "pki")


@asynccontextmanager
async def signing_server(path: Path, signer: SignerServer) -> AsyncIterator[InProcess]:
    """A server whose tokens come from the signer."""
    async with trio.open_nursery() as nursery:
        await nursery.start(signer.serve, str(path / "s"))
        async with open_server(issuer=await issuer_at(path)) as server:
            yield server
        nursery.cancel_scope.cancel()


async def key_ids(server: InProcess) -> list[str]:
    return [key["kid"] for key in (await server.get("/openid/v1/jwks"))["keys"]]


async def test_tokens_of_a_signer_that_changes_its_keys(tmp_path: Path) -> None:
    signer = SignerServer()
    async with signing_server(tmp_path, signer) as server:
        await robot(server)
        old = await token_of(server)
        assert jws.parse(old).key_id == "first"
        assert claims_of(old)["exp"] - claims_of(old)["iat"] == 3600
        assert await is_authenticated(server, old)
        assert await key_ids(server) == ["first"]
        assert not (tmp_path / "pki").exists()

        signer.rotate("second")
        new = await token_of(server)  # its key is unknown, so the keys are fetched
        assert await is_authenticated(server, new)
        assert await is_authenticated(server, old)
        assert await key_ids(server) == ["first", "second"]
        answer = await server.ask("GET", "/openid/v1/jwks")
        assert 0 < int(answer.header("cache-control").removeprefix("public, max-age=")) <= signer.hint

        del signer.keys["first"]
        signer.rotate("third")
        assert await is_authenticated(server, await token_of(server))
        assert not await is_authenticated(server, old)  # though it was verified before
        assert await server.metric("apiserver_externaljwt_sign_request_total", code="OK") == 3
        fetches = signer.fetches
        assert await server.metric("apiserver_externaljwt_fetch_keys_request_total", code="OK") == fetches
        assert not await is_authenticated(server, old)
        assert signer.fetches == fetches + 1  # an unknown key may be a new one


async def test_an_unusable_signature_is_an_error(tmp_path: Path) -> None:
    signer = SignerServer()
    async with signing_server(tmp_path, signer) as server:
        await robot(server)

        async def why() -> str:
            message: str = (await request_token(server)).refused(500)["message"]
            return message.removeprefix("Internal error occurred: failed to generate token: ")

        signer.header = {"typ": "JOSE"}
        assert await why() == "while validating header: bad type"
        signer.header = {"crit": "x"}
        assert await why() == 'while validating header: while parsing header JSON: json: unknown field "crit"'
        signer.header = {}
        signer.rotate("old")
        signer.excluded.add("old")
        assert "(kid: old) is excluded from OIDC discovery docs" in await why()
        assert await key_ids(server) == ["first"]
        signer.unary["Sign"] = lambda _: protobuf.field(1, jws.encode(b'{"alg":"ES256","kid":"first","typ":"JWT"}'))
        assert await why() == "empty signature returned"


async def test_the_signer_bounds_lifetimes(tmp_path: Path) -> None:
    signer = SignerServer()
    async with trio.open_nursery() as nursery:
        await nursery.start(signer.serve, str(tmp_path / "s"))
        issuer = await issuer_at(tmp_path)
        assert (issuer.max_expiration, issuer.extended) == (86400, 86400)
        issuer = await issuer_at(tmp_path, service_account_max_token_expiration="2h")
        assert (issuer.max_expiration, issuer.extended) == (7200, 86400)
        with pytest.raises(OperatorError, match="the signer allows 86400 s at most"):
            await issuer_at(tmp_path, service_account_max_token_expiration="25h")
        signer.longest = 599
        with pytest.raises(OperatorError, match="the signer allows 599 s"):
            await issuer_at(tmp_path)
        signer.hint = 0
        with pytest.raises(OperatorError, match="has given no keys: found invalid refresh hint"):
            await issuer_at(tmp_path)
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize(
    ("flags", "why"),
    [
        ({"service_account_signing_key_file": __file__}, "leave out"),
        ({"service_account_key_file": __file__}, "leave out"),
        ({"service_account_signing_endpoint": "@a b"}, "abstract socket"),
    ],
)
async def test_contradictions_are_one_line(tmp_path: Path, flags: dict[str, str], why: str) -> None:
    with pytest.raises(OperatorError, match=f"^--service-account-signing-endpoint: .*{why}"):
        await issuer_at(tmp_path, **flags)


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (protobuf.field(3, 5), "found no keys"),
        (protobuf.field(1, protobuf.field(1, "a")) + protobuf.field(3, 5), "invalid data timestamp"),
        (protobuf.field(1, protobuf.field(2, b"x")) + b"\x12\x00" + protobuf.field(3, 5), "invalid public key id"),
        (protobuf.field(1, protobuf.field(1, "a")) + b"\x12\x00" + protobuf.field(3, 5), "empty public key"),
        (
            protobuf.field(1, protobuf.field(1, "a") + protobuf.field(2, b"x")) + b"\x12\x00" + protobuf.field(3, 5),
            "while parsing external public keys",
        ),
    ],
)
def test_keys_that_break_the_contract(answer: bytes, why: str) -> None:
    with pytest.raises(BadSignerAnswer, match=why):
        keys_of(protobuf.parse(answer))


@pytest.mark.parametrize(
    ("header", "why"),
    [
        ({"alg": "ES256", "typ": "JWT"}, "key id missing"),
        ({"alg": "ES256", "typ": "JWT", "kid": "k" * 1025}, "longer than 1 kb"),
        ({"alg": "HS256", "typ": "JWT", "kid": "k"}, 'bad signing algorithm "HS256"'),
        ({"alg": "ES256", "typ": "JWT", "kid": 1}, "not an object of texts"),
    ],
)
def test_headers_that_break_the_contract(header: Object, why: str) -> None:
    with pytest.raises(BadSignerAnswer, match=why):
        key_id_of(jws.encode(orjson.dumps(header)))
