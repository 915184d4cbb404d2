"""The audit filter: the events of one request, around the steps that serve it.

    RequestReceived     before anything else
    ResponseStarted     for watches and streams: before the first byte of the answer
    ResponseComplete    when the answer is made; for one that is a stream, or a long list in mode batch, when it is sent
    Panic               instead, after a bug of this server

In a blocking mode, a request waits for its events. The end of a stream does not: its connection may be gone.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any, Final

import orjson
import trio

from kubechronicle.api.audit.events import Payload
from kubechronicle.api.audit.policy import COMPLETE, PANIC, RECEIVED, STARTED
from kubechronicle.api.codecs import protobuf
from kubechronicle.api.codecs.errors import CodecError, NotAcceptableError
from kubechronicle.api.errors import status
from kubechronicle.api.errors.status import StatusError
from kubechronicle.eventlog.request_parts import CURRENT, WRITE
from kubechronicle.http.audit.audit import Audit
from kubechronicle.http.audit.record import (
    REQUEST_RESPONSE,
    RequestAudit,
    code_status,
    error_payload,
    error_status,
    response_payload,
    shown_status,
)
from kubechronicle.http.context import Context, Step
from kubechronicle.http.errors import as_status_error
from kubechronicle.http.list_body import ListBody
from kubechronicle.http.messages import ClientDisconnected, HeaderList, Request, Response, Upgrade
from kubechronicle.http.representation.answers import internal_error_text
from kubechronicle.http.wire.exchange import close_iterator

NOT_STORED: Final = "failed to store audit event"
CLOSED_EARLY: Final = b'{"metadata":{},"status":"Success","message":"Connection closed early","code":200}'
LATENCY: Final = "apiserver.latency.k8s.io/"
SLOW: Final = 0.5
"""Seconds from which an event tells how long the request took."""
_JSON_STATUS: Final = b'{"kind":"Status","apiVersion":"v1"'
_PROTOBUF_STATUS: Final = b"k8s\x00\n\x0c\n\x02v1\x12\x06Status"
_STATUSES: Final = (_JSON_STATUS, _PROTOBUF_STATUS)


def audited(audit: Audit, following: Step) -> Step:
    """Return the step that records requests around ``following``."""

    def filtered(request: Request, context: Context) -> Awaitable[Response]:
        record = audit.begin(request, context)
        return following(request, context) if record is None else recorded(request, context, record)

    async def recorded(request: Request, context: Context, record: RequestAudit) -> Response:
        decision = record.decision
        if decision.received:
            event = record.event(RECEIVED, record.received)
            if not audit.blocking:
                audit.offer(event)
            elif not await audit.deliver(event):
                audit.metrics.rejected += 1
                return internal_error_text(request, NOT_STORED)
        long_running = context.long_running
        served = None
        if long_running:
            served = _Served(audit, record, context)
            served.watch_switches(request)
        if context.parts is None:  # a read
            context.parts = record
            CURRENT.set(record)  # it stays until the next request of this task: to reset it takes as long
        try:
            response = await following(request, context)
        except Exception as error:
            await (served or _Served(audit, record, context)).failed(error)
            raise
        except BaseException:  # cancelled: too late, or the client is gone
            served = served or _Served(audit, record, context)
            served.cut(late=request.exchange.overdue or trio.current_time() >= context.deadline)
            raise
        if response.body.__class__ is bytes and served is None:
            if decision.complete:
                now = time.time()
                if (
                    decision.rank < REQUEST_RESPONSE
                    and record.late is None
                    and now - record.received <= SLOW
                    and not response.body.startswith(_STATUSES)
                ):
                    record.moment, record.status = now, code_status(response.status)
                else:
                    finish(record, context, *_shown(record, response))
                if audit.blocking:
                    await audit.deliver(record)
                elif audit.only is None:
                    audit.offer(record)
                else:  # as offer does, without a call
                    audit.metrics.events += 1
                    audit.only.offer(record)
            return response
        return await (served or _Served(audit, record, context)).answered(response)

    return filtered


class _Served:
    """A recorded request, from its answer on."""

    __slots__ = ("_audit", "_context", "_has_started", "_long_running", "_record")

    def __init__(self, audit: Audit, record: RequestAudit, context: Context) -> None:
        self._audit = audit
        self._record = record
        self._context = context
        self._long_running = context.long_running
        self._has_started = False

    def watch_switches(self, request: Request) -> None:
        """Record the moment at which the handler switches protocols: only later it returns."""
        if request.upgrade is not None:
            request.upgrade = _NotedUpgrade(request.upgrade, self.switched)

    async def switched(self) -> None:
        await self._started(code_status(101))

    async def _started(self, shown: bytes, payload: Payload | None = None) -> None:
        if self._long_running and self._record.decision.started and not self._has_started:
            self._has_started = True
            await self._audit.deliver(self._record.event(STARTED, time.time(), status=shown, response=payload))

    async def answered(self, response: Response) -> Response:
        """Record an answer. Returns it, its body wrapped if it is a stream."""
        body = response.body
        if not isinstance(body, bytes | ListBody):
            shown = code_status(response.status)
            await self._started(shown)
            response.body = _Recorded(body, self, shown)
            return response
        shown, payload = _shown(self._record, response)
        await self._started(shown, payload)
        if isinstance(body, ListBody) and not self._audit.blocking:
            self._complete_when_sent(body, shown, payload)
        else:
            await self._complete(shown, payload)
        return response

    def _complete_when_sent(self, body: ListBody, shown: bytes, payload: Payload | None) -> None:
        """Record the end of a long list when it is sent or given up, with the seconds that this took."""
        before, began = body.when_closed, time.time()

        def closed() -> None:
            if before is not None:
                before()
            if self._context.parts is not None:
                self._context.parts.add(WRITE, time.time() - began)
            self.ended(shown, payload)

        body.when_closed = closed

    async def failed(self, error: Exception) -> None:
        """Record an answer that is an error; a bug as a panic."""
        if isinstance(error, ClientDisconnected):
            self.cut(late=False)
            return
        known = error if isinstance(error, StatusError) else as_status_error(error)
        if known is None:
            known = status.internal_error("").with_message(f"APIServer panic'd: {error!r}")
            if self._record.decision.panic:
                await self._audit.deliver(self._record.event(PANIC, time.time(), status=error_status(known)))
            return
        if isinstance(error, NotAcceptableError) and error.at_route:  # its answer is a text
            shown, payload = code_status(known.code), None
        else:
            shown, payload = error_status(known), error_payload(self._record, known)
        await self._started(shown, payload)
        await self._complete(shown, payload)

    def cut(self, *, late: bool) -> None:
        """Record a request that has no answer. ``late``: its time is over."""
        shown: bytes = CLOSED_EARLY
        if late:
            shown = error_status(status.RequestTimedOut())
        self.ended(shown)

    def ended(self, shown: bytes, payload: Payload | None = None) -> None:
        """Record the end, without waiting."""
        if self._record.decision.complete:
            finish(self._record, self._context, shown, payload)
            self._audit.offer(self._record)

    async def _complete(self, shown: bytes, payload: Payload | None) -> None:
        if not self._record.decision.complete:
            return
        finish(self._record, self._context, shown, payload)
        if self._audit.blocking:
            await self._audit.deliver(self._record)
        else:
            self._audit.offer(self._record)


def _shown(record: RequestAudit, response: Response) -> tuple[bytes, Payload | None]:
    """Return the status and the object of an answer that is no stream."""
    body, code = response.body, response.status
    shown = code_status(code)
    if isinstance(body, bytes) and body.startswith(_STATUSES):
        shown = shown_status(_status_of(body), code)
    if record.decision.rank < REQUEST_RESPONSE or not body:
        return shown, None
    return shown, response_payload(body, response.headers)


def finish(record: RequestAudit, context: Context, shown: bytes, payload: Payload | None) -> None:
    """Note the facts of the last event. ``shown``: its status. ``payload``: the object of the answer."""
    now = time.time()
    if record.late is not None:
        for key, value in record.late.items():
            record.annotate(key, value)
    if now - record.received > SLOW:
        for name, seconds in _latencies(context, now - record.received).items():
            if seconds:
                record.annotate(f"{LATENCY}{name}", go_seconds(seconds))
    record.finish(COMPLETE, now, shown, payload)


def _latencies(context: Context, total: float) -> dict[str, float]:
    """Return the seconds of the parts of a request that have ended."""
    return {
        "authentication": context.authenticated,
        "impersonation": context.impersonated,
        "authorization": context.authorized,
        "apf-queue-wait": context.waited,
        **(context.parts.seconds if context.parts is not None else {}),
        "total": total,
    }


def go_seconds(seconds: float) -> str:
    """Return up to a minute as Go prints such a duration: ``1.234567s``, ``600.123ms``, ``12.5µs``."""
    for unit, factor in (("s", 1.0), ("ms", 1e3)):
        if seconds * factor >= 1:
            return f"{seconds * factor:.6f}".rstrip("0").rstrip(".") + unit
    return f"{seconds * 1e6:.3f}".rstrip("0").rstrip(".") + "µs"


def _status_of(body: bytes) -> Mapping[str, Any]:
    try:
        found = orjson.loads(body) if body.startswith(b"{") else protobuf.decode(body)
    except (ValueError, CodecError):
        return {}
    return found if isinstance(found, dict) else {}


class _Recorded:
    """The body of a streamed answer. Its end is recorded when it is closed. Returns the body's own awaitables."""

    def __init__(self, body: AsyncIterator[bytes], served: _Served, shown: bytes) -> None:
        self._body = body
        self._served = served
        self._shown = shown
        self._open = True

    def __aiter__(self) -> _Recorded:
        return self

    def __anext__(self) -> Awaitable[bytes]:
        return self._body.__anext__()

    async def aclose(self) -> None:
        if not self._open:
            return
        self._open = False
        self._served.ended(self._shown)
        await close_iterator(self._body)


class _NotedUpgrade:
    """An upgrade that reports when the connection is taken over."""

    def __init__(self, upgrade: Upgrade, switched: Callable[[], Awaitable[None]]) -> None:
        self._upgrade = upgrade
        self._switched = switched

    @property
    def protocol(self) -> str:
        return self._upgrade.protocol

    async def take_over(self) -> trio.abc.HalfCloseableStream:
        await self._switched()
        return await self._upgrade.take_over()

    async def accept(self, headers: HeaderList = ()) -> trio.abc.HalfCloseableStream:
        await self._switched()
        return await self._upgrade.accept(headers)
