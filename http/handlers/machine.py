"""The machine of the server: the states of its components, and its log files."""

from __future__ import annotations

import html
import mimetypes
import os
import re
import stat
from collections.abc import AsyncIterator
from email.utils import formatdate, parsedate_to_datetime
from io import BufferedReader
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import quote

import orjson
import trio

from kubechronicle.actors.reading.reads import Listing, Reads, Selection, Watching
from kubechronicle.api.errors import status
from kubechronicle.api.errors.status import StatusError
from kubechronicle.api.registry.registry import ResourceType
from kubechronicle.eventlog.entries import Entry
from kubechronicle.eventlog.errors import LogError
from kubechronicle.eventlog.records import Key
from kubechronicle.http.messages import HeaderList, Request, Response
from kubechronicle.http.proxying.backend_request import BackendFailed, BackendHead, BackendRequest, close_now
from kubechronicle.http.proxying.dialing import BackendServer, ClientFiles, ClientTls, DialError
from kubechronicle.http.representation.answers import CACHE_CONTROL

RESOURCE: Final = "componentstatuses"
PORTS: Final = {"controller-manager": 10257, "scheduler": 10259}
STORE: Final = "etcd-0"
HOST: Final = "127.0.0.1"
WAIT: Final = 20.0
"""Seconds for one answer."""
MOST_TEXT: Final = 10 * 1024
"""Bytes of an answer that are shown."""

_INSECURE = ClientTls(ClientFiles())
"""The certificates of these components are not verified, as in kube-apiserver."""


class ComponentStatuses:
    """An ObjectReads of the components. ``reads``: of the store."""

    def __init__(self, reads: Reads) -> None:
        self._reads = reads

    async def get(self, rt: ResourceType, namespace: str, name: str, *, revision: int | None = None) -> Entry | None:
        return await self._entry(name) if name in (*PORTS, STORE) else None

    async def list(
        self,
        rt: ResourceType,
        selection: Selection,
        *,
        limit: int = 0,
        continue_token: str = "",
        revision: int | None = None,
        exact: bool = False,
    ) -> Listing:
        """List all components in the order of their names, on one page. Each is asked at the same time."""
        found: dict[str, Entry] = {}

        async def ask(name: str) -> None:
            found[name] = await self._entry(name)

        async with trio.open_nursery() as nursery:
            for name in (*PORTS, STORE):
                nursery.start_soon(ask, name)
        entries = await selection.select([found[name] for name in sorted(found)])
        return Listing(entries=entries, revision=self._reads.applied)

    async def watch(
        self,
        rt: ResourceType,
        selection: Selection,
        *,
        revision: int | None,
        initial: bool | None = None,
        bookmarks: bool = False,
    ) -> Watching:
        raise status.method_not_supported(rt, "watch")

    async def _entry(self, name: str) -> Entry:
        condition = await (self._store() if name == STORE else _component(PORTS[name]))
        found = {
            "kind": "ComponentStatus",
            "apiVersion": "v1",
            "metadata": {"name": name},
            "conditions": [{"type": "Healthy", **condition}],
        }
        return Entry(Key(RESOURCE, "", name), "", 0, 0, 1, orjson.dumps(found), {}, {"metadata.name": name})

    async def _store(self) -> dict[str, Any]:
        try:
            with trio.fail_after(WAIT):
                await self._reads.wait_consistent()
        except (LogError, StatusError) as error:
            return {"status": "False", "error": str(error)}
        except trio.TooSlowError:
            return {"status": "False", "error": "context deadline exceeded"}
        return {"status": "True", "message": "ok"}


async def _component(port: int) -> dict[str, Any]:
    url = f"https://{HOST}:{port}/healthz"
    try:
        with trio.fail_after(WAIT):
            head, text = await _healthz(port)
    except (DialError, BackendFailed) as error:
        return {"status": "False", "message": f'Get "{url}": {error}'}
    except trio.TooSlowError:
        return {"status": "False", "message": f'Get "{url}": context deadline exceeded'}
    if 200 <= head.status < 400:
        return {"status": "True", "message": text}
    return {"status": "False", "message": f"HTTP probe failed with statuscode: {head.status}"}


async def _healthz(port: int) -> tuple[BackendHead, str]:
    stream = await BackendServer(host=HOST, port=port, tls=_INSECURE.context(), wait=WAIT).dial()
    try:
        asked = BackendRequest(stream, method="GET")
        await asked.send_head("/healthz", [("host", f"{HOST}:{port}"), ("user-agent", "kube-probe"), ("accept", "*/*")])
        head, text = await asked.receive_head(), b""
        while len(text) < MOST_TEXT and (part := await asked.next_part()):
            text += part
        return head, text[:MOST_TEXT].decode("utf-8", "replace")
    finally:
        close_now(stream)


