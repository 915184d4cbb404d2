"""The kubelets of nodes: their addresses, and connections to them (k8s.io/kubernetes pkg/kubelet/client)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import trio

from kubechronicle.http.outgoing.networks import Connect
from kubechronicle.http.proxying.dialing import DIAL_WAIT, BackendServer, ClientFiles, ClientTls, host_port
from kubechronicle.http.wire.tls import TLSStream

ADDRESS_TYPES: Final = ("Hostname", "InternalDNS", "InternalIP", "ExternalDNS", "ExternalIP")
PORT: Final = 10250
HOSTNAME_LABEL: Final = "kubernetes.io/hostname"


class NoAddress(Exception):
    """The node has no address of a preferred type. The text is kube-apiserver's."""


@dataclass(frozen=True, slots=True)
class KubeletAddress:
    """``features``: the node's declared features (status.declaredFeatures)."""

    host: str
    port: int
    features: frozenset[str] = frozenset()

    def __str__(self) -> str:
        return host_port(self.host, self.port)


@dataclass(frozen=True, slots=True, kw_only=True)
class KubeletSettings:
    """``address_types``: in the order of preference. ``port``: for nodes that tell none. ``timeout``: seconds for a
    connection."""

    address_types: Sequence[str] = ADDRESS_TYPES
    port: int = PORT
    timeout: float = DIAL_WAIT
    files: ClientFiles = field(default_factory=ClientFiles)


class Kubelets:
    """Connections to kubelets. TLS files are read again when they change. ``connect``: the way to their network."""

    def __init__(self, settings: KubeletSettings | None = None, connect: Connect = trio.open_tcp_stream) -> None:
        self._settings = settings or KubeletSettings()
        self._connect = connect
        self._tls = ClientTls(self._settings.files)

    def address_of(self, node: Mapping[str, Any]) -> KubeletAddress:
        """Return the address of a Node's kubelet. Raises NoAddress."""
        status = node.get("status") or {}
        host = self._host(node, status.get("addresses") or [])
        declared = ((status.get("daemonEndpoints") or {}).get("kubeletEndpoint") or {}).get("Port") or 0
        features = frozenset(status.get("declaredFeatures") or ())
        return KubeletAddress(host, declared if declared > 0 else self._settings.port, features)

    def _host(self, node: Mapping[str, Any], addresses: Sequence[Mapping[str, str]]) -> str:
        for kind in self._settings.address_types:
            for address in addresses:
                if address.get("type") == kind:
                    return address.get("address", "")
            label = (node["metadata"].get("labels") or {}).get(HOSTNAME_LABEL)
            if kind == "Hostname" and label:
                return str(label)
        known = " ".join(f"{{{each.get('type', '')} {each.get('address', '')}}}" for each in addresses)
        raise NoAddress(f"no preferred addresses found; known addresses: [{known}]")

    async def dial(
        self, address: KubeletAddress, *, insecure: bool = False
    ) -> trio.abc.HalfCloseableStream | TLSStream:
        """Return a TLS stream to the kubelet. ``insecure``: do not verify its certificate. Raises DialError."""
        return await self.server(address, insecure=insecure).dial()

    def server(self, address: KubeletAddress, *, insecure: bool = False) -> BackendServer:
        """Return the kubelet as a server to proxy to. Raises DialError for unusable TLS files."""
        return BackendServer(
            host=address.host,
            port=address.port,
            tls=self._tls.context(insecure=insecure),
            wait=self._settings.timeout,
            connect=self._connect,
        )
