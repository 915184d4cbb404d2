"""One call of the gRPC client: messages in both directions over a stream of HTTP/2. See channel.py."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Final
from urllib.parse import unquote

import trio

from kubechronicle.http.outgoing.calls import Call
from kubechronicle.http.outgoing.keep_alive import DISCONNECTED, BadAnswer
from kubechronicle.http.outgoing.multiplexed import SLACK, Multiplexed
from kubechronicle.http.wire.http2.answers import AnswerHead
from kubechronicle.http.wire.http2.frames import ErrorCode, error_name
from kubechronicle.http.wire.http2.headers import Entry
from kubechronicle.http.wire.work import PASS, Work

# -- errors ------------------------------------------------------------------------------------------------------------
#
# The statuses of gRPC (doc/statuscodes.md of the gRPC documentation), and the error of a call.


CODES: Final = (
    "OK", "Canceled", "Unknown", "InvalidArgument", "DeadlineExceeded", "NotFound", "AlreadyExists",
    "PermissionDenied", "ResourceExhausted", "FailedPrecondition", "Aborted", "OutOfRange", "Unimplemented", "Internal",
    "Unavailable", "DataLoss", "Unauthenticated",
)  # fmt: skip
"""Names of the status codes, by number, as grpc-go prints them."""

# The codes for answers without a grpc-status, by HTTP status (doc/http-grpc-status-mapping.md).
HTTP_CODES: Final = {
    400: "Internal",
    401: "Unauthenticated",
    403: "PermissionDenied",
    404: "Unimplemented",
    429: "Unavailable",
    502: "Unavailable",
    503: "Unavailable",
    504: "Unavailable",
}


class GrpcError(Exception):
    """A call without a result. Its text is that of grpc-go.

    ``code``: one of CODES.
    ``message``: the server's, or the reason on this side.
    """

    def __init__(self, code: str, message: str) -> None:
        super().__init__(f"rpc error: code = {code} desc = {message}")
        self.code = code
        self.message = message


MAX_MESSAGE: Final = 4 * 1024 * 1024
"""Bytes of a received message (grpc-go: defaultClientMaxReceiveMessageSize)."""
WINDOW: Final = MAX_MESSAGE + SLACK
"""Bytes that the server may send before the caller has taken them: a whole message."""
CREDIT: Final = SLACK // 2
"""Bytes that are credited at once. Fewer that are not leave room for a whole message."""
MESSAGE: Final = 25
"""Units of work (http/wire/work.py) of a message, with the reader's."""
_PREFIX: Final = struct.Struct(">BI")  # compressed or not, length
_OF_RESET: Final[Mapping[int, str]] = {
    ErrorCode.REFUSED_STREAM: "Unavailable",
    ErrorCode.CANCEL: "Canceled",
    ErrorCode.ENHANCE_YOUR_CALM: "ResourceExhausted",
    ErrorCode.INADEQUATE_SECURITY: "PermissionDenied",
}
"""The codes of streams that the server reset (doc/PROTOCOL-HTTP2.md, "HTTP2 Transport Mapping")."""