# -- log files ---------------------------------------------------------------------------------------------------------
#
# /logs: the files below /var/log of this machine, if --enable-logs-handler is set (kube-apiserver pkg/routes/logs.go).
#
# A file is sent as it is now, with its length of now: what is appended meanwhile is left out. Directories are listed.
# Differences to kube-apiserver: a request for several ranges gets the whole file, and a file without a known ending is
# plain text.


# -- byte ranges -------------------------------------------------------------------------------------------------------
#
# Ranges of a file that a client asks for (RFC 9110 §14): pure functions.
#
# One range is answered. Several at once would need a multipart answer. A server may ignore them, and send the whole
# file.

_RANGE: Final = re.compile(r"\s*(\d*)\s*-\s*(\d*)\s*", re.ASCII)
_MAX_DIGITS: Final = 18  # as many fit into 64 bits


class ByteRange(NamedTuple):
    """A part of a file. Of an empty one, ``start`` is the size of the file."""

    start: int
    length: int

    def content_range(self, size: int) -> str:
        """Return the value of Content-Range for a file of this size."""
        return f"bytes {self.start}-{self.start + self.length - 1}/{size}"


class RangeError(Exception):
    """The field is malformed, or its range begins behind the end of the file. The text is that of Go's net/http."""


def requested_range(field: str, size: int) -> ByteRange | None:
    """Return the range that a Range field asks of a file of this size; None for the whole file. Raises RangeError.

    >>> requested_range("bytes=2-", 10), requested_range("bytes=-3", 10), requested_range("bytes=0-99", 10)
    (Range(start=2, length=8), Range(start=7, length=3), Range(start=0, length=10))
    """
    if not field:
        return None
    unit, _, text = field.partition("=")
    if unit != "bytes":
        raise RangeError("invalid range")
    wanted = [_parsed(part, size) for part in text.split(",") if part.strip()]
    found = [part for part in wanted if part is not None]
    if wanted and not found and size:
        raise RangeError("invalid range: failed to overlap")
    return found[0] if len(found) == 1 else None


def _parsed(text: str, size: int) -> ByteRange | None:
    """Return one range; None if it begins behind the end."""
    match = _RANGE.fullmatch(text)
    if match is None or max(map(len, match.groups())) > _MAX_DIGITS:
        raise RangeError("invalid range")
    first, last = match.groups()
    if not first:
        if not last:
            raise RangeError("invalid range")
        length = min(int(last), size)
        return ByteRange(size - length, length)
    start, end = int(first), int(last or size)
    if start >= size:
        return None
    if last and start > end:
        raise RangeError("invalid range")
    return ByteRange(start, min(end, size - 1) - start + 1)


# -- log files ---------------------------------------------------------------------------------------------------------

PATH: Final = "/logs"
FOLDER: Final = Path("/var/log")
CHUNK: Final = 256 * 1024
TEXT: Final = ("content-type", "text/plain; charset=utf-8")
NOSNIFF: Final = ("x-content-type-options", "nosniff")


def is_log_path(path: str) -> bool:
    """Tell whether a path belongs to /logs."""
    return path == PATH or path.startswith(f"{PATH}/")


async def answer_logs(request: Request, folder: Path = FOLDER) -> Response:
    """Answer with a file, a range of it, or a listing: 206, 301, 304, 400, 404, 405, 416."""
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
    return await _file(request, path, found, headers)


async def _file(request: Request, path: Path, found: os.stat_result, headers: HeaderList) -> Response:
    """Answer with the file, or with the range that the request asks for."""
    size, headers = found.st_size, [*headers, ("accept-ranges", "bytes")]
    wanted = None
    if request.headers.get("if-range", dict(headers)["last-modified"]) == dict(headers)["last-modified"]:
        try:
            wanted = requested_range(request.headers.get("range") or "", size)
        except RangeError as error:
            answer = _error(416, str(error))
            return Response(416, [*answer.headers, ("content-range", f"bytes */{size}")], answer.body)
    try:
        file = await trio.open_file(path, "rb")
    except OSError:
        return _error(403, "403 Forbidden")
    kind = mimetypes.guess_type(path.name)[0]
    headers.append(("content-type", kind) if kind and not kind.startswith("text/") else TEXT)
    if wanted is not None:
        headers.append(("content-range", wanted.content_range(size)))
    part = wanted or ByteRange(0, size)
    headers.append(("content-length", str(part.length)))
    return Response(200 if wanted is None else 206, headers, _content(file, part))


async def _content(file: trio._file_io.AsyncIOWrapper[BufferedReader], part: ByteRange) -> AsyncIterator[bytes]:
    """Yield a part of the file. A file that has become shorter ends the answer early."""
    size = part.length
    try:
        await file.seek(part.start)
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
