"""/ui/: the web page about history, static files (http/ui/) for a browser. Off unless --enable-ui.

The filters treat it like any other path: it needs the right to get /ui/*. It reads the ordinary API with the rights of
its visitor. Only the files are trusted: the headers keep a browser from running anything else, whatever an object
contains.
"""

from __future__ import annotations

import gzip
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kubechronicle.api.history.web_page import HEADERS, PREFIX
from kubechronicle.http.messages import Request, Response
from kubechronicle.http.representation.answers import takes_gzip

FILES: Final = Path(__file__).resolve().parents[1] / "ui"
INDEX: Final = "index.html"
CONTENT_TYPES: Final[Mapping[str, str]] = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}


@dataclass(frozen=True, slots=True)
class File:
    content_type: str
    body: bytes
    gzipped: bytes
    etag: str


class Ui:
    """The files of ``folder``, read once."""

    def __init__(self, folder: Path = FILES) -> None:
        self._files = {file.name: _file(file) for file in sorted(folder.iterdir()) if file.suffix in CONTENT_TYPES}

    def paths(self) -> list[str]:
        return [PREFIX]

    def answer(self, request: Request) -> Response | None:
        """Answer a path of the page; None for any other path."""
        if request.method not in ("GET", "HEAD"):
            return None
        if request.path == PREFIX.rstrip("/"):
            return Response(301, [("location", "ui/"), ("cache-control", "no-cache, private")])
        if not request.path.startswith(PREFIX):
            return None
        file = self._files.get(request.path.removeprefix(PREFIX) or INDEX)
        if file is None:
            return None
        headers = [("etag", file.etag), *HEADERS]
        if request.headers.get("if-none-match") == file.etag:
            return Response(304, headers)
        headers.append(("content-type", file.content_type))
        if takes_gzip(request):
            return Response(200, [*headers, ("content-encoding", "gzip")], file.gzipped)
        return Response(200, headers, file.body)


def _file(file: Path) -> File:
    body = file.read_bytes()
    etag = f'"{hashlib.sha256(body).hexdigest()[:32]}"'
    return File(CONTENT_TYPES[file.suffix], body, gzip.compress(body, mtime=0), etag)
