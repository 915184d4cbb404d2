"""Traces of slow requests in the server's log, as kube-apiserver and klog print them (k8s.io/utils/trace).

    Trace[1298498081]: "List" accept:…,audit-id:…,verb:LIST,resp:200 (23-Nov-2026 15:04:05.120) (total time: 812ms):
    Trace[1298498081]: ---"apf-queue-wait" 240ms
    Trace[1298498081]: [812.345678ms] [812.345678ms] END

A step is a part of the request's time (eventlog/request_parts.py). Parts may overlap and repeat, so a step has no time
of the day.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Iterator
from typing import Final

from kubechronicle.api.values.durations import text_of
from kubechronicle.api.values.printable import printable
from kubechronicle.http.context import Context, shown_uri
from kubechronicle.http.messages import Request

log = logging.getLogger(__name__)

SHOWN: Final = 0.01
"""Seconds from which a part of a slow request is a step of its trace."""
MOST_TRACES: Final = 10
"""Traces a second; the next one says how many were left out."""
MAX_TEXT: Final = 512
HANDLERS: Final = {
    "get": "Get", "list": "List", "watch": "Watch", "create": "Create", "update": "Update", "patch": "Patch",
    "delete": "Delete", "deletecollection": "Delete",
}  # fmt: skip
"""Names of traces and spans of handlers by verb; "Connect" for others."""


def trace_fields(request: Request, context: Context) -> dict[str, str]:
    """Return the fields that kube-apiserver's traces of handlers have (traceFields of endpoints/handlers)."""
    info = context.info
    version = request.http_version
    return {
        "accept": request.headers.get("accept")[:MAX_TEXT],
        "audit-id": context.audit_id,
        "client": request.client[0],
        "api-group": info.group,
        "api-version": info.version,
        "name": info.name,
        "subresource": info.subresource,
        "namespace": info.namespace,
        "protocol": f"HTTP/{version if '.' in version else f'{version}.0'}",
        "resource": info.resource,
        "scope": info.scope,
        "url": shown_uri(request)[:MAX_TEXT],
        "user-agent": request.headers.get("user-agent")[:MAX_TEXT],
        "verb": info.verb.upper(),
    }


class SlowRequests:
    """Writes the traces of slow requests to the log."""

    def __init__(self) -> None:
        self._second = 0
        self._written = self._left_out = 0

    def note(self, request: Request, context: Context, code: int, seconds: float) -> None:
        """Log one request: what it was, whose, and where its time went. ``seconds``: its duration."""
        second = int(time.monotonic())
        if second != self._second:
            self._second, self._written = second, 0
        if self._written >= MOST_TRACES:
            self._left_out += 1
            return
        self._written += 1
        fields = {**trace_fields(request, context), "resp": str(code)}
        if self._left_out:
            fields["left-out"], self._left_out = str(self._left_out), 0
        log.info("\n".join(_lines(context, fields, seconds)), extra={"unquoted": True})


def _lines(context: Context, fields: dict[str, str], seconds: float) -> Iterator[str]:
    info, number = context.info, random.getrandbits(31)
    name = HANDLERS.get(info.verb, "Connect") if info.is_resource else fields["verb"]
    began = time.localtime(context.received)
    shown = time.strftime("%d-%b-%Y %H:%M:%S", began) + f".{int(context.received % 1 * 1000):03d}"
    described = ",".join(f"{key}:{printable(value)}" for key, value in fields.items())
    yield f'Trace[{number}]: "{name}" {described} ({shown}) (total time: {int(seconds * 1000)}ms):'
    parts = {"apf-queue-wait": context.waited, **(context.parts.seconds if context.parts is not None else {})}
    for part, taken in parts.items():
        if taken >= SHOWN:
            yield f'Trace[{number}]: ---"{part}" {int(taken * 1000)}ms'
    total = text_of(int(seconds * 1e9))
    yield f"Trace[{number}]: [{total}] [{total}] END"
