"""WATCH: the events of a cursor as a stream of frames, in HTTP chunks or WebSocket messages.

The stream ends after timeoutSeconds or, by default, after a random time from --min-request-timeout on, so that clients
do not reconnect all at once. It has no events if timeoutSeconds is negative. It also ends when the server drains, when
the definition of a custom resource is changed or deleted, and with an ERROR event when the history it needs is
compacted. The connection handles clients that stop reading: a watcher is only a place in the history.
"""

from __future__ import annotations

import math
import random
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable

import trio
from prometheus_client import Histogram

from kubechronicle.actors.reading.converted_reads import ConvertedCursor
from kubechronicle.actors.reading.reads import Selection, Watching, too_old
from kubechronicle.actors.store import Served
from kubechronicle.api.codecs.negotiate import JSON, WATCH_COMPRESSION
from kubechronicle.api.errors import status
from kubechronicle.api.meta.list_options import ListOptions
from kubechronicle.api.meta.options import go_seconds
from kubechronicle.api.registry.registry import ResourceType
from kubechronicle.eventlog.entries import Event
from kubechronicle.eventlog.errors import Compacted, LogUnavailable
from kubechronicle.eventlog.views.cursors import WatchCursor
from kubechronicle.eventlog.views.dispatcher import EventBatch
from kubechronicle.eventlog.views.replay import ReplayOver
from kubechronicle.http.context import Context, Seats
from kubechronicle.http.handlers.backend import Backend
from kubechronicle.http.handlers.drain import Drain
from kubechronicle.http.handlers.revisions import check_list
from kubechronicle.http.messages import SWITCHED, Push, Request, Response
from kubechronicle.http.metrics import Metrics
from kubechronicle.http.representation.answers import CACHE_CONTROL, GZIPPED, takes_gzip, watch_form
from kubechronicle.http.representation.compression import Compression, GzipStream
from kubechronicle.http.representation.encoding_cache import LARGE_ENTRIES
from kubechronicle.http.representation.event_encoder import (
    CHUNK_BYTES,
    EventEncoder,
    JoinedFrames,
    NoForm,
    is_slow,
    joined,
)
from kubechronicle.http.request_metrics import bucket_of

# Bookmarks to clients that allow them (KEP-956: about once a minute).
BOOKMARK_INTERVAL = 60.0
# Seconds before the watch ends when the last bookmark is sent, so that the client resumes from a recent revision.
LAST_BOOKMARK = 2.0
# Number and bytes of the initial events encoded at once. The next ones are encoded when the client has read these, so
# that a slow client holds only one part in memory.
INITIAL_PART = 500
INITIAL_BYTES = 256 * 1024
# Number of initial events from which a watch waits for its turn before each part of them.
MANY_INITIAL = 100
# Seconds between two attempts to read the log while it is unavailable.
LOG_RETRY = 1.0


async def watch(
    backend: Backend,
    request: Request,
    context: Context,
    rt: ResourceType,
    options: ListOptions,
    selection: Selection,
    *,
    revision: int | None,
) -> Response:
    """Answer with the changes after a revision. None: with the objects that are there, and then their changes."""
    if revision and not rt.of_log:
        await check_list(backend, context, rt, selection.namespace, revision)
    encoder = _encoder(backend, request, context, rt)
    form = encoder.form
    watching = await backend.reads.watch(
        rt,
        selection,
        revision=revision,
        initial=options.send_initial_events,
        bookmarks=options.allow_watch_bookmarks,
    )
    seconds = go_seconds(options.timeout_seconds or 0) or backend.min_watch * (1 + random.random())
    stream = WatchStream(
        watching,
        encoder,
        backend.metrics,
        ends=trio.current_time() + seconds,
        bookmarks=options.allow_watch_bookmarks,
        drain=backend.drain,
    )
    if isinstance(
        watching.cursor, WatchCursor | ConvertedCursor
    ):  # a replay of the past depends on no present definition
        stream.end_with(backend.store.served)
    stream.hold(context)
    stream.time_list(context, backend.metrics.watch_lists)
    if request.is_websocket:
        # Imported with the first WebSocket: the import is slow, and WebSockets are rare.
        from kubechronicle.http.streaming.websocket import send_stream

        text = form.media_type == JSON
        # A browser closes the connection if none of its subprotocols is chosen. That of a token was removed.
        chosen = next(iter(request.subprotocols), None)
        await send_stream(request, chosen, _messages(stream, text=text), text=text)
        return SWITCHED
    headers = [("content-type", form.stream_content_type), CACHE_CONTROL]
    if _is_compressed(backend, request, options):
        stream.compress_by(backend.compression)
        headers += GZIPPED
    stream.push_by(request.exchange.push)
    return Response(200, headers, stream)


def _is_compressed(backend: Backend, request: Request, options: ListOptions) -> bool:
    """Tell whether a watch is sent in gzip: one that begins with the state, and marks its end."""
    if not options.send_initial_events or not options.allow_watch_bookmarks:
        return False
    return backend.features.enabled(WATCH_COMPRESSION) and takes_gzip(request)


