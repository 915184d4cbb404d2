"""The loopback proxy of the web page: requests it forwards, and requests it rejects."""

from __future__ import annotations

import http.client
import threading
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

from kubechronicle.ops.client.commands import ui
from kubechronicle.ops.client.commands.ui import Loopback
from kubechronicle.ops.client.transport import Reply
from kubechronicle.ops.errors import OperatorError

API = "/apis/history.kubechronicle.dev/v1/revisions"
REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
OK = Reply(200, {"content-type": "application/json", "set-cookie": "a=b"}, b"{}")
Sent = tuple[str, str, dict[str, str], bytes | None]


@dataclass
class RecordingTransport:
    """A transport that records the requests."""

    reply: Reply = OK
    requests: list[Sent] = field(default_factory=list)

    def send(self, method: str, path: str, headers: Mapping[str, str], body: bytes | None) -> Reply:
        self.requests.append((method, path, dict(headers), body))
        if path.startswith("/version"):
            raise OperatorError("no answer")
        return self.reply

    def lines(self, path: str, headers: Mapping[str, str]) -> Iterator[bytes] | Reply:
        raise NotImplementedError


@dataclass
class Proxy:
    """A running proxy and the transport behind it."""

    loopback: Loopback
    transport: RecordingTransport

    def ask(
        self, method: str, path: str, body: bytes | None = None, *, secret: str | None = None, **headers: str
    ) -> tuple[int, dict[str, str], bytes]:
        """Send a request. ``path`` is below the secret; header names have _ for -."""
        with closing(http.client.HTTPConnection("127.0.0.1", self.loopback.server_port, timeout=20)) as connection:
            fields = {name.replace("_", "-"): value for name, value in headers.items()}
            prefix = f"/{self.loopback.secret if secret is None else secret}"
            connection.request(method, prefix + path, body, fields)
            response = connection.getresponse()
            received = {name.lower(): value for name, value in response.getheaders()}
            return response.status, received, response.read()


