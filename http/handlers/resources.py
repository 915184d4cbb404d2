"""Requests for resources: the resource type and the verb of a request, and the handler that answers it.

Stages of a request here: ``handle`` finds the type and the verb, HANDLERS or SUBRESOURCES the handler. Reads are
answered by reading.py, writes by writing.py, subresources that are no other view of their object by a module each.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from kubechronicle.api.builtin.strategies import strategy_of
from kubechronicle.api.errors import status
from kubechronicle.api.meta.request_info import RequestInfo
from kubechronicle.api.registry.registry import ResourceType
from kubechronicle.api.registry.resources import HISTORY
from kubechronicle.http.context import Context
from kubechronicle.http.handlers import reading, writing
from kubechronicle.http.handlers.backend import Backend
from kubechronicle.http.handlers.eviction import evict
from kubechronicle.http.handlers.pod_binding import bind
from kubechronicle.http.handlers.responses import compressed
from kubechronicle.http.handlers.revisions import read_revisions
from kubechronicle.http.handlers.scale import scale
from kubechronicle.http.handlers.token_request import request_token
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
}


async def handle(backend: Backend, request: Request, context: Context) -> Response:
    """Answer a request whose path names a resource of a served group-version. StatusError 404, 405."""
    info = context.info
    rt = backend.store.registry.lookup(info.group, info.version, info.resource)
    if rt is None or len(info.parts) > 3 or (info.namespace and not _may_be_below(info, rt)):
        raise status.path_not_found()
    verb = _verb(request.method, info, rt)
    if verb != info.verb:
        # Another verb was authorized: the old verbs in paths (/proxy/…, /watch/… before a subresource) are not served.
        raise status.path_not_found()
    if rt.warning and rt.subresources.get(info.subresource, rt).kind == rt.kind:
        context.warnings.append(rt.warning)
        deprecated = (rt.group, rt.version, rt.plural, info.subresource)
        backend.metrics.requested_deprecated(*deprecated, rt.removed_release)
    if rt.group == HISTORY:
        backend = read_revisions(backend, context)
    handler = SUBRESOURCES.get(info.subresource) or HANDLERS[verb]
    if rt.resource == "bindings" and verb == "create":
        handler = bind
    turn = context.turn = backend.store.writes.large.turn(context.user.name)
    try:
        return await compressed(backend, request, await handler(backend, request, context, rt))
    finally:
        turn.end()


def _may_be_below(info: RequestInfo, rt: ResourceType) -> bool:
    """Tell whether objects of the type exist below a namespace. Of cluster-scoped ones only the Namespace itself does:
    rights in a namespace must not authorize anything outside of it."""
    return rt.namespaced or (rt.resource == "namespaces" and info.name == info.namespace)


def _verb(method: str, info: RequestInfo, rt: ResourceType) -> str:
    """Return the verb by method and path. StatusError 404, 405 if the resource does not serve it."""
    if info.subresource:
        subresource = rt.subresources.get(info.subresource)
        served = info.subresource in SUBRESOURCES or info.subresource in strategy_of(rt.resource).subresources
        if subresource is None or not served:
            raise status.path_not_found()
        verb = {"GET": "get", "PUT": "update", "PATCH": "patch", "POST": "create"}.get(method, "")
        if verb not in subresource.verbs or (rt.namespaced and not info.namespace):
            raise status.method_not_allowed()
        return verb
    if info.deprecated_watch:
        verb = "watch" if method == "GET" else ""
    elif info.name:
        verb = {"GET": "get", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}.get(method, "")
    else:
        verb = {"GET": "list", "POST": "create", "DELETE": "deletecollection"}.get(method, "")
        verb = "watch" if info.verb == "watch" else verb
    if verb not in rt.verbs or (rt.namespaced and not info.namespace and verb not in ("list", "watch")):
        raise status.method_not_allowed()
    return verb
