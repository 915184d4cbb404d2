"""HTTP/2 frame by frame: stream errors, connection errors, and frames without effect (RFC 9113, section by section).

The protocol runs without a socket. An application that waits keeps streams open as long as a test needs.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st
from trio.testing import wait_all_tasks_blocked

from kubechronicle.http.headers import DateField
from kubechronicle.http.messages import BodyTooLarge, ClientDisconnected, Request, Response
from kubechronicle.http.wire.http2 import frames
from kubechronicle.http.wire.http2.connection import Http2Protocol
from kubechronicle.http.wire.http2.frames import PREFACE, ErrorCode, frame, number_frame
from kubechronicle.http.wire.http2.headers import BlockDecoder
from kubechronicle.http.wire.serve_config import ServeLimits
from kubechronicle.http.wire.work import PASS, Work

GET = b"\x82\x84\x87\x41\x01h"
POST = b"\x83\x84\x87\x41\x01h"
START = PREFACE + frame(frames.SETTINGS, 0, 0)
ACKNOWLEDGED = START + frame(frames.SETTINGS, frames.ACK, 0)
END, WHOLE = frames.END_STREAM, frames.END_HEADERS
Frame = tuple[int, int, int, bytes]


def path(text: bytes) -> bytes:
    """Return the header block of a GET of this path."""
    return b"\x82\x87\x41\x01h\x04" + bytes((len(text),)) + text


def length(size: int) -> bytes:
    text = b"%d" % size
    return b"\x0f\x0d" + bytes((len(text),)) + text


class Talk:
    """The client's side of a connection, and its host."""

    client = server = ("127.0.0.1", 1)
    peer_certificate = None
    peer_intermediates = ()
    overdue = False
    ready = True

    def __init__(self, nursery: trio.Nursery, **limits: Any) -> None:
        self.nursery = nursery
        self.limits = ServeLimits(**limits)
        self.work = Work()
        self.draining = trio.Event()
        self.release = trio.Event()
        self.asked: list[str] = []
        self.bodies: list[bytes | None] = []
        self.open = 0
        self.state = "idle"
        self.errors: list[BaseException] = []
        self.cut_off = self.wrong = 0
        self._decoder = BlockDecoder(1 << 20)
        self.frames: list[Frame] = []
        self.protocol = Http2Protocol(self, DateField())  # type: ignore[arg-type]

    def reap(self) -> None:
        """Do as the connection does every second."""
        self.work.renew()
        self.protocol.renew()
        self.protocol.reap(0.0)

    async def app(self, request: Request) -> Response:
        self.asked.append(f"{request.method} {request.raw_path}")
        if request.raw_path == "/wait":
            await self.release.wait()
        if request.raw_path == "/gone":
            await request.wait_disconnect()
        if request.raw_path == "/large":
            return Response(200, [], b"x" * 100_000)
        if request.raw_path == "/stream":
            return Response(200, [], self.chunks())
        if request.method == "POST":
            try:
                self.bodies.append(await request.body(1 << 20))
            except ClientDisconnected:
                self.bodies.append(None)
                raise
            except BodyTooLarge:
                return Response(413)
            return Response(200, [], b"%d" % len(self.bodies[-1] or b""))
        return Response(200, [], b"hello")

    async def chunks(self) -> AsyncIterator[bytes]:
        for number in range(40):
            yield b"%04d" % number * 500

    def begin_exchange(self, exchange: object) -> None:
        self.open += 1

    def finish_exchange(self, exchange: object) -> None:
        self.open -= 1

    def start_task(self, task: Callable[..., Awaitable[None]], *args: object) -> None:
        self.nursery.start_soon(task, *args)

    def report(self, where: str, error: BaseException) -> None:
        self.errors.append(error)

    def count_cut_off(self) -> None:
        self.cut_off += 1

    def count_protocol_error(self) -> None:
        self.wrong += 1

    def busy(self) -> None:
        self.state = "busy"

    def idle(self) -> None:
        self.state = "idle"

    def end(self) -> None:
        self.state = "ended"

    async def write(self, data: bytes) -> None:
        self.push(data)

    def push(self, data: bytes) -> None:
        at = 0
        while at < len(data):
            size, kind, flags = int.from_bytes(data[at : at + 3], "big"), data[at + 3], data[at + 4]
            stream_id = int.from_bytes(data[at + 5 : at + 9], "big")
            self.frames.append((kind, flags, stream_id, data[at + 9 : at + 9 + size]))
            at += 9 + size
        assert at == len(data)

    async def say(self, *parts: bytes) -> None:
        """Send each part when the tasks of the last one have ended or wait."""
        for part in parts:
            self.work.left = PASS
            await self.protocol.received(part)
            await wait_all_tasks_blocked()

    def sent_frames(self, kind: int) -> list[Frame]:
        return [each for each in self.frames if each[0] == kind]

    @property
    def goaway(self) -> ErrorCode | None:
        found = self.sent_frames(frames.GOAWAY)
        return ErrorCode(int.from_bytes(found[-1][3][4:8], "big")) if found else None

    @property
    def resets(self) -> dict[int, ErrorCode]:
        return {each[2]: ErrorCode(int.from_bytes(each[3], "big")) for each in self.sent_frames(frames.RST_STREAM)}

    def answers(self) -> dict[int, tuple[str, bytes]]:
        """Return status and body of the completely answered streams."""
        heads: dict[int, str] = {}
        bodies: dict[int, bytes] = {}
        done: dict[int, tuple[str, bytes]] = {}
        for kind, flags, stream_id, payload in self.frames:
            if kind == frames.HEADERS:
                assert stream_id not in heads
                fields = dict(pair for pair, _, _ in self._decoder.fields(payload))
                heads[stream_id], bodies[stream_id] = fields[":status"], b""
            elif kind == frames.DATA:
                bodies[stream_id] += payload
            if kind in (frames.HEADERS, frames.DATA):
                assert stream_id not in done
                if flags & END:
                    done[stream_id] = heads[stream_id], bodies[stream_id]
        return done


