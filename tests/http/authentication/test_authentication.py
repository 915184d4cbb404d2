"""Authentication: the token file, the rules of the chain, and paths that are open to all."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from in_process import ADMIN, CLIENT_CA, JOE, open_server
from trio.testing import MockClock

from kubechronicle.http.authentication.chain import (
    AuthenticationChain,
    StaticTokens,
    TokenFileError,
    bearer_token,
    parse_token_file,
)
from kubechronicle.http.authentication.user import ANONYMOUS_USER, CredentialRejected, User
from kubechronicle.http.messages import Request


def request_with(der: bytes | None = None, authorization: str = "") -> Request:
    headers = {"authorization": authorization} if authorization else {}
    return Request.of("GET", "/api", headers=headers, peer_certificate=der)


# -- the token file -------------------------------------------------------------------------------------------------


def write(folder: Path, text: str) -> Path:
    file = folder / "tokens.csv"
    file.write_text(text, encoding="utf-8")
    return file


def test_token_file_lines(tmp_path: Path) -> None:
    text = 'secret1,jane,u1,"ops, dev,"\n\nsecret2,joe,\n  , ,\nsecret3 , käthe ,u3 , one\nsecret1,twice,u9\n'
    tokens = StaticTokens(parse_token_file(write(tmp_path, text)))

    def user_of(token: str) -> User | None:
        identified = tokens.user_of(token, ())
        return identified.user if identified is not None else None

    assert user_of("secret1") == User(name="jane", uid="u1", groups=("ops", "dev"))
    assert user_of("secret2") == User(name="joe")
    assert user_of("secret3") == User(name="käthe", uid="u3", groups=("one",))


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("secret1,jane\n", "line 1: at least 3 columns"),
        ("a,b,c\nsecret1\n", "line 2: at least 3 columns"),
        (",jane,1\n", "line 1: token and user name"),
        ("secret1,,1\n", "line 1: token and user name"),
    ],
)
def test_errors_of_a_token_file_do_not_show_the_token(tmp_path: Path, text: str, why: str) -> None:
    with pytest.raises(TokenFileError, match=why) as raised:
        parse_token_file(write(tmp_path, text))
    assert "secret1" not in str(raised.value)


def test_a_token_file_must_be_text(tmp_path: Path) -> None:
    file = tmp_path / "tokens.csv"
    for data in (b"\xff\xfe\x00,a,b\n", b'"' + b"x" * 200_000 + b'",a,b\n'):
        file.write_bytes(data)
        with pytest.raises(TokenFileError):
            parse_token_file(file)


def test_tokens_are_not_stored(tmp_path: Path) -> None:
    users = parse_token_file(write(tmp_path, "secret1,jane,u1\n"))
    assert "secret1" not in repr(users)


@pytest.mark.parametrize(
    "field", ["Basic c2VjcmV0", "Bearer", "Bearer ", "secret1", "bearer", "Negotiate x", "Bearer  wrong", "Bearer\tx"]
)
def test_other_authorization_fields_carry_no_token(field: str) -> None:
    assert bearer_token(field) is None


@pytest.mark.parametrize("field", ["Bearer wrong", "bearer wrong", " BEARER wrong ", "Bearer two words", "Bearer \xff"])
def test_unknown_tokens_are_rejected(field: str) -> None:
    assert bearer_token(field) in ("wrong", "two", "\xff")
    with pytest.raises(CredentialRejected):
        AuthenticationChain(tokens=[StaticTokens({})]).authenticate(request_with(authorization=field))


# -- the chain ------------------------------------------------------------------------------------------------------


class Fixed:
    """An authenticator of connections with a certificate. On others it is not asked."""

    def __init__(self, answer: User | type[Exception] | None) -> None:
        self.answer = answer

    def authenticate(self, request: Request) -> User | None:
        if isinstance(self.answer, type):
            raise self.answer
        return self.answer


JANE = User(name="jane", groups=("ops",))


def test_the_first_that_recognises_the_credential_decides() -> None:
    chain = AuthenticationChain([Fixed(None), Fixed(JANE), Fixed(User(name="other"))])
    assert chain.authenticate(request_with(b"certificate")) == User(name="jane", groups=("ops", "system:authenticated"))
    assert (
        AuthenticationChain([Fixed(CredentialRejected), Fixed(JANE)]).authenticate(request_with(b"certificate")).name
        == "jane"
    )


def test_only_requests_without_a_credential_are_anonymous() -> None:
    assert AuthenticationChain([Fixed(None)]).authenticate(request_with(b"certificate")) == ANONYMOUS_USER
    assert AuthenticationChain([]).authenticate(request_with()) == ANONYMOUS_USER
    with pytest.raises(CredentialRejected):
        AuthenticationChain([Fixed(CredentialRejected), Fixed(None)]).authenticate(request_with(b"certificate"))


@pytest.mark.parametrize("field", ["Basic c2VjcmV0", "Digest x", "Negotiate", "token", "Bearer"])
def test_a_credential_of_another_scheme_is_none(field: str) -> None:
    assert (
        AuthenticationChain([Fixed(None)]).authenticate(request_with(b"certificate", authorization=field))
        == ANONYMOUS_USER
    )


# -- over the whole application -------------------------------------------------------------------------------------

PUBLIC = ["/healthz", "/livez", "/readyz", "/version", "/version/"]
PRIVATE = [
    "/",
    "/api",
    "/apis",
    "/api/v1",
    "/metrics",
    "/openapi/v3",
    "/healthz/ping",
    "/api/v1/namespaces",
    "/api/v1/namespaces/default/secrets",
    "/nowhere",
    "/healthz/../metrics",
    "//healthz",
]


async def test_anonymous_sees_the_public_paths_only(autojump_clock: MockClock) -> None:
    async with open_server(loops=True) as server:
        for path in PUBLIC:
            assert (await server.ask("GET", path, token="")).status == 200, path
        for path in PRIVATE:
            refusal = (await server.ask("GET", path, token="")).refused(403)
            assert refusal["reason"] == "Forbidden"
            assert "system:anonymous" in refusal["message"]
        for method in ("POST", "DELETE", "PUT", "PATCH"):
            (await server.ask(method, "/healthz", token="")).refused(403)


async def test_a_wrong_credential_is_401_on_every_path(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    expired = CLIENT_CA.client("jane", start=-2, end=-1)
    async with open_server() as server:
        for path in (*PUBLIC, "/api/v1/namespaces"):
            for request in ({"token": "wrong-one"}, {"token": "", "certificate": expired}):
                answer = await server.ask("GET", path, **request)
                refusal = answer.refused(401)
                assert (refusal["reason"], refusal["message"]) == ("Unauthorized", "Unauthorized")
                assert answer.header("audit-id")
        basic = {"authorization": "Basic d3Jvbmctb25l"}
        (await server.ask("GET", "/api/v1/namespaces", token="", headers=basic)).refused(403)
    assert "wrong-one" not in caplog.text


async def test_masters_have_all_rights_and_others_none(autojump_clock: MockClock) -> None:
    master = CLIENT_CA.client("kim", "system:masters")
    async with open_server() as server:
        await server.get("/api/v1/namespaces", token=ADMIN)
        await server.get("/api/v1/namespaces", token="", certificate=master)
        refusal = (await server.ask("GET", "/apis/apps/v1/namespaces/a/deployments/d/scale", token=JOE)).refused(403)
        assert refusal["message"] == (
            'deployments.apps "d" is forbidden: User "joe" cannot get resource "deployments/scale" in API group '
            '"apps" in the namespace "a"'
        )
        assert refusal["details"] == {"name": "d", "group": "apps", "kind": "deployments"}
        refusal = (await server.ask("GET", "/metrics", token=JOE)).refused(403)
        assert refusal["message"] == 'forbidden: User "joe" cannot get path "/metrics"'
        refusal = (await server.ask("GET", "/api/v1/nodes?watch=1", token=JOE)).refused(403)
        assert refusal["message"] == (
            'nodes is forbidden: User "joe" cannot watch resource "nodes" in API group "" at the cluster scope'
        )


async def test_a_certificate_precedes_a_token(autojump_clock: MockClock) -> None:
    """As in kube-apiserver: the first authenticator that recognises its credential decides."""
    master = CLIENT_CA.client("kim", "system:masters")
    async with open_server() as server:
        await server.get("/api/v1/namespaces", token=JOE, certificate=master)
