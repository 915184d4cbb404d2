"""Copying between two connections, in both directions, with the back pressure of both."""

from __future__ import annotations

import trio

CHUNK = 256 * 1024
"""Bytes read at once; what is read is sent before more is read, so a session holds two chunks."""
GONE = (trio.BrokenResourceError, trio.ClosedResourceError, trio.BusyResourceError)


async def receive_or_end(stream: trio.abc.ReceiveStream) -> bytes:
    """Return received bytes, or b"" if the peer has ended the connection in any way."""
    try:
        # A TLS stream returns one record of 16 KiB at a time, unless it is asked for many.
        receive = getattr(stream, "receive_many", None) or stream.receive_some
        return bytes(await receive(CHUNK))
    except GONE:
        return b""


async def copy_both(left: trio.abc.Stream, right: trio.abc.Stream, *, draining: trio.Event) -> None:
    """Copy until either side has ended or the server drains, as kube-apiserver's proxy of upgraded connections does.

    Closes neither stream. By then it has sent on all bytes that came before that end.
    """
    async with trio.open_nursery() as nursery:

        async def copy(source: trio.abc.Stream, target: trio.abc.Stream) -> None:
            while data := await receive_or_end(source):
                try:
                    await target.send_all(data)
                except GONE:
                    break
            nursery.cancel_scope.cancel()

        nursery.start_soon(copy, left, right)
        nursery.start_soon(copy, right, left)
        await draining.wait()
        nursery.cancel_scope.cancel()
