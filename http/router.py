"""The innermost step of the filter chain: choose the handler by the path.

A path may belong to another server (aggregation/). Any other belongs to health, metrics, the web page, discovery,
OpenAPI or a resource. Paths of history and of branches have the same handlers, except other servers, health, metrics
and the page, of which no past is kept.

Requests for resources: the resource type and the verb of a request, and the handler that answers it.

Stages of such a request here: ``handle`` finds the type, ``answer_resource`` the verb, HANDLERS or SUBRESOURCES the
handler. Reads are answered by reading.py, writes by writing.py, subresources that are no other view of their object by
a module each.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Container, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from kubechronicle.actors.branches.changes import NoChanges
from kubechronicle.actors.external_answers import decide_with_answers
from kubechronicle.actors.reading.converted_reads import ConvertedEntries, ConvertedReads, needs_webhook
from kubechronicle.actors.store import Store
from kubechronicle.api.builtin.kinds import strategy_of
from kubechronicle.api.codecs.errors import NotAcceptableError, UnsupportedMediaTypeError
from kubechronicle.api.errors import status
from kubechronicle.api.history.branches import CHANGES
from kubechronicle.api.history.reads import RESOURCES
from kubechronicle.api.history.revisions import GROUP
from kubechronicle.api.meta.request_info import RequestInfo
from kubechronicle.api.registry.registry import ResourceType
from kubechronicle.eventlog.reset import Reset
from kubechronicle.http.aggregation.discovery import Aggregation
from kubechronicle.http.context import Context, Step
from kubechronicle.http.flow_control.control import FlowControl
from kubechronicle.http.flow_control.dumps import DUMPS, dump
from kubechronicle.http.handlers import bisect, history, machine, proxies, reading, rights, writing
from kubechronicle.http.handlers.backend import Backend
from kubechronicle.http.handlers.discovery import Discovery
from kubechronicle.http.handlers.eviction import bind, evict
from kubechronicle.http.handlers.history import backend_in
from kubechronicle.http.handlers.machine import answer_logs, is_log_path
from kubechronicle.http.handlers.openapi import V2, V3, OpenApi, answer_converted
from kubechronicle.http.handlers.pod_log import read_log
from kubechronicle.http.handlers.responses import compressed, is_long
from kubechronicle.http.handlers.revisions import read_recorded, read_revisions
from kubechronicle.http.handlers.scale import scale
from kubechronicle.http.handlers.token_request import request_token
from kubechronicle.http.handlers.ui import Ui
from kubechronicle.http.health import Health, page_not_found
from kubechronicle.http.messages import Request, Response
from kubechronicle.http.metrics import CONTENT_TYPE, Metrics
from kubechronicle.http.operators import OperatorPages, answer_ephemeral

# -- routes ------------------------------------------------------------------------------------------------------------
#
# The verb of a request for a resource, by method and path: the routes that kube-apiserver registers for a type.
#
# GET    /apis/apps/v1/deployments        list (or watch)     all other methods there: 405
# GET    /apis/apps/v1/deployments/x      no route            404: an object with a namespace has no other path
# GET    /api/v1/namespaces//pods         list of all namespaces; a creation is refused by its rules; by name: 400
# DELETE …/selfsubjectreviews/x           no route            404: no verb of a review takes a name
#
# Custom resources have no such routes: kube-apiserver chooses their handler by the verb and subresource that the path
# names (``custom_verb``), so some of the answers differ.

Methods = Mapping[str, str]

COLLECTION: Final[Methods] = {"GET": "list", "POST": "create", "DELETE": "deletecollection"}
COLLECTION_VERBS: Final = frozenset((*COLLECTION.values(), "watch"))
EVERYWHERE: Final[Methods] = {"GET": "list"}
NAMED: Final[Methods] = {"GET": "get", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
SUBRESOURCE: Final[Methods] = {"GET": "get", "PUT": "update", "PATCH": "patch", "POST": "create"}
WATCHED: Final[Methods] = {"GET": "watch"}
NONE: Final[Methods] = {}


def route(method: str, info: RequestInfo, rt: ResourceType, own_subresources: Container[str]) -> str:
    """Return the verb. StatusError 404 if nothing is served at the path, 405 for another method.

    ``own_subresources``: those that are no other view of their object.
    """
    if not info.subresource and bool(info.namespace) == rt.namespaced and "//" not in info.path:
        # Most paths are plain. All rules below are met if the method's verb is the authorized one.
        verb = (NAMED if info.name else COLLECTION).get(method, "")
        if verb == info.verb and verb in rt.verbs and not info.deprecated_watch and len(info.parts) <= 3:
            return verb
    if len(info.parts) > 3 or (info.namespace and not _may_be_below(info, rt)):
        raise status.path_not_found()
    is_unnamed = "//" in info.path.rstrip("/")
    if is_unnamed and not _names_no_namespace(info, rt):
        raise status.path_not_found()
    methods, verbs = _routes(info, rt, own_subresources, is_everywhere=not is_unnamed and _is_everywhere(info, rt))
    if not any(verb in verbs for verb in methods.values()):
        raise status.path_not_found()
    verb = methods.get(method, "")
    if verb not in verbs:
        raise status.method_not_allowed()
    if verb == "list" and info.verb == "watch":
        verb = "watch"
    if is_unnamed and (info.name or verb not in COLLECTION_VERBS):
        raise status.bad_request("Namespace parameter required.")
    if verb != info.verb:
        # Another verb was authorized: the old verbs in paths (/proxy/…, /watch/… before a subresource) are not served.
        raise status.path_not_found()
    return verb


CUSTOM_SUBRESOURCE_VERBS: Final = frozenset(("get", "update", "patch"))


def is_custom_path(info: RequestInfo, rt: ResourceType) -> bool:
    """Tell whether a path that names a custom resource belongs to it: both have a namespace, or none.

    Lists and watches may be of all namespaces.
    """
    if rt.namespaced:
        return bool(info.namespace) or info.verb in ("list", "watch")
    return not info.namespace


def custom_verb(info: RequestInfo, rt: ResourceType) -> str:
    """Return the verb of a request for a custom resource. StatusError 404 for an unknown subresource, 405 for a verb.

    Source: apiextensions-apiserver ``pkg/apiserver/customresource_handler.go``.
    """
    if info.subresource and info.subresource not in rt.subresources:
        raise status.not_found(rt, info.name)
    if info.verb not in (CUSTOM_SUBRESOURCE_VERBS if info.subresource else rt.verbs):
        raise status.method_not_supported(rt, info.verb)
    if info.verb in ("update", "patch") and not info.name:
        raise status.bad_request("name must be provided")
    return info.verb


def _names_no_namespace(info: RequestInfo, rt: ResourceType) -> bool:
    """Tell whether the path is …/namespaces//pods: that of a namespace with an empty name, and well formed elsewhere. A
    list there is one of all namespaces, and was authorized as such."""
    found = "/namespaces//" in info.path and info.path.count("//") == 1 and "///" not in info.path
    return found and rt.namespaced and not info.namespace and not info.deprecated_watch


def _is_everywhere(info: RequestInfo, rt: ResourceType) -> bool:
    return rt.namespaced and not info.namespace


def _may_be_below(info: RequestInfo, rt: ResourceType) -> bool:
    """Tell whether objects of the type exist below a namespace. Of cluster-scoped ones only the Namespace itself does:
    rights in a namespace must not authorize anything outside of it."""
    if rt.namespaced:
        return True
    itself = rt.resource == "namespaces" and info.name == info.namespace
    return itself and f"/namespaces/{info.namespace}/namespaces/" not in info.path


def _routes(
    info: RequestInfo, rt: ResourceType, own_subresources: Container[str], *, is_everywhere: bool
) -> tuple[Methods, Container[str]]:
    """Return the methods of this shape of path, and the verbs that the type serves. ``is_everywhere``: the path names
    no namespace of a type that has them."""
    if info.subresource:
        subresource = rt.subresources.get(info.subresource)
        served = info.subresource in own_subresources or info.subresource in strategy_of(rt.resource).subresources
        if subresource is None or not served or is_everywhere:
            return NONE, ()
        return SUBRESOURCE, subresource.verbs
    if info.name and is_everywhere:
        return NONE, ()
    if info.deprecated_watch:
        return WATCHED, rt.verbs
    if info.name:
        return NAMED, rt.verbs
    return (EVERYWHERE if is_everywhere else COLLECTION), rt.verbs


# -- resources ---------------------------------------------------------------------------------------------------------

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


async def _stream_pod(backend: Backend, request: Request, context: Context, rt: ResourceType) -> Response:
    # Imported with the first session: it brings Hypercorn, whose import is slow.
    from kubechronicle.http.handlers.pod_streams import stream_pod

    return await stream_pod(backend, request, context, rt)


# Subresources that are no other view of their object.
SUBRESOURCES: Final[Mapping[str, Handler]] = {
    "scale": scale,
    "binding": bind,
    "eviction": evict,
    "token": request_token,
    "log": read_log,
    "exec": _stream_pod,
    "attach": _stream_pod,
    "portforward": _stream_pod,
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
    return await answer_resource(backend, request, context, rt)


async def answer_resource(backend: Backend, request: Request, context: Context, rt: ResourceType) -> Response:
    """Answer a request for a resource of this type. StatusError 404, 405."""
    info = context.info
    if rt.custom is not None and not is_custom_path(info, rt):
        return page_not_found()
    if info.subresource == "proxy" and proxies.is_proxied(rt, context):
        context.large = backend.store.writes.large
        try:
            return await proxies.connect(backend, request, context, rt)
        finally:
            context.end_turn()
    if rt.custom is not None:
        _warn(backend, context, rt)
        verb = custom_verb(info, rt)
    else:
        verb = route(request.method, info, rt, SUBRESOURCES)
        if (rt.warning or rt.deprecated) and rt.subresources.get(info.subresource, rt).kind == rt.kind:
            _warn(backend, context, rt)
    if verb not in rt.verbs and verb == "watch":
        raise status.method_not_supported(rt, verb)
    context.large = backend.store.writes.large
    if rt.of_log:
        if rt.plural in RESOURCES:
            backend = read_recorded(backend, context)
        else:
            backend = await read_revisions(backend, request, context)
    elif rt.group == GROUP and rt.plural == CHANGES and not context.branch:
        context.warnings.append("the changes of a branch are listed below /branch/NAME/ alone")
        backend = replace(backend, reads=NoChanges(backend.store.reads))
    elif rt.deprecated and rt.plural == machine.RESOURCE and not context.moment:
        backend = replace(backend, reads=machine.ComponentStatuses(backend.store.reads))
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
        return await compressed(backend.compressing, request, response) if is_long(response) else response
    except (NotAcceptableError, UnsupportedMediaTypeError) as error:
        # kube-apiserver's router rejects these before it knows the type.
        if error.at_route and rt.warning in context.warnings:
            context.warnings.remove(rt.warning)
        raise
    finally:
        context.end_turn()


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnPages:
    """The pages about this server, of which no past is kept. Those that are None are not served."""

    health: Health
    metrics: Metrics
    ui: Ui | None
    flow_control: FlowControl | None
    pages: OperatorPages
    reset: Reset | None
    logs: bool

    async def answer(self, request: Request, context: Context) -> Response | None:
        """Return the answer; None: the path is another one."""
        answer = self.health.answer(request, context)
        if answer is None and request.path == "/metrics" and request.method != "DELETE":
            answer = Response(200, [("content-type", CONTENT_TYPE)], await self.metrics.exposition_by_thread())
        if answer is None and self.flow_control is not None and request.path.startswith(DUMPS):
            answer = dump(self.flow_control, request.path, context.query)
        if answer is None:
            answer = await self.pages.answer(request, context.query.as_dict())
        if answer is None and self.reset is not None:
            answer = await answer_ephemeral(self.reset, request, context)
        if answer is None and self.ui is not None:
            answer = self.ui.answer(request)
        if answer is None and self.logs and is_log_path(request.path):
            answer = await answer_logs(request)
        return answer


def router(
    own: OwnPages,
    discovery: Discovery,
    openapi: OpenApi,
    backend: Backend,
    *,
    aggregation: Aggregation | None,
    reads_only: str,
) -> Step:
    """Return the handler of all paths. ``reads_only``: as in HttpSettings."""
    served = backend.store.served

    def route(request: Request, context: Context) -> Awaitable[Response]:
        info = context.info
        if reads_only:
            history.check_reads(backend, request, context, reads_only)
        if aggregation is not None and not context.moment and not context.branch:
            remote = aggregation.routes.find(request.path)
            if remote is not None:
                converted = aggregation.openapi.converted(remote) if request.path.startswith(V3) else None
                if converted is not None:
                    return answer_converted(request, context, converted)
                return aggregation.proxy.answer(request, context, remote, backend.drain, backend.kept)
        if info.is_resource and not context.moment and not context.branch:
            rt = served.registry.lookup(info.group, info.version, info.resource)
            if rt is not None:
                return answer_resource(backend, request, context, rt)
        return route_other(request, context)

    async def route_other(request: Request, context: Context) -> Response:
        if context.branch:
            served_there = await backend_in(backend, request, context)
        else:
            served_there = await history.backend_at(backend, request, context) if context.moment else backend
        info, elsewhere = context.info, context.moment or context.branch
        if info.is_resource:
            there = served_there.store
            if not context.moment and not there.registry.versions(info.group):
                await there.reads.wait_consistent()  # another replica may just have established a definition
            if there.registry.versions(info.group):
                return await handle(served_there, request, context)
            return page_not_found()
        registry = served_there.store.registry
        others = aggregation.discovery.others(registry) if aggregation is not None and not elsewhere else None
        # Discovery, which clients ask for most, is below /api and /apis. No page of this server is.
        answer = None if elsewhere or request.path.startswith("/api") else await own.answer(request, context)
        if answer is None:
            answer = await decide_with_answers(partial(discovery.answer, request, context, registry, others))
        if answer is None:
            remote = await aggregation.openapi.documents() if others and aggregation and request.path == V2 else ()
            answer = await openapi.answer(request, context, registry, others.openapi() if others else None, remote)
        return answer if answer is not None else page_not_found()

    return route


def is_served(store: Store, info: RequestInfo) -> bool:
    """Tell whether the resource and subresource of a request exist."""
    rt = store.served.registry.lookup(info.group, info.version, info.resource)
    return rt is not None and (not info.subresource or info.subresource in rt.subresources)
