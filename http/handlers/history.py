"""/history/at/MOMENT/…: read the API as it was at a moment.

    GET  /history/at/-2h/api/v1/pods                        the list at that moment, with its resourceVersions
    GET  /history/at/41/api/v1/pods?watch=1&speed=10        the events since, ten times as fast, then the present
    GET  /history/at/41/api/v1/pods?watch=1&until=-1h       the events up to an hour ago, then the stream ends
    GET  /history/at/41/api/v1/secrets?values=shown         the same Secrets as without it, and a record of this read
    POST /history/at/41/apis/authorization.k8s.io/v1/…      reviews of access, by the rights of the moment
    PUT  /history/at/41/api/v1/…                            405: the past cannot be changed

The filters remove the prefix (``request_info.split_moment``) before anything else reads the path, so rights, metrics
and limits are those of the same request without it. The handlers are the ordinary ones with other reads.

/branch/NAME/…: the API over a branch, in which changes are tried.

    GET   /branch/try/api/v1/pods                       the pods of the branch
    POST  /branch/try/apis/apps/v1/…/deployments        committed in the branch alone
    GET   /branch/try/apis/history…/branchchanges       the objects that it changed, before and after
    GET   /branch/try/history/at/-2h/api/v1/pods        history of the cluster, up to the base of the branch
    POST  /branch/try/api/v1/…/pods/web/exec            405: nothing runs in a branch

The filters remove the prefix (``request_info.split_branch``), so rights and limits are those of the same request
without it: the user's rights at present, in the cluster itself. Every request also needs the verb ``use`` on the
branch. The handlers are the ordinary ones over the store of the branch.
"""

from __future__ import annotations

import math
from dataclasses import replace
from datetime import UTC, datetime
from typing import Final
from weakref import WeakKeyDictionary

from kubechronicle.actors.branches.branches import ClientReads, OpenBranch
from kubechronicle.actors.branches.changes import BranchChanges
from kubechronicle.actors.external_answers import decide_with_answers
from kubechronicle.actors.history.other_logs import at_time, log_at, same_moment
from kubechronicle.actors.history.past_reads import PastReads
from kubechronicle.actors.history.revision_selection import tagged_revisions
from kubechronicle.actors.reading.reads import Reads
from kubechronicle.api.errors import status
from kubechronicle.api.errors.status import StatusError
from kubechronicle.api.history.branches import AGAINST, BRANCHES, CHANGES, USE
from kubechronicle.api.history.cells import ENDS
from kubechronicle.api.history.moments import Asked, epoch_of, parse_moment, written
from kubechronicle.api.history.secret_values import RESOURCE
from kubechronicle.api.history.tags import tag_named
from kubechronicle.api.meta.request_info import RequestInfo, forbidden_message
from kubechronicle.api.registry.groups import HISTORY
from kubechronicle.eventlog.errors import AfterArchive, BeforeHistory, FutureMoment, FutureRevision
from kubechronicle.eventlog.records import Key, Moment
from kubechronicle.http.authorization.decision import Decision
from kubechronicle.http.context import Context
from kubechronicle.http.handlers.backend import Backend
from kubechronicle.http.handlers.reviews import OF_RIGHTS, REVIEWS
from kubechronicle.http.handlers.revisions import check_moment, readable_since, wants_shown
from kubechronicle.http.messages import Request

READING = frozenset({"GET", "HEAD"})
# Subresources that reach into a running container, of which history keeps nothing.
RUNNING = frozenset({"attach", "exec", "log", "portforward", "proxy"})
# Bounds of a replay's speed, as a factor. A higher one is as fast as reading; a lower one never ends.
SLOWEST, FASTEST = 1e-3, 1e6


