"""Channels: streams of a session within the messages of a WebSocket (v5.channel.k8s.io), without I/O.

    message: channel (1 byte) | data        255 N: the client closes channel N (v5)

Not here: frames (websocket_frames.py), the meaning of channels (remote_command.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from kubechronicle.http.streaming.remote_command import CLOSE, RESIZE
from kubechronicle.http.streaming.websocket_frames import Part


class ChannelError(Exception):
    """A CLOSE signal that names no channel of a client, or too many sizes of the terminal. The session ends."""


class ChannelReader:
    """The decoder of a client's messages."""

    def __init__(self) -> None:
        self._channel = -1
        self._signal = b""

    def feed(self, parts: Iterable[Part]) -> Iterator[tuple[int, bytes]]:
        """Yield (channel, data) of each part with data. A CLOSE signal comes whole, as one byte. Raises ChannelError
        after the data before it."""
        for part in parts:
            data = part.data
            if part.first:
                self._channel, self._signal = -1, b""
            if self._channel < 0 and data:
                self._channel, data = data[0], data[1:]
            if self._channel == CLOSE:
                self._signal += data[:2]
                if len(self._signal) > 1:
                    raise ChannelError
                if part.last:
                    if not self._signal or self._signal[0] > RESIZE:
                        raise ChannelError
                    yield CLOSE, self._signal
            elif self._channel >= 0 and data:
                yield self._channel, data
