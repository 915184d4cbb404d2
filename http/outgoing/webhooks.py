"""Requests to the webhooks of a cluster: the clientConfig of a definition, with a URL or a reference to a Service.

A Service is reached at the address that service_addresses.py chooses; the certificate must name NAME.NAMESPACE.svc.
Redirections to the same origin are followed as net/http of Go follows them, within the same deadline. Those to others
are not, unlike there: a webhook must not make this server ask another one.
Source: k8s.io/apiserver ``pkg/util/webhook/client.go``.
"""

from __future__ import annotations

import base64
import binascii
import math
import re
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any, Final, NamedTuple
from urllib.parse import urljoin, urlsplit

import orjson
import trio

from kubechronicle.actors.reading.conversions import WebhookError
from kubechronicle.api.codecs import json, yaml
from kubechronicle.api.codecs.errors import CodecError
from kubechronicle.api.values.caches import remembered
from kubechronicle.http.outgoing.addresses import Reach
from kubechronicle.http.outgoing.client import Answer, AskError, Outgoing, OutgoingClient
from kubechronicle.http.outgoing.kubeconfig import HTTPS, UNKNOWN_URL, WebhookUsers
from kubechronicle.http.outgoing.networks import Network
from kubechronicle.http.outgoing.remote_server import RemoteServer
from kubechronicle.http.outgoing.reviews import failure
from kubechronicle.http.outgoing.service_addresses import ServiceAddresses

MOST_CLIENTS: Final = 256
"""Webhooks whose connections are kept; a cluster rarely has more than some dozens."""
MOST_CONNECTIONS: Final = 128
"""Connections to one webhook, so requests at a time. A burst of 500 writes to one that takes 2 s is over in 8 s, within
the usual timeout of 10 s; kube-apiserver has 250 streams on each connection. A connection takes 50 KB."""
MAX_RETRIES: Final = 10
"""As client-go's, for answers with Retry-After."""
MAX_REQUESTS: Final = 10
"""Requests of one call, redirected ones included, as net/http's."""
_WITHOUT_BODY: Final = frozenset((301, 302, 303))
_WITH_BODY: Final = frozenset((307, 308))
"""Redirections after which a POST is a GET, and those that repeat it."""
_ANONYMOUS: Final = WebhookUsers({}, RemoteServer(url=UNKNOWN_URL))
LATE: Final = "context deadline exceeded"
OWN_SERVICE: Final = ("default", "kubernetes", HTTPS)
"""This server. Webhooks of extension API servers are named by it, with the path of an aggregated API. kube-apiserver
asks them as itself, in the group system:masters. Here they are asked as any other webhook, without a credential of this
server, so that the right to register webhooks is no right to act as the server."""
_HEADERS: Final = {"accept": "application/json, */*", "user-agent": "kube-apiserver-admission"}
"""As kube-apiserver's, since webhooks and their proxies may look at them."""


class _Address(NamedTuple):
    """The place of a webhook.

    ``url``: to connect to. ``shown``: for errors. ``origin``: its scheme, host and port; ``place``: the latter two.
    ``headers``: of its requests.
    ``server_name``: the name in the certificate if it is not the URL's host.
    ``service``: namespace, name and port of the Service, if it is one.
    """

    url: str
    shown: str
    origin: str
    place: str
    headers: Mapping[str, str]
    server_name: str = ""
    service: tuple[str, str, int] | None = None


