"""Revisions (history.kubechronicle.dev): get, list and watch of the changes in the log, by the ordinary handlers.

    ?content=diff|full    lists and watches: diffs only, or also the objects before and after; a get has all
    ?content=states       the objects alone, without any comparison, for readers of many changes
    ?content=after        of these, the objects after the changes, and deleted ones: at half the cost
    ?verdicts=audited     only writes that a policy would have refused that is bound with Audit alone, with its verdict;
                          warnings name the policies that are not judged here
    ?order=oldest         lists begin with the oldest (?order=newest, the default, with the newest)
    ?summary=density      their number over time instead of a list; with &bucket=1h, &by=user (resource, namespace,
                          operation), and for all namespaces also &include=clusterrevisions

Rights: the right to revisions (clusterrevisions) in a namespace shows that an object changed. The change itself is
shown to users with the right to get that object, which the authorizers decide for each object. Counting needs the right
to list. A right in one namespace begins with the present namespace of that name.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import orjson

from kubechronicle.actors.external_answers import decide_with_answers
from kubechronicle.actors.history.density import BY, DensityOptions, density
from kubechronicle.actors.history.namespace_creation import created_at
from kubechronicle.actors.history.recorded_reads import RecordedReads
from kubechronicle.actors.history.revisions import NEVER, ChangeReads, Readable
from kubechronicle.actors.history.verdicts import BINDINGS, POLICIES, Audited, Verdicts
from kubechronicle.actors.reading.reads import Selection
from kubechronicle.api.errors import status
from kubechronicle.api.history.moments import parse_moment
from kubechronicle.api.history.revisions import CONTENTS, GROUP
from kubechronicle.api.meta.request_info import RequestInfo
from kubechronicle.api.registry.registry import ResourceType
from kubechronicle.http.authorization.decision import Decision, forbidden_message
from kubechronicle.http.context import Context
from kubechronicle.http.handlers.backend import Backend
from kubechronicle.http.messages import Response
from kubechronicle.http.representation.answers import CACHE_CONTROL

SUMMARY = "summary"
VERDICTS = "verdicts"


def read_revisions(backend: Backend, context: Context) -> Backend:
    """Return the backend with reads of revisions, limited to the rights of the request's user. StatusError 400."""
    content, order = context.query.get("content"), context.query.get("order", "newest")
    if content not in CONTENTS:
        raise status.bad_request(f"content={content}: must be diff, full, states or after, or left out")
    if order not in ("newest", "oldest"):
        raise status.bad_request(f"order={order}: must be newest or oldest")
    wanted = context.query.get(VERDICTS)
    if wanted not in ("", "audited"):
        raise status.bad_request(f"{VERDICTS}={wanted}: must be audited, or left out")
    if wanted and context.info.verb != "list":
        raise status.bad_request(f"{VERDICTS}={wanted}: only lists have verdicts")
    changes = _changes(
        backend,
        context,
        content=content,
        oldest_first=order == "oldest",
        verdicts=_verdicts(backend) if wanted else None,
    )
    return replace(backend, reads=changes)


def _audited(backend: Backend) -> Audited:
    return Audited((), ()) if backend.audited is None else backend.audited.current()


def _verdicts(backend: Backend) -> Verdicts:
    return Verdicts(_audited(backend).policies, backend.store.reads, backend.store.registry)


async def check_policies_listed(backend: Backend, context: Context) -> None:
    """Check the user's right to list the policies whose verdicts are wanted, and their bindings. StatusError 403.

    Warn of those that are left out.
    """
    for resource in (POLICIES, BINDINGS):
        plural, _, group = resource.partition(".")
        await _check_listed(backend, context, group, "v1", plural)
    context.warnings += _audited(backend).left_out


def read_recorded(backend: Backend, context: Context) -> Backend:
    """Return the backend with the recorded reads of objects."""
    return replace(backend, reads=RecordedReads(backend.store.reads, at=context.at))


def _changes(
    backend: Backend,
    context: Context,
    *,
    content: str = "",
    oldest_first: bool = False,
    verdicts: Verdicts | None = None,
) -> ChangeReads:
    reads = backend.store.reads
    return ChangeReads(
        reads.log,
        reads,
        backend.store.registry,
        backend.store.past.deleted,
        readable=_readable(backend, context),
        begins=lambda namespace: first_revision(backend, context, namespace),
        turn=context.turn,
        at=context.at,
        content=next(each for each in CONTENTS if each == content),
        oldest_first=oldest_first,
        verdicts=verdicts,
    )


async def summarize(backend: Backend, context: Context, rt: ResourceType, selection: Selection) -> Response:
    """Answer with the number of revisions that a list would have. StatusError 400; 403 without the right to list the
    included clusterrevisions."""
    wanted = _wanted(context, rt, selection)
    if wanted.everything:
        await _check_listed(backend, context, GROUP, context.info.version, "clusterrevisions")
    changes = _changes(backend, context)
    summary = await density(backend.store.reads.log, changes, await changes.select(rt, selection), wanted)
    return Response(200, [("content-type", "application/json"), CACHE_CONTROL], orjson.dumps(summary))


