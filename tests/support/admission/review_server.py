"""A server of admission and conversion reviews in a thread, over TLS, for tests of a server in another process."""

from __future__ import annotations

import base64
import contextlib
import json
import ssl
import threading
from collections.abc import Callable, Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from admission.serving_certificates import issue
from certificates import CA

Answer = Callable[[Any], Any]
"""Return the body of the answer to a body."""


@contextlib.contextmanager
def review_server(folder: Path, answers: Mapping[str, Answer]) -> Iterator[Callable[[str], dict[str, str]]]:
    """Answer POST requests by their paths; yield a function that returns the clientConfig for a path."""
    authority = CA("reviews")
    issue(folder, authority, "localhost")

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:  # the name that http.server calls
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            answer = json.dumps(answers[self.path.partition("?")[0]](body)).encode()
            self.send_response(200)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *_: Any) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(folder / "tls.crt", folder / "tls.key")
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    url, bundle = f"https://localhost:{server.server_port}", base64.b64encode(authority.pem).decode()
    try:
        yield lambda path: {"url": f"{url}{path}", "caBundle": bundle}
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
