"""Which handler answers a path: health, metrics, the web page, discovery, OpenAPI, else resources.

The innermost of the filter chain. Paths of history are answered by the same handlers, but for health, metrics and the
page, which have no past here."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from kubechronicle.http.context import Context
from kubechronicle.http.handlers import history
from kubechronicle.http.handlers.discovery import Discovery
from kubechronicle.http.handlers.openapi import OpenApi
from kubechronicle.http.handlers.resources import Resources, handle
from kubechronicle.http.handlers.ui import Ui
from kubechronicle.http.health import Health, page_not_found
from kubechronicle.http.messages import Request, Response
from kubechronicle.http.metrics import CONTENT_TYPE, Metrics


def router(
    *,
    health: Health,
    metrics: Metrics,
    discovery: Discovery,
    openapi: OpenApi,
    resources: Resources,
    ui: Ui | None = None,
) -> Callable[[Request], Awaitable[Response]]:
    registry = resources.store.registry

    def route(request: Request) -> Awaitable[Response]:
        context = request.attached(Context)
        info = context.info
        if info.is_resource and not context.moment and registry.versions(info.group):
            return handle(resources, request, context)
        return routed(request, context)

    async def routed(request: Request, context: Context) -> Response:
        these = await history.resources_for(resources, request, context) if context.moment else resources
        info = context.info
        if info.is_resource:
            if these.store.registry.versions(info.group):
                return await handle(these, request, context)
            return page_not_found()
        answer = None
        if not context.moment:
            answer = health.answer(request, context)
            if answer is None and request.path == "/metrics" and request.method == "GET":
                answer = Response(200, [("content-type", CONTENT_TYPE)], metrics.exposition())
            if answer is None and ui is not None:
                answer = ui.answer(request)
        if answer is None:
            answer = discovery.answer(request, context)
        if answer is None:
            answer = await openapi.answer(request, context)
        return answer if answer is not None else page_not_found()

    return route
