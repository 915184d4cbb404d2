"""Varints, and the messages that are a single value in JSON: Time, Quantity, IntOrString, raw JSON.

Text below is latin-1 text: one character per byte of the wire. Python joins and slices text faster than bytes, and
an ASCII string is its own encoding. Only the outermost message is converted to or from bytes.

Every `read_*` has the signature (data, text, start, end, depth) of a compiled decoder, so that the compiler treats
these types like any other message. They raise DecodeError, or IndexError if the data ends too early; `protobuf.decode`
turns that into a DecodeError. `write_*` raise EncodeError, or a TypeError that `protobuf.encode` turns into one.
"""

from __future__ import annotations

import re
import struct
from binascii import a2b_base64, b2a_base64
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import orjson

from kubechronicle.api.codecs.errors import DecodeError, EncodeError
from kubechronicle.api.values.caches import cached, remembered
from kubechronicle.api.values.objects import whole

__all__ = [
    "MAX_DEPTH",
    "SMALL",
    "base64_text",
    "bytes_text",
    "double_text",
    "fields_of",
    "int32",
    "int64",
    "integer",
    "length",
    "truncated",
    "utf8",
    "utf8_text",
    "varint",
]

# Kubernetes' types nest a few tens of messages deep, except JSONSchemaProps. This limit allows a chain of 100 of those,
# beyond any real schema, and keeps the decoder well within Python's recursion limit.
MAX_DEPTH = 200
# Times repeat within objects and lists; each direction caches this many.
_TIMES = 8192

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_ZERO_TIME = -62135596800  # 0001-01-01T00:00:00Z, Go's zero time.Time
_RFC3339 = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d([.,]\d+)?(Z|[+-]\d\d:\d\d)", re.ASCII)
_DOUBLE = struct.Struct("<d")
_UINT64 = 1 << 64


def _varint(value: int) -> str:
    out = []
    while value > 0x7F:
        out.append(chr(value & 0x7F | 0x80))
        value >>= 7
    out.append(chr(value))
    return "".join(out)


# Encodings of nearly all lengths and numbers in objects.
SMALL = tuple(_varint(value) for value in range(2048))


def varint(value: int) -> str:
    """Return a length or tag as latin-1 text."""
    return SMALL[value] if value < 2048 else _varint(value)


def integer(value: int) -> str:
    """Return an int32, int64 or bool. Negative numbers are ten bytes long, as 64-bit two's complement."""
    return _varint(value if value >= 0 else value + _UINT64)


def utf8(value: str) -> str:
    """Return a string with characters beyond ASCII as latin-1 text of its UTF-8 bytes."""
    return value.encode().decode("latin-1")


def double_text(value: float) -> str:
    return _DOUBLE.pack(value).decode("latin-1")


def bytes_text(value: str) -> str:
    """Return Go's []byte from its base64 text in JSON, which may have line breaks."""
    try:
        return a2b_base64(value.replace("\n", "").replace("\r", ""), strict_mode=True).decode("latin-1")
    except ValueError as error:
        raise EncodeError(f"illegal base64 data: {error}") from None


# -- reading ---------------------------------------------------------------------------------------------------------


def truncated() -> DecodeError:
    return DecodeError("unexpected EOF")


def length(data: bytes, at: int, first: int) -> tuple[int, int]:
    """Read a varint after its first byte, which has its high bit set. Return (value below 2**64, next index)."""
    value, shift = first & 0x7F, 7
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & (_UINT64 - 1), at
        shift += 7
        if shift >= 64:
            raise DecodeError("proto: integer overflow")


def int64(data: bytes, at: int, first: int) -> tuple[int, int]:
    value, at = length(data, at, first)
    return (value - _UINT64 if value >> 63 else value), at


def int32(data: bytes, at: int, first: int) -> tuple[int, int]:
    value, at = length(data, at, first)
    value &= 0xFFFFFFFF
    return (value - (1 << 32) if value >> 31 else value), at


def double_at(data: bytes, at: int) -> float | int:
    """Read a float64. A whole number becomes an int, because Go prints 1 and not 1.0."""
    try:
        value: float = _DOUBLE.unpack_from(data, at)[0]
    except struct.error:
        raise truncated() from None
    if value - value != 0:
        raise DecodeError(f"json: unsupported value: {value}")
    number: float | int = whole(value)
    return number


