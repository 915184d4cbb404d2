"""A connection that is cut as if the network were: a filter drops all packets that come to one side."""

from __future__ import annotations

import ctypes
import socket
import struct
from typing import Final

import trio

SO_ATTACH_FILTER: Final = 26
NOTHING: Final = struct.pack("HBBI", 0x06, 0, 0, 0)
"""A program for the filter: accept 0 bytes of each packet."""


def cut_off(peer: socket.socket | trio.socket.SocketType) -> None:
    """Drop all packets to a socket of TCP before the system answers them. What the socket sends still arrives."""
    program = ctypes.create_string_buffer(NOTHING)
    peer.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER, struct.pack("HL", 1, ctypes.addressof(program)))
