"""Which handler answers a path: health, metrics, discovery, OpenAPI, else resources; innermost of the filter chain."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from kubechronicle.http.context import Context
from kubechronicle.http.handlers.discovery import Discovery
from kubechronicle.http.handlers.openapi import OpenApi
from kubechronicle.http.handlers.resources import Resources, handle
from kubechronicle.http.health import Health, page_not_found
from kubechronicle.http.messages import Request, Response
from kubechronicle.http.metrics import CONTENT_TYPE, Metrics


def router(
    *, health: Health, metrics: Metrics, discovery: Discovery, openapi: OpenApi, resources: Resources
) -> Callable[[Request], Awaitable[Response]]:
    async def route(request: Request) -> Response:
        context = request.attached(Context)
        info = context.info
        if info.is_resource:
            if resources.store.registry.versions(info.group):
                return await handle(resources, request, context)
            return page_not_found()
        answer = health.answer(request, context)
        if answer is None and request.path == "/metrics" and request.method == "GET":
            answer = Response(200, [("content-type", CONTENT_TYPE)], metrics.exposition())
        if answer is None:
            answer = discovery.answer(request, context)
        if answer is None:
            answer = await openapi.answer(request, context)
        return answer if answer is not None else page_not_found()

    return route
