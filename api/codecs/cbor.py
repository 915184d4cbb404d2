"""CBOR bodies (RFC 8949, KEP-4222), decoded into values of JSON as strictly as kube-apiserver does.

A document may begin with the tag 55799, the mark of CBOR. The decoder takes text and byte strings alike. The tags 21
to 23 of a byte string name the text that it stands for: base64 for bytes of a Secret. Tags 0 and 1 are times. Of other
tags only the content counts. Lengths may be indefinite. Integers beyond 64 bits, NaN, infinity, keys that are no
strings, and repeated keys are refused:

    D9D9F7 (tag 55799)  A1 (map of one)  44 "kind"  43 "Pod"   ->   {"kind": "Pod"}
    A2 (map of two)  41 "a"  01  41 "a"  02                    ->   RefusedValueError

Two kinds of refusals differ in their words. Malformed bytes, and errors of the outermost keys, are found while
kube-apiserver looks for apiVersion and kind; a bad value in the middle is found later, whatever its place.

A library would not do: cbor2 takes repeated keys, NaN and references to shared values, and counts no parts. Sources:
apimachinery pkg/runtime/serializer/cbor, github.com/fxamacker/cbor (the texts of its errors).
"""

from __future__ import annotations

import base64
import struct
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from itertools import repeat
from typing import Any, Final

import orjson

from kubechronicle.api.codecs.budget import require_within
from kubechronicle.api.codecs.errors import MAX_DEPTH, Complaints, DecodeError, RefusedValueError

__all__ = ["BYTES", "FLOATS", "LIST", "MAP", "SIMPLE", "decode", "decode_value", "type_name"]

_MAJORS: Final = ("positive integer", "negative integer", "byte string", "UTF-8 text string", "array", "map", "tag",
                  "primitives")  # fmt: skip
BYTES, _TEXT, LIST, MAP, _TAG, SIMPLE = range(2, 8)
_INDEFINITE: Final = 31
_BREAK: Final = 0xFF
_MAX_INT: Final = (1 << 63) - 1
FLOATS: Final[Mapping[int, struct.Struct]] = {25: struct.Struct(">e"), 26: struct.Struct(">f"), 27: struct.Struct(">d")}
_VALUES: Final[Mapping[int, bool | None]] = {20: False, 21: True, 22: None}
_TIME, _EPOCH, _BIGNUMS = 0, 1, (2, 3)
_TEXTS: Final[Mapping[int, Callable[[bytes], bytes]]] = {
    21: lambda data: base64.urlsafe_b64encode(data).rstrip(b"="),
    22: base64.b64encode,
    23: lambda data: base64.b16encode(data).lower(),
}
"""The tags that name the text of a byte string, and its encoders."""
_TOO_DEEP: Final = "cbor: exceeded max nested level 10000"
"""Go's text; a document may have MAX_DEPTH levels, as one of JSON."""
_START: Final = datetime(1970, 1, 1, tzinfo=UTC)


def decode(data: bytes) -> tuple[dict[str, Any], Complaints]:
    """Return (the API object of a body, no strict errors, but the source for later ones).

    DecodeError: there is no well-formed object. RefusedValueError: it has a value that no object may have.
    TooManyPartsError.
    """
    problem = "unable to determine group/version/kind: "
    try:
        value = decode_value(data, document=True)
    except RefusedValueError:
        raise
    except DecodeError as error:
        raise DecodeError(problem + error.message) from None
    if value is None:
        value = {}
    if value.__class__ is not dict:
        raise DecodeError(f"{problem}cbor: cannot unmarshal {type_name(value)} into Go value of type v1.TypeMeta")
    for field in ("apiVersion", "kind"):
        text = value.get(field)
        if text is not None and text.__class__ is not str:
            into = f"Go struct field v1.TypeMeta.{field} of type string"
            raise DecodeError(f"{problem}cbor: cannot unmarshal {type_name(text)} into {into}")
    complaints = Complaints()
    complaints.source, complaints.cbor = data, True
    return value, complaints


