"""A server whose admission webhooks hang, answer nonsense or too much, call back, or change their certificate."""

from __future__ import annotations

import base64
import json
import ssl
import tracemalloc
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import trio
from admission.prepared_webhooks import CONFIGS, MAPS, configure
from in_process import Answer, InProcess, configmap, open_server

from kubechronicle.http.messages import Request, Response

JSON = [("content-type", "application/json")]
WRITES = 300
PATIENCE = 60.0
Reply = Callable[[dict[str, Any]], Awaitable[Response]]


def allowed(review: dict[str, Any], **response: Any) -> Response:
    """Return the answer to a review; ``response``: its fields beside uid and allowed."""
    response = {"uid": review["request"]["uid"], "allowed": True, **response}
    body = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response}
    return Response(200, JSON, json.dumps(body).encode())


def hook(reply: Reply) -> Callable[[Request], Awaitable[Response]]:
    async def app(request: Request) -> Response:
        return await reply(json.loads(await request.body(1 << 22)))

    return app


def webhook(port: int, authority: Any, **fields: Any) -> dict[str, Any]:
    ca = base64.b64encode(authority.file.read_bytes()).decode()
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["*"], "resources": ["configmaps"]}
    return {
        "name": "hook.example.com",
        "clientConfig": {"url": f"https://localhost:{port}/review", "caBundle": ca},
        "rules": [rule],
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
        "objectSelector": {"matchLabels": {"ask": "yes"}},
        **fields,
    }


def asked(name: str) -> Any:
    return configmap(name, labels={"ask": "yes"})


async def write(server: InProcess, name: str = "m") -> Answer:
    with trio.fail_after(PATIENCE):
        return await server.ask("POST", MAPS, asked(name))


async def constant(answer: Response) -> Response:
    return Response(answer.status, list(answer.headers), answer.body)


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (Response(200, JSON, b"x" * 100_000_000), "more than"),
        (Response(200, JSON, b"<html>"), "couldn't get version/kind"),
        (Response(200, JSON, b"[" * 100_000), "couldn't get version/kind"),
        (Response(200, JSON, b"null"), ""),
        (Response(200, JSON, b"[]"), ""),
        (Response(200, JSON, b"{}"), ""),
        (Response(200, JSON, b'{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview"}'), "response was absent"),
        (Response(200, JSON, b'{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","response":7}'), ""),
        (Response(204, JSON, b""), ""),
        (Response(302, [("location", "https://169.254.169.254/")], b""), ""),
        (Response(503, JSON, b"\xff\xfe"), ""),
    ],
    ids=["100 MB", "html", "deep", "null", "list", "empty", "absent", "number", "204", "redirect", "503"],
)
async def test_nonsense_fails_the_write_or_is_ignored(wire: Any, authority: Any, answer: Response, why: str) -> None:
    started = await wire(lambda request: constant(answer))
    async with open_server() as server:
        given = webhook(started.server.port, authority)
        await configure(server, "validating", given)
        message = (await write(server)).refused(500)["message"]
        assert message.startswith('Internal error occurred: failed calling webhook "hook.example.com": '), message
        assert why in message
        assert len(message) < 2_000
        await server.delete(f"{CONFIGS}/validatingwebhookconfigurations/c")
        await configure(server, "mutating", {**given, "failurePolicy": "Ignore"})
        assert (await write(server)).status == 201


@pytest.mark.parametrize("policy", ["Fail", "Ignore"])
async def test_a_webhook_that_hangs_is_left_after_its_timeout(wire: Any, authority: Any, policy: str) -> None:
    reached = trio.Event()

    async def hanging(review: dict[str, Any]) -> Response:
        reached.set()
        await trio.sleep_forever()
        raise AssertionError

    started = await wire(hook(hanging))
    async with open_server() as server:
        given = webhook(started.server.port, authority, timeoutSeconds=1, failurePolicy=policy)
        await configure(server, "mutating", given)
        answer = await write(server)
        assert reached.is_set()
        if policy == "Ignore":
            assert answer.status == 201
        else:
            assert answer.refused(500)["message"].endswith("context deadline exceeded")


