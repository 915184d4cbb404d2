"""The kubelet's side of remote commands in SPDY/3.1, for tests: accepts streams, runs a command, writes a Status."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any

import trio

from kubechronicle.http.streaming import spdy

SUCCESS = {"metadata": {}, "status": "Success"}


def exited(code: int) -> dict[str, Any]:
    """Return the Status of a command that ended with this code, as a kubelet writes it."""
    causes = [{"reason": "ExitCode", "message": str(code)}]
    message = f"command terminated with non-zero exit code: exit status {code}"
    return {"status": "Failure", "reason": "NonZeroExitCode", "message": message, "details": {"causes": causes}}


class SpdyKubelet:
    """One session. ``streams``: stream number by type, once the client has opened it."""

    def __init__(self, stream: trio.abc.Stream) -> None:
        self.stream = stream
        self.streams: dict[str, int] = {}
        self.input: dict[str, bytes] = {"stdin": b"", "resize": b""}
        self.ended: set[str] = set()
        self._changed = trio.Event()
        self._lock = trio.Lock()

    async def serve(self) -> None:
        """Answer frames until the client's end."""
        reader, headers, block = spdy.SpdyFrameReader(), spdy.HeaderDecompressor(), spdy.HeaderCompressor()
        async for data in self.stream:
            for event in reader.feed(data):
                if isinstance(event, spdy.Data):
                    name = {number: name for name, number in self.streams.items()}[event.stream]
                    self.input[name] += event.data
                    if event.fin:
                        self.ended.add(name)
                elif event.kind == spdy.SYN_STREAM:
                    self.streams[headers.headers(event.payload[10:])["streamtype"]] = event.stream
                    await self.send(spdy.syn_reply(event.stream, block.block({})))
                elif event.kind == spdy.PING:
                    await self.send(spdy.ping(event.stream))
            self._changed.set()
            self._changed = trio.Event()

    async def wait(self, condition: Callable[[], bool]) -> None:
        """Return when the condition holds after some received data."""
        while not condition():
            await self._changed.wait()

    async def send(self, data: bytes) -> None:
        async with self._lock:
            await self.stream.send_all(data)

    async def write(self, name: str, data: bytes, *, fin: bool = False) -> None:
        await self.send(spdy.data_frame(self.streams[name], data, fin=fin))

    async def finish(self, body: dict[str, Any]) -> None:
        """End the command with this Status, and all output."""
        await self.write("error", json.dumps(body).encode(), fin=True)
        for name in ("stdout", "stderr"):
            if name in self.streams:
                await self.write(name, b"", fin=True)


Command = Callable[[SpdyKubelet], Awaitable[None]]
