"""The webhook authorizer, against real servers over TLS: reviews, answers and cache."""

from __future__ import annotations

import logging
from functools import partial
from typing import Any

import pytest
import trio
from webhooks import QUICK, Webhook

from kubechronicle.actors.external_answers import NeedsExternalAnswer, decide_with_answers
from kubechronicle.api.meta.request_info import RequestInfo
from kubechronicle.http.authentication.user import User
from kubechronicle.http.authorization.decision import Decision, Verdict
from kubechronicle.http.authorization.webhook import (
    BOTH,
    MAX_CHOSEN,
    MAX_USER,
    MatchFailed,
    WebhookAuthorizer,
    WebhookMetrics,
    spec_of,
)
from kubechronicle.http.messages import Request, Response
from kubechronicle.http.outgoing.client import Outgoing
from kubechronicle.http.outgoing.remote_server import RemoteServer

JOE = User(name="joe", uid="7", groups=("devs", "ops"), extra={"a.example/b": ("1", "2")})
LIST = RequestInfo(
    path="/api/v1/namespaces/a/pods", verb="list", is_resource=True, version="v1", namespace="a", resource="pods"
)
GET = RequestInfo(
    path="/apis/apps/v1/x",
    verb="get",
    is_resource=True,
    group="apps",
    version="v1",
    namespace="a",
    resource="deployments",
    subresource="scale",
    name="web",
)
PATH = RequestInfo(path="/metrics", verb="get")


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
async def outgoing(nursery: trio.Nursery) -> Outgoing:
    client_pool = Outgoing()
    await nursery.start(client_pool.run)
    return client_pool


def authorizer(outgoing: Outgoing, server: Any, *, timeout: float = 20.0, **options: Any) -> WebhookAuthorizer:
    peer = RemoteServer(url=f"https://localhost:{server.server.port}/ask", ca=server.authority.file)
    client = outgoing.client(peer, timeout=timeout, max_answer=100_000)
    return WebhookAuthorizer("test", client, **{"backoff": QUICK, **options})


async def ask(webhook: WebhookAuthorizer, info: RequestInfo = LIST, user: User = JOE) -> Verdict:
    return await decide_with_answers(partial(webhook.decide, user, info))


# -- reviews ----------------------------------------------------------------------------------------------------------


async def test_a_review_equals_that_of_kube_apiserver(wire: Any, outgoing: Outgoing) -> None:
    app = Webhook()
    webhook = authorizer(outgoing, await wire(app))
    for info in (GET, PATH):
        await ask(webhook, info)
    await ask(webhook, PATH, User(name="x"))
    user = {"user": "joe", "uid": "7", "groups": ["devs", "ops"], "extra": {"a.example/b": ["1", "2"]}}
    attributes = {
        "namespace": "a",
        "verb": "get",
        "group": "apps",
        "version": "v1",
        "resource": "deployments",
        "subresource": "scale",
        "name": "web",
    }
    path = {"path": "/metrics", "verb": "get"}
    assert app.specs == [
        {**user, "resourceAttributes": attributes},
        {**user, "nonResourceAttributes": path},
        {"user": "x", "nonResourceAttributes": path},
    ]
    review = app.reviews[0]
    assert (review["kind"], review["apiVersion"]) == ("SubjectAccessReview", "authorization.k8s.io/v1")
    assert review["status"] == {"allowed": False}


async def test_v1beta1_has_another_name_for_groups(wire: Any, outgoing: Outgoing) -> None:
    app = Webhook()
    await ask(authorizer(outgoing, await wire(app), version="v1beta1"))
    assert app.reviews[0]["apiVersion"] == "authorization.k8s.io/v1beta1"
    assert app.specs[0]["group"] == ["devs", "ops"]
    assert "groups" not in app.specs[0]


