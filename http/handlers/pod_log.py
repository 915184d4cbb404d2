"""GET …/pods/NAME/log: the log of a container, from the kubelet of its node, as it arrives.

The stream ends with the kubelet's answer, with the client, or when the server drains. An answer that the kubelet cuts
is cut for the client, too.
"""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator
from functools import partial
from typing import Final

import trio

from kubechronicle.api.errors import status
from kubechronicle.api.registry.registry import ResourceType
from kubechronicle.api.subresources import pod_log
from kubechronicle.api.subresources.pod_log import PodLogOptions
from kubechronicle.http.context import Context
from kubechronicle.http.handlers.backend import Backend
from kubechronicle.http.handlers.kubelets import kubelet_of, read_object
from kubechronicle.http.messages import SWITCHED, Request, Response
from kubechronicle.http.proxying.backend_request import AnswerBody, BackendFailed, BackendRequest, close_now
from kubechronicle.http.proxying.dialing import DialError
from kubechronicle.http.proxying.kubelets import KubeletAddress
from kubechronicle.http.representation.answers import CACHE_CONTROL

MAX_ERROR: Final = 50_000
"""Bytes of a kubelet's error that are passed on (k8s.io/apiserver: maxReadLength)."""
ERROR_WAIT: Final = 10.0
"""Seconds for the text of a kubelet's error."""
BASE64: Final = "base64.binary.k8s.io"
UNVERIFIED: Final = "x509:"
"""Part of the text of every failed verification, as Go words it."""


async def read_log(backend: Backend, request: Request, context: Context, rt: ResourceType) -> Response:
    """Answer with the log; 204 for a pod without a node. StatusError 400, 404, 422, 500. ``rt`` is pods."""
    info = context.info
    split = backend.features.enabled(pod_log.SPLIT_STREAMS)
    options = pod_log.parse(context.query.as_dict(), split=split)
    backend.metrics.streams.log_requested(insecure=options.insecure)
    pod_log.validate(options, info.name, split=split)
    look = partial(pod_log.place_of, options=options)
    node, target = await read_object(backend, context, "pods", info.namespace, info.name, look)
    if not node:
        return Response(204, [CACHE_CONTROL])
    address = await kubelet_of(backend, context, node, missing=rt)  # sic: kube-apiserver names the request's resource
    body = await _ask(backend, address, target, options, info.name)
    body.end_with(backend.drain)
    if request.is_websocket:
        return await _converse(request, body)
    return Response(200, [("content-type", "text/plain"), CACHE_CONTROL], body)


async def _ask(backend: Backend, address: KubeletAddress, target: str, options: PodLogOptions, name: str) -> AnswerBody:
    """Return the log as the kubelet sends it. StatusError: the kubelet cannot be reached, or rejects the request."""
    try:
        server = backend.kubelets.server(address, insecure=options.insecure)
        stream = await server.dial()
    except DialError as error:
        if UNVERIFIED in str(error):
            backend.metrics.streams.log_unverified()
        raise _failed(address, target, error) from None
    kept = False
    try:
        asked = BackendRequest(stream, method="GET", fields=server.fields)
        await asked.send_head(
            target, [("host", str(address)), ("user-agent", "kubechronicle"), ("connection", "close")]
        )
        head = await asked.receive_head()
        if 200 <= head.status <= 206:
            kept = True
            return asked.body()
        if 300 <= head.status <= 308 and head.get("location"):
            raise status.unknown(f'Get "{head.get("location")}": redirects forbidden')
        raise pod_log.kubelet_error(head.status, await _error_text(asked), name)
    except BackendFailed as error:
        raise _failed(address, target, error) from None
    finally:
        if not kept:
            close_now(stream)


def _failed(address: KubeletAddress, target: str, error: Exception) -> status.StatusError:
    return status.unknown(f'Get "https://{address}{target}": {error}')


async def _error_text(asked: BackendRequest) -> str:
    text = b""
    with trio.move_on_after(ERROR_WAIT):
        while len(text) < MAX_ERROR:
            part = await asked.next_part()
            if not part:
                break
            text += part
    return text[:MAX_ERROR].decode("utf-8", "replace")


async def _converse(request: Request, body: AnswerBody) -> Response:
    """Send the log as messages of a WebSocket (k8s.io/apiserver pkg/util/wsstream: Reader)."""
    # Imported with the first WebSocket: the import is slow, and WebSockets are rare.
    from kubechronicle.http.streaming.websocket import send_stream

    try:
        chosen = next(iter(request.subprotocols), None)
        await send_stream(request, chosen, _base64(body) if chosen == BASE64 else _whole(body), text=chosen == BASE64)
    finally:
        await body.aclose()
    return SWITCHED


async def _whole(body: AnswerBody) -> AsyncIterator[bytes]:
    async for part in body:
        yield part


async def _base64(body: AnswerBody) -> AsyncIterator[bytes]:
    async for part in body:
        yield base64.b64encode(part)