Conversation = Callable[..., Awaitable[Talk]]


@pytest.fixture
def talk(nursery: trio.Nursery) -> Conversation:
    async def begin(*parts: bytes, **limits: Any) -> Talk:
        found = Talk(nursery, **limits)
        await found.protocol.initiate()
        await found.say(*parts)
        return found

    return begin


def headers(stream_id: int, block: bytes, flags: int = END | WHOLE) -> bytes:
    return frame(frames.HEADERS, flags, stream_id, block)


def data(stream_id: int, payload: bytes, flags: int = 0) -> bytes:
    return frame(frames.DATA, flags, stream_id, payload)


WAIT = headers(1, path(b"/wait"))
UPLOAD = headers(1, POST, WHOLE)
ANSWERED = headers(1, GET)
P, F, S, C = ErrorCode.PROTOCOL_ERROR, ErrorCode.FRAME_SIZE_ERROR, ErrorCode.STREAM_CLOSED, ErrorCode.COMPRESSION_ERROR
W, CALM = ErrorCode.FLOW_CONTROL_ERROR, ErrorCode.ENHANCE_YOUR_CALM
SETTINGS, PING, GOAWAY = frames.SETTINGS, frames.PING, frames.GOAWAY
MOST = frames.MAX_WINDOW


def setting(name: int, value: int) -> bytes:
    return frame(SETTINGS, 0, 0, name.to_bytes(2, "big") + value.to_bytes(4, "big"))


