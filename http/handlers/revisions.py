"""Revisions (history.kubechronicle.dev): the ordinary handlers of get, list and watch, on the changes of the log.

    ?content=diff|full    lists and watches tell diffs, or the objects before and after as well; a get tells all
    ?order=oldest         lists begin with the oldest (?order=newest, the default, with the newest)

Rights: those on revisions (clusterrevisions) in the namespace let one see that something changed. What changed is told
to those who may get the object itself, asked of the authorizers for each object.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from kubechronicle.actors.past_changes import ChangeReads, Readable
from kubechronicle.actors.questions import decided
from kubechronicle.api import status
from kubechronicle.api.history import CONTENTS
from kubechronicle.http.authorization.decision import Decision
from kubechronicle.http.context import Context
from kubechronicle.http.request_info import RequestInfo

if TYPE_CHECKING:
    from kubechronicle.http.handlers.resources import Resources


def reading_changes(resources: Resources, context: Context) -> Resources:
    """The same, reading revisions as this request's user may. StatusError 400."""
    content, order = context.query.get("content"), context.query.get("order", "newest")
    if content not in CONTENTS:
        raise status.bad_request(f"content={content}: must be diff or full, or left out")
    if order not in ("newest", "oldest"):
        raise status.bad_request(f"order={order}: must be newest or oldest")
    reads = resources.store.reads
    changes = ChangeReads(
        reads.log, reads, resources.store.registry,
        readable=_readable(resources, context), at=context.at,
        content=next(each for each in CONTENTS if each == content), oldest_first=order == "oldest",
    )  # fmt: skip
    return replace(resources, reads=changes)


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
                path="", verb="get", is_resource=True, group=rt.group if rt else group,
                version=rt.version if rt else "*", namespace=namespace, resource=plural, name=name,
            )  # fmt: skip
            verdict = await decided(lambda: authorization.decide(user, info))
            known[key] = verdict.decision is Decision.ALLOW
        return known[key]

    async def readable(resource: str, namespace: str, name: str) -> bool:
        return await may_get(resource, namespace, "") or await may_get(resource, namespace, name)

    return readable
