"""The API as the commands ask it: objects, lists page by page, watches; now or at a moment of history.

client = Client(Wire(target), namespace=target.namespace)
client.get("/api/v1/namespaces/shop")                 ApiError where it is refused, None for get_if
client.at(moment).pages("/api/v1/namespaces/shop/pods")
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Any, Final
from urllib.parse import quote, urlencode

import orjson

from kubechronicle.api.history.moments import parse_moment, written
from kubechronicle.api.history.revisions import LEFT_OUT
from kubechronicle.api.meta.request_info import HISTORY
from kubechronicle.api.values.objects import Object
from kubechronicle.ops.client.transport import Reply, Transport
from kubechronicle.ops.errors import OperatorError

PAGE: Final = 500
JSON: Final = "application/json"
# Clocks that differ by more than this are a server's and not ours to trust.
SKEW: Final = timedelta(seconds=2)


class ApiError(OperatorError):
    """A Status that tells of a failure."""

    def __init__(self, code: int, reason: str, message: str) -> None:
        super().__init__(message if reason == "Gone" else _told(code, message))
        self.code, self.reason, self.message = code, reason, message


def _told(code: int, message: str) -> str:
    if code == 401:
        return f"the server does not know who you are: {message}; see the user's credentials in the kubeconfig"
    if code == 403:
        return f"you lack a right: {message}"
    if code == 410:
        return f"that is not kept any more: {message}"
    return f"the server refused: {message}"


@dataclass(frozen=True, slots=True)
class Client:
    """``moment``: as the URL names it, "" for now. ``left_out``: what lists did not tell, as it was erased."""

    transport: Transport
    namespace: str = "default"
    moment: str = ""
    skew: list[timedelta] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)

    def at(self, moment: str) -> Client:
        """The same at a moment (``settled``); "" is now."""
        return replace(self, moment=moment)

    # -- asking -------------------------------------------------------------------------------------------------------

    def get(self, path: str, query: Mapping[str, str] | None = None, *, accept: str = JSON) -> Object:
        return self.ask("GET", path, query, accept=accept)

    def get_if(self, path: str) -> Object | None:
        """None: there is none."""
        try:
            return self.get(path)
        except ApiError as error:
            if error.code == 404:
                return None
            raise

    def ask(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None = None,
        body: Any = None,
        *,
        content_type: str = JSON,
        accept: str = JSON,
    ) -> Object:
        """The object answered. ApiError, OperatorError."""
        headers = {"Accept": accept} | ({"Content-Type": content_type} if body is not None else {})
        data = orjson.dumps(body) if body is not None else None
        reply = self.transport.send(method, self._path(path, query), headers, data)
        if reply.status >= 300:
            raise _error(reply)
        if LEFT_OUT in reply.headers.get("warning", ""):
            self.left_out.append(reply.headers["warning"].partition('"')[2].rpartition('"')[0])
        try:
            found = orjson.loads(reply.body)
        except orjson.JSONDecodeError:
            raise OperatorError("the answer is not JSON; is this a Kubernetes API server?") from None
        if not isinstance(found, dict):
            raise OperatorError("the answer is no object; is this a Kubernetes API server?")
        return found

    def pages(self, path: str, query: Mapping[str, str] | None = None, *, size: int = PAGE) -> Iterator[Object]:
        """The lists that make up the whole."""
        asked = {"limit": str(size), **(query or {})}
        while True:
            page = self.get(path, asked)
            yield page
            token = (page.get("metadata") or {}).get("continue")
            if not token:
                return
            asked["continue"] = token

    def items(self, path: str, query: Mapping[str, str] | None = None, *, size: int = PAGE) -> Iterator[Object]:
        """The items of all pages, with the kind and version that lists leave out."""
        for page in self.pages(path, query, size=size):
            kind = str(page.get("kind", "")).removesuffix("List")
            for item in page.get("items") or []:
                yield {"apiVersion": page.get("apiVersion", ""), "kind": kind, **item}

    def watch(self, path: str, query: Mapping[str, str]) -> Iterator[Object]:
        """The events of one watch until it ends. ApiError."""
        found = self.transport.lines(self._path(path, {**query, "watch": "1"}), {"Accept": JSON})
        if isinstance(found, Reply):
            raise _error(found)
        for line in found:
            event = orjson.loads(line)
            if event.get("type") == "ERROR":
                status = event.get("object") or {}
                raise ApiError(status.get("code") or 500, status.get("reason") or "", status.get("message") or "")
            yield event

    def _path(self, path: str, query: Mapping[str, str] | None) -> str:
        prefix = f"{HISTORY}{quote(self.moment, safe=':')}" if self.moment else ""
        return f"{prefix}{path}" + (f"?{urlencode(query)}" if query else "")

    # -- time ---------------------------------------------------------------------------------------------------------

    def now(self) -> datetime:
        """The server's, as far as it matters: where the clocks differ, the commits were stamped by its."""
        if not self.skew:
            reply = self.transport.send("GET", "/version", {"Accept": JSON}, None)
            date = reply.headers.get("date", "")
            here = datetime.now(UTC)
            try:
                ahead = parsedate_to_datetime(date) - here
            except (TypeError, ValueError):
                ahead = timedelta(0)
            self.skew.append(ahead if abs(ahead) > SKEW else timedelta(0))
        return datetime.now(UTC) + self.skew[0]

    def settled(self, text: str) -> str:
        """A moment as it can be asked for again and again: how long ago becomes a time, ``now`` "". OperatorError."""
        if text in ("now", ""):
            return ""
        try:
            asked = parse_moment(text)
        except ValueError as error:
            raise OperatorError(f"{error}, or now") from None
        if isinstance(asked, timedelta):
            asked = self.now() - asked
        return written(asked) if isinstance(asked, datetime) else str(asked)


def _error(reply: Reply) -> ApiError:
    try:
        status = json.loads(reply.body)
        code, message = int(status.get("code") or reply.status), str(status.get("message") or "")
        return ApiError(code, str(status.get("reason") or ""), message or f"HTTP status {reply.status}")
    except (ValueError, AttributeError, TypeError):
        return ApiError(reply.status, "", f"HTTP status {reply.status}: {reply.body[:200].decode('utf-8', 'replace')}")