ENDS_CONNECTION: dict[str, tuple[bytes, ErrorCode]] = {
    "4.2 longer than allowed": (b"\x00\x40\x01\x00\0\0\0\0\x01", F),
    "4.3 block cut by another frame": (headers(1, GET, END) + frame(PING, 0, 0, b"12345678"), P),
    "4.3 block cut by another stream's": (headers(1, GET, END) + frame(frames.CONTINUATION, WHOLE, 3), P),
    "4.3 block that is none": (headers(1, b"\x82\xff\xff\xff\xff\xff\xff"), C),
    "5.1 idle: DATA": (data(1, b"x"), P),
    "5.1 idle: RST_STREAM": (number_frame(frames.RST_STREAM, 1, 8), P),
    "5.1 idle: WINDOW_UPDATE": (number_frame(frames.WINDOW_UPDATE, 1, 8), P),
    "5.1 idle: CONTINUATION": (frame(frames.CONTINUATION, WHOLE, 1, GET), P),
    "5.1 closed: DATA": (ANSWERED + b"|" + data(1, b"x"), S),
    "5.1 closed: HEADERS": (ANSWERED + b"|" + headers(1, GET), P),
    "5.1 closed: CONTINUATION": (ANSWERED + b"|" + frame(frames.CONTINUATION, WHOLE, 1, GET), P),
    "5.1.1 even": (headers(2, GET), P),
    "5.1.1 smaller than before": (headers(5, GET) + headers(3, GET), P),
    "5.3 its own parent": (headers(1, b"\0\0\0\x01\0" + GET, END | WHOLE | 0x20), P),
    "6.1 DATA on 0": (data(0, b"x"), P),
    "6.1 padding as long as the frame": (UPLOAD + data(1, b"\x05abcd", frames.PADDED), P),
    "6.1 no room for padding": (UPLOAD + data(1, b"", frames.PADDED), F),
    "6.2 HEADERS on 0": (headers(0, GET), P),
    "6.2 padding as long as the block": (headers(1, b"\x09" + GET, END | WHOLE | frames.PADDED), P),
    "6.2 no room for a priority": (headers(1, b"\0", END | WHOLE | 0x20), F),
    "6.3 PRIORITY on 0": (frame(frames.PRIORITY, 0, 0, b"\0\0\0\x01\0"), P),
    "6.3 PRIORITY of 4": (frame(frames.PRIORITY, 0, 1, b"\0\0\0\0"), F),
    "6.4 RST_STREAM on 0": (number_frame(frames.RST_STREAM, 0, 8), P),
    "6.4 RST_STREAM of 3": (WAIT + frame(frames.RST_STREAM, 0, 1, b"\0\0\0"), F),
    "6.5 SETTINGS on 1": (frame(SETTINGS, 0, 1), P),
    "6.5 acknowledgement with settings": (frame(SETTINGS, frames.ACK, 0, b"\0" * 6), F),
    "6.5 SETTINGS of 5": (frame(SETTINGS, 0, 0, b"\0" * 5), F),
    "6.5.2 push": (setting(2, 2), P),
    "6.5.2 window": (setting(4, MOST + 1), W),
    "6.5.2 small frames": (setting(5, 16_383), P),
    "6.5.2 large frames": (setting(5, 1 << 24), P),
    "6.6 PUSH_PROMISE": (frame(frames.PUSH_PROMISE, WHOLE, 1, b"\0\0\0\x02"), P),
    "6.7 PING on 1": (frame(PING, 0, 1, b"12345678"), P),
    "6.7 PING of 6": (frame(PING, 0, 0, b"123456"), F),
    "6.8 GOAWAY on 1": (frame(GOAWAY, 0, 1, b"\0" * 8), P),
    "6.8 GOAWAY of 7": (frame(GOAWAY, 0, 0, b"\0" * 7), F),
    "6.9 no increment": (number_frame(frames.WINDOW_UPDATE, 0, 0), P),
    "6.9 WINDOW_UPDATE of 3": (frame(frames.WINDOW_UPDATE, 0, 0, b"\0\0\1"), F),
    "6.9.1 window too large": (number_frame(frames.WINDOW_UPDATE, 0, MOST), W),
    "6.9.2 streams' windows": (WAIT + number_frame(frames.WINDOW_UPDATE, 1, MOST - 65_535) + setting(4, 65_536), W),
    "6.10 too many parts": (headers(1, b"\x82", END) + frame(frames.CONTINUATION, 0, 1) * 64, CALM),
    "6.10 too large a whole": (headers(1, b"\x82", END) + frame(frames.CONTINUATION, 0, 1, b"x" * 16_000) * 5, CALM),
    "7541 2.3.3 no such index": (headers(1, b"\x82\x84\x87\x41\x01h\xbf"), C),
    "7541 6.1 index 0": (headers(1, GET + b"\x80"), C),
    "7541 6.3 table too large": (headers(1, b"\x3f\xe2\x1f" + GET), C),
    "7541 4.2 table resized later": (headers(1, GET + b"\x20"), C),
    "7541 5.2 padding of 8 bits": (headers(1, GET + b"\x00\x85\xf2\xb2\x4a\x84\xff\x81a"), C),
    "7541 5.2 string cut": (headers(1, GET + b"\x00\x05ab"), C),
}


