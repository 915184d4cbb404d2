"""/logs: the files below /var/log of this machine, if --enable-logs-handler is set (kube-apiserver pkg/routes/logs.go).

A file is sent as it is now, with its length of now: what is appended meanwhile is left out. Directories are listed.
Differences to kube-apiserver: ranges of a file are not offered, and a file without a known ending is plain text.
"""

from __future__ import annotations

import html
import mimetypes
import os
import stat
from collections.abc import AsyncIterator
from email.utils import formatdate, parsedate_to_datetime
from io import BufferedReader
from pathlib import Path
from typing import Final
from urllib.parse import quote

import trio

from kubechronicle.http.messages import Request, Response
from kubechronicle.http.representation.answers import CACHE_CONTROL

PATH: Final = "/logs"
FOLDER: Final = Path("/var/log")
CHUNK: Final = 256 * 1024
TEXT: Final = ("content-type", "text/plain; charset=utf-8")
NOSNIFF: Final = ("x-content-type-options", "nosniff")


def is_log_path(path: str) -> bool:
    """Tell whether a path belongs to /logs."""
    return path == PATH or path.startswith(f"{PATH}/")


async def answer_logs(request: Request, folder: Path = FOLDER) -> Response:
    """Answer with a file or a listing: 301, 304, 400, 404, 405."""
    if request.method != "GET":
        return _error(405, "405: Method Not Allowed")
    relative = request.path.removeprefix(PATH).strip("/")
    if ".." in relative.split("/") or "\0" in relative:
        return _error(400, "invalid URL path")
    path = folder / relative
    try:
        found = await trio.to_thread.run_sync(os.stat, path)
    except OSError as error:
        denied = isinstance(error, PermissionError)
        return _error(403, "403 Forbidden") if denied else _error(404, "404 page not found")
    is_folder = stat.S_ISDIR(found.st_mode)
    if is_folder != request.path.endswith("/"):
        name = request.raw_path.rstrip("/").rpartition("/")[2]
        return Response(301, [CACHE_CONTROL, ("location", f"{name}/" if is_folder else f"../{name}")])
    if not is_folder and not stat.S_ISREG(found.st_mode):
        return _error(404, "404 page not found")
    headers = [CACHE_CONTROL, ("last-modified", formatdate(int(found.st_mtime), usegmt=True))]
    if _is_fresh(request, found.st_mtime):
        return Response(304, headers)
    if is_folder:
        listing = await trio.to_thread.run_sync(_listing, path)
        return Response(200, [*headers, ("content-type", "text/html; charset=utf-8")], listing)
    try:
        file = await trio.open_file(path, "rb")
    except OSError:
        return _error(403, "403 Forbidden")
    kind = mimetypes.guess_type(path.name)[0]
    media_type = ("content-type", kind) if kind and not kind.startswith("text/") else TEXT
    length = ("content-length", str(found.st_size))
    return Response(200, [*headers, media_type, length], _content(file, found.st_size))


async def _content(file: trio._file_io.AsyncIOWrapper[BufferedReader], size: int) -> AsyncIterator[bytes]:
    """Yield the first ``size`` bytes. A file that has become shorter ends the answer early."""
    try:
        while size > 0:
            data = await file.read(min(CHUNK, size))
            if not data:
                raise OSError("the file has become shorter")
            size -= len(data)
            yield data
    finally:
        with trio.CancelScope(shield=True):
            await file.aclose()


def _listing(folder: Path) -> bytes:
    lines = ["<!doctype html>", '<meta name="viewport" content="width=device-width">', "<pre>"]
    for name in sorted(os.listdir(folder)):
        shown = f"{name}/" if (folder / name).is_dir() else name
        link = quote(shown.encode("utf-8", "surrogateescape"), safe="$&+,/:;=@~-_.")
        text = html.escape(shown.encode("utf-8", "replace").decode())
        lines.append(f'<a href="{link}">{text}</a>')
    return "\n".join([*lines, "</pre>", ""]).encode()


def _is_fresh(request: Request, modified: float) -> bool:
    try:
        return int(modified) <= parsedate_to_datetime(request.headers.get("if-modified-since")).timestamp()
    except (TypeError, ValueError):
        return False


def _error(code: int, text: str) -> Response:
    return Response(code, [TEXT, NOSNIFF, CACHE_CONTROL], f"{text}\n".encode())
