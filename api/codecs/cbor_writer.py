"""A writer of CBOR (RFC 8949) as kube-apiserver writes it.

Every document begins with the tag 55799, the mark of CBOR. Texts are byte strings, which a reader need not check, and
numbers have their shortest form:

    {"kind": "Pod"}   ->   D9D9F7 (tag 55799)  A1 (map of one)  44 "kind"  43 "Pod"

Members keep their order: kube-apiserver shuffles those of its answers. Source: apimachinery
pkg/runtime/serializer/cbor/internal/modes/encode.go.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from kubechronicle.api.codecs.cbor import BYTES, FLOATS, LIST, MAP, SIMPLE
from kubechronicle.api.codecs.errors import EncodeError

__all__ = ["PREFIX", "encode", "encode_item", "encode_watch_event", "list_opening"]

PREFIX: Final = b"\xd9\xd9\xf7"
"""The head of tag 55799, with which each document begins."""


def encode(value: Any) -> bytes:
    """Return a document: the item of a value behind the mark of CBOR. EncodeError for values that CBOR cannot hold."""
    return PREFIX + encode_item(value)


def encode_item(value: Any) -> bytes:
    """Return the bytes of a value alone, as a part of a document. Errors as in `encode`."""
    parts: list[bytes] = []
    try:
        _write(value, parts.append)
    except RecursionError:
        raise EncodeError("cbor: the value is nested too deep") from None
    return b"".join(parts)


def encode_watch_event(kind: str, document: bytes) -> bytes:
    """Return one item of the sequence (RFC 8742) that is a watch. ``document``: the object, with its mark."""
    return b"%b\xa2%b%b%b%b" % (PREFIX, _key("type"), _key(kind), _key("object"), document)


def list_opening(api_version: str, kind: str, metadata: Mapping[str, Any], count: int) -> bytes:
    """Return the bytes of a list before its items, of which there are ``count``."""
    parts = [PREFIX, b"\xa4", _key("kind"), _key(kind), _key("apiVersion"), _key(api_version), _key("metadata")]
    return b"".join((*parts, encode_item(metadata), _key("items"), _sized(LIST, count)))


def _write(value: Any, add: Callable[[bytes], object]) -> None:
    kind = value.__class__
    if kind is str:
        data = value.encode()
        add(_sized(BYTES, len(data)) + data)
    elif kind is dict:
        add(_sized(MAP, len(value)))
        for name, item in value.items():
            add(_key(name))
            _write(item, add)
    elif kind is list or kind is tuple:
        add(_sized(LIST, len(value)))
        for item in value:
            _write(item, add)
    elif value is None or kind is bool:
        add(b"\xf6" if value is None else b"\xf5" if value else b"\xf4")
    elif isinstance(value, int):
        add(_sized(0, value) if value >= 0 else _sized(1, -1 - value))
    elif isinstance(value, float):
        add(_float(value))
    elif isinstance(value, str):
        _write(str(value), add)
    elif isinstance(value, dict):
        _write(dict(value), add)
    elif isinstance(value, list):
        _write(list(value), add)
    else:
        raise EncodeError(f"cbor: unsupported type: {kind.__name__}")


def _sized(major: int, argument: int) -> bytes:
    """Return the head of an item, in the shortest form."""
    if argument < 24:
        return bytes((major << 5 | argument,))
    for info, size in ((24, 1), (25, 2), (26, 4), (27, 8)):
        if argument < 1 << 8 * size:
            return bytes((major << 5 | info,)) + argument.to_bytes(size, "big")
    raise EncodeError(f"cbor: {argument} has more than 64 bits")


def _key(name: str) -> bytes:
    data = name.encode()
    return _sized(BYTES, len(data)) + data


def _float(value: float) -> bytes:
    """Return a number in the smallest width that keeps its value."""
    if value - value != 0:
        raise EncodeError("cbor: floating-point NaN and infinity are not accepted")
    for info, layout in FLOATS.items():
        try:
            data = layout.pack(value)
        except OverflowError:
            continue
        if layout.unpack(data)[0] == value:
            return bytes((SIMPLE << 5 | info,)) + data
    raise AssertionError("a float has 64 bits")
