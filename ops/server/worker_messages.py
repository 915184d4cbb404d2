"""Messages between the parent process (workers.py) and a worker (worker.py).

The parent's first message is a StartMessage: eight bytes of length, then JSON. Then the parent sends words, one a line:
LEAD (run the control loops) and RETIRE (stop, because a successor has taken over). The worker sends READY, once.
"""

from __future__ import annotations

import ipaddress
import socket
import struct
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

from kubechronicle.ops.server.listening.addresses import Addresses
from kubechronicle.ops.settings.settings import Settings
from kubechronicle.ops.settings.types import IPAddress, IPNetwork

if TYPE_CHECKING:
    import cattrs

LEAD, RETIRE, READY = b"lead", b"retire", b"ready"
_LENGTH = struct.Struct(">Q")


@dataclass(frozen=True, slots=True, kw_only=True)
class StartMessage:
    """Everything that a worker needs to start.

    ``settings``: as the parent has them; no database URL if the database is the embedded one
    ``number``: the worker's
    ``listeners``: inherited descriptors of the sockets that the worker accepts from
    ``siblings``: inherited descriptors of the other workers' sockets
    """

    settings: Settings
    addresses: Addresses
    number: int
    listeners: tuple[int, ...]
    siblings: tuple[int, ...]

    def to_bytes(self) -> bytes:
        data = orjson.dumps(_converter().unstructure(self))
        return _LENGTH.pack(len(data)) + data


def receive_start(parent: socket.socket) -> StartMessage:
    """Receive the first message. Raise EOFError if the parent has ended."""
    (length,) = _LENGTH.unpack(_receive(parent, _LENGTH.size))
    return _converter().structure(orjson.loads(_receive(parent, length)), StartMessage)


@cache
def _converter() -> cattrs.Converter:
    """Return a converter for values that the parent has validated: paths and addresses are texts."""
    import cattrs

    made = cattrs.Converter(detailed_validation=False, unstruct_collection_overrides={tuple: list})
    for text_type in (Path, ipaddress.IPv4Address, ipaddress.IPv6Address, ipaddress.IPv4Network, ipaddress.IPv6Network):
        made.register_unstructure_hook(text_type, str)
    made.register_structure_hook(Path, lambda text, _: Path(text))
    made.register_structure_hook(IPAddress, lambda text, _: ipaddress.ip_address(text))
    made.register_structure_hook(IPAddress | None, _optional_address)
    made.register_structure_hook(IPNetwork, lambda text, _: ipaddress.ip_network(text))
    return made


def _optional_address(text: str | None, _: Any) -> IPAddress | None:
    return ipaddress.ip_address(text) if text is not None else None


def _receive(parent: socket.socket, length: int) -> bytes:
    data = b""
    while len(data) < length:
        more = parent.recv(length - len(data))
        if not more:
            raise EOFError("the parent process has ended")
        data += more
    return data