async def test_a_webhook_calls_back_into_the_server(wire: Any, authority: Any) -> None:
    """It reads, and writes another object and the same one, while the write waits for it."""
    async with open_server() as server:

        async def calling(review: dict[str, Any]) -> Response:
            if review["request"]["operation"] == "CREATE":
                await server.get(MAPS)
                await server.post(MAPS, configmap("side"))
                await server.post(MAPS, configmap(review["request"]["name"]))
            return allowed(review)

        started = await wire(hook(calling))
        await configure(server, "validating", webhook(started.server.port, authority))
        assert (await write(server)).refused(409)["reason"] == "AlreadyExists"
        assert await server.names(MAPS) == ["m", "side"]


async def test_a_changed_certificate_needs_the_changed_bundle(
    wire: Any, authority: Any, nursery: trio.Nursery, tmp_path: Path
) -> None:
    """An injector of certificates replaces both while the server runs; connections of the former bundle end."""
    other = type(authority)(tmp_path, "other")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(*authority.issue("localhost", client=False))
    connections: list[trio.SSLStream[trio.SocketStream]] = []

    async def handle(stream: trio.SocketStream) -> None:
        tls = trio.SSLStream(stream, context, server_side=True, https_compatible=True)
        connections.append(tls)
        try:
            while data := await tls.receive_some():
                while data.count(b"\r\n\r\n") and not data.rstrip().endswith(b"}"):
                    data += await tls.receive_some()
                answer = allowed(json.loads(data.partition(b"\r\n\r\n")[2]))
                assert isinstance(answer.body, bytes)
                await tls.send_all(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(answer.body) + answer.body)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass
        finally:
            await trio.aclose_forcefully(tls)

    listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
    nursery.start_soon(trio.serve_listeners, handle, listeners)
    port = listeners[0].socket.getsockname()[1]
    async with open_server() as server:
        await configure(server, "validating", webhook(port, authority))
        assert (await write(server, "a")).status == (await write(server, "b")).status == 201
        assert len(connections) == 1
        context.load_cert_chain(*other.issue("localhost", client=False))
        await trio.aclose_forcefully(connections[0])  # the webhook starts again
        message = (await write(server, "c")).refused(500)["message"]
        assert message.endswith("tls: failed to verify certificate: x509: certificate signed by unknown authority")
        await server.patch(f"{CONFIGS}/validatingwebhookconfigurations/c", {"webhooks": [webhook(port, other)]})
        assert (await write(server, "c")).status == 201
        await server.patch(f"{CONFIGS}/validatingwebhookconfigurations/c", {"webhooks": [webhook(port, authority)]})
        assert (await write(server, "d")).status == 500


async def test_many_writes_wait_for_a_slow_webhook_and_nobody_else(wire: Any, authority: Any) -> None:
    """All of them wait, each in a bounded part of memory, while reads and other writes are answered."""
    leave, reached = trio.Event(), trio.Semaphore(0)
    answers: list[int] = []

    async def slow(review: dict[str, Any]) -> Response:
        reached.release()
        await leave.wait()
        return allowed(review)

    started = await wire(hook(slow))
    async with open_server() as server, trio.open_nursery() as nursery:
        await configure(server, "validating", webhook(started.server.port, authority, timeoutSeconds=30))

        async def waiting(number: int) -> None:
            answers.append((await write(server, f"slow-{number}")).status)

        tracemalloc.start()
        try:
            for number in range(WRITES):
                nursery.start_soon(waiting, number)
            with trio.fail_after(PATIENCE):
                for _ in range(50):
                    await reached.acquire()
                for number in range(50):
                    assert await server.names(MAPS) == []
                    await server.post(MAPS, configmap(f"fast-{number}"))
                    await server.delete(f"{MAPS}/fast-{number}")
            used = tracemalloc.get_traced_memory()[0]
        finally:
            tracemalloc.stop()
        assert not answers
        assert used < WRITES * 200_000
        leave.set()
    assert answers == [201] * WRITES
