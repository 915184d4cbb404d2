"""The filter chain that every request passes, outermost first, as one list (``FILTERS``).

One filter comes before these: ``outermost`` makes the Context of the request, and turns errors into answers; only it
catches Exception. A filter gets the request and its context, and calls the next step. It may answer itself, change the
answer, or raise StatusError. A filter that neither waits nor acts on the answer is an ordinary function, which returns
the awaitable of the next step: a coroutine would cost time in every request.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING
from urllib.parse import unquote

import trio

from kubechronicle.actors.external_answers import NeedsExternalAnswer, decide_with_answers
from kubechronicle.actors.fair_share import SERVED
from kubechronicle.actors.writing.targets import new_uid
from kubechronicle.api.codecs.headroom import Headroom
from kubechronicle.api.codecs.negotiate import WITHOUT_CBOR, Formats
from kubechronicle.api.errors import status
from kubechronicle.api.errors.status import StatusError
from kubechronicle.api.history.reasons import PREFIX as BECAUSE
from kubechronicle.api.history.reasons import split_reason
from kubechronicle.api.meta.path_prefixes import BRANCH, HISTORY
from kubechronicle.api.meta.request_info import Query, RequestInfo, resolve, split_branch, split_moment
from kubechronicle.http.audit.audit import Audit
from kubechronicle.http.audit.reads import ReadRecorder
from kubechronicle.http.audit.requests import audited
from kubechronicle.http.authentication.chain import AuthenticationChain
from kubechronicle.http.authentication.metrics import ERROR, FAILURE
from kubechronicle.http.authentication.user import NoCredential, NotSeen, Rejected, User
from kubechronicle.http.authorization import impersonation
from kubechronicle.http.authorization.decision import AuthorizationChain, Decision, Verdict, forbidden
from kubechronicle.http.context import Context, Step, authorized_as
from kubechronicle.http.errors import as_status_error
from kubechronicle.http.flow_control.control import FlowControl
from kubechronicle.http.flow_control.filter import with_seats
from kubechronicle.http.flow_control.fixed_limits import with_limits
from kubechronicle.http.flow_control.measures import READS, WRITES
from kubechronicle.http.measured import measured
from kubechronicle.http.messages import ClientDisconnected, Request, Response
from kubechronicle.http.metrics import Metrics
from kubechronicle.http.representation.answers import (
    CACHE_CONTROL,
    internal_error_text,
    status_response,
    undetermined_request,
    warning_fields,
)
from kubechronicle.http.timeouts import only_cancelled, seconds_of

if TYPE_CHECKING:
    from kubechronicle.http.tracing.tracing import Tracing

log = logging.getLogger(__name__)

Next = Callable[[Request], Awaitable[Response]]

# Subresources that stream: no time-out, no limit of requests in flight.
LONG_RUNNING_SUBRESOURCES = frozenset({"attach", "exec", "proxy", "log", "portforward"})
# Seconds to wait for the views to catch up, if a credential is not in them.
CATCH_UP = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Services:
    """The parts and settings that the filters need. A limit of 0 means none; times are in seconds.

    ``is_served``: tells if the resource and subresource of a request exist.
    ``formats``: the media types that the server offers.
    ``constrained_impersonation``: impersonation has the modes of KEP-5284.
    ``catch_up``: returns when the views contain everything that any replica has committed by now.
    """

    metrics: Metrics
    authentication: AuthenticationChain
    authorization: AuthorizationChain
    is_served: Callable[[RequestInfo], bool]
    formats: Formats = WITHOUT_CBOR
    constrained_impersonation: bool = True
    catch_up: Callable[[], Awaitable[object]] = trio.lowlevel.checkpoint
    request_timeout: float = 60.0
    max_requests_inflight: int = 400
    max_mutating_requests_inflight: int = 200
    flow_control: FlowControl | None = None
    tracing: Tracing | None = None
    audit: Audit | None = None
    reads: ReadRecorder | None = None


Filter = Callable[[Services, Step], Step]


def outermost(following: Step, formats: Formats = WITHOUT_CBOR) -> Next:
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


def measure(services: Services, following: Step) -> Step:
    """Count requests and their durations by verb, resource and code."""
    return measured(services.metrics, services.is_served, following)


def authenticate(services: Services, following: Step) -> Step:
    """Authenticate the user; 401 for a wrong credential. A credential that is not in the views may be one that another
    replica has just issued: it is checked again after a consistent read."""
    chain, annotates = services.authentication, services.audit is not None
    succeeded, seen, failed = chain.metrics.succeeded, chain.metrics.seen, chain.metrics.failed

    def filtered(request: Request, context: Context) -> Awaitable[Response]:
        if annotates:
            context.credential_notes = {}
        started = time.perf_counter()
        try:
            user = chain.authenticate(request, context.warnings, context.credential_notes)
        except (NotSeen, NeedsExternalAnswer) as undecided:
            return authenticate_again(request, context, undecided, started)
        except Rejected as error:
            return refuse(request, context, error, started)
        return identified(request, context, user, started)

    def identified(request: Request, context: Context, user: User, started: float) -> Awaitable[Response]:
        context.authenticated = seconds = time.perf_counter() - started
        succeeded(seconds)
        seen(user.name)
        context.user = user
        SERVED.set(user.name)
        return following(request, context)

    async def authenticate_again(
        request: Request, context: Context, undecided: NotSeen | NeedsExternalAnswer, started: float
    ) -> Response:
        try:
            user = await _with_answers(services, request, context, undecided)
        except Rejected as error:
            return await refuse(request, context, error, started)
        return await identified(request, context, user, started)

    async def refuse(request: Request, context: Context, error: Rejected, started: float) -> Response:
        why = FAILURE if isinstance(error, NoCredential) else ERROR
        failed(why, time.perf_counter() - started)
        log.debug("Unable to authenticate the request: %s", error.why or "no valid credential")
        refusal = status.unauthorized()
        if services.audit is not None:
            await services.audit.refused(request, context, refusal)
        raise refusal

    return filtered


async def _with_answers(
    services: Services, request: Request, context: Context, undecided: NotSeen | NeedsExternalAnswer
) -> User:
    """Authenticate with the answers of external servers and, if that does not suffice, after a consistent read."""

    def user() -> User:
        return services.authentication.authenticate(request, context.warnings, context.credential_notes)

    if isinstance(undecided, NeedsExternalAnswer):
        try:
            return await decide_with_answers(user, undecided)
        except NotSeen:
            pass
    with trio.move_on_after(CATCH_UP):
        await services.catch_up()
    return await decide_with_answers(user)


def audit(services: Services, following: Step) -> Step:
    """Record the request as the audit policy says."""
    return following if services.audit is None else audited(services.audit, following)


def trace(services: Services, following: Step) -> Step:
    """Make a span of the request."""
    if services.tracing is None:
        return following
    from kubechronicle.http.tracing.filter import traced  # its library takes long to load

    return traced(services.tracing, following)


def trace_handler(services: Services, following: Step) -> Step:
    """Make spans of the handler, and of the parts of its time."""
    if services.tracing is None:
        return following
    from kubechronicle.http.tracing.spans import handler_spans

    return handler_spans(following)


def impersonate(services: Services, following: Step) -> Step:
    """Replace the user by the one in the Impersonate headers, if the user has the right to that."""
    chain, constrained = services.authorization, services.constrained_impersonation
    last_modes = impersonation.LastModes(constrained)
    # kube-apiserver counts nothing without the constrained modes.
    metrics = services.metrics.impersonations if constrained else None

    def filtered(request: Request, context: Context) -> Awaitable[Response]:
        if request.headers.has_prefix(impersonation.PREFIX):
            return impersonated(request, context)
        return following(request, context)

    async def impersonated(request: Request, context: Context) -> Response:
        wanted = impersonation.wanted_user(request.headers, constrained)
        if wanted is not None:
            requestor, started = context.user, time.perf_counter()
            info = authorized_as(context)
            try:
                context.user = await decide_with_answers(
                    partial(impersonation.impersonate, chain, requestor, wanted, info, last_modes, metrics)
                )
            except StatusError:
                if metrics is not None:
                    metrics.attempted("", time.perf_counter() - started)
                raise
            context.impersonated = time.perf_counter() - started
            if metrics is not None:
                metrics.attempted(last_modes.last(requestor), context.impersonated)
            context.impersonator = requestor.name
            if context.audit is not None:
                context.audit.impersonates(context.user, last_modes.constraint(requestor))
        return await following(request, context)

    return filtered


def limit_in_flight(services: Services, following: Step) -> Step:
    """Limit the requests in flight by priority and fairness. Without it, reads and writes are limited separately, and
    watches are not counted."""
    control = services.flow_control
    if control is not None:
        services.metrics.show_in_flight(control.kinds.current)
        return with_seats(control, following, services.request_timeout)
    limits = {READS: services.max_requests_inflight, WRITES: services.max_mutating_requests_inflight}
    counts = dict.fromkeys(limits, 0)
    services.metrics.show_in_flight(lambda: counts)
    return with_limits(limits, counts, following)


def authorize(services: Services, following: Step) -> Step:
    """Reject the request if the user does not have the right to it."""
    chain, metrics = services.authorization, services.metrics.authorizations
    allowed = metrics.allowed

    def filtered(request: Request, context: Context) -> Awaitable[Response]:
        info = authorized_as(context)
        started = time.perf_counter()
        try:
            # Audit events tell the reason of each decision.
            verdict = (chain.decide if context.audit is None else chain.explain)(context.user, info)
        except NeedsExternalAnswer as question:
            return ask(request, context, info, question, started)
        context.authorized = seconds = time.perf_counter() - started
        if context.audit is not None:
            context.audit.verdict = verdict
        if verdict.decision is Decision.ALLOW:
            allowed(seconds)
            return following(request, context)
        metrics.refused(verdict, seconds)
        return reject(request, context, info, verdict)

    async def ask(
        request: Request, context: Context, info: RequestInfo, question: NeedsExternalAnswer, started: float
    ) -> Response:
        decide = chain.decide if context.audit is None else chain.explain
        verdict = await decide_with_answers(partial(decide, context.user, info), question)
        context.authorized = seconds = time.perf_counter() - started
        if context.audit is not None:
            context.audit.verdict = verdict
        if verdict.decision is Decision.ALLOW:
            allowed(seconds)
            return await following(request, context)
        metrics.refused(verdict, seconds)
        return await reject(request, context, info, verdict)

    async def reject(request: Request, context: Context, info: RequestInfo, verdict: Verdict) -> Response:
        if verdict.error:
            response = internal_error_text(request, verdict.error)
            response.headers.append(CACHE_CONTROL)
            return response
        raise forbidden(context.user, info, verdict.reason)

    return filtered


def limit_time(services: Services, following: Step) -> Step:
    """End requests that are not long-running after --request-timeout, or after a shorter ?timeout=."""

    def filtered(request: Request, context: Context) -> Awaitable[Response]:
        return following(request, context) if context.long_running else limited(request, context)

    async def limited(request: Request, context: Context) -> Response:
        timeout, seconds, exchange = "", services.request_timeout, request.exchange
        if request.query_string:
            timeout = context.query.get("timeout")
            try:
                seconds = seconds_of(timeout, seconds)
            except StatusError as error:
                if services.audit is not None:
                    await services.audit.refused(request, context, error)
                raise
        context.deadline = trio.current_time() + seconds
        if not timeout and exchange.limit(context.deadline):
            try:
                return await following(request, context)
            except BaseException as error:
                if not (exchange.overdue and only_cancelled(error)):
                    raise
            finally:
                exchange.limit(math.inf)
        else:
            with trio.CancelScope(deadline=context.deadline):
                return await following(request, context)
        context.terminated = True
        raise status.timeout("request did not complete within the allotted timeout")

    return filtered


def record_reads(services: Services, following: Step) -> Step:
    """Record reads in the database, as their own policy says."""
    return following if services.reads is None else services.reads.recorded(following)


# Outermost first. The order is kube-apiserver's where both have the filter.
FILTERS: tuple[Filter, ...] = (
    measure,
    limit_time,
    authenticate,
    trace,
    audit,
    impersonate,
    limit_in_flight,
    authorize,
    trace_handler,
    record_reads,
)


def build(services: Services, handler: Step) -> Next:
    """Return the application: each filter around the next one, the handler innermost."""
    for each in reversed(FILTERS):
        handler = each(services, handler)
    return outermost(handler, services.formats)
