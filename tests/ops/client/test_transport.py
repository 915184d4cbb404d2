"""Large answers: a response is read up to a limit, and a list in smaller pages."""

from __future__ import annotations

import argparse
import gzip
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import ClassVar
from urllib.parse import parse_qs, urlsplit

import pytest

from kubechronicle.ops.client import kubeconfig, transport
from kubechronicle.ops.client.client import Client
from kubechronicle.ops.client.transport import HttpTransport, TooLarge


class _Lists(BaseHTTPRequestHandler):
    """Serves lists of ten items of 100 bytes each, gzipped where the client accepts it."""

    protocol_version = "HTTP/1.1"
    limits: ClassVar[list[int]] = []

    def do_GET(self) -> None:
        query = parse_qs(urlsplit(self.path).query)
        limit, begin = int(query.get("limit", ["10"])[0]), int(query.get("continue", ["0"])[0])
        self.limits.append(limit)
        end = min(begin + limit, 10)
        items = [{"metadata": {"name": str(number)}, "data": "x" * 100} for number in range(begin, end)]
        token = {"continue": str(end)} if end < 10 else {}
        body = json.dumps({"kind": "ThingList", "apiVersion": "v1", "metadata": token, "items": items}).encode()
        self.send_response(200)
        if "gzip" in self.headers.get("Accept-Encoding", ""):
            body = gzip.compress(body)
            self.send_header("Content-Encoding", "gzip")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *arguments: object) -> None:
        """Log nothing."""


@pytest.fixture
def client() -> Iterator[Client]:
    _Lists.limits.clear()
    with ThreadingHTTPServer(("127.0.0.1", 0), _Lists) as server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        parser = argparse.ArgumentParser()
        kubeconfig.add_flags(parser)
        arguments = parser.parse_args(["--server", f"http://127.0.0.1:{server.server_port}"])
        yield Client(HttpTransport(kubeconfig.load(arguments, {})))
        server.shutdown()


def test_pages_become_smaller_until_a_response_fits(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transport, "MAX_REPLY", 500)
    names = [item["metadata"]["name"] for item in client.items("/things", size=8)]
    assert names == [str(number) for number in range(10)]
    assert _Lists.limits == [8, 4, 2, 2, 2, 2, 2]


def test_a_single_answer_that_is_too_large_is_an_error(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transport, "MAX_REPLY", 100)
    with pytest.raises(TooLarge, match="larger than"):
        list(client.items("/things", size=8))
    lines = client.transport.lines("/things", {})
    with pytest.raises(TooLarge):
        list(lines)  # type: ignore[arg-type]
    monkeypatch.undo()
    assert len(client.get("/things")["items"]) == 10
