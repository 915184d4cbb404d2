"""/openapi/v2 and /openapi/v3: the documents of api/openapi as JSON and as protobuf, for clients that cache them.

Each document is made when it is first asked for, once per registry, in a thread (v2 takes 0.2 s), and kept as bytes;
what is large is kept gzipped, as nearly every client takes it, and unpacked for the others (10 ms for the largest).
Headers, redirects and which types are offered are kube-apiserver's (kube-openapi pkg/handler and pkg/handler3); the
conditions If-None-Match and If-Modified-Since are those of Go's http.ServeContent (RFC 9110 §13).
"""

from __future__ import annotations

import gzip
import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime, parsedate_to_datetime
from typing import Final

import trio

from kubechronicle.api.codecs import json
from kubechronicle.api.codecs.negotiate import one_of
from kubechronicle.api.openapi import messages, v2, v3
from kubechronicle.api.registry.registry import Registry
from kubechronicle.http.context import Context
from kubechronicle.http.messages import Request, Response
from kubechronicle.http.representation.answers import takes_gzip

JSON: Final = "application/json"
PROTOBUF_V2: Final = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
PROTOBUF_V3: Final = "application/com.github.proto-openapi.spec.v3.v1.0+protobuf"
# What a client may ask for -> what it gets: the types with @ are the older spelling.
TYPES_V2: Final = {
    JSON: JSON,
    "application/com.github.proto-openapi.spec.v2@v1.0+protobuf": PROTOBUF_V2,
    PROTOBUF_V2: PROTOBUF_V2,
}
TYPES_V3: Final = {
    JSON: JSON,
    PROTOBUF_V3: PROTOBUF_V3,
    "application/com.github.proto-openapi.spec.v3@v1.0+protobuf": PROTOBUF_V3,
}
V2, V3 = "/openapi/v2", "/openapi/v3"
VARY: Final = ("vary", "Accept, Accept-Encoding")
REVALIDATE: Final = ("cache-control", "no-cache, private")
IMMUTABLE: Final = ("cache-control", "public, immutable")
LIFE: Final = timedelta(days=365)
# As kube-apiserver compresses: only what is larger than a packet or two hundred.
GZIP_THRESHOLD: Final = 128 * 1024


@dataclass(frozen=True, slots=True)
class _Held:
    """A document's bytes; ``packed``: gzipped."""

    body: bytes
    packed: bool


