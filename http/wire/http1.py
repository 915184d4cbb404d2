"""HTTP/1.1 on one connection: parsed by httptools, one write for each answer, no task for a request without a body.

Lives here: framing of requests (RFC 9112); exchange.py frames answers. Upgrades are ignored, as a server may (RFC 9110
§7.8), unless the handler takes the connection over (takeover.py). Such a request does not run in the reader's task.

    bytes → parser → queue of exchanges → `_advance`: one at a time → answer

httptools (llhttp, strict) rejects requests that two parsers could read differently: folded fields, both a length and a
transfer coding, bare line feeds. `check_head` (heads.py) adds the checks that llhttp leaves to servers.

Invariant: requests of one connection are answered one after another, in the order received. A rejected request is
answered after those before it, and is the last.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Awaitable

import httptools
import trio

from kubechronicle.http.headers import DateField
from kubechronicle.http.messages import Headers, Request
from kubechronicle.http.wire.exchange import split_target
from kubechronicle.http.wire.heads import status_line
from kubechronicle.http.wire.http1_exchange import Http1Exchange, RequestRejected, check_head
from kubechronicle.http.wire.protocol_interface import ConnectionHost
from kubechronicle.http.wire.takeover import HELD_BYTES, Takeover
from kubechronicle.http.wire.work import REQUEST

PIPELINED = 64
"""Requests received before the current one is answered; beyond it the socket is not read."""
RECORDS = 32
"""TLS records of a body that are read before other tasks run. Go's have 1,400 bytes at first, and 16 KB later."""

BODY_ALLOWS = 19
"""Bytes of a chunked body for each byte of its data: chunks of one byte are legal, endless extensions and trailers are
not (Go's chunkedReader)."""

