"""The messages between konnectivity's clients and its proxy server, in protobuf.

    Packet {type = 1; dialRequest = 2; dialResponse = 3; data = 4; closeRequest = 5; closeResponse = 6; closeDial = 7}

Source: sigs.k8s.io/apiserver-network-proxy ``konnectivity-client/proto/client/client.proto``. Fields of other numbers
are ignored.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_FIXED_SIZES: Final = {_FIXED64: 8, _FIXED32: 4}
_SIGN: Final = 1 << 63


class PacketType(IntEnum):
    """The values of the enum, with its names."""

    DIAL_REQ = 0
    DIAL_RSP = 1
    CLOSE_REQ = 2
    CLOSE_RSP = 3
    DATA = 4
    DIAL_CLS = 5
    DRAIN = 6


class MalformedPacket(Exception):
    """The bytes are no packet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Packet:
    """A packet from the proxy server. ``kind``: a PacketType, or an unknown number.

    ``connection``: the connection it belongs to, 0 for none; ``random``: the number of a dial; ``data``: of DATA.
    """

    kind: int
    connection: int = 0
    random: int = 0
    error: str = ""
    data: bytes = b""


def dial_request(address: str, random: int) -> bytes:
    """Return a request to connect to host:port. ``random``: comes back in the answer, below 2**63."""
    fields = _text(1, b"tcp") + _text(2, address.encode()) + _number(3, random)
    return _packet(PacketType.DIAL_REQ, 2, fields)


def data_packet(connection: int, data: bytes) -> bytes:
    """Return bytes of a connection."""
    return _packet(PacketType.DATA, 4, _number(1, connection) + _text(3, data))


def close_request(connection: int) -> bytes:
    """Return a request to close a connection."""
    return _packet(PacketType.CLOSE_REQ, 5, _number(1, connection))


def close_dial(random: int) -> bytes:
    """Return a withdrawal of a dial that was not answered."""
    return _packet(PacketType.DIAL_CLS, 7, _number(1, random))


# The fields of the payload by packet type: their numbers for connection, random, error and data; 0: it has none.
_PAYLOADS: Final = {
    PacketType.DIAL_RSP: (3, (2, 3, 1, 0)),
    PacketType.DATA: (4, (1, 0, 2, 3)),
    PacketType.CLOSE_REQ: (5, (1, 0, 0, 0)),
    PacketType.CLOSE_RSP: (6, (2, 0, 1, 0)),
    PacketType.DIAL_CLS: (7, (0, 1, 0, 0)),
}


def read_packet(message: bytes) -> Packet:
    """Return a packet. Raises MalformedPacket.

    >>> read_packet(data_packet(7, b"abc"))
    Packet(kind=4, connection=7, random=0, error='', data=b'abc')
    """
    fields = dict(_fields(message))
    kind = fields.get(1, 0)
    if not isinstance(kind, int):
        raise MalformedPacket("the type is no number")
    if kind not in _PAYLOADS:
        return Packet(kind=kind)
    number, (connection, random, error, data) = _PAYLOADS[PacketType(kind)]
    payload = fields.get(number, b"")
    if not isinstance(payload, bytes):
        raise MalformedPacket("the payload is no message")
    inner = dict(_fields(payload))
    return Packet(
        kind=kind,
        connection=_as_number(inner.get(connection, 0)),
        random=_as_number(inner.get(random, 0)),
        error=_as_bytes(inner.get(error, b"")).decode("utf-8", "replace"),
        data=_as_bytes(inner.get(data, b"")),
    )


def _as_number(value: int | bytes) -> int:
    if not isinstance(value, int):
        raise MalformedPacket("a number has another type")
    return value - 2 * _SIGN if value >= _SIGN else value


def _as_bytes(value: int | bytes) -> bytes:
    if not isinstance(value, bytes):
        raise MalformedPacket("a text has another type")
    return value


def _packet(kind: PacketType, number: int, payload: bytes) -> bytes:
    return _number(1, kind) + _text(number, payload)


def _number(number: int, value: int) -> bytes:
    return bytes((number << 3 | _VARINT,)) + _varint(value) if value else b""


def _text(number: int, value: bytes) -> bytes:
    return b"%b%b%b" % (bytes((number << 3 | _BYTES,)), _varint(len(value)), value)


def _varint(value: int) -> bytes:
    encoded = bytearray()
    value &= 2 * _SIGN - 1
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def _fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yield number and value of each field. Raises MalformedPacket."""
    at, end = 0, len(message)
    while at < end:
        tag, at = _read_varint(message, at)
        number, wire = tag >> 3, tag & 7
        if wire == _VARINT:
            value, at = _read_varint(message, at)
            yield number, value
            continue
        if wire == _BYTES:
            size, at = _read_varint(message, at)
        elif wire in _FIXED_SIZES:
            size = _FIXED_SIZES[wire]
        else:
            raise MalformedPacket(f"wire type {wire}")
        if at + size > end:
            raise MalformedPacket("a field is longer than the packet")
        yield number, message[at : at + size]
        at += size


def _read_varint(message: bytes, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        if at >= len(message):
            break
        byte = message[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & (2 * _SIGN - 1), at
    raise MalformedPacket("a number does not end")
