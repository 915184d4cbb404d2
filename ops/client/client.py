"""The Kubernetes API as the commands use it: objects, lists page by page, and watches, now or at a moment of history.

client = Client(HttpTransport(target), namespace=target.namespace)
client.get("/api/v1/namespaces/shop")                        raises ApiError on a failure
client.get_if("/api/v1/namespaces/shop")                     returns None on 404
client.at(moment).pages("/api/v1/namespaces/shop/pods")
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any, Final, TypeVar
from urllib.parse import quote, urlencode

from kubechronicle.api.history.cells import ENDS, ERASED, HIDDEN, NOISE, notes_in
from kubechronicle.api.history.moments import HOW, epoch_of, parse_moment, written
from kubechronicle.api.history.reasons import CAUSE_HEADER
from kubechronicle.api.history.reasons import HEADER as REASON
from kubechronicle.api.meta.path_prefixes import HISTORY
from kubechronicle.api.registry.groups import HISTORY as HISTORY_GROUP
from kubechronicle.api.values.objects import Object
from kubechronicle.ops import terminal
from kubechronicle.ops.client.transport import Reply, TooLarge, Transport
from kubechronicle.ops.errors import OperatorError

T = TypeVar("T")

PAGE_SIZE: Final = 500
LONG: Final = 512 * 1024
"""Bytes of JSON from which on orjson is imported."""
NOT_JSON: Final = "the response is not JSON; is this a Kubernetes API server?"
JSON: Final = "application/json"
REVISIONS: Final = f"/apis/{HISTORY_GROUP}/"
# A selection of which the main log has all changes: the revisions that people type are its own.
MAIN_LOG: Final = f"{NOISE}={HIDDEN}"
# Smaller differences between the clocks are ignored: the Date header has whole seconds.
TOLERATED_SKEW: Final = timedelta(seconds=2)
MONTHS: Final = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


class ApiError(OperatorError):
    """A Status of the server that reports a failure."""

    def __init__(self, code: int, reason: str, message: str) -> None:
        super().__init__(message if reason == "Gone" else _explain(code, message))
        self.code, self.reason, self.message = code, reason, message


def _explain(code: int, message: str) -> str:
    if code == 401:
        return f"the server did not authenticate you: {message}; check the user's credentials in the kubeconfig"
    if code == 403:
        return f"permission denied: {message}"
    if code == 410:
        return f"no longer kept: {message}"
    return f"the server rejected the request: {message}"


class Client:
    """A client of one server, at one moment.

    ``moment``: as it stands in URLs, "" for now
    ``skew``: the server's clock minus ours, once it is measured
    ``omissions``: warnings of lists without objects that were erased from history
    ``remarks``: other warnings about history, each printed once
    ``compressed``: accept compressed responses
    ``shows_secrets``: history has the values of Secrets, and records that; otherwise it has masks
    ``reason``: the reason of all changes, "" for none (api/history/reasons.py)
    ``cause``: the revision that all changes are a consequence of, 0 for none
    ``mask``: the key of the masks, so that equal values have equal masks in one run
    ``source``: the archive that the server answers about, "" for its own log
    """

    def __init__(
        self,
        transport: Transport,
        namespace: str = "default",
        *,
        shows_secrets: bool = False,
        reason: str = "",
        source: str = "",
    ) -> None:
        self.transport, self.namespace, self.source = transport, namespace, source
        self.shows_secrets, self.reason = shows_secrets, reason
        self.moment = ""
        self.cause = 0
        self.compressed = True
        self.skew: list[timedelta] = []
        self.omissions: list[str] = []
        self.remarks: set[str] = set()
        self.mask = os.urandom(16).hex()

    def replaced(self, **changes: Any) -> Client:
        """Return a client with other values. It shares the lists that are not among them."""
        other = Client(self.transport)
        vars(other).update({**vars(self), **changes})
        return other

    def at(self, moment: str) -> Client:
        """Return this client at a moment of ``resolve_moment``."""
        return self.replaced(moment=moment)

    # -- requests -----------------------------------------------------------------------------------------------------

    def get(self, path: str, query: Mapping[str, str] | None = None, *, accept: str = JSON) -> Object:
        return self.request("GET", path, query, accept=accept)

    def get_if(self, path: str) -> Object | None:
        """Return the object, or None if it does not exist."""
        try:
            return self.get(path)
        except ApiError as error:
            if error.code == 404:
                return None
            raise

    def request(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None = None,
        body: Any = None,
        *,
        content_type: str = JSON,
        accept: str = JSON,
    ) -> Object:
        """Send a request and return the object in the response. ApiError, OperatorError."""
        answer = self._body(method, path, query, body, content_type=content_type, accept=accept)
        try:
            document = _decoded(answer)
        except ValueError:
            raise OperatorError(NOT_JSON) from None
        if not isinstance(document, dict):
            raise OperatorError("the response is not an object; is this a Kubernetes API server?")
        return document

    def _body(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None = None,
        body: Any = None,
        *,
        content_type: str = JSON,
        accept: str = JSON,
    ) -> bytes:
        headers = {"Accept": accept} | ({"Content-Type": content_type} if body is not None else {})
        if self.reason and method != "GET":
            headers[REASON] = self.reason.encode().decode("latin-1")  # UTF-8 on the wire
        if self.cause and method != "GET":
            headers[CAUSE_HEADER] = str(self.cause)
        if not self.compressed:
            headers["Accept-Encoding"] = "identity"
        data = _encoded(body) if body is not None else None
        url = self._path(path, query) if method == "GET" else self._url(path, query)
        reply = self.transport.send(method, url, headers, data)
        if not self.skew:
            self._measure(reply)
        if reply.status >= 300:
            raise _api_error(reply)
        if ERASED in reply.headers.get("warning", ""):
            self.omissions.append(_text_of(reply))
        elif ENDS in reply.headers.get("warning", ""):
            self._remark(_text_of(reply))
        for note in notes_in(reply.headers.get("warning", "")):
            self._remark(note)
        return reply.body

    def _remark(self, text: str) -> None:
        """Print a warning about history on stderr, once."""
        if text not in self.remarks:
            self.remarks.add(text)
            terminal.stderr().line(text)

    def text(self, path: str) -> str:
        """Return a page of text. ApiError."""
        return self._body("GET", path, accept="text/plain").decode(errors="replace")

    def pages(self, path: str, query: Mapping[str, str] | None = None, *, size: int = PAGE_SIZE) -> Iterator[Object]:
        """Yield a list page by page. Pages become smaller if a response is too large."""

        def read(parameters: Mapping[str, str]) -> tuple[Object, str]:
            page = self.get(path, parameters)
            return page, (page.get("metadata") or {}).get("continue") or ""

        return _pages(read, query, size)

    def decoded_pages(
        self, decode: Callable[[bytes], tuple[T, str]], path: str, query: Mapping[str, str], *, size: int
    ) -> Iterator[T]:
        """Yield a list page by page, as ``pages`` does. ``decode``: returns a page, and the token of the next one."""
        return _pages(lambda parameters: decode(self._body("GET", path, parameters)), query, size)

    def items(self, path: str, query: Mapping[str, str] | None = None, *, size: int = PAGE_SIZE) -> Iterator[Object]:
        """Yield the items of all pages, with apiVersion and kind, which lists omit."""
        for page in self.pages(path, query, size=size):
            kind = str(page.get("kind", "")).removesuffix("List")
            for item in page.get("items") or []:
                yield {"apiVersion": page.get("apiVersion", ""), "kind": kind, **item}

    def watch(self, path: str, query: Mapping[str, str]) -> Iterator[Object]:
        """Yield the events of one watch until it ends. ApiError."""
        lines = self.transport.lines(self._path(path, {**query, "watch": "1"}), {"Accept": JSON})
        if isinstance(lines, Reply):
            raise _api_error(lines)
        for line in lines:
            event = _decoded(line)
            if event.get("type") == "ERROR":
                status = event.get("object") or {}
                raise ApiError(status.get("code") or 500, status.get("reason") or "", status.get("message") or "")
            yield event

    def _path(self, path: str, query: Mapping[str, str] | None) -> str:
        if self.shows_secrets and (self.moment or path.startswith(REVISIONS)):
            query = {**(query or {}), "values": "shown"}
        elif path.startswith(REVISIONS):
            query = {**(query or {}), "mask": self.mask}
        return self._url(path, query)

    def _url(self, path: str, query: Mapping[str, str] | None) -> str:
        prefix = f"{HISTORY}{quote(self.moment, safe=':')}" if self.moment else ""
        return f"{prefix}{path}" + (f"?{urlencode(query)}" if query else "")

    # -- time ---------------------------------------------------------------------------------------------------------

    def now(self) -> datetime:
        """Return the time by the server's clock, which also stamps commits."""
        if not self.skew:
            self._measure(self.transport.send("GET", "/version", {"Accept": JSON}, None))
        return datetime.now(UTC) + self.skew[0]

    def _measure(self, reply: Reply) -> None:
        """Measure the difference between the clocks, at the time of a reply."""
        sent = _http_date(reply.headers.get("date", ""))
        skew = sent - datetime.now(UTC) if sent is not None else timedelta()
        self.skew.append(skew if abs(skew) > TOLERATED_SKEW else timedelta())

    def resolve_moment(self, text: str) -> str:
        """Return a moment that stays the same in later requests. OperatorError.

        ``2h``, two hours ago, becomes a time; ``now`` becomes "". A number above the newest revision becomes the time
        that it is since 1970, if it can be one.
        """
        if text == "now":
            return ""
        if text.startswith("tag:"):
            return str(self.tag(text)["spec"]["revision"])
        if not text.strip():
            raise OperatorError(f"a moment is empty: name {HOW}, or now")
        try:
            moment = parse_moment(text, now=None if text.isdigit() else self.now())
        except ValueError as error:
            raise OperatorError(f"{error}, or now") from None
        if isinstance(moment, int) and (time := epoch_of(moment)) is not None and moment > self._newest_revision():
            moment = time
        if isinstance(moment, timedelta):
            moment = self.now() - moment
        return written(moment) if isinstance(moment, datetime) else str(moment)

    def tag(self, text: str) -> Object:
        """Return the Tag of a moment, as ``tag:release-7``. OperatorError: there is no such tag."""
        from kubechronicle.api.history.tags import TAGS, tag_named, unknown

        try:
            name = tag_named(text)
        except ValueError as error:
            raise OperatorError(str(error)) from None
        tag = self.replaced(moment="").get_if(f"{REVISIONS}v1/{TAGS}/{name}")
        if tag is None:
            raise OperatorError(unknown(name))
        return tag

    def _newest_revision(self) -> int:
        """Return the newest revision of the main log, 0 if the user may not know it."""
        try:
            page = self.get(f"{REVISIONS}v1/clusterrevisions", {"limit": "1", "fieldSelector": MAIN_LOG})
        except ApiError:
            return 0
        return int(page["metadata"].get("resourceVersion") or 0)


