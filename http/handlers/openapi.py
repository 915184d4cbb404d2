"""/openapi/v2 and /openapi/v3: the documents of api/openapi as JSON and as protobuf, for clients that cache them.

A document is encoded at its first request, once for a registry, in a thread (v2 takes 0.2 s). Its bytes are kept, large
ones gzipped, since nearly every client accepts that; for others a thread decompresses them (10 ms for the largest).
Headers, redirects and media types are kube-apiserver's (kube-openapi pkg/handler and pkg/handler3). If-None-Match and
If-Modified-Since work as in Go's http.ServeContent (RFC 9110 §13).
"""

from __future__ import annotations

import gzip
import hashlib
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime, parsedate_to_datetime
from functools import partial
from typing import Final

import trio

from kubechronicle.api.codecs import json
from kubechronicle.api.codecs.negotiate import one_of
from kubechronicle.api.openapi import merging, messages, v2, v3
from kubechronicle.api.openapi.schemas import USUAL, SchemaChoices
from kubechronicle.api.registry.registry import Registry
from kubechronicle.http.aggregation.openapi import MALFORMED, ConvertedDocument, RemoteDocument
from kubechronicle.http.context import Context
from kubechronicle.http.messages import Request, Response
from kubechronicle.http.representation.answers import takes_gzip

log = logging.getLogger(__name__)

JSON: Final = "application/json"
PROTOBUF_V2: Final = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
PROTOBUF_V3: Final = "application/com.github.proto-openapi.spec.v3.v1.0+protobuf"
# Media type in Accept -> media type of the answer. Types with @ are the older spelling.
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
# Bytes up to which kube-apiserver does not compress.
GZIP_THRESHOLD: Final = 128 * 1024


@dataclass(frozen=True, slots=True)
class _Held:
    """The bytes of a document. ``gzipped``: they are compressed."""

    body: bytes
    gzipped: bool


@dataclass(slots=True)
class _Merged:
    """/openapi/v2 with the documents of other servers, which have these digests. ``held``: by media type."""

    digests: tuple[str, ...]
    etag: str = ""
    held: dict[str, _Held] = field(default_factory=dict)


class OpenApi:
    """Answers the documents of the present registry, and of some of the past.

    ``registry``: returns the present one.
    ``version``: the version of the server.
    ``pages``: the paths besides /api and /apis that documents may describe.
    ``choices``: those of feature gates.
    """

    def __init__(
        self, registry: Callable[[], Registry], *, version: str, pages: Sequence[str], choices: SchemaChoices = USUAL
    ) -> None:
        self._current = registry
        self._make = partial(Documents, version=version, pages=frozenset(pages), choices=choices)
        self._present = self._past = self._make(registry(), former=None)

    def _documents(self, registry: Registry) -> Documents:
        """Return the documents of a registry. Those of the present one and of one of the past are kept."""
        current = self._current()
        if self._present.registry is not current:
            self._present = self._make(current, former=self._present)
        if registry is current:
            return self._present
        if self._past.registry is not registry:
            self._past = self._make(registry, former=self._present)
        return self._past

    def paths(self) -> list[str]:
        """Return the paths answered here, of which the last one stands for all below it."""
        return self._documents(self._current()).paths()

    def bytes_held(self) -> int:
        """Return the bytes of memory of all encoded documents."""
        return self._present.bytes_held() + (self._past.bytes_held() if self._past is not self._present else 0)

    async def answer(
        self,
        request: Request,
        context: Context,
        registry: Registry,
        others: Mapping[str, str] | None = None,
        remote: Sequence[RemoteDocument] = (),
    ) -> Response | None:
        """Answer a path of this class by a registry; None for any other path. As in kube-apiserver, the method does not
        matter.

        ``others``: the URLs of documents of other servers, by path below /openapi/v3.
        ``remote``: the documents of other servers for /openapi/v2.
        """
        if not request.path.startswith("/openapi/"):
            return None
        documents = self._documents(registry)
        if remote and request.path == V2:
            return await documents.answer_merged(request, remote)
        return await documents.answer(request, context, others or {})


