"""Clients that are wrong, hostile or slow: each gets a correct Status or a closed connection. The server keeps running.

Every test ends with the same checks (``still_well``): the same process, it answers, its memory did not grow. (Longer
than most files: the tests share these checks and little else.)
"""

from __future__ import annotations

import contextlib
import json
import resource
import socket
import ssl
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from harness import Answer, Api, Server, configmap, eventually, unique

from kubechronicle.ops.development.server_process import resident_mib

NAMESPACE = "bad-input"
CONFIGMAPS = f"/api/v1/namespaces/{NAMESPACE}/configmaps"
JSON = "application/json"
YAML = "application/yaml"
PROTOBUF = "application/vnd.kubernetes.protobuf"
# A head that is not complete.
POST = b"POST /api/v1/namespaces HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
MIB = 1 << 20
GROWTH = 48.0  # MiB that may remain after a test: caches and the allocator's memory, but not the data the test sent
SOON = 20.0  # seconds for an action of milliseconds: other tests may keep every core busy


@pytest.fixture(scope="module")
def api(server: Server) -> Api:
    api = server.api()
    api.namespace(NAMESPACE)
    for _ in range(20):  # memory kept from the first request of each kind is not measured
        api.request("GET", CONFIGMAPS).expect(200)
        api.request("POST", CONFIGMAPS, b"{").expect(400)
    return api


@dataclass
class Health:
    """The server's memory before the test, in MiB. A test may set it later."""

    memory: float


@pytest.fixture(autouse=True)
def still_well(server: Server, api: Api) -> Iterator[Health]:
    health, pid = Health(resident_mib(server.pid)), server.pid
    yield health
    assert server.running
    assert server.pid == pid
    began = time.monotonic()
    assert server.api().request("GET", "/readyz").body == b"ok"
    assert time.monotonic() - began < SOON
    wait_for_memory(server, health.memory)


def wait_for_memory(server: Server, memory: float) -> None:
    """Wait until the server's memory is below ``memory`` + GROWTH (MiB). It drops cut connections within seconds, and
    collects cycles only while it works, so it gets requests in the meantime."""
    with contextlib.closing(server.api()) as api:

        def returned() -> bool:
            api.request("GET", CONFIGMAPS).expect(200)
            return resident_mib(server.pid) - memory < GROWTH

        eventually(returned, f"memory to return to {memory:.0f} + {GROWTH:.0f} MiB")


def post(api: Api, body: bytes, content_type: str = JSON, query: str = "") -> Answer:
    return api.request("POST", CONFIGMAPS + query, body, headers={"Content-Type": content_type})


def status(answer: Answer, code: int, reason: str) -> str:
    """Assert a Status of this code and reason. Return its message."""
    body = answer.json()
    assert (answer.status, body["kind"], body["status"], body["code"], body.get("reason")) == (
        code,
        "Status",
        "Failure",
        code,
        reason,
    ), answer
    return str(body["message"])


def connect(server: Server, *, receive_buffer: int = 0, timeout: float = 30.0) -> ssl.SSLSocket:
    raw = socket.socket()
    raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # as every HTTP client does
    if receive_buffer:
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
    raw.settimeout(timeout)
    raw.connect(("127.0.0.1", server.port))
    return server.client_context().wrap_socket(raw, server_hostname="127.0.0.1")


def exchange(server: Server, request: bytes) -> bytes:
    """Send the bytes. Return everything the server sends until it closes, or until the head of an answer."""
    with connect(server) as connection:
        received = b""
        with contextlib.suppress(ssl.SSLError, ConnectionError):  # it need not read a rejected request …
            connection.sendall(request)
        with contextlib.suppress(ssl.SSLError, ConnectionError):  # … but may have answered it
            while b"\r\n\r\n" not in received and (data := connection.recv(65536)):
                received += data
        return received


