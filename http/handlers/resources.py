"""Requests for resources: the resource type and the verb of a request, and the handler that answers it.

Stages of a request here: ``handle`` finds the type, ``answer`` the verb, HANDLERS or SUBRESOURCES the handler. Reads
are answered by reading.py, writes by writing.py, subresources that are no other view of their object by a module each.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import Final

from kubechronicle.actors.branches.changes import NoChanges
from kubechronicle.actors.conversion.converted_reads import ConvertedEntries, ConvertedReads, needs_webhook
from kubechronicle.api.codecs.errors import NotAcceptableError, UnsupportedMediaTypeError
from kubechronicle.api.errors import status
from kubechronicle.api.history.branches import CHANGES
from kubechronicle.api.history.reads import RESOURCES
from kubechronicle.api.history.revisions import GROUP
from kubechronicle.api.registry.registry import ResourceType
from kubechronicle.http.context import Context
from kubechronicle.http.handlers import proxies, reading, writing
from kubechronicle.http.handlers.backend import Backend
from kubechronicle.http.handlers.eviction import evict
from kubechronicle.http.handlers.machine import component_statuses
from kubechronicle.http.handlers.pod_binding import bind
from kubechronicle.http.handlers.pod_log import read_log
from kubechronicle.http.handlers.questions import bisect, rights
from kubechronicle.http.handlers.responses import compressed, is_long
from kubechronicle.http.handlers.revisions import read_recorded, read_revisions
from kubechronicle.http.handlers.routes import custom_verb, is_custom_path, route
from kubechronicle.http.handlers.scale import scale
from kubechronicle.http.handlers.sessions.pod_streams import stream_pod
from kubechronicle.http.handlers.token_request import request_token
from kubechronicle.http.health import page_not_found
from kubechronicle.http.messages import Request, Response

Handler = Callable[[Backend, Request, Context, ResourceType], Awaitable[Response]]

HANDLERS: Final[Mapping[str, Handler]] = {
    "get": reading.get,
    "list": reading.list_,
    "watch": reading.begin_watch,
    "create": writing.create,
    "update": writing.update,
    "patch": writing.patch,
    "delete": writing.delete,
    "deletecollection": writing.delete_collection,
}
# Subresources that are no other view of their object.
SUBRESOURCES: Final[Mapping[str, Handler]] = {
    "scale": scale,
    "binding": bind,
    "eviction": evict,
    "token": request_token,
    "log": read_log,
    "exec": stream_pod,
    "attach": stream_pod,
    "portforward": stream_pod,
}
# Questions about history: lists and watches of revisions with one of these summaries. Others are in revisions.py.
QUESTIONS: Final[Mapping[tuple[str, str], Handler]] = {
    ("rights", "list"): rights.answer,
    ("bisect", "list"): bisect.answer,
    ("bisect", "watch"): bisect.answer,
}


def _warn(backend: Backend, context: Context, rt: ResourceType) -> None:
    """Note a request for a deprecated version, and warn the client."""
    if rt.warning:
        context.warnings.append(rt.warning)
    if rt.deprecated:
        deprecated = (rt.group, rt.version, rt.plural, context.info.subresource)
        backend.metrics.requested_deprecated(*deprecated, str(rt.removed or ""))
        if context.audit is not None:  # only at the end, as in kube-apiserver: a watch begins without them
            context.audit.annotate_late("k8s.io/deprecated", "true")
            if rt.removed:
                context.audit.annotate_late("k8s.io/removed-release", str(rt.removed))


async def handle(backend: Backend, request: Request, context: Context) -> Response:
    """Answer a request whose path names a resource of a served group. StatusError 404, 405."""
    info = context.info
    rt = backend.store.registry.lookup(info.group, info.version, info.resource)
    if rt is None:
        # Another replica may just have established its definition.
        await backend.store.reads.wait_consistent()
        rt = backend.store.registry.lookup(info.group, info.version, info.resource)
    if rt is None:
        if not backend.store.registry.has_builtin(info.group):
            return page_not_found()
        raise status.path_not_found()
    return await answer(backend, request, context, rt)


async def answer(backend: Backend, request: Request, context: Context, rt: ResourceType) -> Response:
    """Answer a request for a resource of this type. StatusError 404, 405."""
    info = context.info
    if rt.custom is not None and not is_custom_path(info, rt):
        return page_not_found()
    if info.subresource == "proxy" and proxies.is_proxied(rt, context):
        context.turn = backend.store.writes.large.turn(context.user.name)
        try:
            return await proxies.connect(backend, request, context, rt)
        finally:
            context.turn.end()
    if rt.custom is not None:
        _warn(backend, context, rt)
        verb = custom_verb(info, rt)
    else:
        verb = route(request.method, info, rt, SUBRESOURCES)
        if (rt.warning or rt.deprecated) and rt.subresources.get(info.subresource, rt).kind == rt.kind:
            _warn(backend, context, rt)
    if verb not in rt.verbs and verb == "watch":
        raise status.method_not_supported(rt, verb)
    turn = context.turn = backend.store.writes.large.turn(context.user.name)
    if rt.of_log:
        if rt.plural in RESOURCES:
            backend = read_recorded(backend, context)
        else:
            backend = await read_revisions(backend, request, context)
    elif rt.group == GROUP and rt.plural == CHANGES and not context.branch:
        context.warnings.append("the changes of a branch are listed below /branch/NAME/ alone")
        backend = replace(backend, reads=NoChanges(backend.store.reads))
    elif rt.deprecated and rt.plural == component_statuses.RESOURCE and not context.moment:
        backend = replace(backend, reads=component_statuses.ComponentStatuses(backend.store.reads))
    if rt.custom is not None and needs_webhook(rt):
        converted = ConvertedEntries(backend.store.conversions, rt)
        backend = replace(backend, reads=ConvertedReads(backend.reads, converted), converted=converted)
    handler = SUBRESOURCES.get(info.subresource) or HANDLERS[verb]
    if rt.resource == "bindings" and verb == "create":
        handler = bind
    if rt.of_log and rt.plural not in RESOURCES:
        handler = QUESTIONS.get((context.query.get("summary"), verb), handler)
    try:
        response = await handler(backend, request, context, rt)
        return await compressed(backend, request, response) if is_long(response) else response
    except (NotAcceptableError, UnsupportedMediaTypeError) as error:
        # kube-apiserver's router rejects these before it knows the type.
        if error.at_route and rt.warning in context.warnings:
            context.warnings.remove(rt.warning)
        raise
    finally:
        turn.end()