def _wanted(context: Context, rt: ResourceType, selection: Selection) -> DensityOptions:
    query = context.query
    summary, by, include = query.get(SUMMARY), query.get("by", "resource"), query.get("include")
    if summary != "density":
        raise status.bad_request(f"{SUMMARY}={summary}: must be density, or left out")
    if by not in BY:
        raise status.bad_request(f"by={by}: must be one of {', '.join(BY)}")
    if include and (include != "clusterrevisions" or not rt.namespaced or selection.namespace):
        raise status.bad_request(
            f"include={include}: must be clusterrevisions, with the revisions of all namespaces, or left out"
        )
    return DensityOptions(width=_width(query.get("bucket")), by=by, everything=bool(include))


def _width(text: str) -> timedelta | None:
    if not text:
        return None
    try:
        width = parse_moment(text)
    except ValueError:
        width = 0
    if not isinstance(width, timedelta) or width < timedelta(milliseconds=1):
        raise status.bad_request(f"bucket={text}: must be how long a bucket is, such as 30s, 1h or 1d")
    return width


async def _check_listed(backend: Backend, context: Context, group: str, version: str, resource: str) -> None:
    """Check the user's right to list a resource. StatusError 403."""
    info = RequestInfo(
        path="",
        verb="list",
        is_resource=True,
        group=group,
        version=version,
        resource=resource,
        field_selector=context.info.field_selector,
    )
    verdict = await decide_with_answers(lambda: backend.authorization.decide(context.user, info))
    if verdict.decision is not Decision.ALLOW:
        why = forbidden_message(context.user, info, verdict.reason)
        raise status.forbidden(info, "", why)


def _readable(backend: Backend, context: Context) -> Readable:
    """Return the check for the right to get an object: all of its kind, those in the namespace, or this one by name.
    A right in one namespace begins with it. Each answer is kept for the request. Most readers of many changes may get
    all, so that one question is enough."""
    created: dict[str, int] = {}
    known: dict[tuple[str, str, str], bool] = {}
    user, registry, authorization = context.user, backend.store.registry, backend.authorization

    async def may_get(resource: str, namespace: str, name: str) -> bool:
        key = (resource, namespace, name)
        if key not in known:
            plural, _, group = resource.partition(".")
            rt = registry.storage(resource)
            info = RequestInfo(
                path="",
                verb="get",
                is_resource=True,
                group=rt.group if rt else group,
                version=rt.version if rt else "*",
                namespace=namespace,
                resource=plural,
                name=name,
            )
            verdict = await decide_with_answers(lambda: authorization.decide(user, info))
            known[key] = verdict.decision is Decision.ALLOW
        return known[key]

    async def readable(resource: str, namespace: str, name: str) -> int:
        if await may_get(resource, "", ""):
            return 0
        in_namespace = bool(namespace) and await may_get(resource, namespace, "")
        if not in_namespace and not (name and await may_get(resource, namespace, name)):
            return NEVER
        if namespace and namespace not in created:
            created[namespace] = await created_at(backend.store.reads, namespace)
        return created[namespace] if namespace else 0

    return readable


# -- history of a namespace ---------------------------------------------------------------------------------------
#
# A tenant's rights in a namespace end with it. If the name is used again, the rights of the new tenant cover the
# history since the new namespace was created; the earlier history needs the right to read all namespaces. A deleted
# namespace counts as the present one until its name is used again.
#
#     revision 5    namespace a is created     a reader of Secrets in a alone reads them …
#     revision 9    namespace a is deleted
#     revision 12   namespace a is created     … from revision 12 on


async def first_revision(backend: Backend, context: Context, namespace: str) -> int:
    """Return the first revision of a namespace that the request may read; 0: it may read all."""
    created = await created_at(backend.store.reads, namespace)
    return created if created and not await _reads_all_namespaces(backend, context) else 0


async def check_list(backend: Backend, context: Context, namespace: str, revision: int) -> None:
    """Raise StatusError 410 for a list or watch at a revision before the present namespace: clients list again."""
    if namespace and revision < await created_at(backend.store.reads, namespace):
        created = await first_revision(backend, context, namespace)
        if revision < created:
            raise status.expired(_reason(namespace, revision, created))


async def check_moment(backend: Backend, context: Context, revision: int) -> None:
    """Raise StatusError 403 for a read below /history/at/… of a moment before the present namespace."""
    info = context.info
    if not info.namespace:
        return
    created = await first_revision(backend, context, info.namespace)
    if revision < created:
        why = forbidden_message(context.user, info, _reason(info.namespace, revision, created))
        raise status.forbidden(info, info.name, why)


def _reason(namespace: str, revision: int, created: int) -> str:
    return (
        f"revision {revision} is older than the namespace {namespace}, which was created at revision {created}; "
        "the history of an earlier namespace of this name requires the right to read all namespaces"
    )


async def _reads_all_namespaces(backend: Backend, context: Context) -> bool:
    info = replace(context.info, namespace="")
    verdict = await decide_with_answers(lambda: backend.authorization.decide(context.user, info))
    return verdict.decision is Decision.ALLOW