class OpenApi:
    """Answers the documents of one registry. ``pages`` are the paths the server answers beside /api and /apis, as far
    as the documents tell of them; ``version`` is the server's."""

    def __init__(self, registry: Registry, *, version: str, pages: Sequence[str]) -> None:
        self._registry = registry
        self._version = version
        self._pages = frozenset(pages)
        self._served = frozenset(v3.served(registry, self._pages))
        self._hashes: dict[str, str] = {}
        self._held: dict[tuple[str, str], _Held] = {}
        self._v2_etag = ""
        self._making = trio.Lock()
        # The documents follow from the registry, so that is how old they are.
        self._modified = datetime.now(UTC).replace(microsecond=0)

    def paths(self) -> list[str]:
        """All paths answered here."""
        return [V2, V3, *(f"{V3}/{path}" for path in sorted(self._served))]

    def bytes_held(self) -> int:
        """What the documents made so far take in memory."""
        return sum(len(held.body) for held in self._held.values())

    async def answer(self, request: Request, context: Context) -> Response | None:
        """The answer for a path of this kind; None if the path is none."""
        if request.method not in ("GET", "HEAD"):
            return None
        if request.path == V2:
            return await self._answer_v2(request)
        if request.path == V3:
            return self._index(request, context)
        if request.path.startswith(f"{V3}/"):
            return await self._answer_v3(request, context, request.path[len(V3) + 1 :])
        return None

    # -- v3 -----------------------------------------------------------------------------------------------------------

    def _index(self, request: Request, context: Context) -> Response:
        hashes = {path: self._hash(path) for path in self._served}
        body = json.encode(v3.index(hashes, prefix=_prefix(request, context)))
        # kube-apiserver's aggregator leaves the type to be guessed, and Go guesses text.
        headers = [("content-type", "text/plain; charset=utf-8"), REVALIDATE, self._last_modified()]
        return Response(304, headers[1:]) if self._is_fresh(request, "") else Response(200, headers, body)

    async def _answer_v3(self, request: Request, context: Context, path: str) -> Response:
        if path not in self._served:
            return Response(404, [REVALIDATE])
        media_type = TYPES_V3.get(one_of(request.headers.get("accept"), tuple(TYPES_V3)))
        if media_type is None:
            return Response(406, [VARY, REVALIDATE])
        found = self._hash(path)
        etag = f'"{found}"'
        headers = [("content-type", media_type), ("etag", etag), VARY]
        asked = context.query.get("hash")
        if asked and asked != found:
            location = f"{_prefix(request, context)}{V3}/{path}?hash={found}"
            return Response(301, [*headers, REVALIDATE, ("location", location)])
        if asked:
            expires = format_datetime(datetime.now(UTC) + LIFE, usegmt=True)
            headers += [IMMUTABLE, ("expires", expires)]
        else:
            headers.append(REVALIDATE)
        headers.append(self._last_modified())
        if self._is_fresh(request, etag):
            return Response(304, headers[1:])

        def make() -> bytes:
            document = v3.document(self._registry, path, server_version=self._version)
            return json.encode(document) if media_type == JSON else messages.V3.encode(document)

        return _sent(request, headers, await self._document(path, media_type, make))

    def _hash(self, path: str) -> str:
        found = self._hashes.get(path)
        if found is None:
            found = self._hashes[path] = v3.document_hash(self._registry, path, server_version=self._version)
        return found

    # -- v2 -----------------------------------------------------------------------------------------------------------

    async def _answer_v2(self, request: Request) -> Response:
        media_type = TYPES_V2.get(one_of(request.headers.get("accept"), tuple(TYPES_V2)))
        if media_type is None:
            return Response(406, [VARY, REVALIDATE])
        # The same tag for both forms, as they vary by Accept; it is that of the JSON.
        held = await self._document(V2, JSON, self._make_v2)
        etag = f'"{self._v2_etag}"'
        headers = [("content-type", media_type), ("etag", etag), VARY, REVALIDATE, self._last_modified()]
        if self._is_fresh(request, etag):
            return Response(304, headers[1:])
        if media_type != JSON:
            held = await self._document(V2, media_type, lambda: messages.V2.encode(self._v2()))
        return _sent(request, headers, held)

    def _make_v2(self) -> bytes:
        body = json.encode(self._v2())
        self._v2_etag = hashlib.sha512(body).hexdigest().upper()
        return body

    def _v2(self) -> v2.Document:
        return v2.document(self._registry, self._pages, server_version=self._version)

    # -- both ---------------------------------------------------------------------------------------------------------

    async def _document(self, path: str, media_type: str, make: Callable[[], bytes]) -> _Held:
        """The document's bytes, made by the first who asks while others wait."""
        key = (path, media_type)
        held = self._held.get(key)
        if held is None:
            async with self._making:
                held = self._held.get(key)
                if held is None:
                    held = self._held[key] = await trio.to_thread.run_sync(lambda: _pack(make()))
        return held

    def _last_modified(self) -> tuple[str, str]:
        return "last-modified", format_datetime(self._modified, usegmt=True)

    def _is_fresh(self, request: Request, etag: str) -> bool:
        """Whether the client's copy is the present one: by its tags, else by its date."""
        tags = request.headers.get("if-none-match")
        if tags:
            listed = {tag.strip().removeprefix("W/") for tag in tags.split(",")}
            return "*" in listed or (bool(etag) and etag in listed)
        try:
            return parsedate_to_datetime(request.headers.get("if-modified-since")) >= self._modified
        except (TypeError, ValueError):
            return False


def _prefix(request: Request, context: Context) -> str:
    """What stands before the ordinary path in the request's URL: that of a moment of history."""
    return "/".join(request.raw_path.split("/", 4)[:4]) if context.moment else ""


def _pack(body: bytes) -> _Held:
    if len(body) <= GZIP_THRESHOLD:
        return _Held(body, False)
    return _Held(gzip.compress(body, 6, mtime=0), True)


def _sent(request: Request, headers: list[tuple[str, str]], held: _Held) -> Response:
    if not held.packed:
        return Response(200, headers, held.body)
    if takes_gzip(request):
        return Response(200, [*headers, ("content-encoding", "gzip")], held.body)
    return Response(200, headers, gzip.decompress(held.body))