class GrpcStream(Call):
    """A call, for one sending and one receiving task."""

    def __init__(self, connection: Multiplexed) -> None:
        super().__init__(WINDOW)
        self._connection = connection
        self._buffer = bytearray()
        self._taken = 0  # bytes that the server may send in place of those that were received
        self._error: GrpcError | None = None
        self._has_status = False  # the server has sent the status
        self._changed = trio.Event()
        self._work = Work()

    async def send(self, message: bytes) -> None:
        """Send a message. GrpcError: the call has failed."""
        await self._send(_PREFIX.pack(0, len(message)) + message, end=False)

    async def finish(self) -> None:
        """Tell the server that no further messages follow."""
        await self._send(b"", end=True)

    async def _send(self, data: bytes, *, end: bool) -> None:
        await self._connection.send(self, data, end=end)
        if self._error is not None:  # without one, the server has ended the call already: receive() raises it
            raise self._error
        await trio.lowlevel.checkpoint_if_cancelled()

    async def receive(self) -> bytes | None:
        """Return the next message; None: the server has ended the call with OK. GrpcError: with another status."""
        if self._work.left < 0:  # messages that are there already are returned without a wait
            await self._work.rest()
        self._work.left -= MESSAGE
        while True:
            message = self._message()
            if message is not None:
                return message
            if self.over or self._has_status:
                if self._error is not None:
                    raise self._error
                if self._buffer:
                    raise GrpcError("Internal", "the call ended in the middle of a message")
                return None
            await self._changed.wait()
            self._work.left = PASS

    def _message(self) -> bytes | None:
        """Take the next whole message from the buffer."""
        if len(self._buffer) < _PREFIX.size:
            return None
        compressed, length = _PREFIX.unpack_from(self._buffer)
        if compressed or length > MAX_MESSAGE:
            error = GrpcError("ResourceExhausted", f"received message larger than max ({length} vs. {MAX_MESSAGE})")
            if compressed:
                error = GrpcError("Unimplemented", "compressed messages are not supported")
            self._end_with(error)
            raise error
        end = _PREFIX.size + length
        if len(self._buffer) < end:
            return None
        message = bytes(self._buffer[_PREFIX.size : end])
        del self._buffer[:end]
        self._taken += end
        if self._taken >= CREDIT:
            self._connection.credit(self, self._taken)
            self._taken = 0
        return message

    # -- for the connection -------------------------------------------------------------------------------------------

    def begin(self, head: AnswerHead, size: int) -> None:
        """Take the head of the answer, which has the status as well if there is no message."""
        if head.status < 200:
            self._frame(size)
            return
        self.head = head
        if "grpc-status" in head.headers:
            self._take_status(head.headers)
            return
        content = head.headers.get("content-type", "")
        if head.status != 200 or not content.startswith("application/grpc"):
            code = HTTP_CODES.get(head.status, "Unknown")
            text = f'unexpected HTTP status code received from server: {head.status}; content-type "{content}"'
            self._end_with(GrpcError(code, text))

    def take(self, data: bytes) -> None:
        """Take a part of messages."""
        self._buffer += data
        if len(self._buffer) > WINDOW:
            self._end_with(GrpcError("Internal", "the server sent more than it may"))
        self._notify()

    def trailer(self, fields: Sequence[Entry]) -> None:
        """Take the status after the messages."""
        self._take_status({name: value for (name, value), _, _ in fields})

    def end(self) -> None:
        self.ended = True
        if self._has_status:
            super().end()
            self._notify()
        else:
            self._end_with(GrpcError("Internal", "server closed the stream without sending trailers"))

    def was_reset(self, code: int) -> None:
        self._end_with(
            GrpcError(
                _OF_RESET.get(code, "Internal"), f"stream terminated by RST_STREAM with error code: {error_name(code)}"
            )
        )

    def fail(self, failure: BadAnswer) -> None:
        """End the call, as the connection has failed."""
        why = str(failure)
        self._end_with(GrpcError("Unavailable", f"error reading from server: {'EOF' if why == DISCONNECTED else why}"))

    def _take_status(self, fields: Mapping[str, str]) -> None:
        number = fields.get("grpc-status")
        if number is None or self._has_status:
            return
        self._has_status = True
        code = CODES[int(number)] if number.isdigit() and int(number) < len(CODES) else f"Code({number})"
        if code != "OK" and self._error is None:
            self._error = GrpcError(code, unquote(fields.get("grpc-message", "")))

    def _end_with(self, error: GrpcError) -> None:
        """End the call, unless it has ended, and wake its tasks."""
        if not self._has_status and self._error is None:
            self._error = error
        self.over = True
        self.wake()
        self._notify()

    def _notify(self) -> None:
        changed, self._changed = self._changed, trio.Event()
        changed.set()
