"""EgressSelectorConfiguration (apiserver.k8s.io v1beta1, v1alpha1): the way of connections to each network.

egressSelections:
- name: cluster
  connection:
    proxyProtocol: GRPC
    transport: {uds: {udsName: /run/konnectivity/server.socket}}

Lives here: the shape of the file and its rules, in kube-apiserver's words (k8s.io/apiserver ``pkg/server/
egressselector/config.go``). Not here: files that it names must exist, which the caller finds out with ``exists``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Annotated, Final

from kubechronicle.api.configuration import files
from kubechronicle.api.configuration.files import ConfigFileError
from kubechronicle.api.configuration.structuring import FieldKey
from kubechronicle.api.errors.field_errors import (
    Cause,
    Path,
    aggregate,
    duplicate,
    invalid_value,
    not_supported,
    required,
)

GROUP: Final = "apiserver.k8s.io"
KINDS: Final = frozenset(
    {("v1beta1", "EgressSelectorConfiguration"), ("v1alpha1", "EgressSelectorConfiguration"),
     ("v1alpha1", "AdmissionConfiguration")}
)  # fmt: skip
"""The versions and kinds of the group, in kube-apiserver too."""
NAMES: Final = ("cluster", "controlplane", "etcd")
DIRECT, HTTP_CONNECT, GRPC = "Direct", "HTTPConnect", "GRPC"
PROTOCOLS: Final = (DIRECT, HTTP_CONNECT, GRPC)
PLACE: Final = Path("service", "connection")
"""The path that kube-apiserver names in its errors, whichever selection is wrong."""

Exists = Callable[[str], bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class TLSConfig:
    """Files (PEM) for TLS with the proxy. ``ca_bundle``: "" for the authorities of the system."""

    ca_bundle: Annotated[str, FieldKey("caBundle")] = ""
    client_key: str = ""
    client_cert: str = ""
    tls_server_name: Annotated[str, FieldKey("tlsServerName")] = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TCPTransport:
    """A proxy at a URL: ``https://host:port`` with TLS, ``http://host:port`` without."""

    url: str = ""
    tls_config: Annotated[TLSConfig | None, FieldKey("tlsConfig")] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class UDSTransport:
    """A proxy at a Unix domain socket. ``uds_name``: its path."""

    uds_name: Annotated[str, FieldKey("udsName")] = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class EgressTransport:
    """The way to a proxy: one of the two."""

    tcp: TCPTransport | None = None
    uds: UDSTransport | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EgressConnection:
    """The protocol of a proxy, and the way to it. ``proxy_protocol``: one of PROTOCOLS."""

    proxy_protocol: str = ""
    transport: EgressTransport | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EgressSelection:
    """The connections to one network. ``name``: one of NAMES, in any case."""

    name: str = ""
    connection: EgressConnection = EgressConnection()


@dataclass(frozen=True, slots=True, kw_only=True)
class EgressSelectorConfiguration:
    """The file. A network without a selection is reached directly."""

    egress_selections: tuple[EgressSelection, ...] = ()


def parse(data: bytes, exists: Exists) -> EgressSelectorConfiguration:
    """Return the content of a file. ``exists``: tells whether a file exists. Raises ConfigFileError."""
    configuration = files.decode(
        data, EgressSelectorConfiguration, ("v1beta1", "v1alpha1"), group=GROUP, kinds=KINDS.__contains__
    )
    causes = list(_causes(configuration, exists))
    if causes:
        raise ConfigFileError(f"failed to validate egress selector configuration: {aggregate(causes)}")
    return configuration


def _causes(configuration: EgressSelectorConfiguration, exists: Exists) -> Iterator[Cause]:
    for selection in configuration.egress_selections:
        yield from _connection(selection.connection, exists)
    seen: set[str] = set()
    for position, selection in enumerate(configuration.egress_selections):
        name = selection.name.lower()
        if name in seen:
            yield duplicate(PLACE.index(position), name)
        elif name not in NAMES:
            yield not_supported(PLACE, name, NAMES)
        seen.add(name)


def _connection(connection: EgressConnection, exists: Exists) -> Iterator[Cause]:
    protocol, transport = connection.proxy_protocol, connection.transport
    if protocol not in PROTOCOLS:
        yield not_supported(PLACE.child("protocol"), protocol, PROTOCOLS)
    elif protocol == DIRECT:
        if transport is not None:
            yield invalid_value(PLACE.child("transport"), "direct", "config must be absent for direct connect")
    elif transport is None:
        yield required(PLACE.child("transport"), f"transport must be set for {protocol}")
    elif protocol == GRPC:
        if transport.uds is None:
            yield required(PLACE.child("uds"), "UDS must be set with GRPC")
        else:
            yield from _uds(transport.uds)
    else:
        yield from _http_connect(transport, exists)


def _http_connect(transport: EgressTransport, exists: Exists) -> Iterator[Cause]:
    tcp, uds = transport.tcp, transport.uds
    if tcp is not None and uds is not None:
        yield invalid_value(PLACE.child("tcp"), tcp.url, "TCP and UDS cannot both be set")
    elif tcp is not None:
        yield from _tcp(tcp, exists)
    elif uds is not None:
        yield from _uds(uds)
    else:
        yield required(PLACE.child("tcp"), "One of TCP or UDS must be set")


def _uds(uds: UDSTransport) -> Iterator[Cause]:
    if not uds.uds_name:
        yield invalid_value(PLACE.child("udsName"), "nil", "must be present for UDS connections")


def _tcp(tcp: TCPTransport, exists: Exists) -> Iterator[Cause]:
    place = PLACE.child("tlsConfig")
    if tcp.url.startswith("http://"):
        if tcp.tls_config is not None:
            yield invalid_value(place, "nil", "config must not be present when using HTTP")
    elif not tcp.url.startswith("https://"):
        yield invalid_value(PLACE.child("url"), tcp.url, "supported connection protocols are http:// and https://")
    elif tcp.tls_config is None:
        yield required(place, "TLSConfig must be present when using HTTPS")
    else:
        yield from _tls(tcp.tls_config, exists)


def _tls(tls: TLSConfig, exists: Exists) -> Iterator[Cause]:
    place = PLACE.child("tlsConfig")
    if tls.ca_bundle and not exists(tls.ca_bundle):
        yield invalid_value(place.child("caBundle"), tls.ca_bundle, "TLS config ca bundle does not exist")
    for name, file, noun in (("clientCert", tls.client_cert, "cert"), ("clientKey", tls.client_key, "key")):
        if not file:
            yield invalid_value(place.child(name), "nil", f"Using TLS requires {name}")
        elif not exists(file):
            yield invalid_value(place.child(name), file, f"TLS client {noun} does not exist")
