"""Sessions of exec, attach and port-forward in which a client or a kubelet sends frames that are much work.

As in test_attacks.py, the longest pass is measured in CPU time of the loop's thread. Frames without data end a session.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
import zlib
from collections.abc import Callable
from typing import Any, Final

import pytest
import trio
from stalls.longest_pass import on_this_machine

from kubechronicle.http.handlers.pod_streams import tunnel
from kubechronicle.http.messages import SWITCHED, Request, Response
from kubechronicle.http.streaming import spdy
from kubechronicle.http.streaming.command_relay import relay_command
from kubechronicle.http.streaming.remote_command import PROTOCOLS, CommandStreams
from kubechronicle.http.streaming.spdy import DICTIONARY
from kubechronicle.http.streaming.translation import KubeletSession, translate
from tests.http.wire.test_attacks import LONGEST, POLICY, Attacker, attack, websocket_frame

SWITCH: Final = b"GET / HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\r\n"
TTY: Final = CommandStreams(stdin=True, stdout=True, tty=True)
ERROR, STDIN, STDOUT = 1, 3, 5


class Kubelet:
    """The kubelet's side: accepts the streams of a session, sends the attack, and discards what comes."""

    def __init__(self, attack: bytes) -> None:
        self._attack = attack

    async def dial(self) -> trio.SocketStream:
        (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
        near = await trio.testing.open_stream_to_socket_listener(listener)
        far = await listener.accept()
        await listener.aclose()
        threading.Thread(target=self._run, args=(far.socket.detach(),), daemon=True).start()
        return near

    def _run(self, number: int) -> None:
        far = socket.socket(fileno=number)
        far.settimeout(20)
        block = spdy.HeaderCompressor()
        with contextlib.suppress(OSError):
            far.recv(1 << 16)
            far.sendall(b"".join(spdy.syn_reply(stream, block.block({})) for stream in (1, 3, 5, 7)) + self._attack)
        with contextlib.suppress(OSError):
            while far.recv(1 << 18):
                pass
        far.close()


def app_of(kind: str, kubelet: Kubelet) -> Callable[[Request], Any]:
    async def app(request: Request) -> Response:
        if request.upgrade is None:
            return Response(200)
        client = await request.upgrade.accept()
        async with await kubelet.dial() as stream:

            async def connect() -> KubeletSession:
                return KubeletSession(stream, PROTOCOLS[0], b"")

            if kind == "translation":
                await translate(client, connect, TTY, draining=request.draining)
            elif kind == "tunnel":
                await tunnel(client, stream, b"", draining=request.draining)
            else:
                await relay_command(client, stream, b"", protocol=PROTOCOLS[1], draining=request.draining)
        return SWITCHED

    return app


def message(channel: int, data: bytes) -> bytes:
    return websocket_frame(2, bytes((channel,)) + data)


CLOSING: Final = websocket_frame(8, struct.pack(">H", 1000))
# The attack, and True if it ends the session by itself.
CLIENTS: Final[dict[str, tuple[str, bytes, bool]]] = {
    "sizes in one message": ("translation", message(4, b"{}" * 131_000), True),
    "sizes": ("translation", message(4, b"{}") * 60_000, True),
    "a size in parts": (
        "translation",
        websocket_frame(2, b'\x04{"Width":1,', last=False) + websocket_frame(0, b" ", last=False) * 60_000 + CLOSING,
        False,
    ),
    "broken sizes": ("translation", message(4, b'{"a":{"b":[1,' * 20_000) * 20 + CLOSING, False),
    "nested sizes": ("translation", message(4, b'{"a":' * 50_000) * 20 + CLOSING, False),
    "input of one byte": ("translation", message(0, b"x") * 60_000 + CLOSING, False),
    "an endless signal": (
        "translation",
        websocket_frame(2, b"\xff", last=False) + websocket_frame(0, b"\x00", last=False) * 60_000,
        True,
    ),
    "empty messages": ("translation", websocket_frame(2, b"") * 60_000, True),
    "pings": ("translation", websocket_frame(9, b"") * 60_000, True),
    "pongs": ("tunnel", websocket_frame(10, b"") * 60_000, True),
    "empty parts": (
        "tunnel",
        websocket_frame(2, b"", last=False) + websocket_frame(0, b"", last=False) * 60_000,
        True,
    ),
    "messages of one byte": ("tunnel", websocket_frame(2, b"x") * 60_000 + CLOSING, False),
}


@pytest.mark.parametrize("case", CLIENTS)
async def test_frames_of_clients_leave_time_for_others(wire: Any, case: str) -> None:
    kind, sent, ends = CLIENTS[case]
    pings = "pings" in case

    def steps(attacker: Attacker) -> bytes:
        assert b"101 Switching" in attacker.exchange(SWITCH, b"\r\n\r\n")
        return attacker.exchange(sent, b"")

    received, longest = await attack(await wire(app_of(kind, Kubelet(b""))), "http/1.1", steps)
    if (ends and kind == "tunnel") or pings:
        assert POLICY[2:] in received
    assert longest < on_this_machine(LONGEST)


def inflating() -> bytes:
    """Return frames that open streams, with header blocks of 4 MB in all."""
    compressor = zlib.compressobj(9, zdict=DICTIONARY)
    frames = []
    for stream in range(1, 2001, 2):
        plain = struct.pack(">I", 500) + b"\0\0\0\0" * 1000
        block = compressor.compress(plain) + compressor.flush(zlib.Z_SYNC_FLUSH)
        frames.append(spdy.syn_stream(stream, block))
    return b"".join(frames)


def opening() -> bytes:
    compressor = spdy.HeaderCompressor()
    names = enumerate(("error", "stdin", "stdout"))
    return b"".join(spdy.syn_stream(2 * at + 1, compressor.block({"streamtype": name})) for at, name in names)


RELAYED: Final[dict[str, bytes]] = {
    "inflated header blocks": inflating() * 10,
    "empty frames": spdy.data_frame(1, b"") * 100_000,
    "pings": spdy.ping(1) * 100_000,
}


@pytest.mark.parametrize("case", RELAYED)
async def test_frames_of_spdy_clients_leave_time_for_others(wire: Any, case: str) -> None:
    def steps(attacker: Attacker) -> bytes:
        assert b"101 Switching" in attacker.exchange(SWITCH, b"\r\n\r\n")
        attacker.exchange(RELAYED[case] + opening(), spdy.syn_reply(5, b"")[:3])
        return b""

    _, longest = await attack(await wire(app_of("relay", Kubelet(b""))), "http/1.1", steps)
    assert longest < on_this_machine(LONGEST)


# The attack, and a part of the message with which the session ends; none: with the outcome.
OUTCOME: Final = spdy.data_frame(ERROR, b'{"status":"Success"}', fin=True) + spdy.data_frame(STDOUT, b"", fin=True)
KUBELETS: Final[dict[str, tuple[bytes, bytes]]] = {
    "empty frames": (spdy.data_frame(STDOUT, b"") * 100_000, b"without data"),
    "empty frames of no stream": (spdy.data_frame(99, b"") * 100_000, b"without data"),
    "frames of one byte": (spdy.data_frame(STDOUT, b"x") * 100_000 + OUTCOME, b"Success"),
    "frames of no stream": (spdy.data_frame(99, b"x") * 100_000 + OUTCOME, b"Success"),
    "pings": (spdy.ping(2) * 100_000, b"without data"),
    "settings": (spdy.control(spdy.SETTINGS, bytes(4)) * 100_000, b"without data"),
    "resets of no stream": (spdy.rst_stream(99) * 100_000, b"without data"),
    "a Status in parts": (spdy.data_frame(ERROR, b" ") * 100_000 + OUTCOME, b""),
}


@pytest.mark.parametrize("kind", ["translation", "relay"])
@pytest.mark.parametrize("case", KUBELETS)
async def test_frames_of_kubelets_leave_time_for_others(wire: Any, case: str, kind: str) -> None:
    sent, message = KUBELETS[case]

    def steps(attacker: Attacker) -> bytes:
        begun = attacker.exchange(SWITCH, b"\r\n\r\n")  # of a fast server, with the end of the session
        assert b"101 Switching" in begun
        end = b"" if kind == "translation" else message or b"Success"
        return begun + attacker.exchange(opening() if kind == "relay" else b"", end)

    received, longest = await attack(await wire(app_of(kind, Kubelet(sent))), "http/1.1", steps)
    assert message in received
    assert longest < on_this_machine(LONGEST)
