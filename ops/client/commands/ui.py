"""`ui`: open the server's web page in a browser, with the credentials of the kubeconfig .

Its proxy on the loopback address that forwards the web page's requests with the credentials of a kubeconfig.

Everything that reaches it acts with these credentials, so only the page may reach it:

    other machines             it listens on 127.0.0.1
    other users and programs   paths begin with a secret of this start, which only the printed URL contains
    pages of other sites       Host must be this proxy's, against DNS names that resolve to 127.0.0.1; so must
                               Origin and Sec-Fetch-Site, if the browser sends them
    a compromised page         only GET, HEAD and reviews of the user's own rights are forwarded, nothing that reaches a
                               container; responses outside /ui/ have headers that keep the browser from running them

The only writes are those of restores (restoring/page.py), which this program plans and carries out itself. It also
answers why an object is as it is (client/explaining.py). The page asks with POST, and learns from headers that it may.
"""

from __future__ import annotations

import argparse
import hmac
import secrets
import webbrowser
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Final
from urllib.parse import unquote

import orjson

from kubechronicle.api.history.web_page import HEADERS, PREFIX
from kubechronicle.api.meta.path_prefixes import HISTORY
from kubechronicle.api.meta.request_info import Query, RequestInfo, resolve, split_moment
from kubechronicle.api.values.objects import Object
from kubechronicle.api.values.printable import printable
from kubechronicle.ops import terminal
from kubechronicle.ops.client.client import Client
from kubechronicle.ops.client.explaining import Explainer, explanation_document
from kubechronicle.ops.client.output import Screen
from kubechronicle.ops.client.restoring.page import PageRestores
from kubechronicle.ops.client.session import Session, add_source_flags, connect, target_of
from kubechronicle.ops.client.transport import Reply, Transport
from kubechronicle.ops.errors import OperatorError

HOST: Final = "127.0.0.1"
READ_METHODS: Final = ("GET", "HEAD")
# Reviews of the user's own rights: sent with POST, but the server stores nothing.
REVIEWS: Final = frozenset(
    {
        ("authorization.k8s.io", "selfsubjectaccessreviews"),
        ("authorization.k8s.io", "selfsubjectrulesreviews"),
        ("authentication.k8s.io", "selfsubjectreviews"),
    }
)
FORWARDED_PATHS: Final = ("/api/", "/apis/", HISTORY, PREFIX, "/version")
CONTAINER_SUBRESOURCES: Final = frozenset({"attach", "exec", "log", "portforward", "proxy"})
FORWARDED_REQUEST_HEADERS: Final = ("Accept", "Content-Type", "If-None-Match")
FORWARDED_RESPONSE_HEADERS: Final = ("content-type", "etag", "audit-id", "warning", "retry-after")
# For responses outside /ui/: data that a browser must not run, show or cache.
DATA_HEADERS: Final = {
    "content-security-policy": "default-src 'none'; sandbox; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "cache-control": "no-store",
}
RESTORES: Final = "/restores"
EXPLANATIONS: Final = "/explanations"
OFFERS: Final = {RESTORES: "kubechronicle-restores", EXPLANATIONS: "kubechronicle-explanations"}
"""Paths that this program answers itself, each with the header of all answers that offers it."""
Answering = Callable[[bytes], tuple[int, Object]]
MAX_BODY_BYTES: Final = 64 * 1024
# Seconds a browser may take to send a request, or keep an idle connection.
TIMEOUT: Final = 60.0


@dataclass(frozen=True, slots=True)
class RejectedRequest(Exception):
    """A request that is not forwarded."""

    status: int
    reason: str


class Loopback(ThreadingHTTPServer):
    """The proxy. The constructor listens on ``port`` (0: a free one) and raises OSError; ``serve_forever`` serves.

    ``restores``, ``explanations``: answer the body of such a request with an HTTP status and JSON; None offers none
    """

    daemon_threads = True

    def __init__(
        self,
        transport: Transport,
        *,
        port: int = 0,
        restores: Answering | None = None,
        explanations: Answering | None = None,
    ) -> None:
        super().__init__((HOST, port), _Handler)
        self.transport = transport
        given = {RESTORES: restores, EXPLANATIONS: explanations}
        self.own = {path: answer for path, answer in given.items() if answer is not None}
        self.secret = secrets.token_urlsafe(24)
        self.hosts = frozenset(f"{name}:{self.server_port}" for name in (HOST, "localhost"))

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.server_port}/{self.secret}{PREFIX}"

    def check(self, method: str, target: str, headers: Mapping[str, str]) -> str:
        """Return the path and query for the server. Raises RejectedRequest."""
        if headers.get("Host", "") not in self.hosts:
            raise RejectedRequest(421, "the Host header names another host")
        origin, site = headers.get("Origin"), headers.get("Sec-Fetch-Site", "none")
        if origin is not None and origin not in {f"http://{host}" for host in self.hosts}:
            raise RejectedRequest(403, "the request comes from a page of another site")
        if site not in ("same-origin", "none"):
            raise RejectedRequest(403, "the request comes from a page of another site")
        secret, slash, rest = target.removeprefix("/").partition("/")
        if not slash or not hmac.compare_digest(secret.encode(), self.secret.encode()):
            raise RejectedRequest(404, "open the URL printed by kubechronicle ui")
        path, _, query = f"/{rest}".partition("?")
        if not (method == "POST" and path in self.own):
            _check_request(method, path, Query(query))
        return f"/{rest}"


