"""Scalars with a syntax of their own (times, bytes, quantities, integers), and Go's errors about them.

Each function takes a decoded JSON value and returns its canonical form, or raises DecodeError with the text of Go's
decoder. Not here: the fields of the values (check.py).
"""

from __future__ import annotations

import base64
import binascii
import re
from datetime import UTC, datetime
from typing import Any, Final

from kubechronicle.api.values import quantity
from kubechronicle.api.values.objects import whole

RFC3339: Final = "2006-01-02T15:04:05Z07:00"
RFC3339_MICRO: Final = "2006-01-02T15:04:05.000000Z07:00"

_TIME: Final = re.compile(r"(\d{4})-(\d\d)-(\d\d)T(\d\d):(\d\d):(\d\d)([.,]\d+)?(Z|[+-]\d\d:\d\d)\Z")
_INT_RANGES: Final = {"int32": (-(2**31), 2**31 - 1), "int64": (-(2**63), 2**63 - 1)}


class ValueDecodeError(ValueError):
    """A value that its field cannot hold.

    ``wrong_type``: Go's word for the value ("number", "number 1.5", …) if Go's message names the struct field, else
    empty: then ``text`` is the whole message.
    ``go_type``: the type in Go's message, if it is not the field's own.
    """

    def __init__(self, text: str = "", *, wrong_type: str = "", go_type: str = "") -> None:
        super().__init__(text or wrong_type)
        self.text = text
        self.wrong_type = wrong_type
        self.go_type = go_type


def json_word(value: Any) -> str:
    """Return Go's word for the JSON type of a decoded value."""
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, int | float):
        return "number"
    if isinstance(value, str):
        return "string"
    return "array" if isinstance(value, list) else "object"


def string(value: Any) -> str:
    """Return a plain string."""
    if isinstance(value, str):
        return value
    raise ValueDecodeError(wrong_type=json_word(value))


def boolean(value: Any) -> bool:
    """Return a boolean."""
    if isinstance(value, bool):
        return value
    raise ValueDecodeError(wrong_type=json_word(value))


def int32(value: Any) -> int:
    """Return a 32-bit integer."""
    return _integer(value, "int32")


def int64(value: Any) -> int:
    """Return a 64-bit integer."""
    return _integer(value, "int64")


def _integer(value: Any, kind: str) -> int:
    if value.__class__ is int:
        low, high = _INT_RANGES[kind]
        if low <= value <= high:
            number: int = value
            return number
        raise ValueDecodeError(wrong_type=f"number {value}")
    if isinstance(value, float):
        raise ValueDecodeError(wrong_type=f"number {value!r}")
    raise ValueDecodeError(wrong_type=json_word(value))


def number(value: Any) -> int | float:
    """Return a floating-point number; whole ones as integers, as Go writes them."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueDecodeError(wrong_type=json_word(value))
    number: int | float = whole(value)
    return number


def data_bytes(value: Any) -> str:
    """Return base64 text in its standard form. A list of bytes is as good as its base64 text."""
    if value.__class__ is list:
        return base64.b64encode(bytes(map(_byte, value))).decode()
    if not isinstance(value, str):
        raise ValueDecodeError(wrong_type=json_word(value))
    text = value.replace("\n", "").replace("\r", "")
    try:
        # Decoded only to validate: base64.b64decode alone would silently skip foreign characters.
        binascii.a2b_base64(text, strict_mode=True)
    except ValueError:  # binascii.Error, or a plain ValueError for characters beyond ASCII
        raise ValueDecodeError(f"illegal base64 data at input byte {_first_illegal_byte(value)}") from None
    return text


def _byte(value: Any) -> int:
    if value is None:
        return 0
    if value.__class__ is int and 0 <= value < 256:
        byte: int = value
        return byte
    word = json_word(value)
    raise ValueDecodeError(wrong_type=f"number {value!r}" if word == "number" else word, go_type="uint8")


_ALPHABET: Final = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/")


def _first_illegal_byte(text: str) -> int:
    """Return the offset in the error of Go's encoding/base64: of the first byte that is invalid at its place."""
    data = text.encode()
    quantum = 0
    position = 0
    while position < len(data):
        byte = data[position]
        if byte in b"\r\n":
            position += 1
            continue
        if byte == ord("="):
            if quantum in (0, 1):
                return position
            rest = data[position + 1 :].lstrip(b"\r\n")
            if quantum == 2:
                if not rest:
                    return len(data)
                if rest[:1] != b"=":
                    return position + len(data[position + 1 :]) - len(rest)
                rest = rest[1:].lstrip(b"\r\n")
            return len(data) - len(rest) if rest else position
        if byte not in _ALPHABET:
            return position
        quantum = (quantum + 1) % 4
        position += 1
    return len(data) - quantum


def encode_bytes(text: str) -> str:
    """Return text as the base64 form of its UTF-8 bytes."""
    return base64.b64encode(text.encode()).decode()


