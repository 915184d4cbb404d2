"""The outer filters of the chain: rejection while the server stops, fields for browsers, and the Context of a request.

Every answer passes them. ``attach_context`` is the only place of this folder that catches Exception.
"""

from __future__ import annotations

import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final
from urllib.parse import unquote

import re2
from prometheus_client import Gauge

from kubechronicle.actors.writing.targets import new_uid
from kubechronicle.api.codecs import budget
from kubechronicle.api.codecs.negotiate import WITHOUT_CBOR, Formats
from kubechronicle.api.errors import status
from kubechronicle.api.errors.status import StatusError
from kubechronicle.api.history.reasons import PREFIX as BECAUSE
from kubechronicle.api.history.reasons import split_reason
from kubechronicle.api.meta.path_prefixes import BRANCH, HISTORY
from kubechronicle.api.meta.request_info import Query, RequestInfo, resolve, split_branch, split_moment
from kubechronicle.eventlog.measures import MOST_NOTED
from kubechronicle.eventlog.request_parts import CURRENT, Parts
from kubechronicle.http.context import Context, Step
from kubechronicle.http.errors import as_status_error, code_of
from kubechronicle.http.handlers.drain import Drain
from kubechronicle.http.list_body import ListBody
from kubechronicle.http.messages import ClientDisconnected, Request, Response
from kubechronicle.http.metrics import Metrics
from kubechronicle.http.representation.answers import status_response, undetermined_request, warning_fields
from kubechronicle.http.request_metrics import NOT_SERVED, RequestLabels, Series, request_labels
from kubechronicle.http.slow_requests import SlowRequests
from kubechronicle.http.wire.exchange import close_iterator

log = logging.getLogger(__name__)

Next = Callable[[Request], Awaitable[Response]]

CORS_FIELDS: Final = (
    ("access-control-allow-methods", "POST, GET, OPTIONS, PUT, DELETE, PATCH"),
    (
        "access-control-allow-headers",
        "Content-Type, Content-Length, Accept-Encoding, X-CSRF-Token, Authorization, X-Requested-With, "
        "If-Modified-Since",
    ),
    ("access-control-expose-headers", "Date"),
    ("access-control-allow-credentials", "true"),
)
# Subresources that stream: no time-out, no limit of requests in flight.
LONG_RUNNING_SUBRESOURCES = frozenset({"attach", "exec", "proxy", "log", "portforward"})
RETRY_AFTER: Final = "5"
STOPPING: Final = b"The apiserver is shutting down, please try again later.\n"
ALWAYS_ANSWERED: Final = ("/readyz", "/livez", "/healthz", "/metrics")
"""Prefixes of paths that are answered while the server stops."""


@dataclass(frozen=True, slots=True)
class EdgeSettings:
    """``origins``: RE2 patterns of the origins that may use the API from a browser (CORS); none: no origin may.
    ``hsts``: directives of Strict-Transport-Security (RFC 6797).
    ``retry_after``: reject new requests while the server stops, until the running ones are answered."""

    origins: tuple[str, ...] = ()
    hsts: tuple[str, ...] = ()
    retry_after: bool = False


def require_tls(directives: Sequence[str], following: Next) -> Next:
    """Tell browsers to use TLS alone (Strict-Transport-Security, RFC 6797)."""
    if not directives:
        return following
    added = [("strict-transport-security", "; ".join(directives))]

    async def filtered(request: Request) -> Response:
        response = await following(request)
        response.headers.extend(added)
        return response

    return filtered


def allow_origins(origins: Sequence[str], following: Next) -> Next:
    """Let scripts of these origins use the API (Fetch Standard §3.2). Preflight requests need no credential."""
    if not origins:
        return following
    patterns = [re2.compile(origin) for origin in origins]

    async def filtered(request: Request) -> Response:
        origin = request.headers.get("origin")
        if not origin or not any(pattern.search(origin) for pattern in patterns):
            return await following(request)
        fields = [("access-control-allow-origin", origin), *CORS_FIELDS]
        if request.method == "OPTIONS":
            return Response(204, fields)
        response = await following(request)
        response.headers.extend(fields)
        return response

    return filtered


