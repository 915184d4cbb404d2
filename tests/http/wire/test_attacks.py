"""Bytes that are much work: whatever one connection sends, no pass of the event loop computes for long.

The attacker is a thread with a plain socket. The longest pass is measured in CPU time of the loop's thread, so it does
not depend on the machine's load. Each attack took 70 ms to 4 s in one pass when frames counted as one.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from time import thread_time
from typing import Any, Final

import pytest
import trio

from kubechronicle.http.messages import Request, Response
from kubechronicle.http.wire.http2 import frames
from kubechronicle.http.wire.http2.frames import ErrorCode, Setting, frame
from kubechronicle.http.wire.http2.headers import encode_fields

LONGEST: Final = 0.06
"""Seconds of CPU of a pass: a tenth of a second is what others may wait, for two passes at most."""
STREAMS: Final = range(1, 1801, 2)


class LongestPass(trio.abc.Instrument):
    """``seconds``: the most CPU time between two waits for I/O."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._began = thread_time()

    def after_io_wait(self, timeout: float) -> None:
        self._began = thread_time()

    def before_io_wait(self, timeout: float) -> None:
        self.seconds = max(self.seconds, thread_time() - self._began)


async def app(request: Request) -> Response:
    if request.method == "POST":
        return Response(200, [], b"%d" % len(await request.body(1 << 22)))
    if request.websocket is not None:
        await request.websocket.accept()
        await request.wait_disconnect()
    return Response(200, [], b"x" * 200)


def asked(stream: int, method: bytes = b"GET") -> bytes:
    fields = ((b":method", method), (b":path", b"/"), (b":scheme", b"https"), (b":authority", b"h"))
    flags = frames.END_HEADERS | (frames.END_STREAM if method == b"GET" else 0)
    return frame(frames.HEADERS, flags, stream, encode_fields(fields))


def settings(*values: tuple[int, int]) -> bytes:
    return frame(frames.SETTINGS, 0, 0, b"".join(struct.pack(">HL", *each) for each in values))


WINDOW: Final = Setting.INITIAL_WINDOW_SIZE
WAITING: Final = frames.PREFACE + settings((WINDOW, 0)) + b"".join(map(asked, STREAMS))
"""Requests whose answers wait for a window of their own."""
HTTP2: Final[dict[str, tuple[bytes, bytes, ErrorCode | None]]] = {
    "settings that come twice": (
        WAITING,
        settings(*((WINDOW, number & 1) for number in range(2730))) * 8,
        ErrorCode.PROTOCOL_ERROR,
    ),
    "many settings": (WAITING, settings(*((0x1000 + number, 1) for number in range(101))), ErrorCode.PROTOCOL_ERROR),
}


class Attacker:
    """A client in a thread, with a plain socket."""

    def __init__(self, served: Any, alpn: str) -> None:
        raw = socket.create_connection(("127.0.0.1", served.server.port))
        self._socket = served.context(alpn).wrap_socket(raw, server_hostname="localhost")
        self._socket.settimeout(20)

    def send(self, data: bytes, *, record: int = 1 << 14) -> None:
        with contextlib.suppress(OSError):  # the server has closed
            for start in range(0, len(data), record):
                self._socket.sendall(data[start : start + record])

    def exchange(self, data: bytes, last: bytes, *, record: int = 1 << 14) -> bytes:
        """Send data, and return what comes meanwhile until the server ends the connection or ``last`` comes."""
        sending = threading.Thread(target=self.send, args=(data,), kwargs={"record": record}, daemon=True)
        sending.start()
        found = bytearray()
        with contextlib.suppress(OSError):
            while part := self._socket.recv(1 << 16):
                found += part
                if last and last in found[-len(part) - len(last) :]:
                    break
        return bytes(found)

    def close(self) -> None:
        self._socket.close()


@contextlib.contextmanager
def measured() -> Iterator[LongestPass]:
    longest = LongestPass()
    trio.lowlevel.add_instrument(longest)
    try:
        yield longest
    finally:
        trio.lowlevel.remove_instrument(longest)


async def attack(served: Any, alpn: str, steps: Callable[[Attacker], bytes]) -> tuple[bytes, float]:
    """Return what the attacker has received, and the longest pass meanwhile."""
    attacker = await trio.to_thread.run_sync(Attacker, served, alpn)
    with measured() as longest:
        received = await trio.to_thread.run_sync(steps, attacker)
    attacker.close()
    await served.check_alive()
    return received, longest.seconds


@pytest.mark.parametrize("case", HTTP2)
async def test_frames_of_http2_leave_time_for_others(wire: Any, case: str) -> None:
    before, sent, error = HTTP2[case]
    ping = frame(frames.PING, frames.ACK, 0, b"the end.")

    def steps(attacker: Attacker) -> bytes:
        attacker.send(before)
        return attacker.exchange(sent + frame(frames.PING, 0, 0, b"the end."), b"" if error else ping)

    served = await wire(app)
    received, longest = await attack(served, "h2", steps)
    assert served.server.statistics().protocol_errors == (error is not None)
    assert error is not None or ping in received
    assert longest < LONGEST