@pytest.mark.parametrize("case", ENDS_CONNECTION)
async def test_connection_errors(talk: Conversation, case: str) -> None:
    sent, code = ENDS_CONNECTION[case]
    whole = await talk(START, *sent.split(b"|"))
    assert (whole.goaway, whole.state, whole.wrong) == (code, "ended", 1)
    await whole.say(headers(99, GET))  # no frame is processed any more
    assert len(whole.sent_frames(GOAWAY)) == 1
    assert not whole.errors


@pytest.mark.parametrize("first", [b"GET / HTTP/1.1\r\nHost: h\r\n\r\n", b"PRI * HTTP/2.0\r\n\r\nXX", b"\0" * 30])
async def test_invalid_prefaces(talk: Conversation, first: bytes) -> None:
    assert (await talk(first)).goaway is ErrorCode.PROTOCOL_ERROR


ENDS_STREAM: dict[str, tuple[bytes, ErrorCode]] = {
    "5.1 half-closed: DATA": (WAIT + data(1, b"x"), S),
    "5.1 half-closed: HEADERS": (WAIT + headers(1, GET), S),
    "5.1 reset: DATA": (WAIT + number_frame(frames.RST_STREAM, 1, 8) + data(1, b"x"), S),
    "5.1 reset: HEADERS": (WAIT + number_frame(frames.RST_STREAM, 1, 8) + headers(1, GET), S),
    "6.9 no increment": (WAIT + number_frame(frames.WINDOW_UPDATE, 1, 0), P),
    "6.9.1 window too large": (WAIT + number_frame(frames.WINDOW_UPDATE, 1, MOST), W),
    "6.9.1 more than allowed": (UPLOAD + data(1, b"x" * 16_000) * 5, W),
    "8.1 fields in the middle": (UPLOAD + headers(1, b"", WHOLE), P),
    "8.1 pseudo-field in a trailer": (UPLOAD + headers(1, b"\x82"), P),
    "8.1.1 less than declared": (headers(1, POST + length(5), WHOLE) + data(1, b"abcd", END), P),
    "8.1.1 more than declared": (headers(1, POST + length(3), WHOLE) + data(1, b"abcd"), P),
    "8.1.1 none of the declared bytes": (headers(1, POST + length(3)), P),
    "8.1.1 trailer before the declared bytes": (headers(1, POST + length(3), WHOLE) + headers(1, b""), P),
    "8.2.1 upper case": (headers(1, GET + b"\x00\x01A\x01b"), P),
    "8.2.2 connection": (headers(1, GET + b"\x00\x0aconnection\x05close"), P),
    "8.3.1 path twice": (headers(1, GET + b"\x84"), P),
    "8.5 CONNECT": (headers(1, b"\x02\x07CONNECT\x41\x01h"), P),
}


@pytest.mark.parametrize("case", ENDS_STREAM)
async def test_stream_errors(talk: Conversation, case: str) -> None:
    sent, code = ENDS_STREAM[case]
    whole = await talk(ACKNOWLEDGED, sent, body_buffer=65_536)
    assert whole.resets == {1: code}
    assert whole.goaway is None
    await whole.say(headers(9, GET))
    assert whole.answers()[9] == ("200", b"hello")
    whole.release.set()
    await wait_all_tasks_blocked()
    assert (whole.open, whole.state, whole.errors) == (0, "idle", [])
    assert 1 not in whole.answers()


