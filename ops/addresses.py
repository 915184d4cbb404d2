"""The addresses and the port of a server, chosen and tried before anything is started.

Postgres starts right after, so nothing of HTTP is imported here.
"""

from __future__ import annotations

import errno
import ipaddress
import socket
from contextlib import ExitStack
from dataclasses import dataclass

from kubechronicle.ops.errors import OperatorError
from kubechronicle.ops.settings.settings import Settings
from kubechronicle.ops.settings.types import IPAddress

# Addresses reserved for documentation (RFC 5737, RFC 3849). Connecting a UDP socket to one sends nothing.
DOCUMENTATION_ADDRESSES = {4: "192.0.2.1", 6: "2001:db8::1"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenAddresses:
    """The addresses of a server.

    ``host``: the address to bind, "" for all
    ``advertised``: the address for the cluster
    ``url``: the URL for the administrator
    """

    host: str
    port: int
    advertised: IPAddress
    url: str


def find_addresses(settings: Settings) -> ListenAddresses:
    """Choose the addresses and try the port. Raise OperatorError if it cannot be bound."""
    bound = settings.bind_address
    host = "" if bound.is_unspecified else str(bound)
    port = try_port(bound, settings.secure_port)
    advertised = settings.advertise_address or _advertised(bound)
    local = ipaddress.ip_address("127.0.0.1") if bound.is_unspecified else bound
    return ListenAddresses(host=host, port=port, advertised=advertised, url=f"https://{bracketed(local)}:{port}")


def try_port(bound: IPAddress, port: int, *, flag: str = "--secure-port") -> int:
    """Return the port, or a free one for 0. Raise OperatorError if it cannot be bound. ``flag``: that of the port."""
    with ExitStack() as opened:
        family = socket.AF_INET6 if bound.version == 6 else socket.AF_INET
        try:
            probe = opened.enter_context(socket.socket(family, socket.SOCK_STREAM))
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((str(bound), port))
            probe.listen(1)  # two sockets may bind with SO_REUSEADDR, but only one may listen
            return int(probe.getsockname()[1])
        except OSError as error:
            raise OperatorError(_port_problem(error, bound, port, flag)) from None


def _port_problem(error: OSError, bound: IPAddress, port: int, flag: str) -> str:
    if error.errno == errno.EADDRINUSE:
        return f"port {port} of {bound} is in use; stop the program that uses it or choose another {flag}"
    if error.errno == errno.EACCES:
        return f"port {port} needs privileges; choose a {flag} of 1024 or more"
    if error.errno == errno.EADDRNOTAVAIL:
        return f"--bind-address: {bound} is not an address of this machine"
    return f"cannot listen on {bound} port {port}: {error.strerror}; choose another --bind-address or {flag}"


def _advertised(bound: IPAddress) -> IPAddress:
    """Return the address of the cluster's endpoints for a server that is bound to this one, as kube-apiserver picks it.

    For an unspecified or a loopback address it is the machine's own on the default route, of the same family if
    possible. Without such a route it is the loopback's.
    """
    if not (bound.is_unspecified or bound.is_loopback):
        return bound
    for version in (bound.version, 10 - bound.version):
        found = _address_of_default_route(version)
        if found is not None and not (found.is_link_local or found.is_loopback):
            return found
    return bound if bound.is_loopback else ipaddress.ip_address("::1" if bound.version == 6 else "127.0.0.1")


def _address_of_default_route(version: int) -> IPAddress | None:
    """Return this machine's source address on the default route, None if there is no route."""
    family = socket.AF_INET6 if version == 6 else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect((DOCUMENTATION_ADDRESSES[version], 9))
            return ipaddress.ip_address(probe.getsockname()[0].partition("%")[0])
    except OSError:
        return None


def bracketed(address: IPAddress) -> str:
    """Return the address as a URL has it."""
    return f"[{address}]" if address.version == 6 else str(address)