def _encoder(backend: Backend, request: Request, context: Context, rt: ResourceType) -> EventEncoder:
    """Return the encoder of the events. StatusError 400, 406."""
    form = watch_form(request, context, protobuf=bool(rt.message))
    as_of = context.at.time if context.at is not None else None
    include = context.query.get("includeObject")
    encoder = EventEncoder(rt, form, include_object=include, as_of=as_of, cache=backend.encodings)
    encoder.check_rows()
    return encoder


class WatchStream:
    """The body of a watch: an asynchronous iterator of writes, each of one or more frames.

    While ``__anext__`` waits, the dispatcher calls ``_take``, which passes the frames to the connection without waking
    the task. Counted as a registered watcher until it is closed.
    """

    def __init__(
        self, watching: Watching, encoder: EventEncoder, metrics: Metrics, *, ends: float, bookmarks: bool, drain: Drain
    ) -> None:
        rt, form = encoder.rt, encoder.form
        self._watching = watching
        self._matches = watching.matches
        self._representation = (rt, form.media_type, form.kind, form.version, "")
        self._compression: Compression | None = None
        self._gzip: GzipStream | None = None
        self._encoder = encoder
        self._cursor = watching.cursor
        self._ends = ends
        self._bookmarks = bookmarks
        self._drain = drain
        self._watchers = metrics.watchers(rt.group, rt.version, rt.kind)
        self._events = metrics.watch_events(rt.group, rt.version, rt.plural)
        self._initial_sent = 0
        self._bookmark_due = watching.bookmark_initial
        self._listed: Callable[[], None] | None = None
        self._bookmarked = self._cursor.revision
        self._next_bookmark = _bookmark_time(ends) if bookmarks else ends
        self._writes: deque[bytes] = deque((b"",))  # an empty first write sends the headers at once
        self._push: Push | None = None
        self._seats: Seats | None = None
        self._served: Served | None = None
        self._open = True
        self._ended = False  # the end of a compressed stream was sent
        self._over = ends < trio.current_time()  # a negative timeoutSeconds
        self._watchers.inc()
        drain.add(self._cursor)

    def hold(self, context: Context) -> None:
        """Keep the request's seats until the initial events are sent."""
        seats, context.seats = context.seats, None
        if seats is None:
            return
        if self._watching.initial:
            seats.awaited, self._seats = True, seats
        else:
            seats.end()

    def time_list(self, context: Context, durations: Histogram) -> None:
        """Measure the time until all initial events are sent, if a bookmark marks their end."""
        if self._bookmark_due:
            rt, info = self._encoder.rt, context.info
            measure = durations.labels(rt.group, rt.version, rt.plural, info.scope)
            self._listed = lambda: measure.observe(time.time() - context.received)

    def compress_by(self, compression: Compression) -> None:
        """Send the watch in gzip."""
        self._compression, self._gzip = compression, GzipStream()
        self._representation = (*self._representation[:-1], "gzip")

    def _give_seats_back(self) -> None:
        if self._seats is not None:
            self._seats.end()
            self._seats = None

    def end_with(self, served: Served) -> None:
        """End the stream, after the events that are there, when its resource is no longer served as it is now."""
        if self._encoder.rt.custom is not None:
            self._served = served
            served.end_with(self._encoder.rt, self._end)

    def _end(self) -> None:
        self._ends = trio.current_time()
        self._cursor.end()

    def push_by(self, push: Push | None) -> None:
        """Send events by ``push`` while the iteration waits for one; None: stop that."""
        # The frames of a Table depend on the frames before, so none may be encoded for a push that fails.
        if self._encoder.stateful or not isinstance(self._cursor, WatchCursor):
            return
        if push is not None or self._push is not None:
            self._push = push
            self._cursor.deliver_to(_take_none if push is None else self._take)

    def _take(self, batch: EventBatch) -> bool:
        """Push the frames of a batch; False: not now, the task has to send them."""
        push = self._push
        if push is None:
            return False
        frames = batch.encodings.get(self._representation) if self._matches is None else None
        if frames is None:
            if is_slow(self._encoder, batch):
                return False
            frames = JoinedFrames(self._frames_of(batch), gzipped=self._compression is not None)
            if self._matches is None:  # the frames are the same for all watchers of one representation
                batch.encodings[self._representation] = frames
        if frames.buckets:
            if frames.size > CHUNK_BYTES or not push(frames.sent):
                return False
            if self._gzip is not None:
                self._gzip.add(frames.frame)
            self._events.add(frames.size, frames.buckets)
        return True

    def __aiter__(self) -> WatchStream:
        return self

    async def __anext__(self) -> bytes:
        if not self._writes:
            frames = await self.next_frames() if not self._ended else None
            if frames is None and self._gzip is not None and not self._ended:
                self._ended = True
                self.push_by(None)
                return self._gzip.trailer()
            if frames is None:
                await self.aclose()
                raise StopAsyncIteration
            self._writes.extend(frames if len(frames) == 1 else joined(frames))
        write = self._writes.popleft()
        if self._compression is None or self._gzip is None:
            return write
        self._gzip.add(write)
        return await self._compression.segment(write) if write else self._gzip.header

    async def aclose(self) -> None:
        if self._open:
            self._open = False
            self._watchers.dec()
            self._drain.discard(self._cursor)
            if self._served is not None:
                self._served.forget_end(self._encoder.rt, self._end)
            # Drop the writes that a lost client has not read: this and its cursor refer to each other, so they would
            # stay in memory until the garbage collector runs.
            self._writes.clear()
            self.push_by(None)
            self._give_seats_back()

    async def next_frames(self) -> list[bytes] | None:
        """Return the next frames, at least one; None: the watch is over."""
        if self._over:
            return None
        try:
            frames = await self._initial_frames()
            while not frames:
                if self._over or self._drain.begun:
                    return None
                frames = await self._event_frames()
        except NoForm:
            return None
        self._events.add(sum(map(len, frames)), list(map(bucket_of, frames)))
        return frames

    async def _initial_frames(self) -> list[bytes]:
        """Return the next part of the initial events, of bounded size, or the bookmark after them."""
        initial, start = self._watching.initial, self._initial_sent
        if start < len(initial):
            end, most, size = start, min(start + INITIAL_PART, len(initial)), 0
            while end < most and size < INITIAL_BYTES:
                size += len(initial[end].json)
                end += 1
            self._initial_sent = end
            if self._seats is not None and len(initial) > MANY_INITIAL:
                await self._seats.turn()
            return await self._encoder.initial(initial[start:end])
        if self._seats is not None:
            self._give_seats_back()
        if self._bookmark_due:
            self._bookmark_due = False
            if self._listed is not None:
                self._listed()
            return [self._encoder.bookmark(self._watching.initial_revision, initial_end=True)]
        return []

    async def _event_frames(self) -> list[bytes]:
        """Return the frames of new events, or of a due bookmark; [] for events of other objects only."""
        try:
            if self._watching.future is not None:
                await self._wait_future(self._watching.future)
            events = await self._cursor.next_batch(min(self._ends, self._next_bookmark))
        except Compacted as error:
            self._over = True
            return [self._encoder.error(too_old(error))]
        except ReplayOver:
            self._over = True
            return self._bookmark()
        except status.StatusError as error:  # an object that a webhook cannot convert, or a revision of the future
            self._over = True
            return [self._encoder.error(error)]
        except LogUnavailable:
            await trio.sleep(LOG_RETRY)
            events = []
        if is_slow(self._encoder, events):
            frames = await LARGE_ENTRIES.run(self._last_frames_of, events)
        else:
            frames = self._last_frames_of(events)
        now = trio.current_time()
        if now >= self._next_bookmark or now >= self._ends:
            frames.extend(self._due(now))
        return frames

    async def _wait_future(self, wait: Callable[[], Awaitable[None]]) -> None:
        """Wait until the revision exists from which the client wants changes. StatusError 504."""
        with trio.move_on_at(self._ends) as waited:
            await wait()
        if not waited.cancelled_caught:
            self._watching.future = None

    def _last_frames_of(self, events: list[Event]) -> list[bytes]:
        """As ``_frames_of``, but an object that cannot be decrypted ends the watch with an error."""
        try:
            return self._frames_of(events)
        except status.StatusError as error:
            self._over, failure = True, error
        frames: list[bytes] = []
        for event in events:
            try:
                frames += self._frames_of([event])
            except status.StatusError:
                break
        return [*frames, self._encoder.error(failure)]

    def _frames_of(self, events: list[Event]) -> list[bytes]:
        frames = []
        for event in events:
            classified = self._watching.classify(event)
            if classified is not None:
                frames.append(self._encoder.event(*classified, event))
        return frames

    def _due(self, now: float) -> list[bytes]:
        self._over = now >= self._ends
        if not self._bookmarks or now < self._next_bookmark:
            return []
        self._next_bookmark = _bookmark_time(self._ends)
        return self._bookmark()

    def _bookmark(self) -> list[bytes]:
        """Return a bookmark if the client allows them and the revision has grown since the last one."""
        if not self._bookmarks or self._cursor.revision <= self._bookmarked:
            return []
        self._bookmarked = self._cursor.revision
        return [self._encoder.bookmark(self._bookmarked)]


def _take_none(batch: EventBatch) -> bool:
    """Take no batch."""
    return False


def _bookmark_time(ends: float) -> float:
    """Return when the next bookmark is due; ``inf`` shortly before the end, as in watches of two seconds or less."""
    now, last = trio.current_time(), ends - LAST_BOOKMARK
    return min(now + BOOKMARK_INTERVAL * (0.75 + random.random() / 2), last) if now < last else math.inf


async def _messages(stream: WatchStream, *, text: bool) -> AsyncIterator[bytes]:
    """Yield one frame for each WebSocket message; JSON without the newline that ends a frame of a byte stream."""
    try:
        while (frames := await stream.next_frames()) is not None:
            for frame in frames:
                yield frame.rstrip(b"\n") if text else frame
            frames, frame = [], b""  # while it waits, it holds no object that may be erased
    finally:
        await stream.aclose()