class Documents:
    """The documents of one registry. ``former``: those of the registry before, from which unchanged ones are kept."""

    def __init__(
        self,
        registry: Registry,
        *,
        version: str,
        pages: frozenset[str],
        choices: SchemaChoices,
        former: Documents | None,
    ) -> None:
        self.registry = self._registry = registry
        self._choices = choices
        self._version = version
        self._pages = pages
        self._served = frozenset(v3.served(registry, pages))
        self._hashes: dict[str, str] = {}
        self._held: dict[tuple[str, str], _Held] = {}
        if former is not None:
            kept = {path for path in self._served & former._served if _is_same(path, registry, former._registry)}
            self._hashes = {path: hash_ for path, hash_ in former._hashes.items() if path in kept}
            self._held = {key: held for key, held in former._held.items() if key[0] in kept}
        self._v2_etag = ""
        self._merged = _Merged(())
        self._making = trio.Lock()
        self._unpacking = trio.CapacityLimiter(1)
        # The documents are derived from the registry, so they are as old as it is. Dates are in whole seconds, and two
        # registries of one second need two of them: the index has no other tag.
        self._modified = datetime.now(UTC).replace(microsecond=0)
        if former is not None:
            self._modified = max(self._modified, former._modified + timedelta(seconds=1))

    def paths(self) -> list[str]:
        """Return the paths answered here, of which the last one stands for all below it."""
        return [V2, V3, f"{V3}/"]

    def bytes_held(self) -> int:
        """Return the bytes of memory of all encoded documents."""
        return sum(len(held.body) for held in (*self._held.values(), *self._merged.held.values()))

    async def answer(self, request: Request, context: Context, others: Mapping[str, str]) -> Response | None:
        """Answer a path of this class; None for any other path. As in kube-apiserver, the method does not matter."""
        if request.path == V2:
            return await self._answer_v2(request)
        if request.path == V3:
            return self._index(request, context, others)
        if request.path.startswith(f"{V3}/"):
            return await self._answer_v3(request, context, request.path[len(V3) + 1 :])
        return None

    # -- v3 -----------------------------------------------------------------------------------------------------------

    def _index(self, request: Request, context: Context, others: Mapping[str, str]) -> Response:
        hashes = {path: self._hash(path) for path in self._served}
        index = v3.index(hashes, prefix=_prefix(request, context))
        # kube-apiserver's aggregator sets no type, and Go guesses text.
        headers = [("content-type", "text/plain; charset=utf-8"), REVALIDATE]
        if others:  # which change without a date
            paths = index["paths"] | {path: {"serverRelativeURL": url} for path, url in others.items()}
            return Response(200, headers, json.encode({"paths": dict(sorted(paths.items()))}))
        body = json.encode(index)
        headers.append(self._last_modified())
        return Response(304, headers[1:]) if self._is_fresh(request, "") else Response(200, headers, body)

    async def _answer_v3(self, request: Request, context: Context, path: str) -> Response:
        if path not in self._served:
            return Response(404, [REVALIDATE])
        media_type = TYPES_V3.get(one_of(request.headers.get("accept"), tuple(TYPES_V3)))
        if media_type is None:
            return Response(406, [VARY, REVALIDATE])
        current = self._hash(path)
        etag = f'"{current}"'
        headers = [("content-type", media_type), ("etag", etag), VARY]
        requested = context.query.get("hash")
        if requested and requested != current:
            location = f"{_prefix(request, context)}{V3}/{path}?hash={current}"
            return Response(301, [*headers, REVALIDATE, ("location", location)])
        if requested:
            headers += [IMMUTABLE, _expiry()]
        else:
            headers.append(REVALIDATE)
        headers.append(self._last_modified())
        if self._is_fresh(request, etag):
            return Response(304, headers[1:])

        def make() -> bytes:
            document = v3.document(self._registry, path, server_version=self._version, choices=self._choices)
            return json.encode(document) if media_type == JSON else messages.V3.encode(document)

        return await self._sent(request, headers, await self._document(path, media_type, make))

    def _hash(self, path: str) -> str:
        hash_ = self._hashes.get(path)
        if hash_ is None:
            hash_ = self._hashes[path] = v3.document_hash(
                self._registry, path, server_version=self._version, choices=self._choices
            )
        return hash_

    # -- v2 -----------------------------------------------------------------------------------------------------------

    async def _answer_v2(self, request: Request) -> Response:
        media_type = TYPES_V2.get(one_of(request.headers.get("accept"), tuple(TYPES_V2)))
        if media_type is None:
            return Response(406, [VARY, REVALIDATE])
        # Both forms have the tag of the JSON form, since they vary by Accept.
        held = await self._document(V2, JSON, self._make_v2)
        etag = f'"{self._v2_etag}"'
        headers = [("content-type", media_type), ("etag", etag), VARY, REVALIDATE, self._last_modified()]
        if self._is_fresh(request, etag):
            return Response(304, headers[1:])
        if media_type != JSON:
            held = await self._document(V2, media_type, lambda: messages.V2.encode(self._v2()))
        return await self._sent(request, headers, held)

    def _make_v2(self) -> bytes:
        body = json.encode(self._v2())
        self._v2_etag = hashlib.sha512(body).hexdigest().upper()
        return body

    def _v2(self) -> v2.Document:
        return v2.document(self._registry, self._pages, server_version=self._version, choices=self._choices)

    async def answer_merged(self, request: Request, remote: Sequence[RemoteDocument]) -> Response:
        """Answer /openapi/v2 with the documents of other servers merged in. They change without a date."""
        media_type = TYPES_V2.get(one_of(request.headers.get("accept"), tuple(TYPES_V2)))
        if media_type is None:
            return Response(406, [VARY, REVALIDATE])
        async with self._making:
            merged, digests = self._merged, tuple(each.digest for each in remote)
            if merged.digests != digests:
                merged = _Merged(digests)
            for wanted in dict.fromkeys((JSON, media_type)):
                if wanted not in merged.held:
                    held, etag = await trio.to_thread.run_sync(self._make_merged, remote, wanted)
                    merged.held[wanted] = held
                    if wanted == JSON:
                        merged.etag = etag
            self._merged = merged
        headers = [("content-type", media_type), ("etag", merged.etag), VARY, REVALIDATE]
        if request.headers.get("if-none-match") and self._is_fresh(request, merged.etag):
            return Response(304, headers[1:])
        return await self._sent(request, headers, merged.held[media_type])

    def _make_merged(self, remote: Sequence[RemoteDocument], media_type: str) -> tuple[_Held, str]:
        """Return a document and its tag."""
        document = self._v2()
        for each in remote:
            if media_type == JSON or each.encodable:
                try:
                    document = merging.merged(document, json.loads(each.body))
                except MALFORMED as error:
                    log.warning("/openapi/v2 leaves out a document of another server: %s", error)
        body = json.encode(document) if media_type == JSON else messages.V2.encode(document)
        return _compress(body), f'"{hashlib.sha512(body).hexdigest().upper()}"'

    # -- both ---------------------------------------------------------------------------------------------------------

    async def _document(self, path: str, media_type: str, make: Callable[[], bytes]) -> _Held:
        """Return the document. The first request encodes it, concurrent ones wait for that."""
        key = (path, media_type)
        held = self._held.get(key)
        if held is None:
            async with self._making:
                held = self._held.get(key)
                if held is None:
                    held = self._held[key] = await trio.to_thread.run_sync(lambda: _compress(make()))
        return held

    async def _sent(self, request: Request, headers: list[tuple[str, str]], held: _Held) -> Response:
        if not held.gzipped:
            return Response(200, headers, held.body)
        if takes_gzip(request):
            return Response(200, [*headers, ("content-encoding", "gzip")], held.body)
        body = await trio.to_thread.run_sync(gzip.decompress, held.body, limiter=self._unpacking)
        return Response(200, headers, body)

    def _last_modified(self) -> tuple[str, str]:
        return "last-modified", format_datetime(self._modified, usegmt=True)

    def _is_fresh(self, request: Request, etag: str) -> bool:
        """Tell whether the client's copy is current: by its tags, else by its date."""
        tags = request.headers.get("if-none-match")
        if tags:
            listed = {tag.strip().removeprefix("W/") for tag in tags.split(",")}
            return "*" in listed or (bool(etag) and etag in listed)
        try:
            # Another date, also a later one, is that of another server or of a former run.
            return parsedate_to_datetime(request.headers.get("if-modified-since")) == self._modified
        except (TypeError, ValueError):
            return False


