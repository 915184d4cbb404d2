"""The streams of one HTTP/2 connection: which are open, how others ended, how many there may be and what they may send
(RFC 9113 §5).

Invariant: a stream is in ``open`` exactly while neither both sides have ended it nor one has reset it; its exchange is
in ``running`` until nothing of it is left to do.
"""

from __future__ import annotations

from kubechronicle.http.wire.http2 import frames
from kubechronicle.http.wire.http2.exchange import Http2Exchange
from kubechronicle.http.wire.http2.frames import ConnectionFailed, ErrorCode
from kubechronicle.http.wire.http2.output import Output
from kubechronicle.http.wire.protocol_interface import ConnectionHost

RUNAWAY = 2
"""Times the allowed streams: requests still running, those reset by the client included, before it counts as abuse."""
USELESS = 10_000
"""Frames that ask for nothing, between two looks of the reaper: more is abuse (CVE-2019-9512 and those after it). Of
resets, which each had us begin something, RUNAWAY times the allowed streams (CVE-2023-44487)."""


class StreamTable:
    """``last``: the highest stream that the client has opened; ``window``: what it may send on all of them, and
    ``stream_window`` on a new one."""

    def __init__(self, host: ConnectionHost, output: Output) -> None:
        self._host = host
        self._output = output
        self.open: dict[int, Http2Exchange] = {}
        self.running: set[Http2Exchange] = set()
        self.last = 0
        self._most = RUNAWAY * host.limits.streams
        self._over: dict[int, bool] = {}  # streams that were reset, the last ones: by us?
        self._useless = self._resets = 0
        self._leaving = False
        self._closed = False
        # What the client may send; it does not know our settings before it has acknowledged them.
        self.window = max(host.limits.connection_buffer, frames.DEFAULT_WINDOW)
        self.stream_window = max(host.limits.body_buffer, frames.DEFAULT_WINDOW)
        self.acknowledged = False
        self._owed = 0

    # --- what is received ---

    def acknowledge(self) -> None:
        """The client knows the size of streams' windows, and has applied it to those it has opened."""
        if self.acknowledged:
            return
        self.acknowledged = True
        change = self._host.limits.body_buffer - self.stream_window
        self.stream_window += change
        for exchange in self.open.values():
            exchange.receive_window += change

    def consumed(self, exchange: Http2Exchange, size: int) -> None:
        """The application took so many bytes, or nobody will."""
        self.credit(size)
        if exchange.received_whole or exchange.closed:
            return
        exchange.owed += size
        if exchange.owed >= self._host.limits.body_buffer // 2:
            owed, exchange.owed = exchange.owed, 0
            exchange.receive_window += owed
            self._output.add(frames.number_frame(frames.WINDOW_UPDATE, exchange.stream_id, owed))

    def credit(self, size: int) -> None:
        """The client may send as much again, of all streams together; told in large pieces."""
        self._owed += size
        if self._owed and self._owed >= self._host.limits.connection_buffer // 4:
            owed, self._owed = self._owed, 0
            self.window += owed
            self._output.add(frames.number_frame(frames.WINDOW_UPDATE, 0, owed))

    # --- bounds ---

    def spend(self) -> None:
        """A frame that asked for nothing. Raises ConnectionFailed."""
        self._useless += 1
        if self._useless > USELESS:
            raise ConnectionFailed(ErrorCode.ENHANCE_YOUR_CALM)

    def check_running(self) -> None:
        """Raises ConnectionFailed."""
        if len(self.running) >= self._most:
            raise ConnectionFailed(ErrorCode.ENHANCE_YOUR_CALM)

    def reap(self, now: float) -> None:
        self._useless = self._resets = 0
        for exchange in self.running:
            exchange.reap(now)

    # --- ends ---

    def fail(self, exchange: Http2Exchange, code: ErrorCode) -> None:
        """The client has done what ends a stream (RFC 9113 §5.4.2)."""
        self._host.count_protocol_error()
        self.spend()
        self.reset(exchange, code)
        exchange.disconnected()

    def reset(self, exchange: Http2Exchange, code: ErrorCode) -> None:
        """Tell the client that its stream is over; does nothing if it is."""
        if not exchange.closed and exchange.stream_id in self.open:
            self._close(exchange)
            self.send_reset(exchange.stream_id, code)

    def send_reset(self, stream_id: int, code: ErrorCode) -> None:
        self._remember(stream_id, by_us=True)
        self._output.add(frames.number_frame(frames.RST_STREAM, stream_id, code))

    def was_reset(self, stream_id: int) -> None:
        """By the client. Raises ConnectionFailed."""
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
        elif stream_id not in self._over:
            return
        self._remember(stream_id, by_us=False)

    def stray(self, stream_id: int, code: ErrorCode) -> None:
        """A frame of no open stream: sent before the client knew of our reset, or wrong. Raises ConnectionFailed."""
        if stream_id == 0 or stream_id > self.last:
            raise ConnectionFailed(ErrorCode.PROTOCOL_ERROR)
        by_us = self._over.get(stream_id)
        if by_us is None:
            raise ConnectionFailed(code)
        self.spend()
        if not by_us:
            self._output.add(frames.number_frame(frames.RST_STREAM, stream_id, ErrorCode.STREAM_CLOSED))

    def half_closed(self, exchange: Http2Exchange) -> None:
        """Our side has ended, or the client's."""
        if exchange.sent_end and exchange.received_whole:
            self.open.pop(exchange.stream_id, None)

    async def finished(self, exchange: Http2Exchange) -> None:
        """Its exchange has nothing more to say."""
        self.running.discard(exchange)
        if not self._closed:
            self.reset(exchange, ErrorCode.NO_ERROR if exchange.sent_end else ErrorCode.INTERNAL_ERROR)
            await self._output.flush()
        self.settle()

    def _close(self, exchange: Http2Exchange) -> None:
        exchange.closed = True
        del self.open[exchange.stream_id]

    def _remember(self, stream_id: int, *, by_us: bool) -> None:
        over = self._over
        over[stream_id] = by_us
        if len(over) > self._most:
            del over[next(iter(over))]

    # --- the connection's end ---

    def leave(self) -> None:
        """End the connection when nothing is under way."""
        self._leaving = True
        self.settle()

    def close(self) -> None:
        self._closed = True

    def settle(self) -> None:
        """Tell the connection whether something is under way."""
        if self._closed:
            return
        if self.running:
            self._host.busy()
        elif self._leaving:
            self._host.end()
        else:
            self._host.idle()