@pytest.mark.parametrize(
    ("fields", "labels", "expected"),
    [
        (
            "spec.nodeName=n1,metadata.name!=x",
            "",
            {
                "fieldSelector": {
                    "requirements": [
                        {"key": "metadata.name", "operator": "NotIn", "values": ["x"]},
                        {"key": "spec.nodeName", "operator": "In", "values": ["n1"]},
                    ]
                }
            },
        ),
        (
            "",
            "app in (b,a),!gone,there,x=1,y!=2,z notin (3)",
            {
                "labelSelector": {
                    "requirements": [
                        {"key": "app", "operator": "In", "values": ["a", "b"]},
                        {"key": "gone", "operator": "DoesNotExist"},
                        {"key": "there", "operator": "Exists"},
                        {"key": "x", "operator": "In", "values": ["1"]},
                        {"key": "y", "operator": "NotIn", "values": ["2"]},
                        {"key": "z", "operator": "NotIn", "values": ["3"]},
                    ]
                }
            },
        ),
        ("", "a>1", {}),
        ("", "a>1,b=2", {"labelSelector": {"requirements": [{"key": "b", "operator": "In", "values": ["2"]}]}}),
        ("no operator", "((", {}),
    ],
)
def test_selectors_are_in_the_review(fields: str, labels: str, expected: Any) -> None:
    info = RequestInfo(
        path="", verb="list", is_resource=True, resource="pods", field_selector=fields, label_selector=labels
    )
    attributes = spec_of(User(name="x"), info)["resourceAttributes"]
    assert attributes == {"verb": "list", "resource": "pods", **expected}


async def test_bytes_that_are_not_utf8_are_escaped(wire: Any, outgoing: Outgoing) -> None:
    app = Webhook()
    assert (await ask(authorizer(outgoing, await wire(app)), user=User(name="\udcff"))).decision is Decision.ALLOW


# -- answers ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "verdict"),
    [
        ({"allowed": True, "reason": "because"}, Verdict(Decision.ALLOW, "because")),
        ({"allowed": False, "reason": "not yours"}, Verdict(Decision.NO_OPINION, "not yours")),
        ({"allowed": False, "denied": True, "reason": "no"}, Verdict(Decision.DENY, "no")),
        ({"allowed": True, "denied": True}, Verdict(Decision.DENY, "", BOTH)),
        ({}, Verdict(Decision.NO_OPINION)),
        ({"allowed": None, "denied": None, "reason": None}, Verdict(Decision.NO_OPINION)),
    ],
)
async def test_answers(wire: Any, outgoing: Outgoing, status: Any, verdict: Verdict) -> None:
    webhook = authorizer(outgoing, await wire(Webhook(lambda spec: status)))
    assert await ask(webhook) == await decide_with_answers(partial(webhook.explain, JOE, LIST)) == verdict


ALLOWED = b'{"apiVersion":"authorization.k8s.io/v1","kind":"SubjectAccessReview","status":{"allowed":true}}'
WRONG = {
    "other kind": (200, b'{"apiVersion":"v1","kind":"Pod","status":{"allowed":true}}', "its kind is 'Pod'"),
    "other version": (200, ALLOWED.replace(b"/v1", b"/v1beta1"), "its apiVersion is"),
    "status": (200, b'{"kind":"Status","apiVersion":"v1","status":"Failure","message":"go away"}', "go away"),
    "a failed status": (403, b'{"kind":"Status","apiVersion":"v1","status":"Failure","message":"no"}', "no"),
    "a string": (200, ALLOWED.replace(b"true", b'"true"'), "status.allowed is no boolean"),
    "a number": (200, b'{"status":{"allowed":true,"reason":1}}', "status.reason is no string"),
    "a list": (200, b'{"status":[true]}', "status is no object"),
    "no object": (200, b"[]", "no JSON object"),
    "no JSON": (200, b"allowed", "no JSON object"),
    "nothing": (200, b"", "no JSON object"),
    "redirected": (302, ALLOWED, "status code 302"),
    "not found": (404, ALLOWED, "could not find the requested resource"),
    "broken": (500, b"it hurts", 'an error on the server ("it hurts") has prevented the request from succeeding'),
    "huge": (200, ALLOWED[:-1] + b',"x":"' + b"x" * 200_000 + b'"}', "more than 100000 bytes"),
}