def _http_date(text: str) -> datetime | None:
    """Return the time of ``Fri, 27 Nov 2026 20:44:37 GMT`` (RFC 9110 §5.6.7), None for another form."""
    with suppress(ValueError, OverflowError):
        _, day, month, year, clock, zone = text.split(" ")
        hour, minute, second = map(int, clock.split(":"))
        if zone == "GMT":
            return datetime(int(year), MONTHS.index(month) + 1, int(day), hour, minute, second, tzinfo=UTC)
    return None


def _text_of(reply: Reply) -> str:
    """Return the text of a response's warning."""
    return reply.headers["warning"].partition('"')[2].rpartition('"')[0]


def _pages(
    read: Callable[[Mapping[str, str]], tuple[T, str]], query: Mapping[str, str] | None, size: int
) -> Iterator[T]:
    """Yield pages. ``read``: returns the page for a query, with the token of the next one, "" after the last."""
    parameters = {"limit": str(size), **(query or {})}
    while True:
        try:
            page, token = read(parameters)
        except TooLarge:
            if (limit := int(parameters["limit"])) <= 1:
                raise
            parameters["limit"] = str(limit // 2)
            continue
        yield page
        if not token:
            return
        parameters["continue"] = token


def _decoded(text: bytes) -> Any:
    """Return the value of a JSON text. Raises ValueError.

    orjson is faster, but with its import a command starts a quarter later. So it is imported for long texts alone.
    """
    if len(text) < LONG:
        try:
            return json.loads(text)
        except RecursionError:
            raise ValueError("the document is nested too deeply") from None
    import orjson

    return orjson.loads(text)


def _encoded(body: Any) -> bytes:
    return json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode()


def _api_error(reply: Reply) -> ApiError:
    try:
        status = json.loads(reply.body)
        code, message = int(status.get("code") or reply.status), str(status.get("message") or "")
        return ApiError(code, str(status.get("reason") or ""), message or f"HTTP status {reply.status}")
    except (ValueError, AttributeError, TypeError):
        return ApiError(reply.status, "", f"HTTP status {reply.status}: {reply.body[:200].decode('utf-8', 'replace')}")
