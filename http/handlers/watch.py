"""WATCH: a cursor's events as a stream of frames, over HTTP chunks or WebSocket messages.

The stream ends by itself after its time (timeoutSeconds, or a random time from --min-request-timeout on, so that not
all clients come back at once), when the server drains, or with an ERROR event when history it needs is gone. A client
that stops reading is the connection's business: a watcher costs nothing but its place in the history.
"""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager

import trio

from kubechronicle.actors.reads import Reads, Selection, Watching, too_old
from kubechronicle.api import status
from kubechronicle.api.options import ListOptions, parse_resource_version
from kubechronicle.api.registry import ResourceType
from kubechronicle.eventlog.entries import Event
from kubechronicle.eventlog.errors import Compacted, LogUnavailable
from kubechronicle.http.answers import CACHE_CONTROL, watch_form
from kubechronicle.http.context import Context
from kubechronicle.http.encoder import JSON, Encoder
from kubechronicle.http.messages import SWITCHED, Request, Response
from kubechronicle.http.metrics import Metrics
from kubechronicle.http.websocket import send_stream

# Bookmarks to clients that allow them (KEP-956: about once a minute).
BOOKMARK_INTERVAL = 60.0
# A bookmark is sent this long before the watch ends, so that the client resumes from a recent revision.
LAST_BOOKMARK = 2.0
# Frames are gathered into one write up to this size.
CHUNK_BYTES = 64 * 1024
# Initial events encoded at once; the next part waits until the client has taken this one.
INITIAL_PART = 500
# How long an unreadable log may keep a watch waiting before the client is told to start over.
LOG_RETRY = 1.0


class Drain:
    """Ends all watches when the server is about to stop: those asleep are woken by cancelling their sleep alone."""

    def __init__(self) -> None:
        self.begun = False
        self._sleeping: set[trio.CancelScope] = set()

    def begin(self) -> None:
        self.begun = True
        for scope in self._sleeping:
            scope.cancel()

    @contextmanager
    def sleeping(self) -> Iterator[None]:
        with trio.CancelScope() as scope:
            if self.begun:
                scope.cancel()
            self._sleeping.add(scope)
            try:
                yield
            finally:
                self._sleeping.discard(scope)


async def watch(
    request: Request,
    context: Context,
    rt: ResourceType,
    asked: ListOptions,
    selection: Selection,
    *,
    reads: Reads,
    metrics: Metrics,
    min_watch: float,
    drain: Drain,
) -> Response:
    form = watch_form(request, context)
    encoder = Encoder(rt, form, include_object=context.query.get("includeObject"))
    revision = None
    if asked.resource_version:
        revision = storage_revision(asked.resource_version)
    watching = await reads.watch(
        rt,
        selection,
        revision=revision,
        initial=asked.send_initial_events,
        bookmarks=asked.allow_watch_bookmarks,
    )
    seconds = asked.timeout_seconds or min_watch * (1 + random.random())
    ends = trio.current_time() + seconds
    frames = _frames(watching, encoder, ends, bookmarks=asked.allow_watch_bookmarks, drain=drain)
    counted = _counted(frames, metrics, rt)
    if request.websocket is not None:
        text = form.media_type == JSON
        await request.websocket.accept()
        await send_stream(request, _messages(counted, text=text), text=text)
        return SWITCHED
    return Response(200, [("content-type", form.stream_content_type), CACHE_CONTROL], _joined(counted))


def storage_revision(text: str) -> int:
    """A resourceVersion as kube-apiserver's storage reads it. StatusError 500, without a reason."""
    try:
        return parse_resource_version(text)
    except ValueError as error:
        raise status.unknown(str(error)) from None


async def _frames(
    watching: Watching, encoder: Encoder, ends: float, *, bookmarks: bool, drain: Drain
) -> AsyncIterator[list[bytes]]:
    """Lists of frames, in order: what there is now, in parts of bounded size, then what comes."""
    for start in range(0, len(watching.initial), INITIAL_PART):
        yield [encoder.event("ADDED", entry) for entry in watching.initial[start : start + INITIAL_PART]]
    if watching.bookmark_initial:
        yield [encoder.bookmark(watching.initial_revision, initial_end=True)]
    cursor = watching.cursor
    told = cursor.revision
    next_bookmark = _bookmark_time(ends) if bookmarks else ends
    while True:
        deadline = min(ends, next_bookmark)
        events: list[Event] = []
        try:
            with drain.sleeping():
                events = await cursor.next_batch(deadline)
        except Compacted as error:
            yield [encoder.error(too_old(error))]
            return
        except LogUnavailable:
            await trio.sleep(LOG_RETRY)
            if trio.current_time() >= ends:
                return
            continue
        if drain.begun:
            return
        if events:
            frames = []
            for event in events:
                told_as = watching.classify(event)
                if told_as is not None:
                    frames.append(encoder.event(*told_as, event))
            if frames:
                yield frames
        now = trio.current_time()
        if bookmarks and now >= next_bookmark:
            if cursor.revision > told:
                told = cursor.revision
                yield [encoder.bookmark(told)]
            next_bookmark = _bookmark_time(ends) if now < ends - LAST_BOOKMARK else ends + 1
        if now >= ends:
            return


def _bookmark_time(ends: float) -> float:
    now = trio.current_time()
    return min(now + BOOKMARK_INTERVAL * (0.75 + random.random() / 2), max(now, ends - LAST_BOOKMARK))


async def _counted(
    frames: AsyncIterator[list[bytes]], metrics: Metrics, rt: ResourceType
) -> AsyncIterator[list[bytes]]:
    """Count the watcher and its events."""
    watchers = metrics.watchers(rt.group, rt.version, rt.kind)
    events = metrics.watch_events(rt.group, rt.version, rt.plural)
    watchers.inc()
    try:
        async for batch in frames:
            events.inc(len(batch))
            yield batch
    finally:
        watchers.dec()


async def _joined(batches: AsyncIterator[list[bytes]]) -> AsyncIterator[bytes]:
    """Frames gathered into writes of bounded size. The empty first write sends the headers at once."""
    yield b""
    async for batch in batches:
        if len(batch) == 1:
            yield batch[0]
            continue
        pending: list[bytes] = []
        size = 0
        for frame in batch:
            pending.append(frame)
            size += len(frame)
            if size >= CHUNK_BYTES:
                yield b"".join(pending)
                pending, size = [], 0
        if pending:
            yield b"".join(pending)


async def _messages(batches: AsyncIterator[list[bytes]], *, text: bool) -> AsyncIterator[bytes]:
    """One frame a WebSocket message; JSON without the newline that separates frames of a byte stream."""
    async for batch in batches:
        for frame in batch:
            yield frame.rstrip(b"\n") if text else frame
