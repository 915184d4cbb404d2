"""The kubelets of nodes: their addresses, and connections to them (k8s.io/kubernetes pkg/kubelet/client)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from kubechronicle.http.outgoing.addresses import Reach
from kubechronicle.http.outgoing.networks import DIRECT, Network, Networks
from kubechronicle.http.proxying.dialing import DIAL_WAIT, BackendServer, ClientFiles, ClientTls, host_port

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
    """Connections to kubelets. TLS files are read again when they change."""

    def __init__(self, settings: KubeletSettings | None = None, networks: Networks = DIRECT) -> None:
        self._settings = settings or KubeletSettings()
        self._networks = networks
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

    def server(self, address: KubeletAddress, *, insecure: bool = False, reach: Reach = Reach.OTHERS) -> BackendServer:
        """Return the kubelet as a server to proxy to. Raises DialError for unusable TLS files.

        ``insecure``: do not verify its certificate.
        ``reach``: of its address. A kubelet on this machine may have its loopback address for sessions and logs.
        """
        context = self._tls.context(insecure=insecure)
        return BackendServer(
            host=address.host,
            port=address.port,
            tls=context,
            fields=self._tls.fields,
            wait=self._settings.timeout,
            connect=self._networks.connect_to(Network.CLUSTER, reach),
        )
