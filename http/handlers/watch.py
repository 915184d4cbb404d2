"""WATCH: a cursor's events as a stream of frames, over HTTP chunks or WebSocket messages.

The stream ends by itself after its time (timeoutSeconds, or a random time from --min-request-timeout on, so that not
all clients come back at once), when the server drains, or with an ERROR event when history it needs is gone. A client
that stops reading is the connection's business: a watcher costs nothing but its place in the history.
"""

from __future__ import annotations

import math
import random
from collections import deque
from collections.abc import AsyncIterator, Iterator

import trio

from kubechronicle.actors.reading.reads import ObjectReads, Selection, Watching, too_old
from kubechronicle.api.errors import status
from kubechronicle.api.meta.options import ListOptions, parse_resource_version
from kubechronicle.api.registry.registry import ResourceType
from kubechronicle.eventlog.entries import Event
from kubechronicle.eventlog.errors import Compacted, LogUnavailable
from kubechronicle.eventlog.watching.cursors import Cursor, WatchCursor
from kubechronicle.eventlog.watching.dispatcher import Batch
from kubechronicle.eventlog.watching.replay import ReplayOver
from kubechronicle.http.context import Context
from kubechronicle.http.messages import SWITCHED, Push, Request, Response
from kubechronicle.http.metrics import Metrics
from kubechronicle.http.representation.answers import CACHE_CONTROL, watch_form
from kubechronicle.http.representation.encoding_cache import Encodings
from kubechronicle.http.representation.entry_encoder import JSON, Encoder

# Bookmarks to clients that allow them (KEP-956: about once a minute).
BOOKMARK_INTERVAL = 60.0
# A bookmark is sent this long before the watch ends, so that the client resumes from a recent revision.
LAST_BOOKMARK = 2.0
# Frames are gathered into one write up to this size.
CHUNK_BYTES = 64 * 1024
# Initial events encoded at once, and about how many bytes of them; the next part waits until the client has taken this
# one, so that a thousand slow clients hold a thousand parts.
INITIAL_PART = 500
INITIAL_BYTES = 256 * 1024
# How long an unreadable log may keep a watch waiting before the client is told to start over.
LOG_RETRY = 1.0


class Drain:
    """Ends all watches of clients when the server is about to stop; the server's own cursors are not among them."""

    def __init__(self) -> None:
        self.begun = False
        self._cursors: set[Cursor] = set()

    def begin(self) -> None:
        self.begun = True
        for cursor in self._cursors:
            cursor.end()

    def add(self, cursor: Cursor) -> None:
        self._cursors.add(cursor)

    def discard(self, cursor: Cursor) -> None:
        self._cursors.discard(cursor)


async def watch(
    request: Request,
    context: Context,
    rt: ResourceType,
    asked: ListOptions,
    selection: Selection,
    *,
    reads: ObjectReads,
    metrics: Metrics,
    min_watch: float,
    drain: Drain,
    encodings: Encodings,
) -> Response:
    form = watch_form(request, context, protobuf=bool(rt.message))
    then = context.at.time if context.at is not None else None
    encoder = Encoder(rt, form, include_object=context.query.get("includeObject"), then=then, kept=encodings)
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
    stream = WatchStream(watching, encoder, metrics, ends=ends, bookmarks=asked.allow_watch_bookmarks, drain=drain)
    if request.websocket is not None:
        from kubechronicle.http.wire.websocket.conversation import (
            send_stream,  # loaded with the first one: it takes long, few come
        )

        text = form.media_type == JSON
        # A browser gives up when none of the subprotocols it offers is chosen; that of a token is not among them.
        await request.websocket.accept(next(iter(request.websocket.subprotocols), None))
        await send_stream(request, _messages(stream, text=text), text=text)
        return SWITCHED
    stream.push_by(request.exchange.push)
    return Response(200, [("content-type", form.stream_content_type), CACHE_CONTROL], stream)


def storage_revision(text: str) -> int:
    """A resourceVersion as kube-apiserver's storage reads it. StatusError 500, without a reason."""
    try:
        return parse_resource_version(text)
    except ValueError as error:
        raise status.unknown(str(error)) from None


class _Told:
    """Frames put together, and how many there are."""

    __slots__ = ("count", "frame")

    def __init__(self, frames: list[bytes]) -> None:
        self.count = len(frames)
        self.frame = frames[0] if self.count == 1 else b"".join(frames)