@pytest.mark.parametrize("name", WRONG)
@pytest.mark.parametrize("on_error", [Decision.NO_OPINION, Decision.DENY])
async def test_wrong_answers_decide_as_configured(wire: Any, outgoing: Outgoing, name: str, on_error: Decision) -> None:
    code, body, why = WRONG[name]
    app = Webhook(lambda spec: Response(code, [("location", "/elsewhere")], body))
    webhook = authorizer(outgoing, await wire(app), on_error=on_error)
    verdict = await ask(webhook)
    assert verdict.decision is on_error
    assert why in verdict.error
    assert not verdict.reason
    reviews = len(app.reviews)
    assert reviews == (2 if code == 500 else 1)
    app.answer = lambda spec: {"allowed": True}
    assert (await ask(webhook)).decision is Decision.ALLOW  # an error is not cached
    assert len(app.reviews) == reviews + 1


async def test_an_answer_needs_no_kind(wire: Any, outgoing: Outgoing) -> None:
    app = Webhook(lambda spec: Response(201, [], b'{"status":{"allowed":true}}'))
    assert (await ask(authorizer(outgoing, await wire(app)))).decision is Decision.ALLOW


async def test_down_slow_and_unknown(
    wire: Any, outgoing: Outgoing, authority: Any, tmp_path: Any, caplog: pytest.LogCaptureFixture
) -> None:
    metrics = WebhookMetrics()

    async def silent(request: Request) -> Response:
        await trio.sleep_forever()
        raise AssertionError

    slow = await wire(silent)
    with caplog.at_level(logging.ERROR):
        verdict = await ask(authorizer(outgoing, slow, timeout=0.05, metrics=metrics))
    assert verdict.decision is Decision.NO_OPINION
    assert "no answer within the time-out" in verdict.error
    assert "Failed to make webhook authorizer request" in caplog.text
    stranger = RemoteServer(url=f"https://localhost:{slow.server.port}", ca=type(authority)(tmp_path, "stranger").file)
    with trio.socket.socket() as taken:
        await taken.bind(("127.0.0.1", 0))
        down = RemoteServer(url=f"https://127.0.0.1:{taken.getsockname()[1]}", ca=authority.file)
        for peer, why in ((stranger, "failed to verify certificate"), (down, "connection refused")):
            webhook = WebhookAuthorizer("test", outgoing.client(peer), metrics=metrics, on_error=Decision.DENY)
            verdict = await ask(webhook)
            assert verdict.decision is Decision.DENY
            assert why in verdict.error
    samples = {
        (one.name.removeprefix("apiserver_authorization_webhook_"), one.labels.get("result")): one.value
        for family in metrics.collect()
        for one in family.samples
    }
    assert samples["evaluations_total", "timeout"] == 1
    assert samples["evaluations_total", "error"] == 2
    assert samples["duration_seconds_count", "error"] == 2
    assert samples["evaluations_fail_open_total", "timeout"] == 1
    assert ("evaluations_fail_open_total", "error") not in samples  # this authorizer denies


# -- the cache --------------------------------------------------------------------------------------------------------


async def test_answers_are_cached_for_their_ttl(wire: Any, outgoing: Outgoing) -> None:
    app, clock = Webhook(lambda spec: {"allowed": spec["user"] == "joe"}), Clock()
    webhook = authorizer(outgoing, await wire(app), authorized_ttl=10, unauthorized_ttl=3, clock=clock)
    jane = User(name="jane")
    for now, users in ((0, ["joe", "jane"]), (2.9, []), (3, ["jane"]), (9, ["jane"]), (10, ["joe"])):
        clock.now = now
        app.reviews.clear()
        assert (await ask(webhook)).decision is Decision.ALLOW
        assert (await ask(webhook, user=jane)).decision is Decision.NO_OPINION
        assert [spec["user"] for spec in app.specs] == users


async def test_every_field_is_part_of_the_cache_key(wire: Any, outgoing: Outgoing) -> None:
    app = Webhook()
    webhook = authorizer(outgoing, await wire(app))
    users = [
        JOE,
        User(name="joe"),
        User(name="joe", uid="7"),
        User(name="joe", groups=("devs",)),
        User(name="joe", extra={"a": ("1", "2")}),
        User(name="joe", extra={"a": ("1",), "b": ("2",)}),
    ]
    infos = [
        LIST,
        GET,
        PATH,
        RequestInfo(path="", verb="list", is_resource=True),
        RequestInfo(path="", verb="list", is_resource=True, field_selector="a=b"),
        RequestInfo(path="", verb="list", is_resource=True, label_selector="a=b"),
    ]
    for _ in range(2):
        for user in users:
            for info in infos:
                await ask(webhook, info, user)
    assert len(app.reviews) == len(users) * len(infos)


