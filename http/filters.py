"""The filter chain that every request passes: ``build`` puts the filters of edge.py around those of ``FILTERS``.

Those of edge.py know the request alone. The last of them makes its Context, and turns errors into answers. Each of
FILTERS gets the request and its context, and calls the next step. It may answer itself, change the answer, or raise
StatusError. A filter that neither waits nor acts on the answer is an ordinary function, which returns the awaitable of
the next step: a coroutine would cost time in every request. A filter that is switched off is not in the chain.
"""

from __future__ import annotations

import contextlib
import logging
import math
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final

import trio

from kubechronicle.actors.external_answers import NeedsExternalAnswer, decide_with_answers
from kubechronicle.actors.fair_share import SERVED
from kubechronicle.api.codecs.negotiate import WITHOUT_CBOR, Formats
from kubechronicle.api.errors import status
from kubechronicle.api.errors.status import RequestTimedOut, StatusError
from kubechronicle.api.meta.request_info import RequestInfo
from kubechronicle.http import edge
from kubechronicle.http.audit.accesses import AccessRecorder
from kubechronicle.http.audit.audit import Audit
from kubechronicle.http.audit.reads import ReadRecorder
from kubechronicle.http.audit.requests import audited
from kubechronicle.http.authentication.chain import AuthenticationChain
from kubechronicle.http.authentication.metrics import ERROR, FAILURE
from kubechronicle.http.authentication.user import CredentialRejected, NoCredential, NotSeen, User, is_anonymous
from kubechronicle.http.authorization import impersonation
from kubechronicle.http.authorization.decision import AuthorizationChain, Decision, Verdict, authorized_as, forbidden
from kubechronicle.http.context import Context, Step
from kubechronicle.http.edge import EdgeSettings, measured
from kubechronicle.http.flow_control.control import FlowControl
from kubechronicle.http.flow_control.filter import with_limits, with_seats
from kubechronicle.http.flow_control.measures import READS, WRITES
from kubechronicle.http.handlers.drain import Drain
from kubechronicle.http.messages import Request, Response
from kubechronicle.http.metrics import Metrics
from kubechronicle.http.representation.answers import CACHE_CONTROL, internal_error_text, timed_out

if TYPE_CHECKING:
    from kubechronicle.http.tracing import Tracing
from kubechronicle.api.values import durations

# -- timeouts ----------------------------------------------------------------------------------------------------------
#
# Time-outs of requests: the parameter ?timeout=, and errors that only tell of a cancelled request.


def only_cancelled(error: BaseException) -> bool:
    """Tell whether an error holds nothing but the end of a cancel scope."""
    if isinstance(error, BaseExceptionGroup):
        return error.split(trio.Cancelled)[1] is None
    return isinstance(error, trio.Cancelled)


def seconds_of(text: str, limit: float) -> float:
    """Return the time-out of a request, at most ``limit``."""
    if not text:
        return limit
    try:
        seconds = durations.parse(text) / durations.SECOND
    except ValueError as error:
        raise status.bad_request(f"invalid timeout specified in the request URL - {error}") from None
    return min(seconds, limit) if seconds > 0 else limit


# -- filters -----------------------------------------------------------------------------------------------------------

log = logging.getLogger(__name__)

Next = Callable[[Request], Awaitable[Response]]

# Seconds to wait for the views to catch up, if a credential is not in them.
CATCH_UP = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Services:
    """The parts and settings that the filters need. A limit of 0 means none; times are in seconds.

    ``is_served``: tells if the resource and subresource of a request exist.
    ``formats``: the media types that the server offers.
    ``ends_anonymous``: an HTTP/2 connection ends with the first request of an unknown user.
    ``constrained_impersonation``: impersonation has the modes of KEP-5284.
    ``catch_up``: returns when the views contain everything that any replica has committed by now.
    """

    metrics: Metrics
    authentication: AuthenticationChain
    authorization: AuthorizationChain
    is_served: Callable[[RequestInfo], bool]
    formats: Formats = WITHOUT_CBOR
    ends_anonymous: bool = False
    constrained_impersonation: bool = True
    catch_up: Callable[[], Awaitable[object]] = trio.lowlevel.checkpoint
    request_timeout: float = 60.0
    max_requests_inflight: int = 400
    max_mutating_requests_inflight: int = 200
    flow_control: FlowControl | None = None
    tracing: Tracing | None = None
    audit: Audit | None = None
    reads: ReadRecorder | None = None
    accesses: AccessRecorder | None = None
    edge: EdgeSettings = field(default_factory=EdgeSettings)
    drain: Drain = field(default_factory=Drain)


