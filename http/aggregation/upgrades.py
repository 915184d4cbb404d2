"""Upgraded requests to other servers (WebSockets, SPDY): bytes are copied both ways after the answer 101.

An answer that is no upgrade is passed on with its body. Source: apimachinery ``pkg/util/proxy/upgradeaware.go``.
"""

from __future__ import annotations

from typing import Final

import trio

from kubechronicle.api.registry.api_services import ApiService
from kubechronicle.http.aggregation.backends import Backends
from kubechronicle.http.messages import SWITCHED, Request, Response, Upgrade
from kubechronicle.http.outgoing.client import AskError
from kubechronicle.http.proxying.backend_request import close_now
from kubechronicle.http.proxying.dialing import DialError
from kubechronicle.http.streaming.copying import GONE, copy_both
from kubechronicle.http.streaming.switching import SwitchFailed, read_error, request_bytes, send_upgrade

HEAD_TIMEOUT: Final = 60.0
"""Seconds for the connection and the head of the answer."""
SWITCHING_PROTOCOLS: Final = 101
NOT_PASSED_ON: Final = frozenset(("content-length", "transfer-encoding", "connection", "keep-alive", "date"))


async def upgraded(
    request: Request,
    upgrade: Upgrade,
    fields: list[tuple[str, str]],
    *,
    backends: Backends,
    api_service: ApiService,
    url: str,
    target: str,
) -> Response:
    """Converse with another server on behalf of the client. Raises AskError if there is no answer.

    ``url``: of the other server; ``target``: path and query.
    """
    with trio.move_on_after(HEAD_TIMEOUT) as scope:
        try:
            stream = await (await backends.server(api_service, url)).dial()
        except (AskError, DialError) as error:
            why = error.why if isinstance(error, AskError) else str(error)
            raise AskError(f"error dialing backend: {why}") from None
    if scope.cancelled_caught:
        raise AskError("error dialing backend: dial tcp: i/o timeout")
    try:
        asked = [*fields, ("connection", "Upgrade"), ("upgrade", upgrade.protocol)]
        try:
            with trio.fail_after(HEAD_TIMEOUT):
                head = await send_upgrade(stream, request_bytes(request.method, target, asked))
        except (SwitchFailed, trio.TooSlowError) as error:
            raise AskError(str(error) or "context deadline exceeded") from None
        if head.status < 400 and head.status != SWITCHING_PROTOCOLS:
            raise AskError(f"invalid upgrade response: status code {head.status}")
        if head.status != SWITCHING_PROTOCOLS:
            kept = [(name.lower(), value) for name, value in head.fields if name.lower() not in NOT_PASSED_ON]
            return Response(head.status, kept, await read_error(stream, head))
        client = await upgrade.take_over()
        lines = ["HTTP/1.1 101 Switching Protocols", *(f"{name}: {value}" for name, value in head.fields), "", ""]
        try:
            await client.send_all("\r\n".join(lines).encode("latin-1") + head.rest)
            await copy_both(client, stream, draining=request.draining)
        except GONE:
            pass
        return SWITCHED
    finally:
        close_now(stream)