async def answer_converted(request: Request, context: Context, document: ConvertedDocument) -> Response:
    """Answer a v3 document that was made of another server's v2 document. It changes without a date."""
    forms = {media_type: form for media_type, form in TYPES_V3.items() if form == JSON or document.protobuf is not None}
    media_type = forms.get(one_of(request.headers.get("accept"), tuple(forms)))
    if media_type is None:
        return Response(406, [VARY, REVALIDATE])
    etag = f'"{document.digest}"'
    headers = [("content-type", media_type), ("etag", etag), VARY]
    requested = context.query.get("hash")
    if requested and requested != document.digest:
        return Response(301, [*headers, REVALIDATE, ("location", f"{request.path}?hash={document.digest}")])
    headers += [IMMUTABLE, _expiry()] if requested else [REVALIDATE]
    if etag in request.headers.get("if-none-match"):
        return Response(304, headers[1:])
    return Response(200, headers, document.json if media_type == JSON else document.protobuf or b"")


def _expiry() -> tuple[str, str]:
    return "expires", format_datetime(datetime.now(UTC) + LIFE, usegmt=True)


def _is_same(path: str, registry: Registry, former: Registry) -> bool:
    """Tell whether a v3 document describes the same types, or none, in both registries."""
    _, _, group_version = path.partition("/")
    group, _, version = group_version.rpartition("/")
    return registry.resources(group, version) == former.resources(group, version)


def _prefix(request: Request, context: Context) -> str:
    """Return the prefix of a branch, of history, or of both in the request's URL, or ""."""
    parts = (2 if context.branch else 0) + (3 if context.moment else 0)
    return "/".join(request.raw_path.split("/", parts + 1)[: parts + 1]) if parts else ""


def _compress(body: bytes) -> _Held:
    if len(body) <= GZIP_THRESHOLD:
        return _Held(body, False)
    return _Held(gzip.compress(body, 6, mtime=0), True)