# Bodies


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"nul",
        b"[]",
        b'"text"',
        b"1e999",
        b"{}{}",
        b'{"apiVersion":"v1","kind":"Gadget"}',
        b'{"apiVersion":"v1","kind":"Secret","metadata":{"name":"a"}}',
        b'{"apiVersion":"apps/v1","kind":"ConfigMap","metadata":{"name":"a"}}',
        b'{"apiVersion":"v1","kind":"ConfigMap","metadata":[]}',
        b'{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":1}}',
        b'{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"},"data":{"a":1}}',
        b'{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"},"binaryData":{"a":"?"}}',
        b'{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","creationTimestamp":"yesterday"}}',
        b'\xff\xfe{"apiVersion":"v1"}',
        b"\x00" * 100,
    ],
    ids=lambda body: repr(body[-40:]),
)
def test_malformed_json(api: Api, body: bytes) -> None:
    assert status(post(api, body), 400, "BadRequest")


@pytest.mark.parametrize(
    "body",
    [
        b"a: [",
        b"a: b: c",
        b"\t- x",
        b"- 1\n- 2",
        b"just text",
        b"%YAML 9",
        b"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: *unknown}",
        b"apiVersion: v1\nkind: ConfigMap\nmetadata: &a {name: x, labels: *a}",
        b"!!python/object/apply:os.system ['true']",
        b"a: \xff\xfe",
    ],
    ids=lambda body: repr(body[-40:]),
)
def test_malformed_yaml(api: Api, body: bytes) -> None:
    assert status(post(api, body, YAML), 400, "BadRequest")


def test_a_yaml_bomb(api: Api) -> None:
    """Nested aliases, nine per level: a few hundred bytes expand to gigabytes."""
    lines = ["a0: &a0 [x,x,x,x,x,x,x,x,x]"]
    lines += [f"a{n}: &a{n} [{','.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 10)]
    began = time.monotonic()
    status(post(api, "\n".join(["apiVersion: v1", "kind: ConfigMap", *lines]).encode(), YAML), 400, "BadRequest")
    assert time.monotonic() - began < SOON


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"k8s",
        b"k8s\x00",
        b"k8s\x00\xff\xff\xff\xff",
        b"protobuf?",
        b'{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"}}',
        # The envelope is of a v1 ConfigMap. Its raw part has a field of 2 GiB, is truncated, or has a wrong wire type.
        b"k8s\x00\x0a\x0f\x0a\x02v1\x12\x09ConfigMap\x12\x07\x0a\xff\xff\xff\xff\x07\x00",
        b"k8s\x00\x0a\x0f\x0a\x02v1\x12\x09ConfigMap\x12\x04\x0a\x09ab",
        b"k8s\x00\x0a\x0f\x0a\x02v1\x12\x09ConfigMap\x12\x02\x08\x01",
    ],
    ids=lambda body: repr(body[-40:]),
)
def test_malformed_protobuf(api: Api, body: bytes) -> None:
    assert status(post(api, body, PROTOBUF), 400, "BadRequest")


def test_unknown_media_types(api: Api) -> None:
    assert status(post(api, b"{}", "text/plain"), 415, "UnsupportedMediaType")
    answer = api.request("GET", CONFIGMAPS, headers={"Accept": "image/png"})
    assert status(answer, 406, "NotAcceptable")
    answer = api.request("PATCH", f"{CONFIGMAPS}/a", b"{}", headers={"Content-Type": JSON})
    assert status(answer, 415, "UnsupportedMediaType")


