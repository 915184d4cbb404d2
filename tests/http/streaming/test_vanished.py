"""Peers that vanish, and peers that are slow to read."""

from __future__ import annotations

import socket
import sys
import time

import pytest
import trio

from kubechronicle.http.streaming import copying
from kubechronicle.http.streaming.copying import Silence, limit_silence
from tests.support.nodes.cut_network import cut_off

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads TCP_INFO")

LIMIT = 0.7
"""Seconds instead of VANISHED. The system sends again after 0.2 and 0.6 s."""


@pytest.fixture
def pair(monkeypatch: pytest.MonkeyPatch) -> tuple[socket.socket, socket.socket]:
    monkeypatch.setattr(copying, "VANISHED", LIMIT)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        near = socket.create_connection(listener.getsockname())
        far, _ = listener.accept()
    near.setblocking(False)
    return near, far


def fill(near: socket.socket) -> None:
    """Send until the peer's buffer and our own are full."""
    try:
        while True:
            near.send(bytes(1 << 16))
    except BlockingIOError:
        pass


def seconds_until_vanished(near: socket.socket, wait: float) -> float | None:
    """Look as a session does. None if the peer has not vanished within this time."""
    silence, begun = Silence(near), time.monotonic()
    while (passed := time.monotonic() - begun) < wait:
        if silence.has_vanished():
            return passed
        time.sleep(0.1)  # there is no event for it
    return None


@pytest.mark.parametrize("blocked", [False, True], ids=["reading", "not-reading"])
def test_a_peer_that_is_cut_off_has_vanished(pair: tuple[socket.socket, socket.socket], blocked: bool) -> None:
    near, far = pair
    with near, far:
        if blocked:
            fill(near)
        cut_off(far)
        if not blocked:
            near.send(b"x")
        passed = seconds_until_vanished(near, 10)
        assert passed is not None
        assert passed > LIMIT / 2


def test_a_peer_that_does_not_read_has_not_vanished(pair: tuple[socket.socket, socket.socket]) -> None:
    near, far = pair
    with near, far:
        fill(near)
        assert seconds_until_vanished(near, 3 * LIMIT) is None
        assert near.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == 0


def test_a_peer_that_nothing_was_sent_to_has_not_vanished(pair: tuple[socket.socket, socket.socket]) -> None:
    near, far = pair
    with near, far:
        cut_off(far)  # it is the task of keep-alive to notice that
        assert seconds_until_vanished(near, 2 * LIMIT) is None


def test_the_system_ends_a_connection_whose_silence_is_limited(pair: tuple[socket.socket, socket.socket]) -> None:
    near, far = pair
    with near, far:
        limit_silence(near, LIMIT)
        cut_off(far)
        near.setblocking(True)
        near.settimeout(10)
        near.send(b"x")
        with pytest.raises(OSError, match="timed out") as found:
            near.recv(1)
        assert not isinstance(found.value, TimeoutError) or found.value.errno


async def test_other_connections_have_no_peer_that_can_vanish() -> None:
    left, right = trio.socket.socketpair()
    async with trio.SocketStream(left) as near, trio.SocketStream(right):
        limit_silence(near, LIMIT)
        assert not Silence(near).has_vanished()
    assert not Silence(near).has_vanished()
    assert not Silence(object()).has_vanished()