def utf8_text(text: str) -> str:
    """Return the string of latin-1 text of UTF-8 bytes. An invalid byte becomes U+FFFD, as in Go's JSON encoder."""
    return text.encode("latin-1").decode("utf-8", "replace")


def base64_text(data: bytes) -> str:
    return b2a_base64(data, newline=False).decode()


def fields_of(data: bytes, at: int, end: int) -> Iterator[tuple[int, int, int, int]]:
    """Yield the fields of any message: (number, wire type, start, end). The caller reads a varint's value again."""
    while at < end:
        start = at
        tag, at = _read(data, at)
        number, wire = tag >> 3, tag & 7
        if number <= 0 or number >= 1 << 29:
            raise DecodeError(f"proto: illegal tag {number} (wire type {wire})")
        at, stop = _extent(data, at, wire, number)
        if stop > end:
            raise truncated()
        yield number, wire, at, stop
        at = stop
        if at <= start:
            raise truncated()


def _read(data: bytes, at: int) -> tuple[int, int]:
    first = data[at]
    return length(data, at + 1, first) if first > 0x7F else (first, at + 1)


def _extent(data: bytes, at: int, wire: int, number: int) -> tuple[int, int]:
    if wire == 0:
        return at, _read(data, at)[1]
    if wire == 1:
        return at, at + 8
    if wire == 2:
        size, at = _read(data, at)
        return at, at + size
    if wire == 5:
        return at, at + 4
    if wire == 3:
        return at, _group_end(data, at)
    raise DecodeError("proto: unexpected end of group" if wire == 4 else f"proto: illegal wireType {wire}")


def _group_end(data: bytes, at: int) -> int:
    depth = 1
    while depth:
        tag, at = _read(data, at)
        wire = tag & 7
        if wire == 3:
            depth += 1
        elif wire == 4:
            depth -= 1
        else:
            at = _extent(data, at, wire, tag >> 3)[1]
    return at


def _sub(data: bytes, at: int, end: int) -> dict[int, tuple[int, int, int]]:
    """Return the fields of a small message: number -> (wire type, start, end). The last field of a number wins."""
    return {number: (wire, start, stop) for number, wire, start, stop in fields_of(data, at, end)}


def _number(data: bytes, field: tuple[int, int, int] | None) -> int:
    if field is None:
        return 0
    if field[0] != 0:
        raise DecodeError(f"proto: wrong wireType = {field[0]}")
    value = _read(data, field[1])[0]
    return value - _UINT64 if value >> 63 else value


def _string(data: bytes, field: tuple[int, int, int] | None) -> str | None:
    if field is None:
        return None
    if field[0] != 2:
        raise DecodeError(f"proto: wrong wireType = {field[0]}")
    return data[field[1] : field[2]].decode("utf-8", "replace")


# -- time ------------------------------------------------------------------------------------------------------------


def _seconds_and_nanos(value: str) -> tuple[int, int]:
    if not _RFC3339.fullmatch(value):
        raise EncodeError(f'parsing time "{value}" as "2006-01-02T15:04:05Z07:00": cannot parse')
    try:
        since = datetime.fromisoformat(value) - _EPOCH
    except (ValueError, OverflowError):
        raise EncodeError(f'parsing time "{value}": out of range') from None
    return since // timedelta(seconds=1), since.microseconds * 1000


@remembered(_TIMES)
def write_time(value: str | None) -> str:
    """Encode metav1.Time: whole seconds. An unset time is the empty message."""
    if not value:
        return ""
    seconds = _seconds_and_nanos(value)[0]
    return "" if seconds == _ZERO_TIME else f"\x08{integer(seconds)}\x10\0"


def write_microtime(value: str | None) -> str:
    if not value:
        return ""
    seconds, nanos = _seconds_and_nanos(value)
    return "" if seconds == _ZERO_TIME and not nanos else f"\x08{integer(seconds)}\x10{integer(nanos)}"


@cached(_TIMES, longest=64)
def time(payload: bytes, micro: bool, /) -> str | None:
    """Return RFC 3339 text of a Time or MicroTime message, None if it is empty. Positional for the cache."""
    if not payload:
        return None
    fields = _sub(payload, 0, len(payload))
    seconds = _number(payload, fields.get(1))
    micros = _number(payload, fields.get(2)) // 1000 if micro else 0
    try:
        moment = _EPOCH + timedelta(seconds=seconds, microseconds=micros)
    except OverflowError:
        raise DecodeError("Time.MarshalJSON: year outside of range [0,9999]") from None
    if seconds == _ZERO_TIME and not micros:
        return None
    return moment.replace(tzinfo=None).isoformat(timespec="microseconds" if micro else "seconds") + "Z"


