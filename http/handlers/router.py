"""The innermost step of the filter chain: choose the handler by the path.

A path may belong to another server (aggregation/). Any other belongs to health, metrics, the web page, discovery,
OpenAPI or a resource. Paths of history and of branches have the same handlers, except other servers, health, metrics
and the page, of which no past is kept.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial

from kubechronicle.actors.external_answers import decide_with_answers
from kubechronicle.http.aggregation.aggregation import Aggregation
from kubechronicle.http.context import Context, Step
from kubechronicle.http.flow_control.control import FlowControl
from kubechronicle.http.flow_control.dumps import DUMPS, dump
from kubechronicle.http.handlers import history
from kubechronicle.http.handlers.backend import Backend
from kubechronicle.http.handlers.branches.branch_requests import backend_in
from kubechronicle.http.handlers.discovery import Discovery
from kubechronicle.http.handlers.machine.log_files import answer_logs, is_log_path
from kubechronicle.http.handlers.openapi import V2, V3, OpenApi, answer_converted
from kubechronicle.http.handlers.resources import answer, handle
from kubechronicle.http.handlers.ui import Ui
from kubechronicle.http.health import Health, page_not_found
from kubechronicle.http.messages import Request, Response
from kubechronicle.http.metrics import CONTENT_TYPE, Metrics
from kubechronicle.http.operators.pages import OperatorPages


def router(
    *,
    health: Health,
    metrics: Metrics,
    discovery: Discovery,
    openapi: OpenApi,
    backend: Backend,
    ui: Ui | None = None,
    aggregation: Aggregation | None = None,
    flow_control: FlowControl | None = None,
    pages: OperatorPages | None = None,
    logs: bool = False,
) -> Step:
    served = backend.store.served

    def route(request: Request, context: Context) -> Awaitable[Response]:
        info = context.info
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
                return answer(backend, request, context, rt)
        return route_other(request, context)

    own_page = _own_pages(health, metrics, ui, flow_control, pages, logs=logs)

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
        answer = None if elsewhere else await own_page(request, context)
        if answer is None:
            answer = await decide_with_answers(partial(discovery.answer, request, context, registry, others))
        if answer is None:
            remote = await aggregation.openapi.documents() if others and aggregation and request.path == V2 else ()
            answer = await openapi.answer(request, context, registry, others.openapi() if others else None, remote)
        return answer if answer is not None else page_not_found()

    return route


def _own_pages(
    health: Health,
    metrics: Metrics,
    ui: Ui | None,
    flow_control: FlowControl | None,
    pages: OperatorPages | None,
    *,
    logs: bool,
) -> Callable[[Request, Context], Awaitable[Response | None]]:
    """Return the handler of pages about this server, of which no past is kept. It returns None for another path."""

    async def answered(request: Request, context: Context) -> Response | None:
        answer = health.answer(request, context)
        if answer is None and request.path == "/metrics" and request.method != "DELETE":
            answer = Response(200, [("content-type", CONTENT_TYPE)], await metrics.exposition_by_thread())
        if answer is None and flow_control is not None and request.path.startswith(DUMPS):
            answer = dump(flow_control, request.path, context.query)
        if answer is None and pages is not None:
            answer = await pages.answer(request, context.query.as_dict())
        if answer is None and ui is not None:
            answer = ui.answer(request)
        if answer is None and logs and is_log_path(request.path):
            answer = await answer_logs(request)
        return answer

    return answered
