"""Protobuf messages of a few flat fields: strings, bytes, numbers and maps of strings to bytes.

The messages of key services and EncryptedObject need no more. A message is a mapping of field numbers: numbers for
varints, bytes for everything else; a repeated field is a list. Fields with default values are left out, as in proto3.
"""

from __future__ import annotations

from collections.abc import Mapping

Message = dict[int, list[bytes | int]]


def varint(number: int) -> bytes:
    """Return a number, which is not negative, in the encoding of protobuf."""
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)


def field(number: int, value: bytes | str | int) -> bytes:
    """Return a field; b"" for a default value. Field numbers are below 16."""
    if isinstance(value, int):
        return bytes((number << 3,)) + varint(value) if value else b""
    data = value.encode() if isinstance(value, str) else value
    return bytes((number << 3 | 2,)) + varint(len(data)) + data if data else b""


def map_field(number: int, entries: Mapping[str, bytes]) -> bytes:
    """Return a map field, in the order of its keys."""
    return b"".join(field(number, field(1, key) + field(2, entries[key])) for key in sorted(entries))


def parse(data: bytes) -> Message:
    """Return the fields of a message by number, unknown ones included. ValueError."""
    message: Message = {}
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        wire = tag & 7
        if wire == 0:
            value, at = _varint(data, at)
            message.setdefault(tag >> 3, []).append(value)
            continue
        if wire == 2:
            size, at = _varint(data, at)
        elif wire in (1, 5):
            size = 8 if wire == 1 else 4
        else:
            raise ValueError(f"wire type {wire}")
        if at + size > len(data):
            raise ValueError("the message is cut off")
        message.setdefault(tag >> 3, []).append(data[at : at + size])
        at += size
    return message


def bytes_of(message: Message, number: int) -> bytes:
    """Return the last value of a field of bytes; b"" if it is missing. ValueError."""
    value = message.get(number, [b""])[-1]
    if not isinstance(value, bytes):
        raise ValueError(f"field {number} is a number")
    return value


def text_of(message: Message, number: int) -> str:
    """Return the last value of a field of text; "" if it is missing. ValueError."""
    return bytes_of(message, number).decode()


def number_of(message: Message, number: int) -> int:
    """Return the last value of a numeric field; 0 if it is missing. ValueError."""
    value = message.get(number, [0])[-1]
    if not isinstance(value, int):
        raise ValueError(f"field {number} is no number")
    return value


def map_of(message: Message, number: int) -> dict[str, bytes]:
    """Return a map field. ValueError."""
    found: dict[str, bytes] = {}
    for entry in message.get(number, ()):
        if not isinstance(entry, bytes):
            raise ValueError(f"field {number} is a number")
        inner = parse(entry)
        found[text_of(inner, 1)] = bytes_of(inner, 2)
    return found


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """Return a number and the position after it."""
    number = shift = 0
    while True:
        if at >= len(data) or shift > 63:
            raise ValueError("the message is cut off")
        byte = data[at]
        at += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, at
        shift += 7
