"""The filter that counts requests and their durations by verb, resource and code. A watch is counted when it ends."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Final

from prometheus_client import Gauge

from kubechronicle.api.meta.request_info import RequestInfo
from kubechronicle.eventlog.histograms import MOST_NOTED
from kubechronicle.eventlog.request_parts import CURRENT, Parts
from kubechronicle.http.context import Context, Step
from kubechronicle.http.errors import code_of
from kubechronicle.http.list_body import ListBody
from kubechronicle.http.messages import ClientDisconnected, Request, Response
from kubechronicle.http.metrics import Metrics
from kubechronicle.http.request_metrics import NOT_SERVED, RequestLabels, Series, request_labels
from kubechronicle.http.slow_requests import SlowRequests
from kubechronicle.http.wire.exchange import close_iterator

SLOW: Final = 0.5
"""Seconds from which a request is written to the server's log, as kube-apiserver writes traces."""
BODIES: Final = frozenset({"POST", "PUT", "PATCH", "DELETE"})
"""Methods whose bodies are counted."""
VALIDATED: Final = frozenset({"POST", "PUT", "PATCH"})


def measured(metrics: Metrics, is_served: Callable[[RequestInfo], bool], following: Step) -> Step:
    """Return the filter. ``is_served``: tells if the resource and subresource of a request exist."""

    slow = SlowRequests()

    async def filtered(request: Request, context: Context) -> Response:
        started = time.perf_counter()
        metrics.noted += 1
        if metrics.noted >= MOST_NOTED:
            metrics.fold()
        info = context.info
        if info.is_resource and not is_served(info):
            labels = NOT_SERVED  # clients must not create metric series by requesting unknown resources
        else:
            labels = request_labels(info, request.method, dry_run="dryRun" in context.query)
        series = metrics.requests(labels)
        token = None
        if request.method in BODIES:
            context.parts = parts = Parts()
            token = CURRENT.set(parts)
            length = request.headers.first.get("content-length", "")
            if length.isdecimal():
                series.bodies.note(int(length))
        taken = None
        if request.upgrade is not None and context.long_running:  # the handler converses until it returns
            taken = metrics.long_running(labels)
            taken.inc()
        try:
            response = await following(request, context)
        except ClientDisconnected:
            raise
        except Exception as error:
            code = code_of(error)
            seconds = time.perf_counter() - started
            series.observe(code, seconds, 0, _excluded(context))
            if seconds > SLOW:
                slow.note(request, context, code, seconds)
            if context.terminated:
                series.terminated(code)
            raise
        finally:
            if token is not None:
                CURRENT.reset(token)
            if taken is not None:
                taken.dec()
        _count(metrics, slow, request, context, labels, series, response, started)
        return response

    return filtered


def _count(
    metrics: Metrics,
    slow: SlowRequests,
    request: Request,
    context: Context,
    labels: RequestLabels,
    series: Series,
    response: Response,
    started: float,
) -> None:
    """Count an answer. One with a stream is counted when that ends."""
    body = response.body
    if isinstance(body, bytes):
        seconds = time.perf_counter() - started
        series.observe(response.status, seconds, len(body), _excluded(context))
        if request.method in VALIDATED and context.info.is_resource:
            validated = metrics.validations.get(context.query.get("fieldValidation"))
            if validated is not None:
                validated.note(seconds)
        if seconds > SLOW and request.upgrade is None:
            slow.note(request, context, response.status, seconds)
        if context.terminated:
            series.terminated(response.status)
    elif isinstance(body, ListBody):
        series.observe(response.status, time.perf_counter() - started, body.length, _excluded(context))
    else:
        gauge = metrics.long_running(labels)
        response.body = _Counted(body, gauge, series, response.status)


def _excluded(context: Context) -> float:
    """Return the seconds of a request that the service level indicator leaves out: in queues, and for webhooks."""
    parts = context.parts
    return context.waited if parts is None or parts.added is None else context.waited + parts.webhooks


class _Counted:
    """A streamed body, counted as a long-running request until it is closed. Returns the body's own awaitables, so that
    the iteration has no additional step."""

    def __init__(self, body: AsyncIterator[bytes], gauge: Gauge, series: Series, code: int) -> None:
        self._body = body
        self._gauge, self._series, self._code = gauge, series, code
        self._gauge.inc()
        self._open = True

    def __aiter__(self) -> _Counted:
        return self

    def __anext__(self) -> Awaitable[bytes]:
        return self._body.__anext__()

    async def aclose(self) -> None:
        if not self._open:
            return
        self._open = False
        self._gauge.dec()
        self._series.ended(self._code)
        await close_iterator(self._body)
