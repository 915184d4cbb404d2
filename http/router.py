"""The innermost step of the filter chain: choose the handler by the path.

A path may belong to another server (aggregation/). Any other belongs to health, metrics, the web page, discovery,
OpenAPI or a resource. Paths of history and of branches have the same handlers, except other servers, health, metrics
and the page, of which no past is kept.
"""

from __future__ import annotations

from collections.abc import Awaitable
from dataclasses import dataclass
from functools import partial

from kubechronicle.actors.external_answers import decide_with_answers
from kubechronicle.actors.store import Store
from kubechronicle.api.meta.request_info import RequestInfo
from kubechronicle.eventlog.reset import Reset
from kubechronicle.http.aggregation.discovery import Aggregation
from kubechronicle.http.context import Context, Step
from kubechronicle.http.flow_control.control import FlowControl
from kubechronicle.http.flow_control.dumps import DUMPS, dump
from kubechronicle.http.handlers import history
from kubechronicle.http.handlers.backend import Backend
from kubechronicle.http.handlers.branch_requests import backend_in
from kubechronicle.http.handlers.discovery import Discovery
from kubechronicle.http.handlers.machine import answer_logs, is_log_path
from kubechronicle.http.handlers.openapi import V2, V3, OpenApi, answer_converted
from kubechronicle.http.handlers.resources import answer, handle
from kubechronicle.http.handlers.ui import Ui
from kubechronicle.http.health import Health, page_not_found
from kubechronicle.http.messages import Request, Response
from kubechronicle.http.metrics import CONTENT_TYPE, Metrics
from kubechronicle.http.operators import OperatorPages, answer_ephemeral


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
                return answer(backend, request, context, rt)
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
        answer = None if elsewhere else await own.answer(request, context)
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