@contextmanager
def running(**options: Any) -> Iterator[Proxy]:
    transport = RecordingTransport()
    with Loopback(transport, **options) as loopback:
        thread = threading.Thread(target=loopback.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        yield Proxy(loopback, transport)
        loopback.shutdown()
        thread.join()


@pytest.fixture
def proxy() -> Iterator[Proxy]:
    with running() as made:
        yield made


def test_forwarded_requests(proxy: Proxy) -> None:
    status, headers, body = proxy.ask(
        "GET",
        f"{API}?limit=1&fieldSelector=a%3Db",
        Accept="application/json",
        Cookie="a=b",
        Authorization="Bearer x",
        Impersonate_User="root",
        X_Remote_User="root",
    )
    assert (status, body) == (200, b"{}")
    assert proxy.transport.requests == [
        ("GET", f"{API}?limit=1&fieldSelector=a%3Db", {"Accept": "application/json"}, None)
    ]
    assert "set-cookie" not in headers
    assert headers["content-security-policy"].startswith("default-src 'none'; sandbox")
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["cache-control"] == "no-store"
    _, page, _ = proxy.ask("GET", "/ui/")
    assert "script-src 'self'" in page["content-security-policy"]
    assert proxy.ask("HEAD", "/ui/app.js")[0] == 200
    assert proxy.ask("GET", f"/history/at/-2h{API}")[0] == 200
    status, _, _ = proxy.ask("POST", REVIEWS, b"{}", Content_Type="application/json")
    assert status == 200
    assert proxy.transport.requests[-1] == ("POST", REVIEWS, {"Content-Type": "application/json"}, b"{}")
    assert proxy.ask("GET", "/version")[0] == 502


def test_each_proxy_has_a_secret_of_its_own(proxy: Proxy) -> None:
    with Loopback(RecordingTransport()) as other:
        assert len(other.secret) >= 32
        assert other.secret != proxy.loopback.secret
        for secret in ("", "wrong", other.secret, proxy.loopback.secret[:-1], proxy.loopback.secret + "x"):
            assert proxy.ask("GET", "/ui/", secret=secret)[0] == 404
    assert not proxy.transport.requests
    assert proxy.loopback.server_address[0] == "127.0.0.1"
    assert proxy.loopback.url.startswith("http://127.0.0.1:")


@pytest.mark.parametrize(
    ("status", "headers"),
    [
        (421, {"Host": "evil.example"}),
        (421, {"Host": "evil.example:{port}"}),
        (421, {"Host": "127.0.0.1"}),
        (421, {"Host": ""}),
        (403, {"Origin": "https://evil.example"}),
        (403, {"Origin": "null"}),
        (403, {"Origin": "http://127.0.0.1:1"}),
        (403, {"Sec_Fetch_Site": "cross-site"}),
        (403, {"Sec_Fetch_Site": "same-site"}),
        (200, {"Host": "localhost:{port}", "Origin": "http://localhost:{port}", "Sec_Fetch_Site": "same-origin"}),
        (200, {"Sec_Fetch_Site": "none"}),
    ],
)
def test_pages_of_other_sites_are_rejected(proxy: Proxy, status: int, headers: dict[str, str]) -> None:
    port = str(proxy.loopback.server_port)
    fields = {name: value.replace("{port}", port) for name, value in headers.items()}
    assert proxy.ask("GET", "/ui/", **fields)[0] == status
    assert bool(proxy.transport.requests) is (status == 200)


@pytest.mark.parametrize(
    ("status", "method", "path"),
    [
        (405, "POST", "/api/v1/namespaces"),
        (405, "DELETE", "/api/v1/namespaces/shop"),
        (405, "PUT", "/api/v1/namespaces/shop"),
        (405, "PATCH", "/api/v1/namespaces/shop"),
        (405, "OPTIONS", "/ui/"),
        (405, "POST", "/ui/"),
        (405, "POST", f"{REVIEWS}/x"),
        (405, "POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews"),
        (405, "POST", "/apis/authentication.k8s.io/v1/tokenreviews"),
        (405, "POST", "/api/v1/namespaces/shop/serviceaccounts/default/token"),
        (403, "GET", "/api/v1/namespaces/shop/services/web/proxy/"),
        (403, "GET", "/api/v1/namespaces/shop/pods/web/exec?command=sh"),
        (403, "GET", "/api/v1/namespaces/shop/pods/web/log"),
        (403, "GET", "/history/at/-2h/api/v1/namespaces/shop/pods/web/exec"),
        (403, "GET", "/api/v1/pods?watch=1"),
        (403, "GET", "/api/v1/watch/pods"),
        (404, "GET", "/metrics"),
        (404, "GET", "/"),
        (404, "GET", ""),
        (400, "GET", "/ui/../metrics"),
        (400, "GET", "/ui/%2e%2e/metrics"),
        (400, "GET", "/api//v1/pods"),
        (400, "GET", "/api/v1/pods%0d%0aX:%20y"),
    ],
)
def test_requests_that_the_page_does_not_need_are_rejected(proxy: Proxy, status: int, method: str, path: str) -> None:
    assert proxy.ask(method, path, b"{}" if method == "POST" else None, Content_Type="application/json")[0] == status
    assert not proxy.transport.requests


def test_reviews_are_small_and_json(proxy: Proxy) -> None:
    assert proxy.ask("POST", REVIEWS, b"{}", Content_Type="text/plain")[0] == 415
    assert proxy.ask("POST", REVIEWS, b" " * 100_000, Content_Type="application/json")[0] == 413
    assert not proxy.transport.requests


def test_restores_are_asked_by_the_page_alone() -> None:
    asked: list[bytes] = []

    def restores(body: bytes) -> tuple[int, Any]:
        asked.append(body)
        return 409, {"message": "look again"}

    with running(restores=restores) as proxy:
        assert proxy.ask("GET", "/ui/")[1]["kubechronicle-restores"] == "offered"
        status, headers, body = proxy.ask("POST", "/restores", b"{}", Content_Type="application/json")
        assert (status, body) == (409, b'{"message":"look again"}')
        assert "sandbox" in headers["content-security-policy"]
        assert asked == [b"{}"]
        json = {"Content_Type": "application/json"}
        assert proxy.ask("POST", "/restores", b"{}", Content_Type="text/plain")[0] == 415
        assert proxy.ask("POST", "/restores", b"{}", Origin="http://evil.example", **json)[0] == 403
        assert proxy.ask("POST", "/restores", b"{}", secret="wrong", **json)[0] == 404
        assert proxy.ask("GET", "/restores")[0] == 404
        assert proxy.ask("POST", "/restores", b" " * 100_000, **json)[0] == 413
        assert asked == [b"{}"]
    with running() as proxy:
        assert "kubechronicle-restores" not in proxy.ask("GET", "/ui/")[1]
        assert proxy.ask("POST", "/restores", b"{}", Content_Type="application/json")[0] == 404


@pytest.mark.parametrize(
    ("status", "reason"),
    [(401, "not authenticate you"), (403, "permission denied"), (404, "--enable-ui"), (500, "500")],
)
def test_the_command_reports_why_there_is_no_page(status: int, reason: str) -> None:
    with pytest.raises(OperatorError, match=reason):
        ui.check(RecordingTransport(Reply(status, {}, b"")))
    ui.check(RecordingTransport())