IGNORED: dict[str, bytes] = {
    "nothing": b"",
    "4.1 unknown types": frame(0x16, 0xFF, 0, b"x" * 8) + frame(0xFF, 0, 77, b""),
    "4.1 unknown flags and the reserved bit": frame(PING, 0x16, 0, b"\0" * 8) + b"\0\0\x08\x06\0\x80\0\0\0" + b"\0" * 8,
    "5.1 WINDOW_UPDATE for a stream that is over": number_frame(frames.WINDOW_UPDATE, 1, 1),
    "5.1 RST_STREAM for a stream that is over": number_frame(frames.RST_STREAM, 1, 8),
    "5.3 PRIORITY of any stream": frame(2, 0, 1, b"\0\0\0\x09\0") + frame(2, 0, 99, b"\x80" + b"\0" * 4),
    "6.5.2 unknown settings": setting(0x99, MOST),
    "6.7 PING that answers": frame(PING, frames.ACK, 0, b"\0" * 8),
}


@pytest.mark.parametrize("case", IGNORED)
async def test_frames_without_effect(talk: Conversation, case: str) -> None:
    whole = await talk(ACKNOWLEDGED, ANSWERED, IGNORED[case], headers(3, GET))
    assert whole.answers() == {1: ("200", b"hello"), 3: ("200", b"hello")}
    assert (whole.resets, whole.goaway, whole.state) == ({}, None, "idle")


async def test_padding_priority_trailers_and_parts_are_understood(talk: Conversation) -> None:
    padded = frame(frames.HEADERS, WHOLE | frames.PADDED | 0x20, 1, b"\x03" + b"\x80\0\0\0\xff" + POST + b"\0\0\0")
    whole = await talk(ACKNOWLEDGED, padded, data(1, b"\x02ab\0\0", frames.PADDED), headers(1, b"\x00\x01x\x01y"))
    await whole.say(headers(3, GET[:2], END), frame(frames.CONTINUATION, 0, 3, GET[2:4]))
    await whole.say(frame(frames.CONTINUATION, WHOLE, 3, GET[4:]))
    assert whole.answers() == {1: ("200", b"2"), 3: ("200", b"hello")}
    assert whole.bodies == [b"ab"]


async def test_a_ping_comes_back_and_settings_are_acknowledged(talk: Conversation) -> None:
    whole = await talk(START, frame(PING, 0, 0, b"01234567"), setting(3, 7))
    assert whole.sent_frames(PING) == [(PING, frames.ACK, 0, b"01234567")]
    assert len([each for each in whole.sent_frames(SETTINGS) if each[1] & frames.ACK]) == 2


async def test_sent_data_stays_within_the_windows(talk: Conversation) -> None:
    """The window of the stream, which SETTINGS makes negative; and that of the connection."""
    whole = await talk(START, setting(4, 10), headers(1, path(b"/large")))

    def sent() -> int:
        return sum(len(each[3]) for each in whole.sent_frames(frames.DATA))

    assert sent() == 10
    await whole.say(setting(4, 0), number_frame(frames.WINDOW_UPDATE, 1, 10))
    assert sent() == 10  # -10 + 10
    await whole.say(number_frame(frames.WINDOW_UPDATE, 1, 1))
    assert sent() == 11
    await whole.say(setting(4, 200_000))
    assert sent() == 65_535
    await whole.say(number_frame(frames.WINDOW_UPDATE, 0, 200_000))
    assert whole.answers()[1] == ("200", b"x" * 100_000)
    assert max(len(each[3]) for each in whole.frames) == 16_384
    await whole.say(setting(5, 30_000), headers(3, path(b"/large")))
    assert max(len(each[3]) for each in whole.frames) == 30_000


async def test_a_reset_while_it_is_answered_ends_the_answer(talk: Conversation) -> None:
    whole = await talk(START, headers(1, path(b"/large")), headers(3, path(b"/stream")))
    assert whole.open == 2
    await whole.say(number_frame(frames.RST_STREAM, 1, 8), number_frame(frames.RST_STREAM, 3, 8))
    before = len(whole.frames)
    await whole.say(number_frame(frames.WINDOW_UPDATE, 0, 200_000))
    assert (whole.open, whole.state, len(whole.frames)) == (0, "idle", before)
    assert whole.resets == {}


