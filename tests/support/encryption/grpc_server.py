"""A gRPC server on h2 and Trio, for tests of clients. The last part of a call's path says what it does.

Echo      sends each message back, and ends with OK after the client has; so does Export
Fail      answers with status 7 (PermissionDenied) and a message
Hang      never answers
Ignore    never opens the client's window
Http      answers like a server that knows no gRPC
Reset     resets the stream
Goodbye   echoes, and announces the end of the connection
Cut       closes the connection

Other calls are answered by the functions in ``unary``.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from contextlib import suppress

import trio
from h2 import events
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.errors import ErrorCodes
from h2.exceptions import ProtocolError
from hyperframe.frame import GoAwayFrame

ECHOED = ("Echo", "Goodbye", "Export")


class GrpcServer:
    """``connections``: opened so far. ``calls``: the paths of the calls, with their headers. ``messages``: all bytes of
    those that are sent back, with the five bytes before each message. ``unary``: answers to one message, by the last
    part of the path."""

    def __init__(self) -> None:
        self.unary: dict[str, Callable[[bytes], bytes]] = {}
        self.connections = 0
        self.messages = bytearray()
        self._goodbye = b""  # bytes of a GOAWAY frame, which h2 would take for the end of all streams
        self.calls: list[tuple[str, dict[str, str]]] = []

    async def serve(self, path: str, *, task_status: trio.TaskStatus[None]) -> None:
        """Listen on a Unix socket until cancelled."""
        listener = trio.socket.socket(trio.socket.AF_UNIX)
        with listener:
            await listener.bind(path)
            listener.listen()
            task_status.started()
            await trio.serve_listeners(self._handle, [trio.SocketListener(listener)])

    async def _handle(self, stream: trio.SocketStream) -> None:
        self.connections += 1
        h2 = H2Connection(H2Configuration(client_side=False, header_encoding="utf-8"))
        h2.initiate_connection()
        await stream.send_all(h2.data_to_send())
        paths: dict[int, str] = {}
        unsent: defaultdict[int, bytearray] = defaultdict(bytearray)
        finished: set[int] = set()
        try:
            while data := await stream.receive_some(65536):
                for event in h2.receive_data(data):
                    number = getattr(event, "stream_id", None) or 0
                    if isinstance(event, events.RequestReceived):
                        headers = {str(name): str(value) for name, value in event.headers or ()}
                        paths[number] = headers[":path"].rpartition("/")[2]
                        self.calls.append((headers[":path"], headers))
                        if not self._begin(h2, number, paths[number]):
                            await stream.aclose()
                            return
                    elif isinstance(event, events.DataReceived) and paths[number] in (*ECHOED, *self.unary):
                        unsent[number] += event.data or b""
                        self.messages += event.data or b""
                        with suppress(ProtocolError):
                            h2.acknowledge_received_data(event.flow_controlled_length or 0, number)
                    elif isinstance(event, events.DataReceived) and event.flow_controlled_length:
                        h2.increment_flow_control_window(event.flow_controlled_length)  # of the connection alone
                    elif isinstance(event, events.StreamEnded):
                        finished.add(number)
                        if paths[number] in self.unary:
                            answer = self.unary[paths[number]](bytes(unsent[number][5:]))
                            unsent[number] = bytearray(b"\0" + len(answer).to_bytes(4, "big") + answer)
                    elif isinstance(event, events.StreamReset):
                        unsent.pop(number, None)
                for number in [each for each in unsent if paths[each] in ECHOED or each in finished]:
                    with suppress(ProtocolError):
                        self._send(h2, number, unsent, ended=number in finished)
                await stream.send_all(h2.data_to_send() + self._goodbye)
                self._goodbye = b""
        except (OSError, trio.BrokenResourceError):
            return

    def _begin(self, h2: H2Connection, number: int, what: str) -> bool:
        """Answer the headers of a call. False: cut the connection."""

        def answer(headers: list[tuple[str, str]], *, end_stream: bool = False) -> None:
            with suppress(ProtocolError):  # reset by the client, in the same bytes
                h2.send_headers(number, headers, end_stream=end_stream)

        if what in ECHOED or what in self.unary:
            answer([(":status", "200"), ("content-type", "application/grpc")])
        elif what == "Fail":
            trailers = [("grpc-status", "7"), ("grpc-message", "not for you: 100%25")]
            answer([(":status", "200"), ("content-type", "application/grpc"), *trailers], end_stream=True)
        elif what == "Http":
            answer([(":status", "404"), ("content-type", "text/plain")], end_stream=True)
        elif what == "Reset":
            h2.reset_stream(number, ErrorCodes.REFUSED_STREAM)
        if what == "Goodbye":
            self._goodbye = GoAwayFrame(last_stream_id=number).serialize()
        return what != "Cut"

    def _send(self, h2: H2Connection, number: int, unsent: dict[int, bytearray], *, ended: bool) -> None:
        data = unsent[number]
        while data and (room := min(h2.local_flow_control_window(number), h2.max_outbound_frame_size)) > 0:
            h2.send_data(number, bytes(data[:room]))
            del data[:room]
        if ended and not data:
            h2.send_headers(number, [("grpc-status", "0")], end_stream=True)
            del unsent[number]