def refuse_while_stopping(drain: Drain | None, following: Next) -> Next:
    """Answer 429 to new requests while the server stops, so that clients ask another one. ``drain``: None if not."""
    if drain is None:
        return following

    def filtered(request: Request) -> Awaitable[Response]:
        if request.path.startswith(ALWAYS_ANSWERED):
            return following(request)
        return rejected() if drain.rejecting else counted(request)

    async def counted(request: Request) -> Response:
        if request.upgrade is not None:
            return await following(request)
        drain.enter()
        try:
            return await following(request)
        finally:
            drain.leave()

    async def rejected() -> Response:
        fields = [
            ("retry-after", RETRY_AFTER),
            ("content-type", "text/plain; charset=utf-8"),
            ("x-content-type-options", "nosniff"),
        ]
        return Response(429, fields, STOPPING)

    return filtered


class Headroom:
    """Looks now and then whether budget.MARGIN can be allocated; at each call, while it cannot. Logs the change."""

    def __init__(self) -> None:
        self._calls = 0
        self._short = False

    def check(self) -> None:
        """Raise MemoryError without headroom."""
        self._calls += 1
        if self._calls < budget.EVERY:
            return
        try:
            budget.require(budget.MARGIN)
        except MemoryError:
            if not self._short:
                log.error("out of memory: requests are answered with 503 until %d MiB are free", budget.MARGIN >> 20)
            self._short = True
            raise
        if self._short:
            log.warning("there is memory again")
        self._calls, self._short = 0, False


def attach_context(following: Step, formats: Formats = WITHOUT_CBOR) -> Next:
    """Attach the context, and turn errors into Status answers; a bug into a 500 and a traceback in the log. Without
    memory, answer 503."""
    headroom = Headroom()

    async def filtered(request: Request) -> Response:
        context = None
        try:
            headroom.check()
            context = identify(request)
            context.formats = formats
            response = undetermined_request(request) if context.info.undetermined else await following(request, context)
            response.headers.append(("audit-id", context.audit_id))
            response.headers.extend(context.flow_headers)
            if context.warnings:
                response.headers.extend(("warning", text) for text in warning_fields(context.warnings))
        except StatusError as error:
            if context is None:
                return status_response(request, error)
            context.warnings.extend(error.warnings)
            response = status_response(request, error)
            response.headers.extend(context.flow_headers)
        except ClientDisconnected:
            raise
        except Exception as error:
            known = as_status_error(error)
            if known is None:
                log.exception("%s %s failed", request.method, request.raw_path)
                known = status.internal_error("the server met an unexpected condition; its log tells which")
            return status_response(request, known)
        return response

    return filtered


def identify(request: Request) -> Context:
    """Attach the context: the request's id, and the information in its path and query."""
    query = Query(request.query_string)
    prefixes = None if request.path.startswith("/api") else _split_prefixes(request)
    info = resolve(request.method, request.path, query)
    audit_id = request.headers.first.get("audit-id") or new_uid()
    context = Context(info=info, query=query, audit_id=audit_id, received=time.time())
    if prefixes is not None:
        context.reason, context.branch, context.moment = prefixes
    if info.verb == "watch" or info.subresource in LONG_RUNNING_SUBRESOURCES:
        context.long_running = True
    request.attach(context)
    return context


def _split_prefixes(request: Request) -> tuple[str, str, str]:
    """Return the reason, the branch and the moment in the path of a request, and remove them from it."""
    reason = branch = moment = ""
    if request.raw_path.startswith(BECAUSE):  # the log and other servers see the request without its reason
        reason, request.raw_path = split_reason(request.raw_path)
        request.path = unquote(request.raw_path)
    if request.path.startswith(BRANCH):
        branch, request.path = split_branch(request.path)
    if request.path.startswith(HISTORY):
        moment, request.path = split_moment(request.path)
    return reason, branch, moment


# -- measured ----------------------------------------------------------------------------------------------------------
#
# The filter that counts requests and their durations by verb, resource and code. A watch is counted when it ends.


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