async def test_a_request_reset_at_once_is_not_begun(talk: Conversation) -> None:
    whole = await talk(START, ANSWERED + number_frame(frames.RST_STREAM, 1, 8))
    assert (whole.asked, whole.open, whole.state) == ([], 0, "idle")


async def test_an_application_that_waits_for_the_end_of_its_client_is_woken(talk: Conversation) -> None:
    whole = await talk(START, headers(1, path(b"/gone")))
    assert whole.open == 1
    await whole.say(number_frame(frames.RST_STREAM, 1, 8))
    assert (whole.open, whole.state) == (0, "idle")


async def test_reading_a_broken_body_fails(talk: Conversation) -> None:
    whole = await talk(START, UPLOAD, data(1, b"abc"), headers(1, b"", WHOLE))
    assert (whole.bodies, whole.resets) == ([None], {1: P})


async def test_credit_follows_reading_in_few_frames(talk: Conversation) -> None:
    whole = await talk(ACKNOWLEDGED, UPLOAD, body_buffer=100_000, connection_buffer=200_000)
    before = len(whole.sent_frames(frames.WINDOW_UPDATE))  # the initial enlargement of the connection window
    await whole.say(*[data(1, b"x" * 10_000)] * 4)
    assert len(whole.sent_frames(frames.WINDOW_UPDATE)) == before
    await whole.say(*[data(1, b"x" * 10_000)] * 16)
    credit = dict.fromkeys((0, 1), 0)
    for _, _, stream_id, payload in whole.sent_frames(frames.WINDOW_UPDATE)[before:]:
        credit[stream_id] += int.from_bytes(payload, "big")
    assert credit == {0: 200_000, 1: 200_000}
    # Without a reader, no more is credited than both windows hold.
    await whole.say(headers(3, path(b"/wait"), WHOLE), *[data(3, b"y" * 10_000)] * 10)
    assert len(whole.sent_frames(frames.WINDOW_UPDATE)) == before + len(credit) * 4
    await whole.say(data(3, b"y"))
    assert whole.resets == {3: W}


async def test_of_all_streams_no_more_is_taken_than_allowed(talk: Conversation) -> None:
    openings = [headers(number, path(b"/wait"), WHOLE) for number in (1, 3, 5)]
    whole = await talk(ACKNOWLEDGED, *openings, body_buffer=65_535, connection_buffer=100_000)
    await whole.say(*[data(1, b"x" * 12_500)] * 4, *[data(3, b"x" * 12_500)] * 4)
    assert whole.goaway is None
    await whole.say(data(5, b"x"))
    assert whole.goaway is W


async def test_body_bytes_behind_an_early_answer_are_credited_and_forgotten(talk: Conversation) -> None:
    whole = await talk(ACKNOWLEDGED, headers(1, GET, WHOLE), connection_buffer=100_000)
    assert (whole.answers()[1][0], whole.resets) == ("200", {1: ErrorCode.NO_ERROR})
    before = len(whole.sent_frames(frames.WINDOW_UPDATE))
    await whole.say(*[data(1, b"x" * 16_000)] * 40, headers(1, b"", END | WHOLE))
    assert len(whole.sent_frames(frames.WINDOW_UPDATE)) > before + 10
    assert whole.goaway is None


async def test_body_bytes_of_requests_reset_at_once_are_credited(talk: Conversation) -> None:
    whole = await talk(ACKNOWLEDGED, connection_buffer=100_000)
    for number in range(1, 61, 2):
        upload = headers(number, POST, WHOLE) + data(number, b"x" * 16_000)
        await whole.say(upload + number_frame(frames.RST_STREAM, number, 8))
    assert (whole.goaway, whole.asked, whole.open) == (None, [], 0)


async def test_more_streams_than_allowed(talk: Conversation) -> None:
    """A client that does not know our settings yet may retry; for one that does it is an error."""
    openings = [headers(number, path(b"/wait")) for number in range(1, 13, 2)]
    whole = await talk(START, *openings, streams=5)
    assert whole.resets == {11: ErrorCode.REFUSED_STREAM}
    await whole.say(frame(SETTINGS, frames.ACK, 0), headers(13, GET))
    assert whole.goaway is P


