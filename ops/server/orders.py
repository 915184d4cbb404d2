"""What a worker (worker.py) is told by its parent (workers.py) before anything else, and the words after that."""

from __future__ import annotations

import pickle
import socket
import struct
from dataclasses import dataclass

from kubechronicle.ops.server.place import Place
from kubechronicle.ops.settings.settings import Settings

LEAD, RETIRE, READY = b"lead", b"retire", b"ready"
_LENGTH = struct.Struct(">Q")


@dataclass(frozen=True, slots=True, kw_only=True)
class Orders:
    """``number`` of the worker; ``listeners`` and ``siblings``: descriptors of sockets it has inherited, its own and
    those of the others. The settings name no database if it is the embedded one."""

    settings: Settings
    place: Place
    number: int
    listeners: tuple[int, ...]
    siblings: tuple[int, ...]

    def to_bytes(self) -> bytes:
        data = pickle.dumps(self)
        return _LENGTH.pack(len(data)) + data


def receive(parent: socket.socket) -> Orders:
    """EOFError: the parent has gone."""
    (length,) = _LENGTH.unpack(_exactly(parent, _LENGTH.size))
    orders = pickle.loads(_exactly(parent, length))  # from the process that started this one
    assert isinstance(orders, Orders)
    return orders


def _exactly(parent: socket.socket, length: int) -> bytes:
    data = b""
    while len(data) < length:
        more = parent.recv(length - len(data))
        if not more:
            raise EOFError("the parent process has gone")
        data += more
    return data
