"""The servers behind APIServices: their addresses, and one client for each.

    spec.service {namespace: n, name: s, port: 443}     https://ADDRESS, as outgoing/service_addresses.py chooses it
    the certificate must name                           s.n.svc
    its authorities                                     spec.caBundle, else the system's
    this server shows                                   the certificate of --proxy-client-cert-file

Sources: kube-aggregator ``pkg/apiserver/resolvers.go``; k8s.io/apiserver ``pkg/util/proxy/proxy.go``.
"""

from __future__ import annotations

import base64
import binascii
from collections import OrderedDict
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import trio

from kubechronicle.api.registry.api_services import HTTPS_PORT, ApiService, ServiceReference
from kubechronicle.http.outgoing.client import AskError, Outgoing, OutgoingClient
from kubechronicle.http.outgoing.networks import Network
from kubechronicle.http.outgoing.remote_server import RemoteServer
from kubechronicle.http.outgoing.service_addresses import ServiceAddresses
from kubechronicle.http.outgoing.webhooks import go_error
from kubechronicle.http.proxying.dialing import BackendServer

MOST_CLIENTS: Final = 256
"""Servers whose connections are kept; a cluster rarely has more than some dozens."""
MAX_CONNECTIONS: Final = 1024
"""Concurrent requests to one server. Each watch takes one; further requests wait for one within their time-out."""


class Backends:
    """Addresses of Services and clients for them.

    ``addresses``: of Services, as --enable-aggregator-routing says.
    ``certificate``, ``key``: files of the client certificate for other servers; None: they see none.
    """

    def __init__(
        self,
        outgoing: Outgoing,
        addresses: ServiceAddresses,
        *,
        certificate: Path | None = None,
        key: Path | None = None,
    ) -> None:
        self._outgoing = outgoing
        self._addresses = addresses
        self._certificate, self._key = certificate, key
        self._clients: OrderedDict[RemoteServer, OutgoingClient] = OrderedDict()
        self._peers: OrderedDict[str, tuple[ApiService, str, RemoteServer]] = OrderedDict()

    async def url(self, service: ServiceReference) -> str:
        """Return the URL of a server without a path. ValueError, with the reason: there is none now."""
        return f"https://{await self._addresses.resolve(service.namespace, service.name, service.port)}"

    def failed(self, service: ServiceReference, url: str) -> None:
        """Choose another address for the next request: no connection was made to this one."""
        self._addresses.failed(service.namespace, service.name, service.port, urlsplit(url).netloc)

    async def client(self, api_service: ApiService, url: str) -> OutgoingClient:
        """Return the client for a server at ``url``. Raises AskError if its caBundle is unusable."""
        known = self._peers.get(api_service.name)
        if known is not None and known[0] is api_service and known[1] == url:
            peer = known[2]
        else:
            peer = self._peer(api_service, url)
            self._peers[api_service.name] = api_service, url, peer
            if len(self._peers) > MOST_CLIENTS:
                self._peers.popitem(last=False)
        client = self._clients.get(peer)
        if client is None:
            client = self._clients[peer] = self._outgoing.client(
                peer, max_connections=MAX_CONNECTIONS, network=Network.CLUSTER
            )
            while len(self._clients) > MOST_CLIENTS:
                self._outgoing.forget(self._clients.popitem(last=False)[1])
        self._clients.move_to_end(peer)
        return client

    async def server(self, api_service: ApiService, url: str) -> BackendServer:
        """Return the server at ``url``, to proxy to. Raises AskError if its caBundle or our files are unusable."""
        client, parts = await self.client(api_service, url), urlsplit(url)
        return BackendServer(
            host=parts.hostname or "",
            port=parts.port or HTTPS_PORT,
            tls=await client.tls_context(),
            server_name=client.peer.server_name,
            connect=self._outgoing.networks.connect_to(Network.CLUSTER),
        )

    def _peer(self, api_service: ApiService, url: str) -> RemoteServer:
        assert api_service.service is not None
        try:
            return RemoteServer(
                url=url,
                ca=base64.b64decode(api_service.ca_bundle).strip() or None,
                insecure=api_service.insecure,
                certificate=self._certificate,
                key=self._key,
                server_name=api_service.service.server_name,
            )
        except (ValueError, binascii.Error) as error:
            raise AskError(str(error)) from None


# -- checks ------------------------------------------------------------------------------------------------------------
#
# The check of another server: a request for its resource list, several times at once.
#
# One success of ATTEMPTS is enough: a Service may have endpoints that do not answer. Source: kube-aggregator
# ``pkg/controllers/status/remote``.


ATTEMPTS: Final = 5
TIMEOUT: Final = 5.0
"""Seconds for one request."""
AGGREGATOR: Final = {"x-remote-user": "system:kube-aggregator", "x-remote-group": "system:masters"}
"""The user in whose name this server asks others."""


class DiscoveryCheck:
    """Requests resource lists. ``backends``: addresses and clients of the other servers."""

    def __init__(self, backends: Backends) -> None:
        self._backends = backends

    async def __call__(self, one: ApiService) -> str:
        """Return "" if a request succeeds, else the reason of the last failure."""
        failures: list[str] = []
        async with trio.open_nursery() as nursery:

            async def attempt() -> None:
                problem = await self._attempt(one)
                if problem:
                    failures.append(problem)
                else:
                    nursery.cancel_scope.cancel()

            for _ in range(ATTEMPTS):
                nursery.start_soon(attempt)
        return failures[-1] if len(failures) == ATTEMPTS else ""

    async def _attempt(self, one: ApiService) -> str:
        assert one.service is not None
        try:
            server = await self._backends.url(one.service)
        except ValueError as error:
            return str(error)
        url = server + one.path
        failing = f"failing or missing response from {url}: "
        try:  # as kube-aggregator, it accepts anything: a server may have aggregated discovery alone
            client = await self._backends.client(one, server)
            answer = await client.ask("GET", url, headers={**AGGREGATOR, "accept": ""}, timeout=TIMEOUT)
        except AskError as error:
            self._backends.failed(one.service, server)
            why = "context deadline exceeded" if error.timed_out else go_error(error.why, url)
            return f'{failing}Get "{url}": {why}'
        if not 200 <= answer.status < 300:
            return f"{failing}bad status from {url}: {answer.status}"
        return ""
