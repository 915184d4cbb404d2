"""Revisions (history.kubechronicle.dev): the ordinary handlers of get, list and watch, on the changes of the log.

    ?content=diff|full    lists and watches tell diffs, or the objects before and after as well; a get tells all
    ?order=oldest         lists begin with the oldest (?order=newest, the default, with the newest)
    ?summary=density      how many there are over time, instead of a list of them; with &bucket=1h, &by=user (resource,
                          namespace, operation), and of revisions in all namespaces &include=clusterrevisions

Rights: those on revisions (clusterrevisions) in the namespace let one see that something changed. What changed is told
to those who may get the object itself, asked of the authorizers for each object. Counting takes the right to list.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING

import orjson

from kubechronicle.actors.external_answers import decide_with_answers
from kubechronicle.actors.history.density import BY, Wanted, density
from kubechronicle.actors.history.revisions import ChangeReads, Readable
from kubechronicle.actors.reading.reads import Selection
from kubechronicle.api.errors import status
from kubechronicle.api.history.moments import parse_moment
from kubechronicle.api.history.revisions import CONTENTS, GROUP
from kubechronicle.api.registry.registry import ResourceType
from kubechronicle.http.authorization.decision import Decision, forbidden_message
from kubechronicle.http.context import Context
from kubechronicle.http.messages import Response
from kubechronicle.http.representation.answers import CACHE_CONTROL
from kubechronicle.http.request_info import RequestInfo

SUMMARY = "summary"

if TYPE_CHECKING:
    from kubechronicle.http.handlers.resources import Resources


def reading_changes(resources: Resources, context: Context) -> Resources:
    """The same, reading revisions as this request's user may. StatusError 400."""
    content, order = context.query.get("content"), context.query.get("order", "newest")
    if content not in CONTENTS:
        raise status.bad_request(f"content={content}: must be diff or full, or left out")
    if order not in ("newest", "oldest"):
        raise status.bad_request(f"order={order}: must be newest or oldest")
    return replace(resources, reads=_changes(resources, context, content=content, oldest_first=order == "oldest"))


def _changes(resources: Resources, context: Context, *, content: str = "", oldest_first: bool = False) -> ChangeReads:
    reads = resources.store.reads
    return ChangeReads(
        reads.log,
        reads,
        resources.store.registry,
        readable=_readable(resources, context),
        at=context.at,
        content=next(each for each in CONTENTS if each == content),
        oldest_first=oldest_first,
    )


async def summarized(resources: Resources, context: Context, rt: ResourceType, selection: Selection) -> Response:
    """How many revisions a list would tell. StatusError 400; 403 where the other revisions may not be listed."""
    wanted = _wanted(context, rt, selection)
    if wanted.everything:
        await _check_listed(resources, context)
    changes = _changes(resources, context)
    found = await density(resources.store.reads.log, changes, await changes.asked(rt, selection), wanted)
    return Response(200, [("content-type", "application/json"), CACHE_CONTROL], orjson.dumps(found))


def _wanted(context: Context, rt: ResourceType, selection: Selection) -> Wanted:
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
    return Wanted(width=_width(query.get("bucket")), by=by, everything=bool(include))


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


async def _check_listed(resources: Resources, context: Context) -> None:
    """Whether the user may list clusterrevisions, too. StatusError 403."""
    info = RequestInfo(
        path="",
        verb="list",
        is_resource=True,
        group=GROUP,
        version=context.info.version,
        resource="clusterrevisions",
        field_selector=context.info.field_selector,
    )
    verdict = await decide_with_answers(lambda: resources.authorization.decide(context.user, info))
    if verdict.decision is not Decision.ALLOW:
        why = forbidden_message(context.user, info, verdict.reason)
        raise status.forbidden(info.group_resource, "", why)


def _readable(resources: Resources, context: Context) -> Readable:
    """Whether the user may get an object: any of its kind there, or this one by name. Each is asked once a request."""
    known: dict[tuple[str, str, str], bool] = {}
    user, registry, authorization = context.user, resources.store.registry, resources.authorization

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

    async def readable(resource: str, namespace: str, name: str) -> bool:
        return await may_get(resource, namespace, "") or await may_get(resource, namespace, name)

    return readable