def _check_request(method: str, raw_path: str, query: Query) -> None:
    """Raise RejectedRequest unless the page needs such a request."""
    path = unquote(raw_path)
    if any(part in (".", "..") for part in path.split("/")) or not path.isprintable() or "//" in path:
        raise RejectedRequest(400, "the path is invalid")
    if not path.startswith(FORWARDED_PATHS):
        raise RejectedRequest(404, "this path is not forwarded")
    info = resolve(method, split_moment(path)[1] if path.startswith(HISTORY) else path, query)
    if method not in READ_METHODS and not _is_review(method, info):
        raise RejectedRequest(405, "only read requests are forwarded")
    if info.verb in ("watch", "proxy") or info.subresource in CONTAINER_SUBRESOURCES or "watch" in query:
        raise RejectedRequest(403, "watches and requests to containers are not forwarded")


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
            target = self.server.check(self.command, self.path, dict(self.headers.items()))
            if self.command == "POST":
                body = self._read_json()
            if body is not None and (answer := self.server.own.get(target)) is not None:
                self._send_own(*answer(body))
                return
            fields = {name: self.headers[name] for name in FORWARDED_REQUEST_HEADERS if name in self.headers}
            self._send_reply(self.server.transport.send(self.command, target, fields, body), target)
        except RejectedRequest as error:
            self.close_connection = True
            self._send_text(error.status, error.reason)
        except OperatorError as error:
            self._send_text(502, str(error))

    def _read_json(self) -> bytes:
        """Return the body. Raises RejectedRequest."""
        length = self.headers.get("Content-Length", "")
        if not length.isdecimal() or int(length) > MAX_BODY_BYTES:
            raise RejectedRequest(413, "the body is too large")
        # Pages of other sites can send some other content types without the browser's preflight request.
        if self.headers.get_content_type() != "application/json":
            raise RejectedRequest(415, "the body must be JSON")
        return self.rfile.read(int(length))

    def _send_reply(self, reply: Reply, target: str) -> None:
        own = dict(HEADERS) if target.startswith(PREFIX) else DATA_HEADERS
        forwarded = {name: reply.headers[name] for name in FORWARDED_RESPONSE_HEADERS if name in reply.headers}
        offered = {OFFERS[path]: "offered" for path in self.server.own}
        self._send(reply.status, {**forwarded, **own, **offered}, reply.body)

    def _send_own(self, status: int, document: Object) -> None:
        self._send(status, {**DATA_HEADERS, "content-type": "application/json"}, orjson.dumps(document))

    def _send_text(self, status: int, text: str) -> None:
        self._send(
            status, {**DATA_HEADERS, "content-type": "text/plain; charset=utf-8"}, f"{printable(text)}\n".encode()
        )

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
        """Log nothing: the paths contain the secret."""


EXAMPLES: Final = """\
  kubectl chronicle ui
  kubectl chronicle ui --context production --no-browser
"""

REASONS: Final = {
    401: "the server did not authenticate you; check the user's credentials in the kubeconfig",
    403: f"permission denied: get on the path {PREFIX}* (a rule with nonResourceURLs of a ClusterRole)",
    404: f"the server has no {PREFIX}; it must run with --enable-ui",
}


def add_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--port", metavar="PORT", type=int, default=0, help="of 127.0.0.1 (default: a free one)")
    parser.add_argument("--no-browser", action="store_true", help="print the URL without opening it")
    parser.add_argument("--read-only", action="store_true", help="offer no restores on the page")
    add_source_flags(parser)


def run(arguments: argparse.Namespace) -> int:
    """Serve the page until the command is interrupted."""
    client = connect(target_of(arguments))
    check(client.transport)
    restores = None if arguments.read_only else PageRestores(client).answer
    try:
        explanations = PageExplanations(client).answer
        loopback = Loopback(client.transport, port=arguments.port, restores=restores, explanations=explanations)
    except (OSError, OverflowError) as error:
        raise OperatorError(f"--port: cannot listen on port {arguments.port}: {error}") from None
    with loopback:
        out = terminal.stdout()
        out.line(loopback.url)
        out.line("Anyone on this machine with this URL acts as you. Ctrl-C ends it.")
        out.flush()
        if not arguments.no_browser:
            webbrowser.open(loopback.url)
        try:
            loopback.serve_forever()
        except KeyboardInterrupt:
            out.line()
    return 0


def check(transport: Transport) -> None:
    """Raise OperatorError unless the server has the page and the user may read it."""
    status = transport.send("GET", PREFIX, {"Accept": "text/html"}, None).status
    if status != 200:
        raise OperatorError(REASONS.get(status, f"the server answers {PREFIX} with HTTP status {status}"))


# -- page --------------------------------------------------------------------------------------------------------------
#
# Explanations that the web page asks for: those of `kubectl chronicle why`, with the rights of its user.
#
# request   {"words": ["deployments.apps/web"], "namespace": "shop", "limit": 8}
# answer    {"object", "symptoms", "events", "suspects", "notSearched"}, as `why -o json` prints


MOST: Final = 20
"""Changes that one request explains."""


class PageExplanations:
    """Answers the page's questions why an object is as it is."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def answer(self, body: bytes) -> tuple[int, Object]:
        """Return the HTTP status and the JSON of the answer. Blocks while the objects and their changes are read."""
        try:
            asked = orjson.loads(body)
            words, namespace = [str(word) for word in asked["words"]], str(asked["namespace"])
            limit = min(max(int(asked.get("limit", MOST)), 1), MOST)
            client = self._client.replaced(namespace=namespace or self._client.namespace)
            screen = Screen(argparse.Namespace(output="json", color="never"))
            session = Session(argparse.Namespace(words=words, namespace=namespace), client, screen)
            kinds = session.kinds()
            found = Explainer(client, kinds, session.subject(words, kinds), limit=limit).explain()
            return 200, explanation_document(found)
        except (orjson.JSONDecodeError, KeyError, TypeError, ValueError, AttributeError):
            return 400, {"message": "the request is not a question about an object"}
        except OperatorError as error:
            return 400, {"message": str(error)}