def read_time(data: bytes, text: str, at: int, end: int, depth: int) -> str | None:
    return time(data[at:end], False)


def read_microtime(data: bytes, text: str, at: int, end: int, depth: int) -> str | None:
    return time(data[at:end], True)


# -- quantity, int-or-string -----------------------------------------------------------------------------------------


def write_quantity(value: Any) -> str:
    """Encode resource.Quantity, the message `{1: string}`. JSON also allows a plain number."""
    if value.__class__ is not str:
        value = "0" if value is None else orjson.dumps(value).decode()
    if not value.isascii():
        value = utf8(value)
    return f"\n{varint(len(value))}{value}"


def read_quantity(data: bytes, text: str, at: int, end: int, depth: int) -> str:
    if at < end and data[at] == 10 and data[at + 1] == end - at - 2 and text[at:end].isascii():
        value = text[at + 2 : end]
    else:
        value = _string(data, _sub(data, at, end).get(1)) or "0"
    # Around a quantity in JSON, blanks are dropped. Here they are an error, as a NUL behind them is everywhere.
    return f"\0{value}\0" if value.strip() != value else value


def write_intorstring(value: Any) -> str:
    """Encode intstr.IntOrString: `{1: type, 2: int, 3: string}`, always with all three fields."""
    if value.__class__ is str:
        if not value.isascii():
            value = utf8(value)
        return f"\x08\x01\x10\0\x1a{varint(len(value))}{value}"
    return f"\x08\0\x10{integer(value or 0)}\x1a\0"


def read_intorstring(data: bytes, text: str, at: int, end: int, depth: int) -> int | str:
    if end - at == 6 and text[at : at + 3] == "\x08\0\x10" and data[at + 3] < 0x80 and text[end - 2 : end] == "\x1a\0":
        return data[at + 3]  # a small number in Go's encoding
    fields = _sub(data, at, end)
    if _number(data, fields.get(1)) == 0:
        value = _number(data, fields.get(2)) & 0xFFFFFFFF
        return value - (1 << 32) if value >> 31 else value
    return _string(data, fields.get(3)) or ""


# -- raw JSON, lists of strings --------------------------------------------------------------------------------------


def write_raw(value: Any) -> str:
    """Encode RawExtension, FieldsV1 or apiextensions' JSON: `{1: bytes of JSON}`. Null is the empty message."""
    if value is None:
        return ""
    raw = orjson.dumps(value).decode("latin-1")
    return f"\n{varint(len(raw))}{raw}"


def raw_bytes(data: bytes, at: int, end: int) -> bytes:
    """Return the only field of such a message; fast if there is no other, as Go writes it."""
    if end - at > 2 and data[at] == 10:
        size, start = data[at + 1], at + 2
        if size > 0x7F:
            size, start = length(data, start, size)
        if start + size == end:
            return data[start:end]
    field = _sub(data, at, end).get(1)
    if field is None:
        return b""
    if field[0] != 2:
        raise DecodeError(f"proto: wrong wireType = {field[0]} for field Raw")
    return data[field[1] : field[2]]


def read_raw(data: bytes, text: str, at: int, end: int, depth: int) -> Any:
    raw = raw_bytes(data, at, end)
    if not raw:
        return None
    try:
        return orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        raise DecodeError(f"invalid JSON in raw bytes: {error}") from None


def read_fields(data: bytes, text: str, at: int, end: int, depth: int) -> Any:
    """Read FieldsV1. Kubernetes does not look at its bytes here: of those that are no JSON it keeps the text, and drops
    the managedFields with it."""
    try:
        return read_raw(data, text, at, end, depth)
    except DecodeError:
        return raw_bytes(data, at, end).decode("utf-8", "replace")


def write_strings(value: list[str]) -> str:
    """Encode a slice type with a message of its own (ExtraValue, Verbs): `{1: repeated string}`, a list in JSON."""
    out = []
    for item in value or ():
        item = item if item.isascii() else utf8(item)
        out.append(f"\n{varint(len(item))}{item}")
    return "".join(out)


def read_strings(data: bytes, text: str, at: int, end: int, depth: int) -> list[str]:
    return [
        data[start:stop].decode("utf-8", "replace")
        for number, wire, start, stop in fields_of(data, at, end)
        if number == 1 and wire == 2
    ]