async def backend_at(backend: Backend, request: Request, context: Context) -> Backend:
    """Return the backend with the reads of the request's moment, and set ``context.at``. StatusError 400 and 410 for a
    moment that does not exist, 403 for one before the present namespace, 405 for a request that does not read.

    The backend's store has the resource types of the moment; the documents (discovery, OpenAPI) describe these. For a
    moment that does not exist they are the present ones: clients request them first and show no message if they are
    rejected; they do show the message for the objects.
    """
    info = context.info
    kind = _review(backend, request.method, info)
    if kind == "TokenReview":
        raise _not_allowed("history has no past validity of tokens; review it without /history/at/… in the URL")
    if kind in OF_RIGHTS:
        context.at = moment = await resolve_moment(backend, context.moment)
        await check_moment(backend, context, moment.revision)
    if kind:
        return backend
    _check_readable(request, context)
    if not info.is_resource:
        return await _with_past_documents(backend, context)
    by_time = info.group == HISTORY and len(backend.store.reads.logs) > 1  # the moment is found in the other logs, too
    timed = by_time or _needs_time(request, info)
    context.at = moment = await resolve_moment(backend, context.moment, timed=timed)
    await check_moment(backend, context, moment.revision)
    if info.group_resource == RESOURCE and wants_shown(context):
        log = backend.store.reads.log.recorded
        record = backend.shown_secrets.recorder(log, request, context, moment.revision)
        await record([Key(RESOURCE, info.namespace, info.name)])
    reads = await _past_reads(backend, context, moment)
    served = await backend.store.past.resources_at(moment.revision)
    return replace(backend, reads=reads, store=replace(backend.store, served=served))


async def _past_reads(backend: Backend, context: Context, moment: Moment) -> PastReads:
    """Return the reads of the request's resource at the moment, in the log that held it then. StatusError 400, 410."""
    info, query, reads = context.info, context.query, backend.store.reads
    until, speed = query.get("until"), _speed(query.get("speed"))
    rt = backend.store.registry.lookup(info.group, info.version, info.resource)
    log = reads if rt is None or rt.group == HISTORY else await log_at(reads, rt.resource, moment)
    if log is None:
        raise status.expired(f"at {context.moment}, {info.resource} were in a database that this server is not given")
    if log is not reads and log is not reads.main:
        moment = await resolve_moment(backend, context.moment, log)
        if context.moment.isdigit():
            context.warnings.append(
                f"{info.resource} have revisions of their own: they are shown as of {written(moment.time)}, revision "
                f"{moment.revision} of their log"
            )
    last = (await resolve_moment(backend, until, log)).revision if until else None
    return PastReads(log, moment, until=last, speed=speed)


async def _with_past_documents(backend: Backend, context: Context) -> Backend:
    try:
        moment = await resolve_moment(backend, context.moment, timed=False)
        served = await backend.store.past.resources_at(moment.revision)
    except StatusError:
        return backend
    return replace(backend, store=replace(backend.store, served=served))


def check_reads(backend: Backend, request: Request, context: Context, of: str) -> None:
    """Refuse a request that would change something, on a server that only has history. ``of``: its archive.

    StatusError 405.
    """
    if request.method not in READING and not _review(backend, request.method, context.info):
        raise _not_allowed(f"this server answers questions about an archive, and changes nothing; it has {of}")


def _review(backend: Backend, method: str, info: RequestInfo) -> str:
    """Return the kind of the review that the request posts, of which nothing is stored; "": it is another request."""
    if method != "POST" or not info.is_resource or info.name:
        return ""
    rt = backend.store.registry.lookup(info.group, info.version, info.resource)
    return rt.kind if rt is not None and not rt.stored and rt.kind in REVIEWS else ""


def _check_readable(request: Request, context: Context) -> None:
    info = context.info
    if info.is_resource and info.subresource in RUNNING:
        raise _not_allowed(
            f"history has objects, not processes: it has no past {info.subresource}; "
            "for the present one, use the server without /history/at/… in its URL"
        )
    if request.method not in READING:
        raise _not_allowed(
            f"history is read-only: this is the cluster as of {context.moment}. To restore this state: "
            f"{_restore(info, context.moment)}. Or read the object here (kubectl get … -o yaml), remove its uid and "
            "resourceVersion, and apply it to the server itself, without /history/at/… in its URL"
        )


