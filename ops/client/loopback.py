"""A web page's way to a server from this machine alone: HTTP on the loopback address, forwarded with the credentials of
a kubeconfig.

Whoever reaches it acts with these credentials, so it must be nobody but the page it serves:

    other machines          it listens on 127.0.0.1
    other users and         the paths begin with a secret, drawn for each start, which only the printed URL tells
    programs here
    pages of other sites    Host must be this one's (a name that was bound to 127.0.0.1 by another is not), and so must
                            Origin and Sec-Fetch-Site, where the browser tells them
    the page itself, were   it forwards GET, HEAD and questions for one's own rights, and nothing that opens a way to
    it to go astray         what runs; answers but those of /ui/ are told to the browser as nothing to be run or shown
"""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Final
from urllib.parse import unquote

from kubechronicle.api.history.web_page import HEADERS, PREFIX
from kubechronicle.api.meta.request_info import Query, RequestInfo, resolve
from kubechronicle.ops.client.transport import Reply, Transport
from kubechronicle.ops.errors import OperatorError

HOST: Final = "127.0.0.1"
READS: Final = ("GET", "HEAD")
# Questions for one's own rights: POST by their form, but nothing is kept of them.
REVIEWS: Final = frozenset(
    {
        ("authorization.k8s.io", "selfsubjectaccessreviews"),
        ("authorization.k8s.io", "selfsubjectrulesreviews"),
        ("authentication.k8s.io", "selfsubjectreviews"),
    }
)
FORWARDED: Final = ("/api/", "/apis/", "/history/at/", PREFIX, "/version")
RUNNING: Final = frozenset({"attach", "exec", "log", "portforward", "proxy"})
# Header fields that go through, and those that come back.
ASKED: Final = ("Accept", "Content-Type", "If-None-Match")
ANSWERED: Final = ("content-type", "etag", "audit-id", "warning", "retry-after")
# What is no part of the page is data: nothing a browser should run, show or keep.
DATA: Final = {
    "content-security-policy": "default-src 'none'; sandbox; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "cache-control": "no-store",
}
LARGEST_REVIEW: Final = 64 * 1024
# Seconds a browser may take to send a request, or keep an idle connection.
TIMEOUT: Final = 60.0


@dataclass(frozen=True, slots=True)
class Refusal(Exception):
    status: int
    why: str


class Loopback(ThreadingHTTPServer):
    """Listens when it is made, on ``port`` (0: a free one); ``serve_forever`` serves. OSError."""

    daemon_threads = True

    def __init__(self, transport: Transport, *, port: int = 0) -> None:
        super().__init__((HOST, port), _Handler)
        self.transport = transport
        self.secret = secrets.token_urlsafe(24)
        self.hosts = frozenset(f"{name}:{self.server_port}" for name in (HOST, "localhost"))

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.server_port}/{self.secret}{PREFIX}"

    def target(self, method: str, target: str, headers: Mapping[str, str]) -> str:
        """What to ask the server for. Refusal."""
        if headers.get("Host", "") not in self.hosts:
            raise Refusal(421, "this is not the host it was asked for")
        origin, site = headers.get("Origin"), headers.get("Sec-Fetch-Site", "none")
        if origin is not None and origin not in {f"http://{host}" for host in self.hosts}:
            raise Refusal(403, "another site's page asks")
        if site not in ("same-origin", "none"):
            raise Refusal(403, "another site's page asks")
        secret, slash, rest = target.removeprefix("/").partition("/")
        if not slash or not hmac.compare_digest(secret.encode(), self.secret.encode()):
            raise Refusal(404, "open the URL that was printed by kubechronicle ui")
        path, _, query = f"/{rest}".partition("?")
        _check(method, path, query)
        return f"/{rest}"


def _check(method: str, raw_path: str, query: str) -> None:
    """Whether it is for the page to ask. Refusal."""
    path = unquote(raw_path)
    if any(part in (".", "..") for part in path.split("/")) or not path.isprintable() or "//" in path:
        raise Refusal(400, "that is no path")
    if not path.startswith(FORWARDED):
        raise Refusal(404, "there is nothing of this page")
    info = resolve(method, _without_moment(path), Query(query))
    if method not in READS and not _is_review(method, info):
        raise Refusal(405, "this page reads, and changes nothing")
    if info.verb in ("watch", "proxy") or info.subresource in RUNNING or "watch" in Query(query):
        raise Refusal(403, "this page reads objects and their history, nothing that goes on")


def _without_moment(path: str) -> str:
    prefix = "/history/at/"
    return "/" + path[len(prefix) :].partition("/")[2] if path.startswith(prefix) else path


def _is_review(method: str, info: RequestInfo) -> bool:
    return method == "POST" and len(info.parts) == 1 and (info.group, info.resource) in REVIEWS


class _Handler(BaseHTTPRequestHandler):
    server: Loopback
    protocol_version = "HTTP/1.1"
    timeout = TIMEOUT
    server_version, sys_version = "kubechronicle", ""

    def do_GET(self) -> None:
        self._forward()

    do_HEAD = do_POST = do_PUT = do_PATCH = do_DELETE = do_OPTIONS = do_GET

    def _forward(self) -> None:
        body = None
        try:
            target = self.server.target(self.command, self.path, dict(self.headers.items()))
            if self.command == "POST":
                body = self._body()
            fields = {name: self.headers[name] for name in ASKED if name in self.headers}
            self._answer(self.server.transport.send(self.command, target, fields, body), target)
        except Refusal as refusal:
            self.close_connection = True
            self._text(refusal.status, refusal.why)
        except OperatorError as error:
            self._text(502, str(error))

    def _body(self) -> bytes:
        """Refusal."""
        length = self.headers.get("Content-Length", "")
        if not length.isdecimal() or int(length) > LARGEST_REVIEW:
            raise Refusal(413, "that is no review")
        if self.headers.get_content_type() != "application/json":  # others a foreign page could send unasked
            raise Refusal(415, "a review is JSON")
        return self.rfile.read(int(length))

    def _answer(self, reply: Reply, target: str) -> None:
        kept = dict(HEADERS) if target.startswith(PREFIX) else DATA
        told = {name: reply.headers[name] for name in ANSWERED if name in reply.headers}
        self._send(reply.status, {**told, **kept}, reply.body)

    def _text(self, status: int, why: str) -> None:
        self._send(status, {**DATA, "content-type": "text/plain; charset=utf-8"}, f"{why}\n".encode())

    def _send(self, status: int, headers: Mapping[str, str], body: bytes) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value.replace("\r", " ").replace("\n", " "))
        if status != 304:
            self.send_header("Content-Length", str(len(body)))
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        if self.command != "HEAD" and status != 304:
            self.wfile.write(body)

    def log_message(self, format: str, *arguments: object) -> None:
        """Nothing: what a browser asks of its own machine is nobody's business."""
