"""The log backend: one thread encodes the events and appends them to the file.

The event loop passes events to the thread through a queue. The thread takes all that wait, writes them at once, and
tells the event loop the outcome of those that requests wait for. So a slow disk delays only requests that are recorded
in a blocking mode, and a busy server writes many events with one system call.

Waking the thread and being woken by it takes several times as long as making an event. So events are gathered: in the
mode batch for GATHER seconds, or until there are FULL; in a blocking mode until no other task can run, or for LONGEST
seconds. Then all requests that came together share one write, as transactions share a commit.

If the file cannot be written, the modes differ. A blocking one gives the event up: it is counted, and its main facts
go to the server's log. The mode batch keeps its events and tries again each second, until its buffer is full.
"""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Final, NamedTuple, cast

import trio

from kubechronicle.api.audit.events import OVERHEAD, AuditEvent, Offered, legacy_line
from kubechronicle.api.values.caches import CACHES
from kubechronicle.http.audit.backends import (
    BATCH,
    LEGACY_FORMAT,
    MOST_BYTES,
    AuditMetrics,
    Delivery,
    LogSettings,
    log_lost,
)
from kubechronicle.http.audit.log_file import DAY, MEBIBYTE, LogFile
from kubechronicle.http.outgoing.backoff import RateLimitedLog

log = logging.getLogger(__name__)

PLUGIN: Final = "log"
BUFFERED: Final = "buffered"
TRUNCATE: Final = "truncate"
MOST_WRITTEN: Final = 512
"""Events written at once."""
GATHER: Final = 0.25
"""Seconds for which events of the mode batch are gathered before the thread is woken."""
FULL: Final = 256
"""Events with which it is woken at once."""
LONGEST: Final = 0.002
"""Seconds for which events of a blocking mode are gathered, if the server is never idle."""
RETRY: Final = 1.0
"""Seconds between two attempts to write a batch."""
GRACE: Final = 10.0
"""Seconds to write what is left when the server stops."""
_STOP: Final = None

Item = Offered | Delivery


class _LogBatch(NamedTuple):
    """Events that are passed to the thread together. ``size``: their estimated bytes."""

    items: list[Item]
    size: int


_OVERWRITE: Final = _LogBatch([], 0)


class _Freed:
    """The memory that the thread has freed and keeps for itself, among the caches that an erasure empties."""

    def __init__(self, passed: queue.SimpleQueue[_LogBatch | None]) -> None:
        self._passed = passed

    def __len__(self) -> int:
        return 0

    def forget(self) -> None:
        """Let the thread overwrite it."""
        self._passed.put(_OVERWRITE)


