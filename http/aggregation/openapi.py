"""The OpenAPI v2 documents of other servers, for /openapi/v2 of this one, and as v3 where a server has no v3.

They are requested when a client asks for /openapi/v2, each at most once in REFRESH, with the tag of the one before. The
paths of its APIService's group version are kept, as bytes. While a server does not answer, its last document stays.
Parsing is done in a thread. Sources: kube-aggregator ``pkg/controllers/openapi/aggregator``,
``pkg/controllers/openapiv3/aggregator``.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

import orjson
import trio

from kubechronicle.api.codecs.errors import EncodeError
from kubechronicle.api.openapi import conversion, merging, messages
from kubechronicle.api.registry.api_services import ApiService
from kubechronicle.http.aggregation.backends import TIMEOUT, Backends
from kubechronicle.http.aggregation.routes import Routes
from kubechronicle.http.outgoing.client import AskError

log = logging.getLogger(__name__)

REFRESH: Final = 60.0
"""Seconds between two requests for one document."""
MOST_REQUESTS: Final = 8
"""Servers asked at a time."""
MOST_BYTES: Final = 32 * 1024 * 1024
"""Bytes of all documents. Those beyond, in the order of merging, are left out."""
V2, V3 = "/openapi/v2", "/openapi/v3"
HEADERS: Final = {"x-remote-user": "system:aggregator", "accept": "application/json"}
MALFORMED: Final = (AttributeError, KeyError, TypeError, ValueError, RecursionError)


@dataclass(frozen=True, slots=True)
class RemoteDocument:
    """A document with the paths of one group version.

    ``body``: as JSON; ``digest``: of the body; ``encodable``: it has a protobuf form.
    """

    body: bytes = field(repr=False)
    digest: str
    encodable: bool


@dataclass(frozen=True, slots=True)
class ConvertedDocument:
    """A v2 document as v3. ``protobuf``: None if it has no such form. ``tag``: the ETag of the v2 document."""

    json: bytes = field(repr=False)
    protobuf: bytes | None = field(repr=False)
    digest: str
    tag: str = ""


@dataclass(slots=True)
class _KeptDocument:
    """The state of one APIService. ``due``: trio time of the next request; ``tag``: ETag of the last answer."""

    one: ApiService
    document: RemoteDocument | None = None
    tag: str = ""
    due: float = 0.0


class RemoteOpenApi:
    """Requests and keeps documents. ``routes``: the APIServices; ``backends``: addresses and clients."""

    def __init__(self, routes: Routes, backends: Backends) -> None:
        self._routes = routes
        self._backends = backends
        self._kept: dict[str, _KeptDocument] = {}
        self._converted: dict[str, ConvertedDocument] = {}
        self._asking = trio.Lock()

    async def documents(self) -> Sequence[RemoteDocument]:
        """Return the documents in the order in which they are merged. Request those that are due."""
        remote = {one.name: one for one in self._routes.remote().values()}
        if not remote:
            self._kept.clear()
            return ()
        async with self._asking:
            await self._refresh(remote)
        found, size = [], 0
        for name in _merge_order(list(remote.values())):
            kept = self._kept.get(name)
            if kept is None or kept.document is None:
                continue
            size += len(kept.document.body)
            if size > MOST_BYTES:
                log.warning("/openapi/v2 leaves out APIService %s: the documents have over %d bytes", name, MOST_BYTES)
                break
            found.append(kept.document)
        return found

    def converted(self, one: ApiService) -> ConvertedDocument | None:
        """Return the v3 document of a group version that was made here; None: its server has one, or none at all."""
        return self._converted.get(one.name)

    def forget_converted(self, names: Collection[str]) -> None:
        """Drop the v3 documents of these APIServices."""
        for name in names:
            self._converted.pop(name, None)

    async def convert(self, one: ApiService) -> str:
        """Make the v3 document of a server that has v2 only. Return its URL for the index; "": there is none.

        Raises AskError, or one of MALFORMED; the former document stays then.
        """
        assert one.service is not None
        url = await self._backends.url(one.service)
        client = await self._backends.client(one, url)
        former = self._converted.get(one.name)
        headers = {**HEADERS, "if-none-match": former.tag} if former is not None and former.tag else HEADERS
        answer = await client.ask("GET", url + V2, headers=headers, timeout=TIMEOUT)
        if answer.status == 404:
            self._converted.pop(one.name, None)
            return ""
        if answer.status == 200:
            tag = answer.headers.get("etag", "")
            former = self._converted[one.name] = await trio.to_thread.run_sync(converted, answer.body, tag)
        elif answer.status != 304 or former is None:
            raise AskError(f"{V2} was answered with {answer.status}")
        return f"{V3}/apis/{one.group}/{one.version}?hash={former.digest}"

    async def _refresh(self, remote: dict[str, ApiService]) -> None:
        for name in self._kept.keys() - remote.keys():
            del self._kept[name]
        turns, now = trio.Semaphore(MOST_REQUESTS), trio.current_time()
        async with trio.open_nursery() as nursery:
            for name, one in remote.items():
                kept = self._kept.setdefault(name, _KeptDocument(one))
                if kept.one != one:
                    kept.one, kept.due, kept.tag = one, now, ""
                if one.available and kept.due <= now:
                    nursery.start_soon(self._ask, kept, turns)

    async def _ask(self, kept: _KeptDocument, turns: trio.Semaphore) -> None:
        one = kept.one
        assert one.service is not None
        try:
            async with turns:
                url = await self._backends.url(one.service)
                client = await self._backends.client(one, url)
                headers = {**HEADERS, "if-none-match": kept.tag} if kept.tag and kept.document else HEADERS
                answer = await client.ask("GET", url + V2, headers=headers, timeout=TIMEOUT)
            if answer.status == 404:
                kept.document = None
            elif answer.status == 200:
                kept.document = await trio.to_thread.run_sync(read_document, answer.body, one.group, one.version)
                kept.tag = answer.headers.get("etag", "")
            elif answer.status != 304:
                raise AskError(f"{V2} was answered with {answer.status}")
        except (AskError, *MALFORMED) as error:
            log.info("no OpenAPI v2 document of %s: %s", one.name, error)
        kept.due = trio.current_time() + REFRESH


def read_document(body: bytes, group: str, version: str) -> RemoteDocument:
    """Return the part of a document that describes a group version. Raises one of MALFORMED."""
    document = orjson.loads(body)
    if not isinstance(document, dict):
        raise ValueError("the answer is no object")
    prefix = f"/apis/{group}/{version}/"
    found = merging.filtered(document, lambda path: path.startswith(prefix))
    kept = {member: found.get(member) or {} for member in ("paths", "definitions", "parameters")}
    try:
        messages.V2.encode(kept)
        encodable = True
    except (EncodeError, RecursionError):
        encodable = False
    content = orjson.dumps(kept)
    return RemoteDocument(content, hashlib.sha256(content).hexdigest(), encodable)


def converted(body: bytes, tag: str) -> ConvertedDocument:
    """Return a v2 document as v3. Raises one of MALFORMED."""
    document = orjson.loads(body)
    if not isinstance(document, dict):
        raise ValueError("the answer is no object")
    made = conversion.to_v3(document)
    protobuf: bytes | None = None
    with suppress(EncodeError, RecursionError):
        protobuf = messages.V3.encode(made)
    content = orjson.dumps(made)
    return ConvertedDocument(content, protobuf, hashlib.sha512(content).hexdigest().upper(), tag)


def _merge_order(services: Sequence[ApiService]) -> list[str]:
    """Return names by the highest priority of their group, then alphabetically."""
    highest: dict[str, int] = {}
    for one in services:
        highest[one.group] = max(one.group_priority, highest.get(one.group, 0))
    return sorted(
        (one.name for one in services), key={one.name: (-highest[one.group], one.name) for one in services}.__getitem__
    )