class WatchStream:
    """The body of a watch: an asynchronous iterator of writes, each of one or more frames.

    Most of them sleep in ``__anext__`` and are not woken by events: ``_take`` gives what they say to the connection at
    once. Counted as a registered watcher from its making until it is closed.
    """

    def __init__(
        self, watching: Watching, encoder: Encoder, metrics: Metrics, *, ends: float, bookmarks: bool, drain: Drain
    ) -> None:
        rt, form = encoder.rt, encoder.form
        self._watching = watching
        self._representation = (rt.api_version, form.media_type, form.kind, form.version)
        self._encoder = encoder
        self._cursor = watching.cursor
        self._ends = ends
        self._bookmarks = bookmarks
        self._drain = drain
        self._watchers = metrics.watchers(rt.group, rt.version, rt.kind)
        self._events = metrics.watch_events(rt.group, rt.version, rt.plural)
        self._initial_told = 0
        self._bookmark_due = watching.bookmark_initial
        self._bookmarked = self._cursor.revision
        self._next_bookmark = _bookmark_time(ends) if bookmarks else ends
        self._writes: deque[bytes] = deque((b"",))  # an empty first write sends the headers at once
        self._push: Push | None = None
        self._open = True
        self._over = False
        self._watchers.inc()
        drain.add(self._cursor)

    def push_by(self, push: Push | None) -> None:
        """Events may be sent this way while the iteration waits for one. None: not any more."""
        # What a Table says depends on what was said before, so it must not be made for a push that fails.
        if self._encoder.stateful or not isinstance(self._cursor, WatchCursor):
            return
        if push is not None or self._push is not None:
            self._push = push
            self._cursor.deliver_to(_nobody if push is None else self._take)

    def _take(self, batch: Batch) -> bool:
        if self._watching.matches is None:  # told in one way to all who are told in one representation
            told = batch.told.get(self._representation)
            if told is None:
                told = batch.told[self._representation] = _Told(self._told(batch))
        else:
            told = _Told(self._told(batch))
        if not isinstance(told, _Told) or self._push is None:
            return False
        if told.count:
            if len(told.frame) > CHUNK_BYTES or not self._push(told.frame):
                return False
            self._events.value += told.count
        return True

    def __aiter__(self) -> WatchStream:
        return self

    async def __anext__(self) -> bytes:
        if not self._writes:
            frames = await self.next_frames()
            if frames is None:
                await self.aclose()
                raise StopAsyncIteration
            if len(frames) == 1:
                return frames[0]
            self._writes.extend(_gathered(frames))
        return self._writes.popleft()

    async def aclose(self) -> None:
        if self._open:
            self._open = False
            self._watchers.dec()
            self._drain.discard(self._cursor)
            # A client that left has not taken all. It is let go of here: otherwise this and its cursor, which know each
            # other, would keep it until the garbage collector comes by.
            self._writes.clear()
            self.push_by(None)

    async def next_frames(self) -> list[bytes] | None:
        """The next frames, at least one; None: the watch is over."""
        frames = self._initial_frames()
        while not frames:
            if self._over or self._drain.begun:
                return None
            frames = await self._event_frames()
        self._events.value += len(frames)
        return frames

    def _initial_frames(self) -> list[bytes]:
        """What there was when the watch began, in parts of bounded size, and the bookmark that ends it."""
        initial, start = self._watching.initial, self._initial_told
        if start < len(initial):
            end, most, size = start, min(start + INITIAL_PART, len(initial)), 0
            while end < most and size < INITIAL_BYTES:
                size += len(initial[end].json)
                end += 1
            self._initial_told = end
            return self._encoder.initial(initial[start:end])
        if self._bookmark_due:
            self._bookmark_due = False
            return [self._encoder.bookmark(self._watching.initial_revision, initial_end=True)]
        return []

    async def _event_frames(self) -> list[bytes]:
        """What came since, or a bookmark that is due; [] if nothing has to be told yet."""
        try:
            events = await self._cursor.next_batch(min(self._ends, self._next_bookmark))
        except Compacted as error:
            self._over = True
            return [self._encoder.error(too_old(error))]
        except ReplayOver:
            self._over = True
            return self._bookmark()
        except LogUnavailable:
            await trio.sleep(LOG_RETRY)
            events = []
        frames = self._told(events)
        now = trio.current_time()
        if now >= self._next_bookmark or now >= self._ends:
            frames.extend(self._due(now))
        return frames

    def _told(self, events: list[Event]) -> list[bytes]:
        frames = []
        for event in events:
            told_as = self._watching.classify(event)
            if told_as is not None:
                frames.append(self._encoder.event(*told_as, event))
        return frames

    def _due(self, now: float) -> list[bytes]:
        self._over = now >= self._ends
        if not self._bookmarks or now < self._next_bookmark:
            return []
        self._next_bookmark = _bookmark_time(self._ends) if now < self._ends - LAST_BOOKMARK else math.inf
        return self._bookmark()

    def _bookmark(self) -> list[bytes]:
        """How far all has been told, if there is more than was told before and the client wants to know."""
        if not self._bookmarks or self._cursor.revision <= self._bookmarked:
            return []
        self._bookmarked = self._cursor.revision
        return [self._encoder.bookmark(self._bookmarked)]


def _nobody(batch: Batch) -> bool:
    """Takes nothing."""
    return False


def _bookmark_time(ends: float) -> float:
    now = trio.current_time()
    return min(now + BOOKMARK_INTERVAL * (0.75 + random.random() / 2), max(now, ends - LAST_BOOKMARK))


def _gathered(frames: list[bytes]) -> Iterator[bytes]:
    """Frames put together into writes of bounded size."""
    pending: list[bytes] = []
    size = 0
    for frame in frames:
        pending.append(frame)
        size += len(frame)
        if size >= CHUNK_BYTES:
            yield b"".join(pending)
            pending, size = [], 0
    if pending:
        yield b"".join(pending)


async def _messages(stream: WatchStream, *, text: bool) -> AsyncIterator[bytes]:
    """One frame a WebSocket message; JSON without the newline that separates frames of a byte stream."""
    try:
        while (frames := await stream.next_frames()) is not None:
            for frame in frames:
                yield frame.rstrip(b"\n") if text else frame
    finally:
        await stream.aclose()