@pytest.mark.parametrize("size", [3 * MIB + 1, 4 * MIB, 40 * MIB])
def test_a_body_that_is_too_large(server: Server, api: Api, size: int) -> None:
    """The limit is 3 MiB, with and without a Content-Length."""
    obj = json.dumps(configmap("large", v="x" * size)).encode()
    for method, target in (("POST", CONFIGMAPS), ("PUT", f"{CONFIGMAPS}/large")):
        with contextlib.suppress(ConnectionError, ssl.SSLError):  # the server need not read a rejected request
            answer = api.request(method, target, obj)
            assert status(answer, 413, "RequestEntityTooLarge") == "Request entity too large: limit is 3145728"
        api.close()
    head = f"POST {CONFIGMAPS} HTTP/1.1\r\nHost: x\r\nContent-Type: {JSON}\r\n"
    chunk = b"%x\r\n%s\r\n" % (65536, b"x" * 65536)
    announced = exchange(server, f"{head}Content-Length: {size}\r\n\r\n".encode() + obj[:65536])
    assert announced == b"" or announced.startswith(b"HTTP/1.1 413")
    chunked = exchange(server, f"{head}Transfer-Encoding: chunked\r\n\r\n".encode() + chunk * (size // 65536 + 1))
    assert chunked == b"" or chunked.startswith(b"HTTP/1.1 413")


def test_an_object_that_is_too_large_for_its_kind(api: Api) -> None:
    body = json.dumps(configmap(unique("large"), v="x" * 2 * MIB)).encode()
    assert "may not be more than 1048576 bytes" in status(post(api, body), 422, "Invalid")
    annotated = configmap(unique("large"))
    annotated["metadata"]["annotations"] = {"a": "x" * 300_000}
    assert "metadata.annotations: Too long" in status(post(api, json.dumps(annotated).encode()), 422, "Invalid")


def test_unknown_and_duplicate_fields(api: Api) -> None:
    body = (
        b'{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"NAME","nome":1},"data":{"a":"1","a":"2"},"dada":{}}'
    )
    refused = status(post(api, body, query="?fieldValidation=Strict"), 400, "BadRequest")
    for complaint in ('unknown field "dada"', 'unknown field "metadata.nome"', 'duplicate field "data.a"'):
        assert complaint in refused
    warned = post(api, body.replace(b"NAME", unique("warned").encode()), query="?fieldValidation=Warn")
    assert warned.status == 201
    assert 'unknown field \\"dada\\"' in warned.headers["warning"]
    ignored = post(api, body.replace(b"NAME", unique("ignored").encode()), query="?fieldValidation=Ignore")
    assert (ignored.status, ignored.headers.get("warning")) == (201, None)
    assert "dada" not in ignored.json()
    assert ignored.json()["data"] == {"a": "2"}
    assert status(post(api, body, query="?fieldValidation=Perhaps"), 422, "Invalid")


@pytest.mark.parametrize("depth", [1_000, 100_000, 1_000_000])
def test_deep_nesting(api: Api, depth: int) -> None:
    """A thousand levels in an unknown field may pass (and be dropped); more than Go's limit of ten thousand may not."""
    allowed = {400, 413} if depth > 10_000 else {201, 400}
    head = b'{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"%s"},"deep":' % unique("deep").encode()
    for opening, closing in ((b"[", b"]"), (b'{"a":', b"}")):
        body = head + opening * depth + b"1" + closing * depth + b"}"
        assert post(api, body).status in allowed
        assert post(api, body[: len(body) // 2]).status in {400, 413}
        patched = api.request(
            "PATCH", f"{CONFIGMAPS}/none", body, headers={"Content-Type": "application/merge-patch+json"}
        )
        assert patched.status in {400, 404, 413}
    began = time.monotonic()
    assert post(api, b"a: " + b"[" * depth, YAML).status in {400, 413}
    assert time.monotonic() - began < SOON
    # Nested length-delimited fields, which a recursive decoder would descend into.
    assert post(api, b"k8s\x00" + b"\x0a\x7f" * depth, PROTOBUF).status in {400, 413}


def test_invalid_utf_8(server: Server, api: Api) -> None:
    """Go's decoder replaces invalid UTF-8 by U+FFFD. Rejecting it is as good, passing it on is not."""
    body = b'{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"%s"},"data":{"a":"\xff\xc0\x80"}}'
    answer = post(api, body % unique("utf").encode())
    assert answer.status in {201, 400}
    answer.body.decode("utf-8")
    lone = post(api, body.replace(b"\xff\xc0\x80", b"\\ud800") % unique("utf").encode())
    assert lone.status in {201, 400}
    lone.body.decode("utf-8")
    for target in (
        "/api/v1/namespaces/%FF%FE/configmaps",
        f"{CONFIGMAPS}/%FF",
        f"{CONFIGMAPS}?labelSelector=%FF%3D1",
        f"{CONFIGMAPS}?fieldSelector=metadata.name%3D%C0%80",
        f"{CONFIGMAPS}/%00",
    ):
        answer = api.request("GET", target)
        assert answer.status in {200, 400, 404}, (target, answer)
    received = exchange(server, b"GET /api/v1/\xff\xfe HTTP/1.1\r\nHost: x\r\n\r\n")
    assert received == b"" or received.startswith((b"HTTP/1.1 400", b"HTTP/1.1 404"))


# Requests


@pytest.mark.parametrize(
    "query",
    [
        "limit=abc",
        "limit=99999999999999999999",
        "watch=1&timeoutSeconds=abc",
        "resourceVersion=abc",
        "resourceVersion=-1",
        "resourceVersionMatch=Exact",
        "resourceVersion=0&resourceVersionMatch=Exact",
        "resourceVersion=1&resourceVersionMatch=Roughly",
        "continue=%00garbage",
        "continue=eyJ2IjoibWV0YS5rOHMuaW8vdjEifQ&limit=1",
        "labelSelector=a%20in%20(",
        "labelSelector=,,,",
        "labelSelector=" + "a%3D%21",
        "fieldSelector=a",
        "fieldSelector=spec.unknown%3Da",
        "watch=1&sendInitialEvents=true",
        "watch=1&resourceVersionMatch=NotOlderThan",
    ],
)
def test_absurd_options(api: Api, query: str) -> None:
    answer = api.request("GET", f"{CONFIGMAPS}?{query}")
    assert answer.status in {400, 422}, answer
    assert answer.json()["kind"] == "Status"


def test_a_revision_from_the_future(api: Api) -> None:
    answer = api.request("GET", f"{CONFIGMAPS}?resourceVersion=999999999999")
    message = status(answer, 504, "Timeout")
    assert "Too large resource version: 999999999999, current: " in message


@pytest.mark.parametrize(
    "query",
    [
        "x" * 1_000_000,
        "&".join(f"p{n}=1" for n in range(20_000)),
        "&" * 100_000,
        "%" * 5000,
        "labelSelector=" + "a," * 20_000,
    ],
    ids=["long", "many", "empty", "percent", "selector"],
)
def test_absurd_query_strings(server: Server, query: str) -> None:
    request = f"GET {CONFIGMAPS}?{query} HTTP/1.1\r\nHost: x\r\n\r\n"
    received = exchange(server, request.encode())
    assert received == b"" or received[9:12] in {b"200", b"400", b"414", b"431"}, received[:300]


@pytest.mark.parametrize(
    "request_bytes",
    [
        b"\r\n\r\n\r\n",
        b"complete nonsense\r\n\r\n",
        b"GET\r\n\r\n",
        b"GET / HTTP/9.9\r\nHost: x\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost x\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\n bad: fold\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\nA\x00B: c\r\n\r\n",
        POST + b"Content-Length: -1\r\n\r\n",
        POST + b"Content-Length: 1\r\nContent-Length: 2\r\n\r\n{}",
        POST + b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        POST + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n\r\n",
        POST + b"Transfer-Encoding: gzip\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\nA: " + b"a" * 2_000_000 + b"\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\n" + b"".join(b"H%d: x\r\n" % n for n in range(20_000)) + b"\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\xff" * 100,
        b"\x16\x03\x01" + b"\xff" * 1000,
    ],
    ids=lambda value: repr(value[:24] + value[-16:]),
)
def test_input_that_is_not_http(server: Server, request_bytes: bytes) -> None:
    with connect(server, timeout=3) as connection:
        received = b""
        with contextlib.suppress(ssl.SSLError, ConnectionError, TimeoutError):
            connection.sendall(request_bytes)
            while data := connection.recv(65536):
                received += data
    # At most one answer, no success: the bytes after the error are not another request.
    assert received.count(b"HTTP/1.1 ") <= 1
    assert received == b"" or received[9:10] in b"45" or not received.startswith(b"HTTP/"), received[:300]


def test_input_that_is_not_tls(server: Server) -> None:
    for sent in (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", b"\x00" * 1000, b"\x16\x03\x01\x02\x00\x01", b""):
        with (
            socket.create_connection(("127.0.0.1", server.port), timeout=30) as connection,
            contextlib.suppress(OSError),  # the server may close before everything is sent
        ):
            connection.sendall(sent)
            connection.shutdown(socket.SHUT_WR)
            while connection.recv(65536):
                pass


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion.TLSv1_1")
def test_old_tls_is_rejected(server: Server) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_ciphers("ALL:@SECLEVEL=0")
    context.minimum_version = context.maximum_version = ssl.TLSVersion.TLSv1_1
    with (
        socket.create_connection(("127.0.0.1", server.port), timeout=30) as raw,
        pytest.raises((ssl.SSLError, OSError)),
    ):
        context.wrap_socket(raw)


def test_requests_without_credentials_are_rejected(server: Server) -> None:
    context = ssl.create_default_context(cafile=str(server.data_dir / "pki" / "ca.crt"))

    def ask(target: str, more: bytes = b"") -> bytes:
        with (
            socket.create_connection(("127.0.0.1", server.port), timeout=30) as raw,
            context.wrap_socket(raw, server_hostname="127.0.0.1") as connection,
        ):
            connection.sendall(b"GET %s HTTP/1.1\r\nHost: x\r\nConnection: close\r\n%s\r\n" % (target.encode(), more))
            received = b""
            while data := connection.recv(65536):
                received += data
            return received

    for target in ("/healthz", "/livez", "/readyz", "/version"):
        assert ask(target).startswith(b"HTTP/1.1 200"), target
    for target in (CONFIGMAPS, "/api", "/apis", "/metrics", "/openapi/v3", "/nothing"):
        assert ask(target).startswith((b"HTTP/1.1 401", b"HTTP/1.1 403")), target
    assert ask(CONFIGMAPS, b"Authorization: Bearer wrong\r\n").startswith(b"HTTP/1.1 401")


# Sleepers


@pytest.fixture
def many_files() -> Iterator[None]:
    """Raise the limit of open files: the test has hundreds of sockets, too."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(8192, before[1]), before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_500_idle_connections(server: Server, api: Api, many_files: None) -> None:
    """An idle connection costs little, and nothing after its end: a second 500 need no more memory than the first."""
    peaks = []
    for _ in range(2):
        with contextlib.ExitStack() as stack:
            for _ in range(500):
                connection = stack.enter_context(connect(server))
                connection.sendall(b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n")
                assert connection.recv(4096).startswith(b"HTTP/1.1 200")
            began = time.monotonic()
            api.request("GET", CONFIGMAPS).expect(200)
            assert time.monotonic() - began < SOON
            peaks.append(resident_mib(server.pid))
    print(f"resident with 500 connections: {peaks[0]:.0f} MiB, and again: {peaks[1]:.0f} MiB")
    assert peaks[1] - peaks[0] < GROWTH / 2


@pytest.mark.parametrize(
    ("secure", "beginning"),
    [
        (False, b""),
        (False, b"\x16\x03\x01\x02\x00\x01\x00\x01"),  # the first bytes of a ClientHello
        (True, b""),
        (True, b"GET /api/v1/names"),
        (True, POST + b"Content-Length: 100\r\n\r\n{"),
    ],
    ids=["silent", "half a handshake", "after the handshake", "half a head", "half a body"],
)
def test_half_open_clients(server: Server, api: Api, many_files: None, secure: bool, beginning: bytes) -> None:
    """A hundred clients that stop in the middle of a request do not delay others."""
    with contextlib.ExitStack() as stack:
        for _ in range(100):
            connection: Any
            if secure:
                connection = stack.enter_context(connect(server))
            else:
                connection = stack.enter_context(socket.create_connection(("127.0.0.1", server.port), timeout=30))
            connection.sendall(beginning)
        for _ in range(20):
            began = time.monotonic()
            api.request("GET", CONFIGMAPS).expect(200)
            with connect(server) as newcomer:
                newcomer.sendall(b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n")
                assert newcomer.recv(4096).startswith(b"HTTP/1.1 200")
            assert time.monotonic() - began < SOON


def test_a_request_byte_by_byte(server: Server) -> None:
    body = json.dumps(configmap(unique("slow"))).encode()
    head = f"POST {CONFIGMAPS} HTTP/1.1\r\nHost: x\r\nContent-Type: {JSON}\r\nContent-Length: {len(body)}\r\n\r\n"
    with connect(server) as connection:
        for byte in head.encode() + body:
            connection.sendall(bytes([byte]))
        assert connection.recv(65536).startswith(b"HTTP/1.1 201")


def test_watchers_that_do_not_read(server: Server, api: Api) -> None:
    """They are disconnected eventually. Others see events at once, and no events accumulate in the server."""
    listed = api.get(CONFIGMAPS + "?limit=1")
    target = f"{CONFIGMAPS}?watch=true&resourceVersion={listed['metadata']['resourceVersion']}"
    with contextlib.ExitStack() as stack:
        for _ in range(20):
            deaf = stack.enter_context(connect(server, receive_buffer=4096))
            deaf.sendall(f"GET {target} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        attentive = stack.enter_context(contextlib.closing(server.watch(target)))
        before = resident_mib(server.pid)
        names = [unique("deaf") for _ in range(40)]
        for name in names:
            api.create(CONFIGMAPS, configmap(name, v="x" * 250_000))  # 10 MB for each watcher
        assert [event["object"]["metadata"]["name"] for _, event in attentive.take(len(names))] == names
        # 10 MB are in the view and in recent events; 20 watchers × 10 MB would be 200.
        assert resident_mib(server.pid) - before < 120
    for name in names:
        api.request("DELETE", f"{CONFIGMAPS}/{name}").expect(200)


def test_lists_that_are_never_read(server: Server, api: Api, still_well: Health) -> None:
    """Answers of megabytes on many connections are never read: their memory is freed when the connections close.

    The allocator returns a varying part of the memory to the system, but reuses the rest. So after two more rounds the
    memory has grown by at most half of one round. A leak would be four times that."""
    namespace = api.namespace("bad-input-large")
    path = f"/api/v1/namespaces/{namespace}/configmaps"
    names = [unique("large") for _ in range(10)]
    for name in names:
        api.create(path, configmap(name, v="x" * 500_000))
    for turn in range(3):
        before = resident_mib(server.pid)
        with contextlib.ExitStack() as stack:
            for _ in range(30):
                deaf = stack.enter_context(connect(server, receive_buffer=4096))
                deaf.sendall(f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
            for _ in range(20):
                assert api.request("GET", "/readyz").body == b"ok"
            peak = resident_mib(server.pid)
        print(f"{peak - before:.0f} MiB while 30 answers of 5 MB were waiting")
        freed = before + max(GROWTH, (peak - before) / 2)
        eventually(
            lambda top=freed: resident_mib(server.pid) < top, f"memory to fall from {peak:.0f} to {freed:.0f} MiB"
        )
        for _ in range(20):  # gives the server time to drop the last connections
            api.request("GET", CONFIGMAPS).expect(200)
        if turn == 0:
            still_well.memory = resident_mib(server.pid) + (peak - before) / 2
    for name in names:
        api.request("DELETE", f"{path}/{name}").expect(200)


def test_requests_abandoned_halfway(server: Server, api: Api) -> None:
    """Two hundred clients disconnect during a write or a list. Their request is carried out or not, nothing else."""
    body = json.dumps(configmap("abandoned", v="x" * 10_000)).encode()
    request = (
        f"POST {CONFIGMAPS} HTTP/1.1\r\nHost: x\r\nContent-Type: {JSON}\r\nContent-Length: {len(body)}\r\n\r\n".encode()
        + body
    )
    for cut in range(200):
        connection = connect(server)
        connection.sendall(request if cut % 2 else request[: len(request) * cut // 200])
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\x00\x00\x00\x00\x00\x00\x00")  # a reset
        connection.close()
    eventually(lambda: api.request("DELETE", f"{CONFIGMAPS}/abandoned").status in (200, 404), "an answer")