def _restore(info: RequestInfo, moment: str) -> str:
    """Return the command that restores the object of the request or, without a name, its namespace."""
    to = f"--to {moment.removeprefix('-')}"  # -2h becomes 2h, which is not mistaken for a flag
    namespace = f" -n {info.namespace}" if info.namespace else ""
    if not (info.is_resource and info.name):
        return f"kubectl chronicle restore{namespace or ' TYPE/NAME'} {to}"
    resource = f"{info.resource}.{info.group}" if info.group else info.resource
    in_namespace = namespace if (info.group, info.resource) != ("", "namespaces") else ""
    return f"kubectl chronicle restore {resource}/{info.name}{in_namespace} {to}"


def _needs_time(request: Request, info: RequestInfo) -> bool:
    """Tell whether the answer needs the time of its revision: tables show ages, and watches may have a speed."""
    return info.verb == "watch" or "Table" in request.headers.get("accept")


async def resolve_moment(backend: Backend, text: str, log: Reads | None = None, *, timed: bool = True) -> Moment:
    """Resolve a moment of a URL in a log, by default the main one. A revision of another log means its commit's time.

    ``timed`` False: take the present as the time of a revision, which saves a query.
    """
    reads = backend.store.reads
    log = log or reads
    try:
        name = tag_named(text)
        moment: Asked = await _tagged(backend, name) if name else parse_moment(text, now=datetime.now(UTC))
    except ValueError as error:
        raise status.bad_request(str(error)) from None
    if not timed and isinstance(moment, int) and reads.of_revision(moment) is log and log.past.is_retained(moment):
        return Moment(moment, datetime.now(UTC))
    try:
        if isinstance(moment, int):
            return await same_moment(reads, log, moment)
        if log is reads:
            return await reads.past.moment(moment)
        return await at_time(log, (await reads.past.moment(moment)).time)
    except BeforeHistory as error:
        raise _expired(text, error.oldest) from None
    except AfterArchive as error:
        raise status.bad_request(f"{text} lies after the end of the archive: {written(error.now)}") from None
    except FutureMoment as error:
        raise status.bad_request(f"{text} lies in the future: it is {written(error.now)}") from None
    except FutureRevision as error:
        if isinstance(moment, int) and (time := epoch_of(moment)) is not None:
            return await resolve_moment(backend, written(time), log, timed=timed)
        raise status.bad_request(f"revision {text} lies in the future: the newest is {error.current}") from None


async def _tagged(backend: Backend, name: str) -> int:
    return await tagged_revisions(backend.store.reads, backend.store.registry)(name)


def _expired(text: str, oldest: Moment | None) -> StatusError:
    if oldest is None:
        return status.expired(f"{text} lies before all history: the log is empty")
    begins = f"{written(oldest.time)} (revision {oldest.revision})"
    return status.expired(f"{text} lies before the retained history: the oldest moment is {begins}")


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


# Subresources that reach out of the branch: into running containers, or to the keys of service accounts.
REFUSED: Final = RUNNING | {"token"}
ANNOTATION: Final = "history.kubechronicle.dev/branch"

# The parts of a branch that its handlers share, as long as it is open.
_BACKENDS: Final[WeakKeyDictionary[OpenBranch, Backend]] = WeakKeyDictionary()


async def backend_in(backend: Backend, request: Request, context: Context) -> Backend:
    """Return the backend of the request's branch. StatusError 403, 404, 405, 410, 413, 429."""
    info, name = context.info, context.branch
    await _check_use(backend, context)
    context.annotate(ANNOTATION, name)
    _check_stays_inside(context)
    if backend.branches is None:
        raise status.not_found(_info(name), name)
    branch = await backend.branches.opened(name)
    if context.moment:
        return await _past(backend, request, context, branch)
    if info.is_resource and info.group == HISTORY:
        return await _own_kinds(backend, request, context, branch)
    if info.is_resource:
        await check_moment(backend, context, branch.base)
        _check_kept(info, branch)
    return _backend_of(backend, branch)