class Webhooks:
    """Posts JSON to webhooks. Connections to each are kept. ``users``: the credentials for them."""

    def __init__(self, outgoing: Outgoing, services: ServiceAddresses, users: WebhookUsers = _ANONYMOUS) -> None:
        self.outgoing = outgoing
        self._services = services
        self._users = users
        self._clients: OrderedDict[tuple[str, str, str], OutgoingClient] = OrderedDict()

    def with_users(self, users: WebhookUsers) -> Webhooks:
        """Return a poster with these credentials, and with connections of its own."""
        return Webhooks(self.outgoing, self._services, users)

    async def __call__(
        self, config: Mapping[str, Any], body: bytes, *, timeout: float, deadline: float | None = None
    ) -> Any:
        """Return the decoded answer to a POST. ``timeout``, ``deadline``: as for AskWebhook. Raises WebhookError."""
        if deadline is None:
            deadline = trio.current_time() + timeout
        seconds = math.ceil(timeout)
        address = self._known_address(config, seconds)
        if address is None:
            with trio.move_on_at(deadline):
                address = await self._address(config, seconds)
        if address is None:
            raise WebhookError(f'Post "": {LATE}')
        client = self._known_client(config.get("caBundle") or "", address)
        if len(self._clients) > MOST_CLIENTS:
            self.outgoing.forget(self._clients.popitem(last=False)[1])
        url, headers = address.url, address.headers
        try:
            answer = await client.exchange("POST", url, body=body, headers=headers, deadline=deadline)
            if answer.status != 200:
                answer = await _final(answer, client, address, body, deadline)
        except AskError as error:
            if address.service is not None:
                self._services.failed(*address.service, address.place)
            raise WebhookError(_shown(error, address)) from None
        return _decoded(answer)

    def _known_address(self, config: Mapping[str, Any], seconds: int) -> _Address | None:
        """Return the address of a webhook; None: that of its Service is not known yet. WebhookError."""
        url = config.get("url")
        if url:
            return _address_of_url(url, seconds)
        service, path = _service_of(config)
        try:
            place = self._services.resolve_nowait(*service)
        except ValueError as error:
            raise _unresolved(service, path, seconds, error) from None
        return None if place is None else _address_of_service(service, path, seconds, place)

    async def _address(self, config: Mapping[str, Any], seconds: int) -> _Address:
        """Return the address of a webhook with a Service. WebhookError."""
        service, path = _service_of(config)
        try:
            place = await self._services.resolve(*service)
        except ValueError as error:
            raise _unresolved(service, path, seconds, error) from None
        return _address_of_service(service, path, seconds, place)

    def _known_client(self, bundle: str, address: _Address) -> OutgoingClient:
        """Return the client for a webhook, perhaps a new one. WebhookError: the bundle or URL is unusable."""
        key = (bundle, address.origin, address.server_name)
        client = self._clients.get(key)
        if client is None:
            client = self._clients[key] = self._new_client(bundle, address)
        else:
            self._clients.move_to_end(key)
        return client

    def _new_client(self, bundle: str, address: _Address) -> OutgoingClient:
        try:
            parts = urlsplit(address.url)
            ca = base64.b64decode(bundle).strip() or None
            if address.service is not None:
                user = self._users.of(address.server_name, address.service[2])
            else:
                user = self._users.of(parts.hostname or "", parts.port or HTTPS)
            peer = user.replaced(url=address.origin, ca=ca, server_name=address.server_name)
        except (ValueError, binascii.Error) as error:
            raise WebhookError(str(error)) from None
        network = Network.CONTROL_PLANE if address.service is None else Network.CLUSTER
        reach = Reach.ANY if address.service == OWN_SERVICE else Reach.OTHERS
        return self.outgoing.client(peer, network=network, reach=reach, max_connections=MOST_CONNECTIONS)


def _service_of(config: Mapping[str, Any]) -> tuple[tuple[str, str, int], str]:
    """Return (namespace, name and port of the Service of a clientConfig, path)."""
    service = config.get("service") or {}
    place = service.get("namespace", ""), service.get("name", ""), service.get("port") or HTTPS
    return place, "/" + (service.get("path") or "").strip("/")


def _unresolved(service: tuple[str, str, int], path: str, seconds: int, error: ValueError) -> WebhookError:
    namespace, name, port = service
    return WebhookError(f'Post "https://{name}.{namespace}.svc:{port}{path}?timeout={seconds}s": {error}')


@remembered(1024)
def _address_of_url(url: str, seconds: int) -> _Address:
    """Return the address of a webhook with a URL. WebhookError: it is no URL."""
    url = f"{url.rstrip('/')}?timeout={seconds}s"
    try:
        parts = urlsplit(url)
    except ValueError as error:
        raise WebhookError(str(error)) from None
    return _Address(url, url, f"{parts.scheme}://{parts.netloc}", parts.netloc, _HEADERS)


@remembered(1024)
def _address_of_service(service: tuple[str, str, int], path: str, seconds: int, place: str) -> _Address:
    """Return the address of a webhook of a Service, which is reached at ``place`` (host and port)."""
    namespace, name, port = service
    host, query = f"{name}.{namespace}.svc", f"?timeout={seconds}s"
    headers = {**_HEADERS, "host": f"{host}:{port}"}
    shown = f"https://{host}:{port}{path}{query}"
    return _Address(f"https://{place}{path}{query}", shown, f"https://{place}", place, headers, host, service)


_GO_TEXTS: Final = (
    ("unable to get local issuer certificate", "x509: certificate signed by unknown authority"),
    ("unable to get issuer certificate", "x509: certificate signed by unknown authority"),
    ("self-signed certificate in certificate chain", "x509: certificate signed by unknown authority"),
    ("self-signed certificate", "x509: certificate signed by unknown authority"),
    ("certificate has expired", "x509: certificate has expired or is not yet valid"),
    ("Server disconnected without sending a response.", "EOF"),
    ("tls: WRONG_VERSION_NUMBER", "http: server gave HTTP response to HTTPS client"),
)
"""The ends of errors of Python's libraries, and Go's words for them."""


