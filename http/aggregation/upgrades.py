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
from kubechronicle.http.proxying.answers import passed_fields
from kubechronicle.http.proxying.backend_request import close_now
from kubechronicle.http.proxying.dialing import DialError
from kubechronicle.http.proxying.switching import (
    SWITCHING_PROTOCOLS,
    SwitchFailed,
    pass_through,
    read_error,
    require_switch,
    switch,
)

HEAD_TIMEOUT: Final = 60.0
"""Seconds for the connection and the head of the answer."""


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
    asked = [*fields, ("connection", "Upgrade"), ("upgrade", upgrade.protocol)]
    try:
        with trio.fail_after(HEAD_TIMEOUT):
            server = await backends.server(api_service, url)
            stream, head = await switch(server, request.method, target, asked)
    except DialError as error:
        raise AskError(f"error dialing backend: {error}") from None
    except SwitchFailed as error:
        raise AskError(str(error)) from None
    except trio.TooSlowError:
        raise AskError("context deadline exceeded") from None
    try:
        require_switch(head)
        if head.status != SWITCHING_PROTOCOLS:
            return Response(head.status, passed_fields(head.fields), await read_error(stream, head))
        await pass_through(upgrade, stream, head, draining=request.draining)
        return SWITCHED
    except SwitchFailed as error:
        raise AskError(str(error)) from None
    finally:
        close_now(stream)