async def test_without_a_ttl_each_request_has_its_own_review(wire: Any, outgoing: Outgoing) -> None:
    count = 0

    def answer(spec: Any) -> dict[str, Any]:
        nonlocal count
        count += 1
        return {"allowed": True, "reason": str(count)}

    webhook = authorizer(outgoing, await wire(Webhook(answer)), authorized_ttl=0, unauthorized_ttl=0)
    reasons: list[str] = []

    async def one() -> None:
        def twice() -> Verdict:
            """Decide twice: one operation may repeat a decision."""
            verdict = webhook.decide(JOE, LIST)
            assert webhook.decide(JOE, LIST) == verdict
            return verdict

        reasons.append((await decide_with_answers(twice)).reason)

    async with trio.open_nursery() as nursery:
        for _ in range(20):
            nursery.start_soon(one)
    assert sorted(reasons, key=int) == [str(number) for number in range(1, 21)]
    with pytest.raises(NeedsExternalAnswer):
        webhook.decide(JOE, LIST)


async def test_large_requests_are_not_cached(wire: Any, outgoing: Outgoing) -> None:
    app = Webhook()
    webhook = authorizer(outgoing, await wire(app))
    for length, reviews in ((MAX_CHOSEN - 1, 1), (MAX_CHOSEN, 2)):
        app.reviews.clear()
        for _ in range(2):
            assert (await ask(webhook, RequestInfo(path="/" * length, verb=""))).decision is Decision.ALLOW
        assert len(app.reviews) == reviews


@pytest.mark.parametrize("reviews", [1, 2])
async def test_large_users_are_not_cached(wire: Any, outgoing: Outgoing, reviews: int) -> None:
    app = Webhook()
    webhook = authorizer(outgoing, await wire(app))
    part = "x" * (MAX_USER // 4 - (10 if reviews == 1 else 0))
    somebody = User(name=part, uid="1", groups=(part,), extra={"a": (part, part)})
    for _ in range(2):
        assert (await decide_with_answers(lambda: webhook.decide(somebody, LIST))).decision is Decision.ALLOW
    assert len(app.reviews) == reviews


async def test_a_hundred_concurrent_requests_share_one_review(wire: Any, outgoing: Outgoing) -> None:
    app = Webhook()
    webhook = authorizer(outgoing, await wire(app))
    verdicts: list[Verdict] = []

    async def one() -> None:
        verdicts.append(await ask(webhook))

    async with trio.open_nursery() as nursery:
        for _ in range(100):
            nursery.start_soon(one)
    assert [verdict.decision for verdict in verdicts] == [Decision.ALLOW] * 100
    assert len(app.reviews) == 1


# -- conditions and rules ---------------------------------------------------------------------------------------------


async def test_conditions_decide_about_the_review(wire: Any, outgoing: Outgoing) -> None:
    def matches(spec: Any) -> bool:
        if spec["user"] == "broken":
            raise MatchFailed("no such field")
        return spec["user"] == "joe"

    app = Webhook()
    server = await wire(app)
    for on_error in (Decision.NO_OPINION, Decision.DENY):
        webhook = authorizer(outgoing, server, matches=matches, on_error=on_error)
        assert webhook.decide(User(name="jane"), LIST) == Verdict(Decision.NO_OPINION)
        assert webhook.decide(User(name="broken"), LIST) == Verdict(on_error, "", "no such field")
        assert not app.reviews
    assert (await ask(webhook)).decision is Decision.ALLOW
    assert len(app.reviews) == 1


async def test_its_rules_cannot_be_listed(wire: Any, outgoing: Outgoing) -> None:
    rules = authorizer(outgoing, await wire(Webhook())).rules(JOE, "a")
    assert (rules.rules, rules.incomplete) == ((), True)
    assert rules.errors == ("webhook authorizer does not support user rule resolution",)