_NO_NAME: Final = "Name or service not known"
_MISMATCH = re.compile(r"(?:Hostname|IP address) mismatch, certificate is not valid for '([^']*)'\.$")


def _shown(error: AskError, address: _Address) -> str:
    """Return the text of an error as Go's net/http has it."""
    head = f'Post "{address.shown}": '
    if error.timed_out:
        return head + LATE
    return head + go_error(str(error).replace(address.url, address.shown).removeprefix(head), address.url)


def go_error(text: str, url: str) -> str:
    """Return the text of a failed request to ``url`` as Go's net/http has it, without the URL."""
    for ours, theirs in _GO_TEXTS:
        if text.endswith(ours):
            return text.removesuffix(ours) + theirs
    if text.endswith(_NO_NAME):
        return f"dial tcp: lookup {urlsplit(url).hostname}: no such host"
    if (mismatch := _MISMATCH.search(text)) is not None:
        return f"{text[: mismatch.start()]}x509: certificate is not valid for {mismatch[1]}"
    return f"dial tcp {urlsplit(url).netloc}: {text}" if text.startswith("connect: ") else text


async def _final(answer: Answer, client: OutgoingClient, address: _Address, body: bytes, deadline: float) -> Answer:
    """Return the answer of a webhook after all redirections and repetitions. ``answer``: the first one.

    One that says when to try again is asked again then, as client-go does.
    AskError; WebhookError: it says a time after the deadline (trio time), or it redirects too often.
    """
    answer = await _redirected(answer, client, address, body, deadline)
    for _ in range(MAX_RETRIES):
        seconds = None if answer.status == 200 else _retry_after(answer)
        if seconds is None:
            break
        await trio.sleep_until(min(trio.current_time() + seconds, deadline))
        if trio.current_time() >= deadline:
            raise WebhookError(f'Post "{address.shown}": {LATE}')
        answer = await client.exchange("POST", address.url, body=body, headers=address.headers, deadline=deadline)
        answer = await _redirected(answer, client, address, body, deadline)
    return answer


async def _redirected(
    answer: Answer, client: OutgoingClient, address: _Address, body: bytes, deadline: float
) -> Answer:
    """Return the answer after all redirections of ``answer``, that to a POST. AskError, WebhookError."""
    method, url = "POST", address.url
    for sent in range(1, MAX_REQUESTS + 1):
        place = answer.headers.get("location", "")
        if not place or answer.status not in _WITH_BODY | _WITHOUT_BODY:
            return answer
        url = _joined(url, place)
        if not url.startswith(f"{address.origin}/"):
            return answer
        if sent == MAX_REQUESTS:
            break
        if answer.status in _WITHOUT_BODY:
            method, body = "GET", b""
        answer = await client.exchange(method, url, body=body, headers=address.headers, deadline=deadline)
    raise WebhookError(f'Post "{place}": stopped after {MAX_REQUESTS} redirects')


def _joined(url: str, place: str) -> str:
    """Return the URL to which an answer from ``url`` redirects; "" if it is none."""
    try:
        return urljoin(url, place)
    except ValueError:
        return ""


def _retry_after(answer: Answer) -> int | None:
    text = answer.headers.get("retry-after", "")
    if (answer.status != 429 and answer.status < 500) or not (text.isascii() and text.isdigit() and len(text) < 10):
        return None
    return int(text)


def _decoded(answer: Answer) -> Any:
    """Return the body of a successful answer. Raises WebhookError with client-go's text."""
    if 200 <= answer.status <= 206:
        if not answer.body:
            kind = answer.headers.get("content-type", "")
            raise WebhookError(f"0-length response with status code: {answer.status} and content type: {kind}")
        return _value(answer.body)
    try:
        value = _value(answer.body)
    except WebhookError:
        value = None
    if isinstance(value, dict) and value.get("kind") == "Status" and value.get("status") == "Failure":
        raise WebhookError(str(value.get("message") or ""), code=answer.status)
    raise WebhookError(failure(answer), code=answer.status)


MAX_YAML: Final = 64 * 1024
"""Bytes of the longest answer that is read as YAML: libyaml takes 0.2 ms for each KB, and no webhook means it."""


def _value(body: bytes) -> Any:
    """Return the value of an answer: JSON, or YAML, whatever its Content-Type says. WebhookError."""
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError:
        pass
    is_object = body.lstrip().startswith(b"{")
    try:
        if is_object:
            return json.decode_value(body)[0]
        if len(body) <= MAX_YAML:
            return yaml.decode_value(body)[0]
    except CodecError as error:
        where = "couldn't get version/kind; json parse error: " if is_object else ""
        raise WebhookError(f"{where}{error}") from None
    raise WebhookError(f"couldn't get version/kind; the answer is no JSON, and has more than {MAX_YAML} bytes")
