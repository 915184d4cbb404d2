"""A registry for the node's images: pods with ``imagePullPolicy: Always`` ask one, though containerd has the image.

It serves what containerd itself has stored, so nothing is kept twice. It has the parts of the OCI Distribution
Specification that a pull uses (https://github.com/opencontainers/distribution-spec/blob/main/spec.md#pull):

    GET, HEAD /v2/NAME/manifests/TAG, /v2/NAME/manifests/DIGEST, /v2/NAME/blobs/DIGEST

containerd names the host of an image in ``?ns=HOST``, as all hosts are mirrored here (configuration.py).
"""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import threading
from collections.abc import Iterator, Mapping
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

_ASKED = re.compile(r"/v2/(?P<name>.+)/(?P<kind>manifests|blobs)/(?P<reference>[\w.:-]+)")
_DIGEST = re.compile(r"sha256:([0-9a-f]{64})")


@contextlib.contextmanager
def registry(address: str, store: Path) -> Iterator[Registry]:
    """Serve at a free port of an address until the end of the block. ``store``: containerd's root folder."""
    with Registry(address, store) as server:
        thread = threading.Thread(target=server.serve_forever, name="registry", daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


class Registry(ThreadingHTTPServer):
    """``images``: digests of manifests by full name, such as ``registry.k8s.io/pause:3.10.2``. Others are unknown."""

    daemon_threads = True

    def __init__(self, address: str, store: Path) -> None:
        self.images: Mapping[str, str] = {}
        self._blobs = store / "io.containerd.content.v1.content" / "blobs" / "sha256"
        super().__init__((address, 0), _Pull)

    @property
    def url(self) -> str:
        return f"http://{self.server_address[0]!s}:{self.server_address[1]}"

    def find(self, host: str, name: str, reference: str) -> Path | None:
        """Return the file of a manifest or blob. ``reference``: a tag or a digest."""
        digest = _DIGEST.fullmatch(self.images.get(f"{host}/{name}:{reference}", reference))
        path = self._blobs / digest[1] if digest else None
        return path if path is not None and path.is_file() else None


class _Pull(BaseHTTPRequestHandler):
    server: Registry
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self._answer(whole=True)

    def do_HEAD(self) -> None:
        self._answer(whole=False)

    def _answer(self, *, whole: bool) -> None:
        url = urlsplit(self.path)
        if url.path == "/v2/":
            self._begin(HTTPStatus.OK, 0)
            return
        asked = _ASKED.fullmatch(url.path)
        host = parse_qs(url.query).get("ns", [""])[0]
        path = self.server.find(host, asked["name"], asked["reference"]) if asked else None
        if asked is None or path is None:
            self._begin(HTTPStatus.NOT_FOUND, 0)
            return
        kind = (
            json.loads(path.read_bytes())["mediaType"] if asked["kind"] == "manifests" else "application/octet-stream"
        )
        headers = {"content-type": kind, "docker-content-digest": f"sha256:{path.name}"}
        self._begin(HTTPStatus.OK, path.stat().st_size, headers)
        if whole:
            with path.open("rb") as blob:
                shutil.copyfileobj(blob, self.wfile)

    def _begin(self, code: HTTPStatus, length: int, headers: Mapping[str, str] | None = None) -> None:
        self.send_response(code)
        for name, value in {**(headers or {}), "content-length": str(length)}.items():
            self.send_header(name, value)
        self.end_headers()

    def log_message(self, format: str, *arguments: object) -> None:
        """Say nothing: containerd logs what it pulls."""


__all__ = ["Registry", "registry"]
