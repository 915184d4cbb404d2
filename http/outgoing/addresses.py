"""The judge of addresses: to which this server connects on behalf of a client, and to which it does not.

Names are resolved before, and the connection is made to the very address that was judged (networks.py). An IPv6 address
can stand for an IPv4 address; then both are judged:

    ::ffff:127.0.0.1       mapped (RFC 4291 §2.5.5.2)     ::127.0.0.1              compatible (§2.5.5.1)
    ::ffff:0:127.0.0.1     translated (RFC 2765)          2002:7f00:1::            6to4 (RFC 3056)
    64:ff9b::7f00:1        NAT64 (RFC 6052)               64:ff9b:1:7f00:0:100::   NAT64 of a site (RFC 8215)
    2001:0:…:80ff:fffe     Teredo (RFC 4380)              fd00::5efe:127.0.0.1     ISATAP (RFC 5214)

A connection to one of our own listeners would come back with a credential of this server, or run in circles. So no
client can choose one, whatever the form or the name of its address.
"""

from __future__ import annotations

import enum
import errno
import ipaddress
import socket
from collections.abc import Iterable, Iterator
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network
from typing import Final, TypeAlias

Address: TypeAlias = IPv4Address | IPv6Address
HostPort: TypeAlias = tuple[str, int]

_THIS_NETWORK: Final = IPv4Network("0.0.0.0/8")
_BROADCAST: Final = IPv4Address("255.255.255.255")
_IPV4_LAST: Final = tuple(map(IPv6Network, ("::/96", "::ffff:0:0/96", "::ffff:0:0:0/96", "64:ff9b::/96")))
_NAT64_OF_SITE: Final = IPv6Network("64:ff9b:1::/48")
_ISATAP: Final = (b"\0\0\x5e\xfe", b"\2\0\x5e\xfe")
"""The octets before the IPv4 address in an interface identifier of ISATAP."""


class Reach(enum.Enum):
    """The addresses to which a kind of connection may lead.

    ANY: all, for webhooks that name the Service ``kubernetes``: they get no credential of this server.
    OTHERS: all but the listeners of this server.
    UNICAST: of these the global unicast addresses, private ones included: for proxies, as in kube-apiserver.
    """

    ANY = enum.auto()
    OTHERS = enum.auto()
    UNICAST = enum.auto()


class Judge:
    """The judge of one server.

    ``port``: of its listener, which no address of this machine is reached at; 0: it has none.
    ``others``: further addresses and ports that lead to it, such as that of the Service ``kubernetes``.
    """

    def __init__(self, port: int = 0, others: Iterable[HostPort] = ()) -> None:
        self._port = port
        self._others = frozenset((ipaddress.ip_address(host), number) for host, number in others)

    def allows(self, text: str, port: int, reach: Reach) -> bool:
        """Tell whether a connection may be made to an address. ``text``: as getaddrinfo returns it."""
        if reach is Reach.ANY:
            return True
        for address in _forms(ipaddress.ip_address(text)):
            if reach is Reach.UNICAST and not _is_global_unicast(address):
                return False
            if (address, port) in self._others or (port == self._port and _is_of_this_machine(address)):
                return False
        return True


def _forms(address: Address) -> Iterator[Address]:
    """Yield the address, without its zone, and the IPv4 addresses that it stands for."""
    if isinstance(address, IPv4Address):
        yield address
        return
    octets = address.packed
    yield IPv6Address(octets)
    if address.sixtofour is not None:
        yield address.sixtofour
    if address.teredo is not None:
        yield address.teredo[1]
    if any(address in network for network in _IPV4_LAST) and int(address) > 1:  # neither :: nor ::1
        yield IPv4Address(octets[12:])
    if octets[8:12] in _ISATAP:
        yield IPv4Address(octets[12:])
    if address in _NAT64_OF_SITE:
        # The prefix may have 48, 56, 64 or 96 bits, and the octet after 64 bits is skipped (RFC 6052 §2.2). A wrong
        # place begins with an octet of zeros.
        joined = octets[:8] + octets[9:]
        found = [joined[at : at + 4] for at in (6, 7, 8)] + [octets[12:]]
        yield from map(IPv4Address, [each for each in found if each[0]] or [bytes(4)])


def _is_global_unicast(address: Address) -> bool:
    """Tell whether an address is one of Go's IsGlobalUnicast, and none of 0.0.0.0/8, which means this machine."""
    special = address.is_unspecified or address.is_loopback or address.is_multicast or address.is_link_local
    return not (special or address in _THIS_NETWORK or address == _BROADCAST)


def _is_of_this_machine(address: Address) -> bool:
    """Tell whether packets to an address stay on this machine: a socket can be bound to it."""
    if not _is_global_unicast(address):
        return True  # multicast as well: no server listens there, and link-local addresses need a zone
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.bind((str(address), 0))
    except OSError as error:
        if error.errno in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT, errno.EINVAL):
            return False
        raise
    return True


NOBODY: Final = Judge()
"""The judge of a program without listeners."""