def time(value: Any) -> str | None:
    """Return a time of whole seconds in UTC: ``2026-11-21T02:30:00Z``; None for the zero time."""
    if value.__class__ is str and len(value) == 20 and value[-1] == "Z" and value[10] == "T":
        try:
            datetime.fromisoformat(value)
        except ValueError:
            pass
        else:
            text: str = value
            return None if text.startswith("0001-01-01T00:00:00") else text
    if not isinstance(value, str):
        raise ValueDecodeError(wrong_type=json_word(value), go_type="string")
    moment = _parse_time(value, RFC3339)
    if moment.year == 1 and moment == datetime(1, 1, 1, tzinfo=UTC):
        return None
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ").rjust(20, "0")


def microtime(value: Any) -> str | None:
    """Return a time with microseconds in UTC: ``2026-11-21T02:30:00.123456Z``."""
    if not isinstance(value, str):
        raise ValueDecodeError(wrong_type=json_word(value), go_type="string")
    moment = _parse_time(value, RFC3339_MICRO)
    return moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ").rjust(27, "0")


def json_text(value: Any) -> str:
    """Return a scalar's JSON text, for messages."""
    return "true" if value is True else "false" if value is False else str(value)


def _time_quote(text: str) -> str:
    """Quote a text as Go's package time does: bytes that are no printable ASCII are hexadecimal."""
    return '"' + "".join(map(_time_byte, text.encode("utf-8", "replace"))) + '"'


def _time_byte(byte: int) -> str:
    if byte in b'"\\':
        return "\\" + chr(byte)
    return chr(byte) if 0x20 <= byte < 0x80 else f"\\x{byte:02x}"


def _parse_time(value: str, layout: str) -> datetime:
    found = _TIME.match(value)
    micro = layout is RFC3339_MICRO
    if found is None or (micro and len(found[7] or "") != 7):
        raise ValueDecodeError(
            f"parsing time {_time_quote(value)} as {_time_quote(layout)}: {_where(value, micro=micro)}"
        )
    fraction = (found[7] or "")[1:7].ljust(6, "0")
    zone = "+00:00" if found[8] == "Z" else found[8]
    try:
        moment = datetime.fromisoformat(f"{value[:19]}.{fraction}{zone}").astimezone(UTC)
    except (ValueError, OverflowError):
        raise ValueDecodeError(f"parsing time {_time_quote(value)}: {_out_of_range(found)}") from None
    return moment


_LAYOUT: Final = (
    ("2006", r"\d{4}"),
    ("-", "-"),
    ("01", r"\d\d"),
    ("-", "-"),
    ("02", r"\d\d"),
    ("T", "T"),
    ("15", r"\d\d"),
    (":", ":"),
    ("04", r"\d\d"),
    (":", ":"),
    ("05", r"\d\d"),
)


def _where(value: str, *, micro: bool) -> str:
    rest = value
    for element, pattern in _LAYOUT:
        found = re.match(pattern, rest)
        if found is None:
            return f"cannot parse {_time_quote(rest)} as {_time_quote(element)}"
        rest = rest[found.end() :]
    if micro:
        found = re.match(r"[.,]\d{6}(?!\d)", rest)
        if found is None:
            return f"cannot parse {_time_quote(rest)} as {_time_quote('.000000')}"
        rest = rest[found.end() :]
    else:
        rest = re.sub(r"\A[.,]\d+", "", rest)
    found = re.match(r"Z|[+-]\d\d:\d\d", rest)
    if found is None:
        return f"cannot parse {_time_quote(rest)} as {_time_quote('Z07:00')}"
    return f"extra text: {_time_quote(rest[found.end() :])}"


def _out_of_range(found: re.Match[str]) -> str:
    for index, name, highest in ((2, "month", 12), (4, "hour", 23), (5, "minute", 59), (6, "second", 59)):
        if int(found[index]) > highest or (name == "month" and int(found[index]) == 0):
            return f"{name} out of range"
    return "day out of range"


def quantity_text(value: Any) -> str:
    """Return a quantity in its canonical spelling. A number counts as its text, a float as Go encodes it."""
    if not isinstance(value, str):
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise ValueDecodeError(quantity.SYNTAX_ERROR)
        value = str(int(value) if isinstance(value, float) and abs(value) < 1e21 and value.is_integer() else value)
    try:
        return quantity.canonical(value.strip())
    except quantity.QuantityError as error:
        raise ValueDecodeError(str(error)) from None


def int_or_string(value: Any) -> int | str:
    """Return a string or a 32-bit integer."""
    if isinstance(value, str):
        return value
    if value.__class__ is int and -(2**31) <= value < 2**31:
        whole: int = value
        return whole
    word = json_word(value)
    if word == "number":
        word = f"number {value!r}"
    raise ValueDecodeError(wrong_type=word, go_type="int32")