async def test_a_header_list_that_is_too_large_is_431(talk: Conversation) -> None:
    long = b"\x00\x01a\x7f\xd9\x3e" + b"x" * 8152
    whole = await talk(START, headers(1, GET + long), headers(3, GET), header_bytes=8192)
    assert whole.answers() == {1: ("431", b""), 3: ("200", b"hello")}


FLOODS = {
    "empty DATA (CVE-2019-9518)": (UPLOAD, data(1, b"")),
    "PRIORITY (CVE-2019-9513)": (b"", frame(frames.PRIORITY, 0, 1, b"\0\0\0\x09\0")),
    "SETTINGS (CVE-2019-9515)": (b"", frame(SETTINGS, 0, 0)),
    "unknown": (b"", frame(0x77, 0, 0)),
    "resets of closed streams": (ANSWERED, number_frame(frames.RST_STREAM, 1, 8)),
    "padding alone": (UPLOAD, data(1, b"\0", frames.PADDED)),
}


@pytest.mark.parametrize("case", FLOODS)
async def test_floods_are_stopped(talk: Conversation, case: str) -> None:
    first, again = FLOODS[case]
    whole = await talk(ACKNOWLEDGED + first, again * 9_000)
    assert whole.goaway is None
    whole.reap()  # a second later
    await whole.say(again * 9_000)
    assert whole.goaway is None
    await whole.say(again * 2_000)
    assert whole.goaway is CALM


async def test_streams_opened_only_to_be_reset_are_stopped(talk: Conversation) -> None:
    """CVE-2023-44487."""
    parts = [headers(number, GET) + number_frame(frames.RST_STREAM, number, 8) for number in range(1, 203, 2)]
    whole = await talk(START, *parts, streams=50)
    assert whole.goaway is CALM


async def test_streams_we_are_made_to_reset_are_stopped(talk: Conversation) -> None:
    """CVE-2019-9514, and CVE-2025-8671, in which the client provokes our resets."""
    parts = [headers(number, GET + b"\x84") for number in range(1, 20_100, 2)]
    assert (await talk(START, b"".join(parts))).goaway is CALM


async def test_goaway_lets_go_when_all_is_answered(talk: Conversation) -> None:
    whole = await talk(START, WAIT, frame(GOAWAY, 0, 0, b"\0" * 8))
    assert whole.state == "busy"
    whole.release.set()
    await wait_all_tasks_blocked()
    assert (whole.state, whole.answers()) == ("ended", {1: ("200", b"hello")})
    assert (await talk(START, frame(GOAWAY, 0, 0, b"\0" * 8))).state == "ended"
    assert (await talk(START, WAIT, frame(GOAWAY, 0, 0, b"\0" * 7 + b"\1"))).state == "ended"


async def test_new_streams_after_our_goaway_are_rejected(talk: Conversation) -> None:
    whole = await talk(START, WAIT)
    await whole.protocol.drain()
    await whole.protocol.drain()
    assert [each[3] for each in whole.sent_frames(GOAWAY)] == [b"\0\0\0\1\0\0\0\0"]
    await whole.say(headers(3, GET))
    assert whole.resets == {3: ErrorCode.REFUSED_STREAM}
    whole.release.set()
    await wait_all_tasks_blocked()
    assert (whole.state, whole.answers()) == ("ended", {1: ("200", b"hello")})


async def test_a_client_that_opens_no_window_is_cut_off(talk: Conversation) -> None:
    whole = await talk(START, setting(4, 0), headers(1, path(b"/large")), send_wait=0.01)
    with trio.fail_after(60):
        while not whole.resets:
            await trio.lowlevel.checkpoint()
    assert (whole.resets, whole.cut_off) == ({1: ErrorCode.CANCEL}, 1)


async def test_tasks_are_reused_and_ended(talk: Conversation, nursery: trio.Nursery) -> None:
    before = len(nursery.child_tasks)
    whole = await talk(START, *[headers(number, path(b"/wait")) for number in range(1, 21, 2)])
    most = len(nursery.child_tasks) - before
    whole.release.set()
    await whole.say(*[headers(number, GET) for number in range(21, 41, 2)])
    assert len(nursery.child_tasks) - before <= most + 1
    for _ in range(2):
        whole.reap()
        await wait_all_tasks_blocked()
    assert len(nursery.child_tasks) == before
    await whole.say(headers(41, GET))
    await whole.protocol.ended()
    await wait_all_tasks_blocked()
    assert len(nursery.child_tasks) == before
    assert len(whole.answers()) == 21


