"""Requests to the webhooks of a cluster: the clientConfig of a definition, with a URL or a reference to a Service.

A Service is reached at its cluster IP and port, or at its external name, as kube-apiserver does without aggregator
routing; the certificate must name NAME.NAMESPACE.svc. Sources: k8s.io/apiserver ``pkg/util/webhook/client.go``,
``pkg/util/proxy/proxy.go``.
"""

from __future__ import annotations

import base64
import binascii
import math
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

import orjson
import trio

from kubechronicle.actors.conversion.conversions import WebhookError
from kubechronicle.http.outgoing.client import Answer, AskError, Client, Outgoing
from kubechronicle.http.outgoing.remote_server import RemoteServer
from kubechronicle.http.outgoing.reviews import failure

MOST_CLIENTS: Final = 256
"""Webhooks whose connections are kept; a cluster rarely has more than some dozens."""
HTTPS: Final = 443
NO_JSON: Final = (
    "couldn't get version/kind; json parse error: json: cannot unmarshal string into Go value of type struct "
    '{ APIVersion string "json:\\"apiVersion,omitempty\\""; Kind string "json:\\"kind,omitempty\\"" }'
)
MAX_RETRIES: Final = 10
"""As client-go's, for answers with Retry-After."""
_HEADERS: Final = {"accept": "application/json, */*", "user-agent": "kube-apiserver-admission"}
"""As kube-apiserver's, since webhooks and their proxies may look at them."""

FindService = Callable[[str, str], Mapping[str, Any] | None]
"""(namespace, name) -> the Service, None if there is none."""


class _Address(NamedTuple):
    """The URL to connect to, the URL to show, and the name in the certificate if it is not the URL's host."""

    url: str
    shown: str
    server_name: str = ""


class Webhooks:
    """Posts JSON to webhooks. Connections to each are kept. ``find_service``: looks a Service up."""

    def __init__(self, outgoing: Outgoing, find_service: FindService) -> None:
        self._outgoing = outgoing
        self._find_service = find_service
        self._clients: OrderedDict[RemoteServer, Client] = OrderedDict()

    async def __call__(self, config: Mapping[str, Any], body: bytes, *, timeout: float) -> Any:
        """Return the decoded answer to a POST. ``timeout``: seconds. Raises WebhookError."""
        address = self._address(config, timeout)
        client = await self._client(config, address)
        headers = dict(_HEADERS)
        if address.server_name:
            headers["host"] = urlsplit(address.shown).netloc
        try:
            with trio.fail_after(timeout):
                answer = await _answer(client, address.url, body, headers, timeout)
        except trio.TooSlowError:
            raise WebhookError(f'Post "{address.shown}": context deadline exceeded') from None
        except AskError as error:
            raise WebhookError(_shown(error, address)) from None
        return _decoded(answer)

    def _address(self, config: Mapping[str, Any], timeout: float) -> _Address:
        query = f"?timeout={math.ceil(timeout)}s"
        url = config.get("url")
        if url:
            url = url.rstrip("/") + query
            return _Address(url, url)
        service = config.get("service") or {}
        namespace, name, port = service.get("namespace", ""), service.get("name", ""), service.get("port") or HTTPS
        path = "/" + (service.get("path") or "").strip("/")
        host = f"{name}.{namespace}.svc"
        shown = f"https://{host}:{port}{path}{query}"
        try:
            place = resolve(self._find_service(namespace, name), name, port)
        except ValueError as error:
            raise WebhookError(f'Post "{shown}": {error}') from None
        return _Address(f"https://{place}{path}{query}", shown, host)

    async def _client(self, config: Mapping[str, Any], address: _Address) -> Client:
        parts = urlsplit(address.url)
        try:
            ca = base64.b64decode(config.get("caBundle") or "").strip() or None
            peer = RemoteServer(
                url=f"{parts.scheme}://{parts.netloc}", ca=ca, server_name=address.server_name, http_allowed=False
            )
        except (ValueError, binascii.Error) as error:
            raise WebhookError(str(error)) from None
        client = self._clients.get(peer)
        if client is None:
            client = self._clients[peer] = self._outgoing.client(peer)
            while len(self._clients) > MOST_CLIENTS:
                await self._outgoing.forget(self._clients.popitem(last=False)[1])
        self._clients.move_to_end(peer)
        return client


_GO_TEXTS: Final = (
    ("unable to get local issuer certificate", "x509: certificate signed by unknown authority"),
    ("unable to get issuer certificate", "x509: certificate signed by unknown authority"),
    ("self-signed certificate in certificate chain", "x509: certificate signed by unknown authority"),
    ("self-signed certificate", "x509: certificate signed by unknown authority"),
    ("certificate has expired", "x509: certificate has expired or is not yet valid"),
    ("Server disconnected without sending a response.", "EOF"),
)
"""The ends of errors of Python's libraries, and Go's words for them."""


def _shown(error: AskError, address: _Address) -> str:
    """Return the text of an error as Go's net/http has it."""
    head = f'Post "{address.shown}": '
    if error.timed_out:
        return head + "context deadline exceeded"
    text = str(error).replace(address.url, address.shown)
    for ours, theirs in _GO_TEXTS:
        if text.endswith(ours):
            return text.removesuffix(ours) + theirs
    if text.startswith(head + "connect: "):
        return f"{head}dial tcp {urlsplit(address.url).netloc}: {text.removeprefix(head)}"
    return text


async def _answer(client: Client, url: str, body: bytes, headers: Mapping[str, str], timeout: float) -> Answer:
    """Return the answer of a webhook. One that says when to try again is asked again then, as client-go does."""
    answer = await client.ask("POST", url, body=body, headers=headers, timeout=timeout)
    for _ in range(MAX_RETRIES):
        seconds = _retry_after(answer)
        if seconds is None:
            break
        await trio.sleep(seconds)
        answer = await client.ask("POST", url, body=body, headers=headers, timeout=timeout)
    return answer


def _retry_after(answer: Answer) -> int | None:
    text = answer.headers.get("retry-after", "")
    if (answer.status != 429 and answer.status < 500) or not (text.isascii() and text.isdigit() and len(text) < 10):
        return None
    return int(text)


def resolve(service: Mapping[str, Any] | None, name: str, port: int) -> str:
    """Return the host and port at which a Service is reached. ValueError, with the reason."""
    if service is None:
        raise ValueError(f'service "{name}" not found')
    spec = service.get("spec") or {}
    kind, address = spec.get("type") or "ClusterIP", spec.get("clusterIP") or ""
    if kind == "ExternalName":
        return _joined(spec.get("externalName") or "", port)
    if kind == "ClusterIP" and address == "None":
        raise ValueError('cannot route to service with ClusterIP "None"')
    if not any(each.get("port") == port for each in spec.get("ports") or ()):
        raise ValueError(f'no service port {port} found for service "{name}"')
    return _joined(address, port)


def _joined(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _decoded(answer: Answer) -> Any:
    """Return the body of a successful answer. Raises WebhookError with client-go's text."""
    try:
        value = orjson.loads(answer.body)
    except orjson.JSONDecodeError:
        value = None  # not JSON: Kubernetes' decoder takes it for YAML, of which most texts are a string
    if 200 <= answer.status <= 206:
        if value is None and answer.body.strip() != b"null":
            raise WebhookError(NO_JSON)
        return value
    if isinstance(value, dict) and value.get("kind") == "Status" and value.get("message"):
        raise WebhookError(str(value["message"]))
    raise WebhookError(failure(answer))