def _backend_of(backend: Backend, branch: OpenBranch) -> Backend:
    found = _BACKENDS.get(branch)
    if found is None:
        found = _BACKENDS[branch] = replace(
            backend,
            store=branch.store,
            reads=ClientReads(branch),
            audited=None,
            branches=None,
        )
    return found


def _info(name: str, verb: str = USE) -> RequestInfo:
    return RequestInfo(path="", verb=verb, is_resource=True, group=HISTORY, version="v1", resource=BRANCHES, name=name)


async def _check_use(backend: Backend, context: Context) -> None:
    """Check the user's right to use the branch. StatusError 403."""
    info = _info(context.branch)
    verdict = await decide_with_answers(lambda: backend.authorization.decide(context.user, info))
    if verdict.decision is not Decision.ALLOW:
        raise status.forbidden(info, context.branch, forbidden_message(context.user.name, info, verdict.reason))


def _check_stays_inside(context: Context) -> None:
    """Refuse requests that would leave the branch. StatusError 405."""
    info = context.info
    if info.is_resource and (info.subresource in REFUSED or info.verb == "proxy"):
        missing = info.subresource or info.verb
        raise _not_allowed(
            f"nothing runs in a branch, and it issues no credentials: it has no {missing}; use the server without "
            f"/branch/{context.branch} in its URL"
        )


def _check_kept(info: RequestInfo, branch: OpenBranch) -> None:
    rt = branch.store.registry.lookup(info.group, info.version, info.resource)
    if rt is not None and rt.stored and not branch.parts.kept(rt.resource):
        raise status.expired(
            f"history of {rt.resource} begins after the base of branch {branch.name}, which is revision {branch.base}"
        )


async def _past(backend: Backend, request: Request, context: Context, branch: OpenBranch) -> Backend:
    """Return the backend of a moment of the cluster, up to the base of the branch."""
    if not context.info.is_resource and await _is_of_branch(backend, context, branch):
        return _backend_of(backend, branch)
    found = await backend_at(backend, request, context)
    if context.at is not None and context.at.revision > branch.base:
        raise status.bad_request(
            f"history of branch {branch.name} ends at its base, revision {branch.base}; {context.moment} lies after it"
        )
    return found


async def _is_of_branch(backend: Backend, context: Context, branch: OpenBranch) -> bool:
    """Tell whether the documents of a moment are those of the branch: its base lies before the moment."""
    try:
        moment = await resolve_moment(backend, context.moment, timed=False)
    except StatusError:
        return True
    return moment.revision > branch.base


async def _own_kinds(backend: Backend, request: Request, context: Context, branch: OpenBranch) -> Backend:
    """Return the backend of the kinds of this project in a branch: its changes, and history up to its base."""
    info = context.info
    if info.resource == CHANGES:
        against = context.query.get("against", AGAINST[0])
        if against not in AGAINST:
            raise status.bad_request(f"against={against}: must be base or now")
        changes = BranchChanges(
            branch,
            backend.store.reads,
            now=against == "now",
            readable=readable_since(backend, context),
            warn=context.warnings.append,
        )
        return replace(backend, reads=changes)
    if request.method not in READING or info.resource == BRANCHES:
        raise _not_allowed(
            f"a branch has no {info.resource}; use the server without /branch/{context.branch} in its URL"
        )
    moment = await backend.store.reads.past.moment(branch.base)
    context.at = Moment(branch.base, moment.time)
    context.warnings.append(
        f"{ENDS} {branch.name} ends at its base, revision {branch.base}; "
        f"`kubectl chronicle branch diff {branch.name}` shows its own changes"
    )
    return backend
