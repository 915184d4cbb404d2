"""/history/at/MOMENT/…: the API as it was at a moment, to read. An ordinary request once the prefix is off.

    GET  /history/at/-2h/api/v1/pods                        the list of then; its resourceVersions are those of then
    GET  /history/at/41/api/v1/pods?watch=1&speed=10        what happened since, ten times as fast, then the present
    GET  /history/at/41/api/v1/pods?watch=1&until=-1h       what happened in between, and the stream ends
    POST /history/at/41/apis/authorization.k8s.io/v1/…      reviews, answered as of now: so are rights
    PUT  /history/at/41/api/v1/…                            405: what has been can't be changed

The filters take the prefix off (``split``) before anything else looks at the path; so rights, metrics and limits are
those of the same request without it. Handlers are the ordinary ones, with other reads.
"""

from __future__ import annotations

import math
from dataclasses import replace
from datetime import UTC, datetime

from kubechronicle.actors.history.past_reads import PastReads
from kubechronicle.api.errors import status
from kubechronicle.api.errors.status import StatusError
from kubechronicle.api.history.moments import Asked, parse_moment, written
from kubechronicle.eventlog.errors import BeforeHistory, FutureMoment, FutureRevision
from kubechronicle.eventlog.records import Moment
from kubechronicle.http.context import Context
from kubechronicle.http.handlers.resources import Resources
from kubechronicle.http.handlers.reviews import REVIEWS
from kubechronicle.http.messages import Request
from kubechronicle.http.request_info import RequestInfo

READING = frozenset({"GET", "HEAD"})
# Subresources that reach into what runs, which nothing of the past does.
RUNNING = frozenset({"attach", "exec", "log", "portforward", "proxy"})
# Times as fast as it happened; beyond, it is as fast as it can be read, or as good as never.
SLOWEST, FASTEST = 1e-3, 1e6


async def resources_for(resources: Resources, request: Request, context: Context) -> Resources:
    """What a request of history is answered from: the reads of its moment, which is found out for ``context.at``.
    StatusError 400 and 410 for a moment there is not, 405 for what is no look at the past.

    Documents are answered at any moment, also at one there is not: what is served does not depend on it, and clients
    ask for them first but show no message with their refusal, as they do with that of the objects."""
    info, query = context.info, context.query
    if _is_review(resources, request.method, info):
        return resources
    _check_readable(request, context)
    if not info.is_resource:
        return resources
    last = (await _moment(resources, query.get("until"))).revision if query.get("until") else None
    context.at = moment = await _moment(resources, context.moment, timed=_needs_time(request, info))
    reads = PastReads(resources.store.reads, moment, until=last, speed=_speed(query.get("speed")))
    return replace(resources, reads=reads)


def _is_review(resources: Resources, method: str, info: RequestInfo) -> bool:
    """Whether the request asks a question by POST, as for its rights; nothing is kept of it."""
    if method != "POST" or not info.is_resource or info.name:
        return False
    rt = resources.store.registry.lookup(info.group, info.version, info.resource)
    return rt is not None and not rt.stored and rt.kind in REVIEWS


def _check_readable(request: Request, context: Context) -> None:
    info = context.info
    if info.is_resource and info.subresource in RUNNING:
        raise _not_allowed(
            f"history keeps objects, not what ran: there is no {info.subresource} of then; "
            "for that of now, ask the server without /history/at/… in its URL"
        )
    if request.method not in READING:
        raise _not_allowed(
            f"history is read-only: this is the cluster as it was ({context.moment}). To bring back what was: "
            f"{_restore(info, context.moment)}. Or read it here (kubectl get … -o yaml), take out its uid and "
            "resourceVersion, and apply it to the server itself, without /history/at/… in its URL"
        )


def _restore(info: RequestInfo, moment: str) -> str:
    """The command for what the request is about: an object or, where it names none, a namespace."""
    to = f"--to {moment.removeprefix('-')}"  # -2h is 2h, which no shell or flag takes for something else
    namespace = f" -n {info.namespace}" if info.namespace else ""
    if not (info.is_resource and info.name):
        return f"kubectl chronicle restore{namespace or ' TYPE/NAME'} {to}"
    resource = f"{info.resource}.{info.group}" if info.group else info.resource
    in_namespace = namespace if (info.group, info.resource) != ("", "namespaces") else ""
    return f"kubectl chronicle restore {resource}/{info.name}{in_namespace} {to}"


def _needs_time(request: Request, info: RequestInfo) -> bool:
    """Whether the answer depends on when its revision was: tables tell ages, and watches may have a pace."""
    return info.verb == "watch" or "Table" in request.headers.get("accept")


async def _moment(resources: Resources, text: str, *, timed: bool = True) -> Moment:
    """Without ``timed``, the time of a revision is not asked for, and now is taken."""
    past = resources.store.reads.past
    try:
        asked: Asked = parse_moment(text)
    except ValueError as error:
        raise status.bad_request(str(error)) from None
    if not timed and isinstance(asked, int) and past.is_retained(asked):
        return Moment(asked, datetime.now(UTC))
    try:
        return await past.moment(asked)
    except BeforeHistory as error:
        raise _expired(text, error.oldest) from None
    except FutureMoment as error:
        raise status.bad_request(f"{text} lies in the future: it is {written(error.now)}") from None
    except FutureRevision as error:
        raise status.bad_request(f"revision {text} lies in the future: the newest is {error.current}") from None


def _expired(text: str, oldest: Moment | None) -> StatusError:
    if oldest is None:
        return status.expired(f"{text} lies before all history: nothing has happened yet")
    begins = f"{written(oldest.time)} (revision {oldest.revision})"
    return status.expired(f"{text} lies before all history that is kept: the oldest moment there is is {begins}")


def _speed(text: str) -> float | None:
    if not text:
        return None
    try:
        speed = float(text)
    except ValueError:
        speed = math.nan
    if not SLOWEST <= speed <= FASTEST:
        raise status.bad_request(f"speed={text}: must be a number from {SLOWEST:g} to {FASTEST:g}, as 10 for tenfold")
    return speed


def _not_allowed(message: str) -> StatusError:
    return status.method_not_allowed().with_message(message)
