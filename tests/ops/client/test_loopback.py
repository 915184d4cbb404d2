"""The loopback helper of the web page: what it forwards, and whom it refuses."""

from __future__ import annotations

import http.client
import threading
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field

import pytest

from kubechronicle.ops.client.commands import ui
from kubechronicle.ops.client.loopback import Loopback
from kubechronicle.ops.client.transport import Reply
from kubechronicle.ops.errors import OperatorError

API = "/apis/history.kubechronicle.dev/v1/revisions"
REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
WELL = Reply(200, {"content-type": "application/json", "set-cookie": "a=b"}, b"{}")
Asked = tuple[str, str, dict[str, str], bytes | None]


@dataclass
class Recorded:
    """A transport that keeps what it was asked."""

    reply: Reply = WELL
    asked: list[Asked] = field(default_factory=list)

    def send(self, method: str, path: str, headers: Mapping[str, str], body: bytes | None) -> Reply:
        self.asked.append((method, path, dict(headers), body))
        if path.startswith("/version"):
            raise OperatorError("no answer")
        return self.reply

    def lines(self, path: str, headers: Mapping[str, str]) -> Iterator[bytes] | Reply:
        raise NotImplementedError


@dataclass
class Helper:
    loopback: Loopback
    transport: Recorded

    def ask(
        self, method: str, path: str, body: bytes | None = None, *, secret: str | None = None, **headers: str
    ) -> tuple[int, dict[str, str], bytes]:
        """``path`` below the secret; header names with _ for -."""
        with closing(http.client.HTTPConnection("127.0.0.1", self.loopback.server_port, timeout=20)) as connection:
            fields = {name.replace("_", "-"): value for name, value in headers.items()}
            prefix = f"/{self.loopback.secret if secret is None else secret}"
            connection.request(method, prefix + path, body, fields)
            response = connection.getresponse()
            found = {name.lower(): value for name, value in response.getheaders()}
            return response.status, found, response.read()


@pytest.fixture
def helper() -> Iterator[Helper]:
    transport = Recorded()
    with Loopback(transport) as loopback:
        thread = threading.Thread(target=loopback.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        yield Helper(loopback, transport)
        loopback.shutdown()
        thread.join()


def test_what_goes_through(helper: Helper) -> None:
    status, headers, body = helper.ask(
        "GET",
        f"{API}?limit=1&fieldSelector=a%3Db",
        Accept="application/json",
        Cookie="a=b",
        Authorization="Bearer x",
        Impersonate_User="root",
        X_Remote_User="root",
    )
    assert (status, body) == (200, b"{}")
    assert helper.transport.asked == [
        ("GET", f"{API}?limit=1&fieldSelector=a%3Db", {"Accept": "application/json"}, None)
    ]
    assert "set-cookie" not in headers
    assert headers["content-security-policy"].startswith("default-src 'none'; sandbox")
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["cache-control"] == "no-store"
    _, page, _ = helper.ask("GET", "/ui/")
    assert "script-src 'self'" in page["content-security-policy"]
    assert helper.ask("HEAD", "/ui/app.js")[0] == 200
    assert helper.ask("GET", f"/history/at/-2h{API}")[0] == 200
    status, _, _ = helper.ask("POST", REVIEWS, b"{}", Content_Type="application/json")
    assert status == 200
    assert helper.transport.asked[-1] == ("POST", REVIEWS, {"Content-Type": "application/json"}, b"{}")
    assert helper.ask("GET", "/version")[0] == 502


def test_a_secret_is_drawn_for_each(helper: Helper) -> None:
    with Loopback(Recorded()) as other:
        assert len(other.secret) >= 32
        assert other.secret != helper.loopback.secret
        for secret in ("", "wrong", other.secret, helper.loopback.secret[:-1], helper.loopback.secret + "x"):
            assert helper.ask("GET", "/ui/", secret=secret)[0] == 404
    assert not helper.transport.asked
    assert helper.loopback.server_address[0] == "127.0.0.1"
    assert helper.loopback.url.startswith("http://127.0.0.1:")


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
def test_pages_of_others_are_refused(helper: Helper, status: int, headers: dict[str, str]) -> None:
    port = str(helper.loopback.server_port)
    fields = {name: value.replace("{port}", port) for name, value in headers.items()}
    assert helper.ask("GET", "/ui/", **fields)[0] == status
    assert bool(helper.transport.asked) is (status == 200)


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
def test_what_is_not_for_the_page(helper: Helper, status: int, method: str, path: str) -> None:
    assert helper.ask(method, path, b"{}" if method == "POST" else None, Content_Type="application/json")[0] == status
    assert not helper.transport.asked


def test_reviews_are_small_and_json(helper: Helper) -> None:
    assert helper.ask("POST", REVIEWS, b"{}", Content_Type="text/plain")[0] == 415
    assert helper.ask("POST", REVIEWS, b" " * 100_000, Content_Type="application/json")[0] == 413
    assert not helper.transport.asked


@pytest.mark.parametrize(
    ("status", "why"), [(401, "who you are"), (403, "lack the right"), (404, "--enable-ui"), (500, "500")]
)
def test_it_says_why_there_is_no_page(status: int, why: str) -> None:
    with pytest.raises(OperatorError, match=why):
        ui.check(Recorded(Reply(status, {}, b"")))
    ui.check(Recorded())