def decode_value(data: bytes, *, document: bool = False) -> Any:
    """Return the JSON value of one data item, with the whole of the bytes. Errors as in `decode`.

    ``document``: errors of the outermost keys are a DecodeError, those within a RefusedValueError.
    """
    if not data:
        raise DecodeError("EOF")
    reader = _CborReader(data)
    try:
        value = reader.item(0)
    except IndexError:
        raise DecodeError("unexpected EOF") from None
    if rest := len(data) - reader.at:
        raise DecodeError(f"cbor: {rest} bytes of extraneous data starting at index {reader.at}")
    if reader.refused_outside:
        raise DecodeError(reader.refused_outside)
    if reader.refused:
        raise RefusedValueError(reader.refused) if document else DecodeError(reader.refused)
    return value


def type_name(value: Any) -> str:
    """Return the CBOR type of a decoded value, as errors name it. Texts have lost theirs, and are byte strings."""
    if value.__class__ is int:
        return _MAJORS[0] if value >= 0 else _MAJORS[1]
    return {str: _MAJORS[BYTES], list: _MAJORS[LIST], dict: _MAJORS[MAP]}.get(value.__class__, _MAJORS[SIMPLE])


class _CborReader:
    """Reads the items of a document. Malformed bytes raise at once. A value that is refused is noted, and the reader
    goes on, because malformed bytes behind it come first.

    ``at``: the place of the next byte. ``refused``: the first refusal, ``refused_outside`` that of an outermost key.
    """

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.at = 0
        self.refused = self.refused_outside = ""
        self._as_text: Callable[[bytes], bytes] | None = None
        self._containers = self._keys = self._values = 0

    def item(self, depth: int) -> Any:
        """Read an item. IndexError: the bytes end."""
        major, info, argument = self._head()
        if major in (BYTES, _TEXT):
            return self._string(major, argument, info)
        if major == MAP:
            return self._map(argument, info, depth + 1)
        if major == LIST:
            return self._list(argument, info, depth + 1)
        if major == SIMPLE:
            return self._simple(info, argument)
        if major == _TAG:
            return self._tagged(argument, depth)
        if argument > _MAX_INT:
            shown = argument if major == 0 else -1 - argument
            return self._refuse(
                f"cbor: cannot unmarshal {_MAJORS[major]} into Go value of type int64 ({shown} overflows Go's int64)"
            )
        return argument if major == 0 else -1 - argument

    def _head(self) -> tuple[int, int, int]:
        """Read the head of an item: (major type, additional information, argument)."""
        data, at = self._data, self.at
        major, info = data[at] >> 5, data[at] & 31
        at += 1
        argument = info
        if info > 23:
            if info < 28:
                end = at + (1 << info - 24)
                if end > len(data):
                    raise IndexError
                argument, at = int.from_bytes(data[at:end], "big"), end
            elif major == SIMPLE and info == _INDEFINITE:
                raise DecodeError('cbor: unexpected "break" code')
            elif info < _INDEFINITE or major < BYTES or major == _TAG:
                raise DecodeError(f"cbor: invalid additional information {info} for type {_MAJORS[major]}")
        self.at = at
        return major, info, argument

    def _string(self, major: int, length: int, info: int) -> str:
        if info == _INDEFINITE:
            found = b"".join(self._chunks(major))
        else:
            found = self._bytes(length)
        if major == BYTES:
            return (found if self._as_text is None else self._as_text(found)).decode("utf-8", "replace")
        try:
            return found.decode()
        except UnicodeDecodeError:
            self._refuse("cbor: invalid UTF-8 string")
            return ""

    def _bytes(self, length: int) -> bytes:
        end = self.at + length
        if end > len(self._data):
            raise IndexError
        found, self.at = self._data[self.at : end], end
        return found

    def _chunks(self, major: int) -> list[bytes]:
        """Read the definite strings that make an indefinite one."""
        chunks: list[bytes] = []
        while self._data[self.at] != _BREAK:
            found, info, length = self._head()
            whole = f"indefinite-length {_MAJORS[major]}"
            if found != major:
                raise DecodeError(f"cbor: wrong element type {_MAJORS[found]} for {whole}")
            if info == _INDEFINITE:
                raise DecodeError(f"cbor: {whole} chunk is not definite-length")
            self._count(values=1)
            chunks.append(self._bytes(length))
        self.at += 1
        return chunks

    def _list(self, length: int, info: int, depth: int) -> list[Any]:
        self._enter(depth)
        if info != _INDEFINITE:
            self._count(values=self._fitting(length))
            return [self.item(depth) for _ in repeat(None, length)]
        found = []
        while self._data[self.at] != _BREAK:
            self._count(values=1)
            found.append(self.item(depth))
        self.at += 1
        return found

    def _map(self, length: int, info: int, depth: int) -> dict[str, Any]:
        self._enter(depth)
        found: dict[str, Any] = {}
        if info != _INDEFINITE:
            self._count(keys=self._fitting(length))
            for index in range(length):
                self._member(found, index, depth)
            return found
        index = 0
        while self._data[self.at] != _BREAK:
            self._count(keys=1)
            self._member(found, index, depth)
            index += 1
        self.at += 1
        return found

    def _member(self, found: dict[str, Any], index: int, depth: int) -> None:
        """Read a key and its value."""
        major = self._data[self.at] >> 5
        as_text, self._as_text = self._as_text, None
        key = self.item(depth)
        self._as_text = as_text
        value = self.item(depth)
        if major not in (BYTES, _TEXT):
            text = f"cbor: cannot unmarshal {_MAJORS[major]} into Go value of type string"
            if depth == 1:
                text += f" (map key is of type {_MAJORS[major]} and cannot be used to match struct field name)"
        elif key in found:
            text = f"cbor: found duplicate map key {orjson.dumps(key).decode()} at map element index {index}"
        else:
            found[key] = value
            return
        if depth == 1:
            self.refused_outside = self.refused_outside or text
        else:
            self._refuse(text)

    def _enter(self, depth: int) -> None:
        if depth > MAX_DEPTH:
            raise DecodeError(_TOO_DEEP)
        self._count(containers=1)

    def _fitting(self, length: int) -> int:
        """Return a length, if there are bytes for as many items: each has one at least."""
        if length > len(self._data) - self.at:
            raise IndexError
        return length

    def _count(self, *, containers: int = 0, keys: int = 0, values: int = 0) -> None:
        self._containers += containers
        self._keys += keys
        self._values += values
        require_within(self._containers, self._keys, self._values)

    def _simple(self, info: int, argument: int) -> Any:
        if info in FLOATS:
            layout = FLOATS[info]
            number = layout.unpack_from(self._data, self.at - layout.size)[0]
            if number - number != 0:
                which = "infinity" if number == number else "NaN"
                raise DecodeError(_not_accepted(SIMPLE, f"floating-point {which}"))
            return number
        if info == 24 and argument < 32:
            raise DecodeError(f"cbor: invalid simple value {argument} for type {_MAJORS[SIMPLE]}")
        if argument in _VALUES:
            return _VALUES[argument]
        return self._refuse(_not_accepted(SIMPLE, f"simple value {argument} is not recognized"))

    def _tagged(self, tag: int, depth: int) -> Any:
        """Read the content of a tag, through the tags within it."""
        outer, levels = self._as_text, 1
        while True:
            if tag in _BIGNUMS:
                raise DecodeError(_not_accepted(_TAG, "bignum"))
            self._as_text = _TEXTS.get(tag, self._as_text)
            self._count(values=1)
            major = self._data[self.at] >> 5
            if major != _TAG:
                break
            if tag in (_TIME, _EPOCH):
                self._refuse_content(tag, major)
            levels += 1
            if depth + levels > MAX_DEPTH:
                raise DecodeError(_TOO_DEEP)
            _, _, tag = self._head()
        content = self.item(depth)
        self._as_text = outer
        if tag == _TIME and major not in (BYTES, _TEXT):
            self._refuse_content(tag, major)
        return self._moment(content, major) if tag == _EPOCH else content

    def _refuse_content(self, tag: int, major: int) -> None:
        expected = "integer or floating-point number" if tag == _EPOCH else "text string"
        self._refuse(f"cbor: tag number {tag} must be followed by {expected}, got {_MAJORS[major]}")

    def _moment(self, seconds: Any, major: int) -> Any:
        """Return the RFC 3339 text of seconds since 1970."""
        if seconds.__class__ not in (int, float):
            return self._refuse_content(_EPOCH, major)
        try:
            text = (_START + timedelta(seconds=seconds)).isoformat().removesuffix("+00:00")
        except OverflowError:
            return self._refuse("Time.MarshalText: year outside of range [0,9999]")
        return (text.rstrip("0") if "." in text else text) + "Z"

    def _refuse(self, text: str) -> None:
        self.refused = self.refused or text


def _not_accepted(major: int, why: str) -> str:
    return f"cbor: data item of cbor type {_MAJORS[major]} is not accepted by protocol: {why}"
