"""One request on an HTTP/2 connection of ours, and what has come of its answer. See multiplexed.py."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence

import trio

from kubechronicle.http.outgoing.answers import MAX_HEADERS
from kubechronicle.http.outgoing.keep_alive import BadAnswer, Received
from kubechronicle.http.wire.http2.answers import AnswerHead
from kubechronicle.http.wire.http2.frames import ErrorCode, error_name
from kubechronicle.http.wire.http2.headers import Entry


class Unprocessed(BadAnswer):
    """The server has not taken the request, which may be sent again (RFC 9113 §8.7)."""

    def __init__(self, why: str) -> None:
        super().__init__(why, broken=True)


class Call:
    """A request. One task waits for its answer.

    ``number``: of its stream. ``window``: bytes that the server takes of its body. ``reads``: those of the connection
    when it began.
    ``head``: of the answer. ``sent``: the whole request is in the output. ``ended``: the server has ended the answer.
    ``reset``: it has reset the stream, or never took it. ``over``: the task has nothing to wait for any more.
    """

    head: AnswerHead | None = None
    sent = ended = reset = over = False
    _framing = _size = 0
    _failure: BadAnswer | None = None
    _task: trio.lowlevel.Task | None = None

    def __init__(self, limit: int) -> None:
        self.number = self.window = self.reads = 0  # the connection sets them
        self._limit = limit
        self._body: list[bytes] = []

    @property
    def unusable(self) -> bool:
        """True if something else came than an answer."""
        return self._failure is not None and not self._failure.late

    def wait(self) -> Awaitable[object]:
        """Wait for ``wake``. Await the result at once."""
        self._task = trio.lowlevel.current_task()
        return trio.lowlevel.wait_task_rescheduled(self._abort)  # noqa: ASYNC105 - a coroutine more would cost time

    def _abort(self, _: object) -> trio.lowlevel.Abort:
        self._task = None
        return trio.lowlevel.Abort.SUCCEEDED

    def wake(self) -> None:
        task, self._task = self._task, None
        if task is not None:
            trio.lowlevel.reschedule(task)

    def received(self) -> Received:
        """Return the answer. BadAnswer: it cannot be used."""
        if self._failure is not None:
            raise self._failure
        head = self.head
        if head is None or head.length not in (None, self._size):
            raise BadAnswer("unexpected EOF", broken=True)
        return Received(head.status, head.headers, self._body[0] if len(self._body) == 1 else b"".join(self._body))

    def close_nowait(self) -> None:
        """End the call at its deadline."""
        self.fail(BadAnswer("", broken=True, late=True))

    # -- for the connection -------------------------------------------------------------------------------------------

    def begin(self, head: AnswerHead, size: int) -> None:
        """Take the head of the answer (``size``: its bytes), or an interim one, which is ignored."""
        if head.status >= 200:
            self.head = head
        elif head.status == 101:
            self.fail(BadAnswer("the answer changes the protocol"))
        else:
            self._frame(size)

    def take(self, data: bytes) -> None:
        """Take a part of the body."""
        if self.head is None:
            self.fail(BadAnswer("malformed HTTP response"))
        elif not data:
            self._frame(0)
        else:
            self._body.append(data)
            self._size += len(data)
            if self._size > self._limit:
                self._body.clear()
                self.fail(BadAnswer(f"the answer has more than {self._limit} bytes"))

    def _frame(self, size: int) -> None:
        """Count a frame that brings the answer no further."""
        self._framing += size + 16
        if self._framing > MAX_HEADERS:
            self.fail(BadAnswer("the header of the answer is too long"))

    def trailer(self, fields: Sequence[Entry]) -> None:
        """Take the fields after the body, which mean nothing here."""

    def end(self) -> None:
        self.ended = self.over = True
        self.wake()

    def was_reset(self, code: int) -> None:
        """End the call, as the server has reset its stream."""
        if code == ErrorCode.REFUSED_STREAM:
            self.fail(Unprocessed("the server refused the request"))
        elif not self.ended:
            why = f"stream error: stream ID {self.number}; {error_name(code)}; received from peer"
            self.fail(BadAnswer(why, broken=True))

    def fail(self, failure: BadAnswer) -> None:
        """End the call without an answer, unless it is over."""
        if not self.over:
            self._failure, self.over = failure, True
            self.wake()
