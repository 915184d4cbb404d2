"""The webhook token authenticator, against real servers over TLS."""

from __future__ import annotations

import logging
from functools import partial
from typing import Any

import pytest
import trio
import trio.testing
from in_process import ISSUER_NAME, open_server
from webhooks import QUICK, Webhook

from kubechronicle.actors.external_answers import NeedsExternalAnswer, decide_with_answers
from kubechronicle.http.authentication.user import CredentialRejected, Identified, User
from kubechronicle.http.authentication.webhook import TokenWebhook, WebhookTokens
from kubechronicle.http.authorization.configuration import of_modes
from kubechronicle.http.authorization.current_authorizers import AuthorizationPlan
from kubechronicle.http.messages import Request, Response
from kubechronicle.http.outgoing.client import Outgoing
from kubechronicle.http.outgoing.remote_server import RemoteServer

JOE = {"username": "joe", "uid": "7", "groups": ["devs"], "extra": {"a": ["1", "2"]}}
USER = User(name="joe", uid="7", groups=("devs",), extra={"a": ("1", "2")})
HERE = ("here",)
EVERYBODY = AuthorizationPlan(configured=of_modes(["AlwaysAllow"]))
WHOAMI = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
REVIEW = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}


def knows_joe(spec: dict[str, Any]) -> dict[str, Any]:
    return {"authenticated": True, "user": JOE} if spec["token"] == "joes" else {"authenticated": False}


@pytest.fixture
async def outgoing(nursery: trio.Nursery) -> Outgoing:
    client_pool = Outgoing()
    await nursery.start(client_pool.run)
    return client_pool


def peer_of(server: Any) -> RemoteServer:
    return RemoteServer(url=f"https://localhost:{server.server.port}/ask", ca=server.authority.file)


def tokens(outgoing: Outgoing, server: Any, *, timeout: float = 20.0, **options: Any) -> WebhookTokens:
    client = outgoing.client(peer_of(server), timeout=timeout)
    return WebhookTokens(client, **{"audiences": HERE, "backoff": QUICK, **options})


async def ask(webhook: WebhookTokens, token: str = "joes", audiences: tuple[str, ...] = HERE) -> Identified | None:
    return await decide_with_answers(partial(webhook.user_of, token, audiences))


async def test_a_review_has_the_token_and_its_audiences(wire: Any, outgoing: Outgoing) -> None:
    app = Webhook(knows_joe)
    server = await wire(app)
    for version in ("v1", "v1beta1"):
        app.reviews.clear()
        webhook = tokens(outgoing, server, version=version)
        assert await ask(webhook, audiences=("there", "here")) == Identified(USER, HERE)
        assert await ask(webhook, audiences=()) == Identified(USER)
        assert await ask(webhook, "janes") is None
        assert app.specs == [
            {"token": "joes", "audiences": ["there", "here"]},
            {"token": "joes"},
            {"token": "janes", "audiences": ["here"]},
        ]
        assert app.reviews[0]["kind"] == "TokenReview"
        assert app.reviews[0]["apiVersion"] == f"authentication.k8s.io/{version}"


@pytest.mark.parametrize(
    ("answered", "requested", "common"),
    [
        ([], ["here"], ("here",)),  # no audiences mean those of this server
        ([], ["there"], None),
        (["there", "here"], ["here", "x", "there"], ("here", "there")),
        (["there"], ["here"], None),
        (["there"], [], ()),
    ],
)
async def test_audiences_are_the_intersection(
    wire: Any, outgoing: Outgoing, answered: list[str], requested: list[str], common: tuple[str, ...] | None
) -> None:
    webhook = tokens(
        outgoing, await wire(Webhook(lambda spec: {"authenticated": True, "user": JOE, "audiences": answered}))
    )
    identified = await ask(webhook, audiences=tuple(requested))
    assert identified == (Identified(USER, common) if common is not None else None)


async def test_answers_are_cached_and_errors_are_not(wire: Any, outgoing: Outgoing) -> None:
    now = 0.0
    app = Webhook(knows_joe)
    webhook = tokens(outgoing, await wire(app), ttl=120, clock=lambda: now)
    for moment, reviews in ((0.0, 2), (119.0, 0), (120.0, 2)):
        now = moment
        app.reviews.clear()
        for _ in range(3):
            assert await ask(webhook) == Identified(USER, HERE)
            assert await ask(webhook, "janes") is None
        assert len(app.reviews) == reviews
    app.answer = lambda spec: {"authenticated": False, "error": "locked out"}
    app.reviews.clear()
    for _ in range(2):
        with pytest.raises(CredentialRejected) as caught:
            await ask(webhook, "kims")
        assert caught.value.why == "locked out"
    assert len(app.reviews) == 2


async def test_without_a_ttl_every_request_sends_a_review(wire: Any, outgoing: Outgoing) -> None:
    app = Webhook(knows_joe)
    webhook = tokens(outgoing, await wire(app), ttl=0)
    for number in range(1, 4):
        assert await ask(webhook) == Identified(USER, HERE)
        assert len(app.reviews) == number
        with pytest.raises(NeedsExternalAnswer):
            webhook.user_of("joes", HERE)