Filter = Callable[[Services, Step], Step]


def measure(services: Services, following: Step) -> Step:
    """Count requests and their durations by verb, resource and code."""
    return measured(services.metrics, services.is_served, following)


def authenticate(services: Services, following: Step) -> Step:
    """Authenticate the user; 401 for a wrong credential. A credential that is not in the views may be one that another
    replica has just issued: it is checked again after a consistent read."""
    chain, annotates, ends_anonymous = services.authentication, services.audit is not None, services.ends_anonymous
    succeeded, seen, failed = chain.metrics.succeeded, chain.metrics.seen, chain.metrics.failed

    def filtered(request: Request, context: Context) -> Awaitable[Response]:
        if annotates:
            context.credential_notes = {}
        started = time.perf_counter()
        try:
            user = chain.authenticate(request, context.warnings, context.credential_notes)
        except (NotSeen, NeedsExternalAnswer) as undecided:
            return authenticate_again(request, context, undecided, started)
        except CredentialRejected as error:
            return refuse(request, context, error, started)
        return identified(request, context, user, started)

    def identified(request: Request, context: Context, user: User, started: float) -> Awaitable[Response]:
        context.authenticated = seconds = time.perf_counter() - started
        succeeded(seconds)
        seen(user.name)
        context.user = user
        SERVED.set(user.name)
        if ends_anonymous and request.http_version == "2" and is_anonymous(user):
            request.exchange.leave()
        return following(request, context)

    async def authenticate_again(
        request: Request, context: Context, undecided: NotSeen | NeedsExternalAnswer, started: float
    ) -> Response:
        try:
            user = await _with_answers(services, request, context, undecided)
        except CredentialRejected as error:
            return await refuse(request, context, error, started)
        return await identified(request, context, user, started)

    async def refuse(request: Request, context: Context, error: CredentialRejected, started: float) -> Response:
        why = FAILURE if isinstance(error, NoCredential) else ERROR
        failed(why, time.perf_counter() - started)
        log.debug("Unable to authenticate the request: %s", error.why or "no valid credential")
        if ends_anonymous and request.http_version == "2":
            request.exchange.leave()
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
    from kubechronicle.http.tracing import traced  # its library takes long to load

    return traced(services.tracing, following)


def trace_handler(services: Services, following: Step) -> Step:
    """Make spans of the handler, and of the parts of its time."""
    if services.tracing is None:
        return following
    from kubechronicle.http.tracing import handler_spans

    return handler_spans(following)


def record_accesses(services: Services, following: Step) -> Step:
    """Record refusals, sessions and tokens in the log, as their own policy says."""
    return following if services.accesses is None else services.accesses.recorded(following)


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
            info = authorized_as(context.info)
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
        info = authorized_as(context.info)
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
                if not (isinstance(error, RequestTimedOut) or (exchange.overdue and only_cancelled(error))):
                    raise
            finally:
                exchange.limit(math.inf)
        else:
            with trio.CancelScope(deadline=context.deadline), contextlib.suppress(RequestTimedOut):
                return await following(request, context)
        context.terminated = True
        return timed_out()

    return filtered


def record_reads(services: Services, following: Step) -> Step:
    """Record reads in the database, as their own policy says."""
    return following if services.reads is None else services.reads.recorded(following)


FILTERS: Final[tuple[Filter, ...]] = (
    measure,
    limit_time,
    authenticate,
    trace,
    audit,
    record_accesses,
    impersonate,
    limit_in_flight,
    authorize,
    trace_handler,
    record_reads,
)
"""Outermost first. The order is kube-apiserver's where both have the filter."""


def build(services: Services, handler: Step) -> Next:
    """Return the application: each filter around the next one, the handler innermost."""
    for each in reversed(FILTERS):
        handler = each(services, handler)
    settings, drain = services.edge, services.drain
    application = edge.attach_context(handler, services.formats)
    application = edge.allow_origins(settings.origins, application)
    application = edge.require_tls(settings.hsts, application)
    return edge.refuse_while_stopping(drain if settings.retry_after else None, application)
