"""The filter chain: its order, errors in the client's representation, limits, time-outs, audit ids and warnings."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
import trio
import yaml
from in_process import ADMIN, MAPS, PROTOBUF, Answer, configmap, open_server
from trio.testing import MockClock, wait_all_tasks_blocked

from kubechronicle.actors.errors import ActorCrashed, MailboxFull
from kubechronicle.api.codecs import protobuf
from kubechronicle.api.errors import status
from kubechronicle.api.features.gates import FeatureGates
from kubechronicle.eventlog.errors import (
    Compacted,
    FutureRevision,
    LogUnavailable,
    OutcomeUnknownForNow,
    QueueFull,
)
from kubechronicle.http import filters
from kubechronicle.http.authentication.chain import AuthenticationChain
from kubechronicle.http.authentication.user import GROUP_MASTERS, CredentialRejected, User
from kubechronicle.http.authorization.decision import AlwaysAllow, AlwaysDeny, AuthorizationChain
from kubechronicle.http.context import Context, Step
from kubechronicle.http.messages import BodyTooLarge, BufferedExchange, ClientDisconnected, Headers, Request, Response
from kubechronicle.http.metrics import Metrics
from kubechronicle.http.representation.answers import warning_fields
from kubechronicle.http.wire.exchange import close_iterator

JANE = User(name="jane", groups=("ops",))
ROOT = User(name="root", groups=(GROUP_MASTERS,))
Handler = Callable[[Request], Awaitable[Response]]


class Always:
    """An authenticator that authenticates every request with a certificate as one user, or rejects all."""

    def __init__(self, user: User | None) -> None:
        self.user = user

    def authenticate(self, request: Request) -> User | None:
        if self.user is None:
            raise CredentialRejected
        return self.user


def chain(handler: Step, *, user: User | None = JANE, allow: bool = True, **settings: Any) -> Handler:
    services = filters.Services(
        metrics=Metrics(),
        authentication=AuthenticationChain([Always(user)]),
        authorization=AuthorizationChain([AlwaysAllow() if allow else AlwaysDeny()]),
        is_served=lambda info: True,
        **settings,
    )
    return filters.build(services, handler)


async def answered(request: Request, context: Context) -> Response:
    return Response(200, [("content-type", "text/plain")], b"ok")


def raising(error: BaseException) -> Step:
    async def handler(request: Request, context: Context) -> Response:
        raise error

    return handler


async def ask(app: Handler, method: str = "GET", target: str = "/api/v1/pods", **headers: str) -> Answer:
    fields = {name.replace("_", "-"): value for name, value in headers.items()}
    response = await app(Request.of(method, target, headers=fields, peer_certificate=b"certificate"))
    assert isinstance(response.body, bytes)
    return Answer(response.status, response.headers, response.body)


# -- order ------------------------------------------------------------------------------------------------------------


def test_the_order_is_kube_apiservers() -> None:
    assert [each.__name__ for each in filters.FILTERS] == [
        "measure",
        "limit_time",
        "authenticate",
        "trace",
        "audit",
        "record_accesses",
        "impersonate",
        "limit_in_flight",
        "authorize",
        "trace_handler",
        "record_reads",
    ]


async def test_401_precedes_403_and_neither_reaches_the_handler() -> None:
    app = chain(raising(AssertionError("reached")), user=None, allow=False)
    (await ask(app)).refused(401)
    (await ask(chain(raising(AssertionError("reached")), allow=False))).refused(403)


@pytest.mark.parametrize(
    ("target", "shown"),
    [
        ("/api/v1/watch?a=%20&b=<c>", '"/api/v1/watch?a=%20&amp;b=&lt;c&gt;"'),
        ("/apis/apps/v1/proxy/", '"/apis/apps/v1/proxy/"'),
        ("/api/w%61tch/watch", '"/api/w%61tch/watch"'),
    ],
)
async def test_a_path_that_ends_with_an_old_verb_is_an_internal_error_before_authentication(
    target: str, shown: str
) -> None:
    answer = await ask(chain(raising(AssertionError("reached")), user=None), target=target)
    assert (answer.status, answer.header("content-type")) == (500, "text/plain; charset=utf-8")
    assert answer.header("audit-id")
    why = "failed to create RequestInfo: unable to determine kind and namespace from url"
    assert answer.body.decode() == f"Internal Server Error: {shown}: {why}, {shown[1:-1]}\n"


async def test_the_url_of_an_internal_error_is_escaped_anew_if_it_is_not_valid() -> None:
    answer = await ask(chain(answered), target='/api/"%41/watch')
    assert answer.body.endswith(b"from url, /api/%22A/watch\n")


@pytest.mark.parametrize(
    ("target", "named", "request_text", "details"),
    [
        ("/api/v1/../v1", '.. "v1" is ', 'resource ".." in API group ""', {"name": "v1", "kind": ".."}),
        ("/api/v1/a.b/c", 'a.b "c" is ', 'resource "a.b" in API group ""', {"name": "c", "kind": "a.b"}),
        ("/apis/apps/v1//x", '.apps "x" is ', 'resource "" in API group "apps"', {"name": "x", "group": "apps"}),
        ("/x%22%0a&", "", r'path "/x\"\n&amp;"', {}),
    ],
)
async def test_a_403_names_the_request_quoted_and_without_html(
    target: str, named: str, request_text: str, details: dict[str, str]
) -> None:
    answer = await ask(chain(answered, user=User(name='a"<b>', groups=()), allow=False), target=target)
    where = (" at the cluster scope" if named else "") + ": Everything is forbidden."
    answer.refused(403)
    refusal = answer.json()
    assert refusal["message"] == rf'{named}forbidden: User "a\"&lt;b&gt;" cannot get {request_text}{where}'
    assert refusal["details"] == details


async def test_the_handler_gets_the_context_of_the_filters() -> None:
    seen: list[Context] = []

    async def handler(request: Request, context: Context) -> Response:
        seen.append(context)
        return await answered(request, context)

    await ask(chain(handler), target="/api/v1/namespaces/a/pods/p?x=1")
    (context,) = seen
    assert (context.info.verb, context.info.name, context.query.get("x")) == ("get", "p", "1")
    assert context.user.groups == ("ops", "system:authenticated")
    assert context.deadline == pytest.approx(trio.current_time() + 60, abs=5)


# -- errors -----------------------------------------------------------------------------------------------------------

MISSING = status.not_found("pods", "p")


async def test_a_status_in_json_yaml_and_protobuf() -> None:
    app = chain(raising(MISSING))
    plain = await ask(app)
    assert plain.header("content-type") == "application/json"
    expected = plain.refused(404)
    assert expected == {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": 'pods "p" not found',
        "reason": "NotFound",
        "details": {"name": "p", "kind": "pods"},
        "code": 404,
    }
    as_yaml = await ask(app, accept="application/yaml")
    assert as_yaml.header("content-type") == "application/yaml"
    assert yaml.safe_load(as_yaml.body) == expected
    as_protobuf = await ask(app, accept=f"{PROTOBUF},application/json")
    assert as_protobuf.header("content-type") == PROTOBUF
    decoded = protobuf.decode(as_protobuf.body)
    assert (decoded["kind"], decoded["message"], decoded["code"]) == ("Status", 'pods "p" not found', 404)


@pytest.mark.parametrize("accept", ["text/html", "image/png", "application/xml;q=0.9", "garbage", "", ";;;,,,", "*/*"])
async def test_errors_are_json_if_no_media_type_is_acceptable(accept: str) -> None:
    answer = await ask(chain(raising(MISSING)), accept=accept)
    assert answer.header("content-type") == "application/json"
    answer.refused(404)


@pytest.mark.parametrize(
    ("error", "code", "reason"),
    [
        (LogUnavailable("secret host name"), 503, "ServiceUnavailable"),
        (ActorCrashed("pods"), 503, "ServiceUnavailable"),
        (OutcomeUnknownForNow("x"), 504, "Timeout"),
        (MailboxFull("pods", 1), 429, "TooManyRequests"),
        (QueueFull(1), 429, "TooManyRequests"),
        (Compacted(3, 7), 410, "Expired"),
        (FutureRevision(9, 7), 504, "Timeout"),
        (BodyTooLarge(10), 413, "RequestEntityTooLarge"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else "",
)
async def test_the_servers_own_errors_become_statuses(error: Exception, code: int, reason: str) -> None:
    found = (await ask(chain(raising(error)))).refused(code)
    assert found["reason"] == reason
    assert "secret" not in found["message"]


@pytest.mark.parametrize("error", [MailboxFull("pods", 1), LogUnavailable("x"), status.too_many_requests("x")])
async def test_errors_to_retry_have_retry_after(error: Exception) -> None:
    assert (await ask(chain(raising(error)))).header("retry-after") == "1"


async def test_a_bug_is_500_with_its_traceback_in_the_log_only(caplog: pytest.LogCaptureFixture) -> None:
    answer = await ask(chain(raising(ZeroDivisionError("the inner workings"))))
    found = answer.refused(500)
    assert found["reason"] == "InternalError"
    assert "inner workings" not in str(found)
    assert answer.header("audit-id")
    (record,) = caplog.records
    assert record.levelno == logging.ERROR
    assert "the inner workings" in caplog.text


async def test_clients_that_left_and_cancellation_pass_through() -> None:
    app = chain(raising(ClientDisconnected()))
    with pytest.raises(ClientDisconnected):
        await ask(app)

    async def forever(request: Request, context: Context) -> Response:
        await trio.sleep_forever()
        raise AssertionError

    with trio.move_on_after(0) as scope:
        await ask(chain(forever))
    assert scope.cancelled_caught


# -- audit id and warnings --------------------------------------------------------------------------------------------


async def test_the_audit_id_is_the_clients_or_a_new_one() -> None:
    app = chain(answered)
    ours = [(await ask(app)).header("audit-id") for _ in range(2)]
    assert len(set(ours)) == 2
    assert all(len(one) == 36 for one in ours)
    assert (await ask(app, audit_id="mine")).header_all("audit-id") == ["mine"]
    assert (await ask(chain(raising(MISSING)), audit_id="mine")).header_all("audit-id") == ["mine"]
    assert len((await ask(app, audit_id="x" * 1000)).header("audit-id")) == 1000


@pytest.mark.parametrize(
    ("given", "lengths"),
    [
        ([f"z{n:02}" + "z" * 196 for n in range(30)], [199] * 21),
        ([f"w{n:02}" + "w" * 996 for n in range(6)], [256] * 6),
        (["a" * 4095, "b", "c", "d" * 300], [256, 1, 1, 256]),
        (["a" * 4000, "b"], [4000, 1]),
    ],
)
def test_warnings_that_are_too_long_together_are_cut(given: list[str], lengths: list[int]) -> None:
    assert [len(field) - len('299 - ""') for field in warning_fields(given)] == lengths


async def test_warnings_are_quoted_and_cannot_break_out_of_their_field() -> None:
    async def handler(request: Request, context: Context) -> Response:
        warnings = ['a "quoted" \\ one', "two\r\nx-evil: 1\x00\x7f", "a", 'unknown field "spec.é"', "a"]
        context.warnings.extend(warnings)
        return await answered(request, context)

    answer = await ask(chain(handler))
    assert answer.header_all("warning") == [
        '299 - "a \\"quoted\\" \\\\ one"',
        '299 - "two  x-evil: 1  "',
        '299 - "a"',
        '299 - "unknown field \\"spec.é\\""',
    ]


async def test_warnings_of_many_fields_stay_within_the_headers_bound() -> None:
    """kube-apiserver cuts warnings at 4 KiB in total: proxies reject larger headers."""

    async def handler(request: Request, context: Context) -> Response:
        context.warnings.extend(f"unknown field {number} " + "x" * 400 for number in range(100))
        return await answered(request, context)

    warnings = (await ask(chain(handler))).header_all("warning")
    assert 10 <= len(warnings) < 100
    assert sum(map(len, warnings)) <= 5 * 1024


async def test_unknown_fields_become_warnings_end_to_end(autojump_clock: MockClock) -> None:
    async with open_server() as server:
        body = {**configmap("a"), "dat": {}, "x\ny": 1}
        answer = await server.ask("POST", f"{MAPS}?fieldValidation=Warn", body)
        assert answer.status == 201
        assert '299 - "unknown field \\"dat\\""' in answer.header_all("warning")
        assert all("\n" not in value for value in answer.header_all("warning"))


async def test_a_rejected_write_has_the_warnings_of_its_body(autojump_clock: MockClock) -> None:
    unknown = '299 - "unknown field \\"dat\\""'
    async with open_server() as server:
        await server.post(MAPS, configmap("held"))
        invalid = {**configmap("a"), "dat": {}}
        invalid["metadata"] = {"name": "a", "labels": {"-": "x"}}
        answer = await server.ask("POST", MAPS, invalid)
        assert (answer.status, answer.header_all("warning")) == (422, [unknown])
        answer = await server.ask("POST", MAPS, {**configmap("held"), "dat": {}})
        assert (answer.status, answer.header_all("warning")) == (409, [unknown])
        patch = {"dat": {}, "metadata": {"labels": {"-": "x"}}}
        merge = {"content-type": "application/merge-patch+json"}
        answer = await server.ask("PATCH", f"{MAPS}/held", patch, headers=merge)
        assert (answer.status, answer.header_all("warning")) == (422, [unknown])


# -- limits -----------------------------------------------------------------------------------------------------------


class Held:
    """A handler that waits until it is released."""

    def __init__(self) -> None:
        self.go = trio.Event()
        self.inside = 0

    async def __call__(self, request: Request, context: Context) -> Response:
        self.inside += 1
        await self.go.wait()
        return await answered(request, context)


async def test_reads_and_writes_in_flight_are_limited_apart(nursery: trio.Nursery) -> None:
    held = Held()
    app = chain(held, max_requests_inflight=2, max_mutating_requests_inflight=1)
    for method, target in (("GET", "/api/v1/pods"), ("GET", "/api/v1/pods/x"), ("POST", "/api/v1/pods")):
        nursery.start_soon(ask, app, method, target)
    await wait_all_tasks_blocked()
    assert held.inside == 3
    for method, target in (("GET", "/api/v1/pods"), ("GET", "/healthz"), ("PUT", "/api/v1/pods/x"), ("DELETE", "/x")):
        answer = await ask(app, method, target)
        assert (answer.status, answer.body) == (429, b"Too many requests, please try again later.\n")
        assert answer.header("retry-after") == "1"
    held.go.set()
    await wait_all_tasks_blocked()
    assert (await ask(app)).status == 200  # below the limit again
    assert (await ask(app, "POST")).status == 200


async def test_watches_and_masters_are_not_limited(nursery: trio.Nursery) -> None:
    held = Held()
    app = chain(held, max_requests_inflight=1)
    for target in ("/api/v1/pods", "/api/v1/pods?watch=1", "/api/v1/watch/pods", "/api/v1/namespaces/a/pods/p/log"):
        nursery.start_soon(ask, app, "GET", target)
    await wait_all_tasks_blocked()
    assert held.inside == 4
    nursery.cancel_scope.cancel()


async def test_masters_pass_a_full_server(nursery: trio.Nursery) -> None:
    held = Held()
    app = chain(held, user=ROOT, max_requests_inflight=1)
    for _ in range(3):
        nursery.start_soon(ask, app)
    await wait_all_tasks_blocked()
    assert held.inside == 3
    held.go.set()


async def test_errors_and_cancelled_requests_are_no_longer_in_flight(nursery: trio.Nursery) -> None:
    app = chain(raising(MISSING), max_requests_inflight=1)
    for _ in range(3):
        (await ask(app)).refused(404)
    held = Held()
    app = chain(held, max_requests_inflight=1)
    with trio.move_on_after(0):
        await ask(app)
    held.go.set()
    assert (await ask(app)).status == 200


# -- time -------------------------------------------------------------------------------------------------------------


async def sleeping(request: Request, context: Context) -> Response:
    await trio.sleep_forever()
    raise AssertionError


@pytest.mark.parametrize(
    ("target", "seconds"),
    [
        ("/api/v1/pods", 60),
        ("/api/v1/pods?timeout=", 60),
        ("/api/v1/pods?timeout=1m30s", 60),
        ("/api/v1/pods?timeout=2s", 2),
        ("/api/v1/pods?timeout=500ms", 0.5),
        ("/api/v1/pods?timeout=0", 60),
        ("/api/v1/pods?timeout=0s", 60),
        ("/version?timeout=3s", 3),
    ],
)
async def test_a_request_ends_in_its_time(autojump_clock: MockClock, target: str, seconds: float) -> None:
    started = trio.current_time()
    answer = await ask(chain(sleeping), target=target)
    assert trio.current_time() - started == pytest.approx(seconds)
    answer.timed_out()


@pytest.mark.parametrize("text", ["x", "10", "1.5", "5sec", "--1s", "s", "1e3s", ".s", "1..5s", "٣s", "1s ", "nan"])
async def test_an_invalid_timeout_is_400(text: str) -> None:
    found = (await ask(chain(answered), target=f"/api/v1/pods?timeout={text}")).refused(400)
    assert found["message"].startswith("invalid timeout specified in the request URL")


async def test_a_watch_has_no_deadline(autojump_clock: MockClock) -> None:
    async def handler(request: Request, context: Context) -> Response:
        await trio.sleep(10_000)
        return await answered(request, context)

    assert (await ask(chain(handler), target="/api/v1/pods?watch=1&timeout=1s")).status == 200


# -- bodies -----------------------------------------------------------------------------------------------------------


async def test_a_stream_is_counted_until_it_ends() -> None:
    closed: list[bool] = []

    async def body() -> AsyncIterator[bytes]:
        try:
            yield b"a"
            yield b"b"
        finally:
            closed.append(True)

    async def handler(request: Request, context: Context) -> Response:
        return Response(200, [], body())

    metrics = Metrics()
    services = filters.Services(
        metrics=metrics,
        authentication=AuthenticationChain([Always(JANE)]),
        authorization=AuthorizationChain([AlwaysAllow()]),
        is_served=lambda info: True,
    )
    response = await filters.build(services, handler)(Request.of("GET", "/api/v1/pods?watch=1"))
    labels = {"verb": "WATCH", "group": "", "version": "v1", "resource": "pods", "subresource": "", "scope": "cluster"}
    labels["component"] = "apiserver"
    value = metrics.registry.get_sample_value
    assert not isinstance(response.body, bytes)
    chunks = []
    async for chunk in response.body:
        assert value("apiserver_longrunning_requests", labels) == 1
        chunks.append(chunk)
    assert chunks == [b"a", b"b"]
    await close_iterator(response.body)
    assert closed == [True]
    assert value("apiserver_longrunning_requests", labels) == 0
    counted = {"subresource": "", "dry_run": "", "scope": "cluster", "code": "200", **labels}
    assert value("apiserver_request_total", counted) == 1


async def test_a_client_that_leaves_in_the_middle_of_its_body_is_no_error(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    class Leaving(BufferedExchange):
        async def receive_body(self) -> bytes:
            raise ClientDisconnected

    async with open_server() as server:
        request = Request(
            method="POST",
            raw_path=MAPS,
            query_string="",
            exchange=Leaving(),
            headers=Headers([("authorization", "Bearer token-of-admin"), ("content-type", "application/json")]),
        )
        with pytest.raises(ClientDisconnected):
            await server.assembly.application.application(request)
    assert not caplog.records


@pytest.mark.parametrize(
    ("version", "token", "gate", "ends"),
    [("2", "", True, 1), ("2", "wrong", True, 1), ("2", ADMIN, True, 0), ("1.1", "", True, 0), ("2", "", False, 0)],
    ids=["anonymous", "refused", "known", "HTTP/1.1", "without the gate"],
)
async def test_connections_of_unknown_users_end(version: str, token: str, gate: bool, ends: int) -> None:
    class Ending(BufferedExchange):
        left = 0

        def leave(self) -> None:
            self.left += 1

    gates = FeatureGates(given={"UnauthenticatedHTTP2DOSMitigation": gate})
    async with open_server(features=gates) as server:
        request = server.request("GET", "/livez", token=token)
        request.http_version, request.exchange = version, Ending()
        response = await server.assembly.application.application(request)
        assert response.status == {"wrong": 401, "": 403}.get(token, 200)
        assert request.exchange.left == ends