PLAIN_TARGET = re.compile(rb"(GET|HEAD|DELETE) (/[A-Za-z0-9/._~%?&=:,@!$'()*+;-]*)")
FRAMING = frozenset(
    {
        "connection",
        "content-length",
        "expect",
        "keep-alive",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)
"""Fields that affect framing. A head with one of them is always parsed."""
KNOWN_HEADS = 4
KNOWN_BYTES = 2048
"""Number and bytes of the parsed field sections that a connection remembers, to recognize them."""


class Http1Protocol:
    """The parser's callbacks (`on_*`) and the queue of requests."""

    def __init__(self, host: ConnectionHost, date_field: DateField) -> None:
        self._host = host
        self.date_line = date_field.line
        self._parser = httptools.HttpRequestParser(self)
        self._queue: deque[Http1Exchange] = deque()
        self._current: Http1Exchange | None = None
        self._receiving: Http1Exchange | None = None  # the exchange of the body being parsed
        self._advancing = False
        self._closed = False
        self._leaving = False  # draining: no request after the current one
        self._rejected = 0  # the status of a rejection, after which nothing is parsed
        self._room: trio.Event | None = None
        self._head_bytes = 0  # of an incomplete header
        self._extra_bytes = 0  # of a body's chunk heads, extensions and trailers, beyond those that its data allow
        self._held: bytes | None = None  # the bytes after another upgrade, until its handler has taken over or answered
        self._let_go: trio.Event | None = None
        self._url = b""
        self._fields: list[tuple[bytes, bytes]] = []
        self._in_head = False
        self._known: dict[bytes, Headers] = {}
        self._once = 0  # hash of the last field section; only one that comes twice in a row is remembered

    async def initiate(self) -> None:
        pass

    @property
    def awaits_header(self) -> bool:
        """True between two requests when a part of the next header has arrived."""
        return self._head_bytes > 0 and self._current is None and not self._closed

    def disconnected(self) -> None:
        self._closed = True
        self._make_room()
        self._take_held()

    async def drain(self) -> None:
        """Close at once when idle; otherwise the current answer says `connection: close`."""
        self._leaving = True
        if self._current is None:
            self._close()

    # --- receiving ---

    async def ended(self) -> None:
        self.disconnected()

    async def received(self, data: bytes) -> None:
        if self._closed:
            return
        if self._held is not None:
            self._held += data
            if len(self._held) > HELD_BYTES:
                self._let_go = trio.Event()
                await self._let_go.wait()
            return
        self._parse_or_recognize(data)
        if self._receiving is not None and data:
            self._parse_more()
        if self._queue or self._rejected:
            await self._advance(by_reader=True)
        if self._receiving is not None:
            await self._receiving.wait_buffer()
        while len(self._queue) > PIPELINED and not self._closed:
            self._room = trio.Event()
            await self._room.wait()

    def _parse_more(self) -> None:
        """Parse what has arrived of a body meanwhile, without a wait: a request with its body needs no task."""
        work = self._host.work
        for _ in range(RECORDS):
            if self._receiving is None or self._receiving.buffer_full or self._held is not None or self._closed:
                return
            if work.left < 0:
                return  # the next read lets others run
            if not (data := self._host.receive_at_once()):
                return
            self._parse(data)

    async def read_ahead(self) -> None:
        """Read for an application that the reader itself runs and that waits for the end of its client."""
        if len(self._queue) > PIPELINED:
            await trio.sleep_forever()
        data = await self._host.receive()
        if data:
            self._parse(data)

    def _parse_or_recognize(self, data: bytes) -> None:
        """Parse data, or recognize its field section.

        Most clients send one request at a time, with the same fields in each. A head whose fields equal, byte by byte,
        those of a complete and valid request is not parsed again.
        """
        between = self._current is None and not (
            self._queue or self._in_head or self._receiving or self._head_bytes or self._rejected
        )
        end = data.find(b" HTTP/1.1\r\n") if between else -1
        line = PLAIN_TARGET.fullmatch(data, 0, end) if end > 0 else None
        if line is None:
            self._parse(data)
            return
        fields = data[end:]
        known = self._known.get(fields)
        if known is not None:
            exchange = Http1Exchange(self, self._host)
            exchange.feed_end()
            raw_path, _, query_string = line[2].decode("ascii").partition("?")
            self._begin_request(exchange, line[1], raw_path, query_string, known.copy(), "1.1")
            return
        self._parse(data)
        before, self._once = self._once, hash(fields)
        if (
            before == self._once
            and len(self._known) < KNOWN_HEADS
            and len(fields) <= KNOWN_BYTES
            and len(self._queue) == 1
            and self._queue[0].received_whole
            and not (self._rejected or self._in_head)
            and fields.find(b"\r\n\r\n") == len(fields) - 4
            and FRAMING.isdisjoint(self._queue[0].request.headers.first)
        ):
            self._known[fields] = self._queue[0].request.headers.copy()

    def _begin_request(
        self,
        exchange: Http1Exchange,
        method: bytes,
        raw_path: str,
        query_string: str,
        headers: Headers,
        version: str,
    ) -> None:
        host = self._host
        exchange.request = Request(
            method=method.decode("ascii"),
            raw_path=raw_path,
            query_string=query_string,
            headers=headers,
            exchange=exchange,
            client=host.client,
            peer_certificate=host.peer_certificate,
            peer_intermediates=host.peer_intermediates,
            http_version=version,
            draining=host.draining,
        )
        self._queue.append(exchange)

    def _parse(self, data: bytes) -> None:
        if self._rejected:
            return
        self._head_bytes += len(data)
        self._extra_bytes += len(data)
        rest = data
        while rest and not self._rejected:
            rest = self._feed_parser(rest)
        if self._in_head or (self._receiving is None and not self._queue and self._current is None):
            if self._head_bytes > self._host.limits.header_bytes:
                self._reject_later(431)
        else:
            self._head_bytes = 0
        if self._receiving is None or self._extra_bytes < 0:
            self._extra_bytes = 0
        elif self._extra_bytes > self._host.limits.header_bytes:
            self._reject_later(400)

    def _feed_parser(self, data: bytes) -> bytes:
        """Parse data, and return the rest: non-empty only after an ignored upgrade."""
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            return self._after_upgrade(data[upgrade.args[0] :])
        except httptools.HttpParserCallbackError as error:
            cause = error.__context__
            if not isinstance(cause, RequestRejected | ValueError):
                self._host.report("HTTP/1.1 parser", cause or error)
            self._reject_later(cause.status if isinstance(cause, RequestRejected) else 400)
        except httptools.HttpParserError:
            self._reject_later(400)
        return b""

    def _reject_later(self, status: int) -> None:
        if not self._rejected:
            self._host.count_protocol_error()
            self._rejected = status
        if self._receiving is not None:
            # Its body is invalid: for the application, which may run already, the client has disconnected.
            receiving, self._receiving = self._receiving, None
            if receiving in self._queue:
                self._queue.remove(receiving)
            receiving.disconnected()

    def on_message_begin(self) -> None:
        self._in_head = True
        self._url = b""
        self._fields = []

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._in_head:  # otherwise a trailer field, which is ignored
            self._fields.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        version = self._parser.get_http_version()
        exchange = Http1Exchange(self, self._host)
        headers = Headers.from_raw(self._fields)
        method = self._parser.get_method()
        exchange.keep_alive, exchange.expects_continue = check_head(method, headers, version)
        raw_path, query_string = split_target(self._url)
        self._begin_request(exchange, method, raw_path, query_string, headers, version)
        self._in_head = False
        self._head_bytes = 0
        self._receiving = exchange

    def on_body(self, body: bytes) -> None:
        self._host.work.left -= 1
        self._extra_bytes -= BODY_ALLOWS * len(body)
        if self._receiving is not None:
            self._receiving.feed(body)

    def on_message_complete(self) -> None:
        if self._receiving is not None:
            self._receiving.feed_end()
            self._receiving = None

    def _after_upgrade(self, rest: bytes) -> bytes:
        """Continue after an Upgrade, where the parser stops: offer it to the handler, or return the rest."""
        names = dict(self._fields)
        if names.get(b"content-length", b"0") != b"0" or b"transfer-encoding" in names:
            # The parser has skipped the body, whose bytes must not be parsed as a request.
            if self._queue:
                self._queue.pop()
            self._reject_later(400)
            return b""
        self._parser = httptools.HttpRequestParser(self)
        if self._current is not None or len(self._queue) != 1:
            return rest  # pipelined behind another request: no client does that
        exchange, self._held = self._queue[0], rest
        upgrade = names[b"upgrade"].decode("latin-1")
        takeover = Takeover(self._host, upgrade, early=self._take_held, date_line=self.date_line)
        exchange.takeover = exchange.request.upgrade = takeover
        return b""

    def _take_held(self) -> bytes:
        held, self._held = self._held, None
        if self._let_go is not None:
            self._let_go.set()
            self._let_go = None
        return held or b""

    # --- answering ---

    async def _advance(self, *, by_reader: bool) -> None:
        """Begin requests while none is running. Requests received whole run here: in the reader's task, or in that of
        the answer before."""
        if self._advancing:
            return
        self._advancing = True
        try:
            while self._current is None and self._queue and not self._closed and not self._host.overdue:
                exchange = self._current = self._queue.popleft()
                if self._room is not None:
                    self._make_room()
                self._host.begin_exchange(exchange)
                if exchange.received_whole and exchange.takeover is None:
                    exchange.inline = by_reader
                    await exchange.run()
                else:
                    self._host.start_task(exchange.run)
                if self._queue:
                    work = self._host.work
                    work.left -= REQUEST
                    if work.left < 0:
                        await work.rest()
        finally:
            self._advancing = False
        if self._rejected and self._current is None and not self._closed:
            await self._send_rejection()

    def _make_room(self) -> None:
        if self._room is not None:
            self._room.set()
            self._room = None

    def exchange_done(self, *, goes_on: bool, begun: bool) -> Awaitable[None] | None:
        self._current = None
        if self._closed:
            return None
        held = self._take_held() if self._held is not None else b""
        if not goes_on or self._leaving:
            if self._rejected and not begun:
                return self._send_rejection()
            self._close()
            return None
        self._host.idle()
        if held:
            self._parse(held)
        return None if self._advancing else self._advance(by_reader=False)

    async def _send_rejection(self) -> None:
        line = status_line(self._rejected)
        text = line[len(b"HTTP/1.1 ") : -2]
        head = b"%bcontent-type: text/plain; charset=utf-8\r\n%bconnection: close\r\ncontent-length: %d\r\n\r\n%b"
        await self._host.write(head % (line, self.date_line(), len(text), text))
        self._close()

    def _close(self) -> None:
        self._closed = True
        self._host.end()
