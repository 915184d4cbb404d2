"""/branch/NAME/…: the API over a branch, in which changes are tried.

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

from dataclasses import replace
from typing import Final
from weakref import WeakKeyDictionary

from kubechronicle.actors.branches.branches import ClientReads, OpenBranch
from kubechronicle.actors.branches.changes import BranchChanges
from kubechronicle.actors.external_answers import decide_with_answers
from kubechronicle.api.errors import status
from kubechronicle.api.errors.status import StatusError
from kubechronicle.api.history.branches import AGAINST, BRANCHES, CHANGES, USE
from kubechronicle.api.history.elsewhere import ENDS
from kubechronicle.api.meta.request_info import RequestInfo, forbidden_message
from kubechronicle.api.registry.groups import HISTORY
from kubechronicle.eventlog.records import Moment
from kubechronicle.http.authorization.decision import Decision
from kubechronicle.http.context import Context
from kubechronicle.http.handlers import history
from kubechronicle.http.handlers.backend import Backend
from kubechronicle.http.handlers.revisions import check_moment, readable_since
from kubechronicle.http.messages import Request

# Subresources that reach out of the branch: into running containers, or to the keys of service accounts.
REFUSED: Final = history.RUNNING | {"token"}
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
    found = await history.backend_at(backend, request, context)
    if context.at is not None and context.at.revision > branch.base:
        raise status.bad_request(
            f"history of branch {branch.name} ends at its base, revision {branch.base}; {context.moment} lies after it"
        )
    return found


async def _is_of_branch(backend: Backend, context: Context, branch: OpenBranch) -> bool:
    """Tell whether the documents of a moment are those of the branch: its base lies before the moment."""
    try:
        moment = await history.resolve_moment(backend, context.moment, timed=False)
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
    if request.method not in history.READING or info.resource == BRANCHES:
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


def _not_allowed(message: str) -> StatusError:
    return status.method_not_allowed().with_message(message)