async def test_a_hundred_requests_with_one_token_share_one_review(wire: Any, outgoing: Outgoing) -> None:
    app = Webhook(knows_joe)
    webhook = tokens(outgoing, await wire(app))
    answers: list[Identified | None] = []

    async def one() -> None:
        answers.append(await ask(webhook))

    async with trio.open_nursery() as nursery:
        for _ in range(100):
            nursery.start_soon(one)
    assert answers == [Identified(USER, HERE)] * 100
    assert len(app.reviews) == 1


ANSWER = b'{"kind":"TokenReview","apiVersion":"authentication.k8s.io/v1","status":{"authenticated":true,"user":{%s}}}'


@pytest.mark.parametrize(
    ("code", "body"),
    [
        (200, ANSWER % b""),
        (200, ANSWER % b'"username":["joe"]'),
        (200, ANSWER % b'"username":"joe","groups":"system:masters"'),
        (200, ANSWER % b'"username":"joe","groups":[1]'),
        (200, ANSWER % b'"username":"joe","extra":{"a":"b"}'),
        (200, (ANSWER % b'"username":"joe"').replace(b"true", b'"yes"')),
        (200, (ANSWER % b'"username":"joe"').replace(b"TokenReview", b"SubjectAccessReview")),
        (500, ANSWER % b'"username":"joe"'),
        (307, ANSWER % b'"username":"joe"'),
        (200, b""),
    ],
)
async def test_wrong_answers_reject_the_token(wire: Any, outgoing: Outgoing, code: int, body: bytes) -> None:
    webhook = tokens(outgoing, await wire(Webhook(lambda spec: Response(code, [], body))))
    with pytest.raises(CredentialRejected):
        await ask(webhook)


async def test_an_uncached_answer_is_not_used_for_later_requests(wire: Any, outgoing: Outgoing) -> None:
    """One of two concurrent requests is cancelled. Its answer is not used for later requests."""
    said, received = trio.Event(), trio.Event()
    app = Webhook(knows_joe)

    async def slow(request: Request) -> Response:
        received.set()
        await said.wait()
        return await app(request)

    webhook = tokens(outgoing, await wire(slow), ttl=0)
    leaving = trio.CancelScope()

    async def leaves() -> None:
        with leaving:
            await ask(webhook)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(ask, webhook)
        await received.wait()
        nursery.start_soon(leaves)
        await trio.testing.wait_all_tasks_blocked(0.01)
        leaving.cancel()
        said.set()
    app.answer = lambda spec: {"authenticated": False}
    assert await ask(webhook) is None
    assert len(app.reviews) == 2


# -- in a server ------------------------------------------------------------------------------------------------------


async def test_the_webhook_authenticates_a_user(wire: Any) -> None:
    app = Webhook(knows_joe)
    webhook = TokenWebhook(peer=peer_of(await wire(app)), version="v1beta1")
    async with open_server(authorization=EVERYBODY, other={"token_webhook": webhook}) as server:
        for _ in range(3):
            review = await server.post(WHOAMI, REVIEW, token="joes")
        assert review["status"]["userInfo"] == {**JOE, "groups": ["devs", "system:authenticated"]}
        assert app.specs == [{"token": "joes", "audiences": [ISSUER_NAME]}]
        (await server.ask("POST", WHOAMI, REVIEW, token="janes")).refused(401)
        review = {"kind": "TokenReview", "apiVersion": "authentication.k8s.io/v1", "spec": {"token": "joes"}}
        status = (await server.post("/apis/authentication.k8s.io/v1/tokenreviews", review))["status"]
        assert (status["authenticated"], status["user"]["username"]) == (True, "joe")
        assert len(app.reviews) == 2
        await server.get("/api/v1/namespaces")  # a user of this server needs no review
        assert len(app.reviews) == 2
        hits = await server.metric("authentication_token_cache_request_total", status="hit")
        assert hits is not None
        assert hits >= 3


async def test_while_the_webhook_is_down_its_users_are_rejected(wire: Any, caplog: pytest.LogCaptureFixture) -> None:
    served = await wire(Webhook(lambda spec: Response(503, [], b"")))
    async with open_server(other={"token_webhook": TokenWebhook(peer=peer_of(served))}) as server:
        with caplog.at_level(logging.ERROR):
            (await server.ask("POST", WHOAMI, REVIEW, token="joes-secret")).refused(401)
        assert "Failed to make webhook authenticator request" in caplog.text
        complaint = next(record for record in caplog.records if "webhook" in record.message)
        assert "currently unable to handle the request" in complaint.__dict__["err"]
        assert "joes-secret" not in str([record.__dict__ for record in caplog.records])
        review = {"kind": "TokenReview", "apiVersion": "authentication.k8s.io/v1", "spec": {"token": "joes-secret"}}
        status = (await server.post("/apis/authentication.k8s.io/v1/tokenreviews", review))["status"]
        assert "currently unable to handle the request" in status["error"]
        await server.get("/api/v1/namespaces")  # other users are not affected


async def test_a_review_ends_with_its_request(wire: Any) -> None:
    async def silent(request: Request) -> Response:
        await trio.sleep_forever()
        raise AssertionError

    webhook = TokenWebhook(peer=peer_of(await wire(silent)))
    async with open_server(other={"token_webhook": webhook}, request_timeout=0.1) as server:
        (await server.ask("POST", WHOAMI, REVIEW, token="joes")).timed_out()