# -- any order, any bytes ---------------------------------------------------------------------------------------------


def spoken(chance: Any) -> list[bytes]:
    """Valid frames of several requests, interleaved; streams are opened in order."""
    waiting: list[list[bytes]] = []
    for number in range(1, 13, 2):
        match chance.randrange(4):
            case 0:
                frames_of = [headers(number, GET)]
            case 1:
                frames_of = [headers(number, path(b"/large"))]
            case 2:
                frames_of = [headers(number, POST, WHOLE), *[data(number, b"x" * 300)] * 3, data(number, b"y", END)]
            case _:
                frames_of = [
                    headers(number, POST + length(6), WHOLE),
                    data(number, b"\1abc\0", 8),
                    data(number, b"def", END),
                ]
        waiting.append(frames_of)
    conversation, opened = [number_frame(frames.WINDOW_UPDATE, 0, 1 << 20), setting(4, 1 << 20)], 0
    while any(waiting):
        choices = [each for each in waiting[:opened] if each]
        if opened < len(waiting) and (not choices or chance.random() < 0.4):
            choices, opened = [waiting[opened]], opened + 1
        conversation.append(chance.choice(choices).pop(0))
        if chance.random() < 0.2:
            conversation.append(chance.choice([frame(PING, 0, 0, b"\0" * 8), frame(0x42, 0, 0, b"x"), setting(3, 1)]))
    return conversation


@settings(max_examples=40, deadline=None)
@given(st.randoms(use_true_random=False))
def test_however_frames_are_cut_and_mixed_the_answers_are_the_same(chance: Any) -> None:
    async def main() -> None:
        conversation = spoken(chance)
        answers = []
        for cut in (False, True):
            async with trio.open_nursery() as nursery:
                whole = Talk(nursery)
                await whole.protocol.initiate()
                sent = START + b"".join(conversation)
                places = sorted(chance.randrange(len(sent)) for _ in range(30)) if cut else []
                for start, end in zip([0, *places], [*places, len(sent)], strict=True):
                    whole.work.left = PASS
                    await whole.protocol.received(sent[start:end])
                    if chance.random() < 0.5:
                        await trio.lowlevel.checkpoint()
                await wait_all_tasks_blocked()
                assert (whole.resets, whole.goaway, whole.errors, whole.open) == ({}, None, [], 0)
                answers.append(whole.answers())
                await whole.protocol.ended()
        assert answers[0] == answers[1]
        assert len(answers[0]) == 6

    trio.run(main)


KINDS = st.sampled_from([*range(10), 0x42])
STREAMS = st.sampled_from([0, 1, 1, 2, 3, 3, 5, 7])
PAYLOADS = st.one_of(
    st.binary(max_size=20),
    st.sampled_from([GET, POST, path(b"/large"), path(b"/gone"), b"\0\0\0\1", b"\x7f\xff\xff\xff"]),
)


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(KINDS, st.integers(0, 255), STREAMS, PAYLOADS), max_size=25), st.binary(max_size=30))
def test_no_sequence_of_frames_breaks_or_hangs(sent: list[Any], rest: bytes) -> None:
    async def main() -> None:
        with trio.fail_after(60):
            async with trio.open_nursery() as nursery:
                whole = Talk(nursery, streams=3)
                await whole.protocol.initiate()
                for each in sent:
                    whole.work.left = PASS
                    await whole.protocol.received(frame(*each) if whole.frames[1:] else START + frame(*each))
                await whole.say(rest)
                whole.reap()
                for exchange in list(whole.protocol._streams.running):
                    exchange.disconnected()
                await whole.protocol.ended()
            assert (whole.errors, whole.open) == ([], 0)
            whole.answers()  # no frame follows the end of its stream

    trio.run(main)
