"""The streams of one HTTP/2 connection (RFC 9113 §5): the open ones, the last resets, their bounds and windows.

Invariant: a stream is in ``open`` until both sides have ended it or one has reset it. Its exchange is in ``running``
until all its work is done.
"""

from __future__ import annotations

from kubechronicle.http.wire.http2 import frames
from kubechronicle.http.wire.http2.exchange import Http2Exchange
from kubechronicle.http.wire.http2.frames import ConnectionFailed, ErrorCode
from kubechronicle.http.wire.http2.output import StreamOutput
from kubechronicle.http.wire.protocol_interface import ConnectionHost
from kubechronicle.http.wire.work import TOGETHER

RUNAWAY = 2
"""Multiple of the allowed streams: more running requests, including those reset by the client, are abuse. As many
resets between two runs of the reaper are, too: each cancels a request (CVE-2023-44487)."""


class StreamTable:
    """The table of streams.

    ``last``: the highest stream that the client has opened.
    ``window``: bytes that the client may send on all streams.
    ``stream_window``: bytes that it may send on a new stream.
    """

    def __init__(self, host: ConnectionHost, output: StreamOutput) -> None:
        self._host = host
        self._output = output
        self.open: dict[int, Http2Exchange] = {}
        self.running: set[Http2Exchange] = set()
        self.last = 0
        self._most = RUNAWAY * host.limits.streams
        self._resets_by_us: dict[int, bool] = {}  # the last streams that were reset
        self._resets = 0
        self._leaving = False
        self._closed = False
        # The larger of the default and our setting, until the client has acknowledged our settings.
        self.window = max(host.limits.connection_buffer, frames.DEFAULT_WINDOW)
        self.stream_window = max(host.limits.body_buffer, frames.DEFAULT_WINDOW)
        self.acknowledged = False
        self._owed = 0

    # --- receiving ---

    def acknowledge(self) -> None:
        """Note that the client knows our window for streams and has applied it to its open ones."""
        if self.acknowledged:
            return
        self.acknowledged = True
        change = self._host.limits.body_buffer - self.stream_window
        self.stream_window += change
        for exchange in self.open.values():
            exchange.receive_window += change

    def consumed(self, exchange: Http2Exchange, size: int) -> None:
        """Credit ``size`` bytes of a stream that were read or are discarded."""
        self.credit(size)
        if exchange.received_whole or exchange.closed:
            return
        exchange.owed += size
        if exchange.owed >= self._host.limits.body_buffer // 2:
            owed, exchange.owed = exchange.owed, 0
            exchange.receive_window += owed
            self._output.add(frames.number_frame(frames.WINDOW_UPDATE, exchange.stream_id, owed))

    def credit(self, size: int) -> None:
        """Let the client send ``size`` more bytes on all streams, by few WINDOW_UPDATE frames."""
        self._owed += size
        if self._owed and self._owed >= self._host.limits.connection_buffer // 4:
            owed, self._owed = self._owed, 0
            self.window += owed
            self._output.add(frames.number_frame(frames.WINDOW_UPDATE, 0, owed))

    # --- bounds ---

    def spend(self, cost: int = 1) -> None:
        """Count a frame without a request. ``cost``: more than 1 if it is work for each stream. Raises
        ConnectionFailed."""
        if not self._host.work.waste(cost):
            raise ConnectionFailed(ErrorCode.ENHANCE_YOUR_CALM)

    def check_running(self) -> None:
        """Check the number of running requests. Raises ConnectionFailed."""
        if len(self.running) >= self._most:
            raise ConnectionFailed(ErrorCode.ENHANCE_YOUR_CALM)

    def renew(self) -> None:
        self._resets = 0

    def reap(self, now: float) -> int:
        """End the requests whose deadline has passed, at most `TOGETHER`. Returns how many."""
        reaped = 0
        for exchange in self.running:
            reaped += exchange.reap(now)
            if reaped == TOGETHER:
                break
        return reaped

    # --- ends ---

    def fail(self, exchange: Http2Exchange, code: ErrorCode) -> None:
        """Reset a stream after an error of the client (RFC 9113 §5.4.2)."""
        self._host.count_protocol_error()
        self.spend()
        self.reset(exchange, code)
        exchange.disconnected()

    def reset(self, exchange: Http2Exchange, code: ErrorCode) -> None:
        """Reset a stream unless it is closed."""
        if not exchange.closed and exchange.stream_id in self.open:
            self._close(exchange)
            self.send_reset(exchange.stream_id, code)

    def send_reset(self, stream_id: int, code: ErrorCode) -> None:
        self._remember(stream_id, by_us=True)
        self._output.add(frames.number_frame(frames.RST_STREAM, stream_id, code))

    def was_reset(self, stream_id: int) -> None:
        """Process a reset by the client. Raises ConnectionFailed."""
        if stream_id == 0 or stream_id > self.last:
            raise ConnectionFailed(ErrorCode.PROTOCOL_ERROR)
        self.spend()
        exchange = self.open.get(stream_id)
        if exchange is not None:
            self._resets += 1
            if self._resets > self._most:
                raise ConnectionFailed(ErrorCode.ENHANCE_YOUR_CALM)
            self._close(exchange)
            exchange.disconnected()
        elif stream_id not in self._resets_by_us:
            return
        self._remember(stream_id, by_us=False)

    def stray(self, stream_id: int, code: ErrorCode) -> None:
        """Process a frame of a closed stream, sent before our reset arrived or wrong. Raises ConnectionFailed."""
        if stream_id == 0 or stream_id > self.last:
            raise ConnectionFailed(ErrorCode.PROTOCOL_ERROR)
        by_us = self._resets_by_us.get(stream_id)
        if by_us is None:
            raise ConnectionFailed(code)
        self.spend()
        if not by_us:
            self._output.add(frames.number_frame(frames.RST_STREAM, stream_id, ErrorCode.STREAM_CLOSED))

    def half_closed(self, exchange: Http2Exchange) -> None:
        """Close the stream if both sides have ended."""
        if exchange.sent_end and exchange.received_whole:
            self.open.pop(exchange.stream_id, None)

    async def finished(self, exchange: Http2Exchange) -> None:
        """Close the stream of an exchange that sends nothing more."""
        self.running.discard(exchange)
        if not self._closed:
            self.reset(exchange, ErrorCode.NO_ERROR if exchange.sent_end else ErrorCode.INTERNAL_ERROR)
            await self._output.flush()
        self.settle()

    def _close(self, exchange: Http2Exchange) -> None:
        exchange.closed = True
        del self.open[exchange.stream_id]

    def _remember(self, stream_id: int, *, by_us: bool) -> None:
        resets = self._resets_by_us
        resets[stream_id] = by_us
        if len(resets) > self._most:
            del resets[next(iter(resets))]

    # --- the connection's end ---

    def leave(self) -> None:
        """End the connection when no request is running."""
        self._leaving = True
        self.settle()

    def close(self) -> None:
        self._closed = True

    def settle(self) -> None:
        """Report to the connection: busy, idle, or at its end."""
        if self._closed:
            return
        if self.running:
            self._host.busy()
        elif self._leaving:
            self._host.end()
        else:
            self._host.idle()