class LogBackend:
    """``overwrite``: called in the thread after an erasure, to overwrite what the thread has freed."""

    def __init__(
        self, settings: LogSettings, metrics: AuditMetrics, *, overwrite: Callable[[], object] = lambda: None
    ) -> None:
        self.mode = settings.mode
        self._settings = settings
        self._metrics = metrics
        self._buffered = settings.mode == BATCH
        self._legacy = settings.format == LEGACY_FORMAT
        self._plain = not self._legacy and not settings.truncate.enabled
        self._file = LogFile(
            settings.path,
            max_size=settings.max_size * MEBIBYTE,
            max_age=settings.max_age * DAY,
            max_backups=settings.max_backups,
            compress=settings.compress,
        )
        self._most_events = settings.batch.buffer_size
        self._waiting: list[Item] = []
        self._waiting_bytes = 0
        self._quick_events = self._quick_bytes = 0  # of ``_waiting``: up to these, an event is taken without a look
        self._some, self._full = trio.Event(), trio.Event()
        self._queue: queue.SimpleQueue[_LogBatch | None] = queue.SimpleQueue()
        self._overwrite = overwrite
        self._overwriting = False
        self._freed = CACHES.add("audit log", _Freed(self._queue))
        # The event loop adds to ``_taken`` and the thread to ``_done``, so that neither needs a lock.
        self._taken_events = self._taken_bytes = 0
        self._done_events = self._done_bytes = 0
        self._stopping = threading.Event()
        self._token: trio.lowlevel.TrioToken | None = None
        self._drops = RateLimitedLog(log, "Audit events are dropped: the buffer of the audit log is full")

    def open(self) -> None:
        """Open the file, to see that it can be written. Raises OSError."""
        self._file.open()

    @property
    def waiting(self) -> int:
        """The events that are not written yet."""
        return self._taken_events - self._done_events + len(self._waiting)

    def offer(self, event: Offered) -> Delivery | None:
        size = len(event) + OVERHEAD if isinstance(event, bytes) else event.size
        waiting = self._waiting
        self._waiting_bytes += size
        if len(waiting) < self._quick_events and self._waiting_bytes <= self._quick_bytes:
            waiting.append(event)
            return None
        if not self._has_room():
            self._waiting_bytes -= size
            return self._refuse(event)
        if not waiting:
            self._some.set()
        if self._buffered:
            waiting.append(event)
            if len(waiting) == FULL:
                self._full.set()
            return None
        delivery = Delivery(event)
        waiting.append(delivery)
        return delivery

    def _has_room(self) -> bool:
        """Tell whether the buffer takes one event more, whose bytes are in ``_waiting_bytes``.

        In mode batch, note how many more it takes in any case, before the batch is full.
        """
        events = self._most_events - (self._taken_events - self._done_events)
        size = MOST_BYTES - (self._taken_bytes - self._done_bytes)
        if self._buffered:
            self._quick_events, self._quick_bytes = min(events, FULL - 1), size
        return len(self._waiting) < events and self._waiting_bytes <= size

    def _refuse(self, event: Offered) -> Delivery | None:
        self._metrics.failed(BUFFERED if self._buffered else PLUGIN, 1)
        self._drops.error("the audit log cannot be written, or not fast enough")
        if self._buffered:
            return None
        delivery = Delivery(event)
        delivery.finish(ok=False)
        return delivery

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        self._token = trio.lowlevel.current_trio_token()
        self._stopping.clear()
        ended = trio.Event()
        thread = threading.Thread(target=self._work, args=(ended,), name="audit-log", daemon=True)
        thread.start()
        task_status.started()
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._gather)
                await ended.wait()
                nursery.cancel_scope.cancel()
        finally:
            self._pass_on()
            self._stopping.set()
            if not ended.is_set():
                self._queue.put(_STOP)
            with trio.move_on_after(GRACE, shield=True):
                await ended.wait()
        raise RuntimeError("the thread of the audit log has ended")

    async def _gather(self) -> None:
        """Gather events, and pass them to the thread."""
        # Of Trio's core: its scheduler calls it when it is idle. Imported here, because trio.testing imports pytest
        # where that is installed, which takes 0.1 s of a start.
        from trio.testing import wait_all_tasks_blocked

        while True:
            await self._some.wait()
            if self._buffered:
                with trio.move_on_after(GATHER):
                    await self._full.wait()
            else:
                with trio.move_on_after(LONGEST):
                    await wait_all_tasks_blocked()
            self._some, self._full = trio.Event(), trio.Event()
            self._pass_on()

    def _pass_on(self) -> None:
        batch = _LogBatch(self._waiting, self._waiting_bytes)
        self._waiting, self._waiting_bytes, self._quick_events = [], 0, 0
        self._taken_events += len(batch.items)
        self._taken_bytes += batch.size
        if batch.items:
            self._queue.put(batch)

    # -- in the thread ------------------------------------------------------------------------------------------------

    def _work(self, ended: trio.Event) -> None:
        try:
            while self._write_waiting(self._queue.get()):
                if self._overwriting:
                    self._overwriting = False
                    self._overwrite()
        except Exception:
            log.exception("The thread of the audit log has failed")
        finally:
            self._tell(ended.set)

    def _tell(self, function: Callable[..., object], *arguments: object) -> None:
        """Call a function on the event loop, unless that has ended."""
        assert self._token is not None
        with suppress(trio.RunFinishedError):
            self._token.run_sync_soon(function, *arguments)

    def _write_waiting(self, first: _LogBatch | None) -> bool:
        """Write the first events and all that wait behind them. Returns False at the end of the queue."""
        taken: list[Item] = []
        size = 0
        item = first
        while item is not _STOP:
            self._overwriting = self._overwriting or item is _OVERWRITE
            taken += item.items
            size += item.size
            if len(taken) >= MOST_WRITTEN:
                break
            try:
                item = self._queue.get_nowait()
            except queue.Empty:
                break
        for start in range(0, len(taken), MOST_WRITTEN):
            self._write(taken[start : start + MOST_WRITTEN])
        self._done_bytes += size
        return item is not _STOP

    def _write(self, taken: list[Item]) -> None:
        if self._buffered:
            deliveries, events = [], cast("list[Offered]", taken)
        else:
            deliveries = [each for each in taken if isinstance(each, Delivery)]
            events = [each.event if isinstance(each, Delivery) else each for each in taken]
        written, why = self._write_events(events)
        # The counts come first: a request that learns the outcome may read them at once.
        if written < len(events):
            self._metrics.failed(PLUGIN, len(events) - written)
            log_lost(PLUGIN, why, events[written:])
        self._done_events += len(events)
        if deliveries:
            self._tell(_finish, deliveries, written)

    def _write_events(self, events: list[Offered]) -> tuple[int, str]:
        """Return the number of events that were written, and the reason why the next one was not."""
        lines = self._lines(events)
        written = 0
        while True:
            try:
                written += self._file.write(lines[written:])
                if written == len(lines):
                    return written, ""
            except OSError as error:
                if not self._buffered or self._stopping.is_set():
                    return written, error.strerror or str(error)
                self._drops.error(f"the audit log cannot be written: {error.strerror or error}")
                self._stopping.wait(RETRY)

    def _lines(self, events: list[Offered]) -> list[bytes]:
        """Return the lines of events, in their order."""
        if not self._plain:
            return [self._line(AuditEvent.of(event)) for event in events]
        lines = []
        for event in events:
            if not isinstance(event, bytes):
                made = event if isinstance(event, AuditEvent) else event.made()
                event = made if isinstance(made, bytes) else made.encoded() + b"\n"
            lines.append(event)
        return lines

    def _line(self, event: AuditEvent) -> bytes:
        """Return the line of an event; b"" for one that is too long even without its objects."""
        if self._legacy:
            return f"{legacy_line(event.facts())}\n".encode(errors="replace")
        fitted = event.fitted(self._settings.truncate.max_event_size)
        if fitted:
            return fitted + b"\n"
        self._metrics.failed(TRUNCATE, 1)
        log_lost(TRUNCATE, "event is too large even after truncating", [event])
        return b""


def _finish(deliveries: list[Delivery], written: int) -> None:
    for index, delivery in enumerate(deliveries):
        delivery.finish(ok=index < written)
