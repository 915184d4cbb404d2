"""Protobuf bodies: the envelope, single objects, lists from ready-made parts, watch events.

A body is the four bytes `k8s\\0` followed by runtime.Unknown {1: typeMeta {1: apiVersion, 2: kind}, 2: raw,
3: contentEncoding, 4: contentType}. Its raw is the message of that apiVersion and kind. The codecs of messages are
compiled from a table, in `wire/`. Everything here is pure. The bytes are identical to those of Go's client and server
for the same object. Objects are in their JSON form: plain dicts, as `json.decode` returns them.

Source: apimachinery pkg/runtime/serializer/protobuf and pkg/runtime/generated.proto.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from kubechronicle.api.codecs.budget import MAX_KEYS, SMALL_MESSAGE, Message, require_within
from kubechronicle.api.codecs.decoders import decoder_of
from kubechronicle.api.codecs.encoders import encoder_of
from kubechronicle.api.codecs.errors import CodecError, DecodeError, EncodeError
from kubechronicle.api.codecs.table import message_for
from kubechronicle.api.codecs.values import fields_of, length, varint

__all__ = [
    "MEDIA_TYPE",
    "PREFIX",
    "STREAM_MEDIA_TYPE",
    "decode",
    "decode_message",
    "encode",
    "encode_list",
    "encode_message",
    "encode_raw",
    "encode_watch_event",
    "envelope",
    "list_frame",
    "list_item",
    "raw_of_item",
    "supports",
]

MEDIA_TYPE = "application/vnd.kubernetes.protobuf"
STREAM_MEDIA_TYPE = MEDIA_TYPE + ";stream=watch"
PREFIX = b"k8s\0"
# contentEncoding and contentType, always written and always empty.
_TAIL = b"\x1a\0\x22\0"

# Errors inside a compiled codec for a value of the wrong type, for example a number instead of a string.
_WRONG_TYPE = (AttributeError, TypeError, ValueError, KeyError, IndexError, OverflowError, RecursionError)


def supports(api_version: str, kind: str) -> bool:
    """Return True if this apiVersion and kind have a protobuf form. Custom resources and Tables have none."""
    return message_for(api_version, kind) is not None


def decode_message(name: str, raw: bytes) -> dict[str, Any]:
    """Return the JSON form of a bare message named as in the table (meta/v1.WatchEvent). DecodeError as in `decode`."""
    try:
        body = _decode_message(name, raw, 0, len(raw))
    except (IndexError, RecursionError):
        raise DecodeError("unexpected EOF") from None
    return body


def encode_message(name: str, body: Mapping[str, Any]) -> bytes:
    """Return the bytes of a message from its JSON form. EncodeError if a value has the wrong type."""
    try:
        return encoder_of(name)(body).encode("latin-1")
    except CodecError:
        raise
    except _WRONG_TYPE as error:
        raise EncodeError(f"{name} has a value of the wrong type: {error}") from error


def decode(data: bytes, *, default_api_version: str = "", default_kind: str = "") -> dict[str, Any]:
    """Return the object in an enveloped body, with apiVersion and kind first. The defaults replace an unset typeMeta.

    DecodeError unless it is a well-formed body of a known kind. TooManyPartsError: it has too many messages or fields.
    """
    try:
        return _decode(data, default_api_version, default_kind)
    except (IndexError, RecursionError):
        raise DecodeError("unexpected EOF") from None


def _decode(data: bytes, default_api_version: str, default_kind: str) -> dict[str, Any]:
    api_version, kind, at, end = _open_envelope(data)
    api_version, kind = api_version or default_api_version, kind or default_kind
    if not kind:
        raise DecodeError("Object 'Kind' is missing in the protobuf body")
    if not api_version:
        raise DecodeError("Object 'apiVersion' is missing in the protobuf body")
    name = message_for(api_version, kind)
    if name is None:
        group, _, version = api_version.rpartition("/")
        raise DecodeError(f'no kind "{kind}" is registered for version "{group + "/" if group else ""}{version}"')
    body = _decode_message(name, data, at, end)
    return {"apiVersion": api_version, "kind": kind, **body}


def _decode_message(name: str, data: bytes, at: int, end: int) -> dict[str, Any]:
    if len(data) > SMALL_MESSAGE:
        data = Message.of(data)
    decode = decoder_of(name, counted=isinstance(data, Message))
    body: dict[str, Any] = decode(data, data.decode("latin-1"), at, end, 0)
    return body


def _open_envelope(data: bytes) -> tuple[str, str, int, int]:
    """Return (apiVersion, kind, start and end of the raw message) of an enveloped body."""
    if not data:
        raise DecodeError("empty data")
    if not data.startswith(PREFIX):
        raise DecodeError(
            f"provided data does not appear to be a protobuf message, expected prefix [{' '.join(map(str, PREFIX))}]"
        )
    if len(data) == len(PREFIX):
        raise DecodeError("empty body")
    at, end = _usual_raw(data)
    if end:
        return *_type_meta(data[6 : 6 + data[5]]), at, end
    api_version = kind = ""
    for position, (number, wire, start, stop) in enumerate(fields_of(data, len(PREFIX), len(data))):
        if position > MAX_KEYS:
            require_within(0, position, 0)
        if number > 4:
            continue
        if wire != 2:
            raise DecodeError(f"proto: wrong wireType = {wire} for field {number} of Unknown")
        if number == 1:
            api_version, kind = _type_meta(data[start:stop])
        elif number == 2:
            at, end = start, stop
    return api_version, kind, at, end


def _usual_raw(data: bytes) -> tuple[int, int]:
    """Return the extent of raw in the usual envelope {1: short, 2: raw, 3: "", 4: ""}; (0, 0) in any other."""
    if len(data) < 10 or data[4] != 10 or data[5] > 0x7F:
        return 0, 0
    at = 6 + data[5]
    if data[at : at + 1] != b"\x12":
        return 0, 0
    size, at = data[at + 1], at + 2
    if size > 0x7F:
        size, at = length(data, at, size)
    end = at + size
    return (at, end) if data[end:] == _TAIL and end <= len(data) else (0, 0)


def _type_meta(data: bytes) -> tuple[str, str]:
    """Return (apiVersion, kind) of the message TypeMeta."""
    texts = {1: "", 2: ""}
    for number, wire, start, stop in fields_of(data, 0, len(data)):
        if number in texts and wire == 2:
            texts[number] = data[start:stop].decode("utf-8", "replace")
    return texts[1], texts[2]


def envelope(api_version: str, kind: str, raw: bytes) -> bytes:
    """Return a raw message in its envelope."""
    return b"%b\n%b\x12%b%b%b" % (PREFIX, _sized_type_meta(api_version, kind), _size(raw), raw, _TAIL)


def _sized_type_meta(api_version: str, kind: str) -> bytes:
    """Return the message TypeMeta behind its length."""
    version, name = api_version.encode(), kind.encode()
    meta = b"\n%b%b\x12%b%b" % (_size(version), version, _size(name), name)
    return _size(meta) + meta


def encode_raw(obj: Mapping[str, Any]) -> bytes:
    """Return an object's message without the envelope, as `encode_list` takes it.

    EncodeError if the kind has no message or a value has the wrong type.
    """
    api_version, kind = obj.get("apiVersion") or "", obj.get("kind") or ""
    name = message_for(api_version, kind)
    if name is None:
        raise EncodeError(
            f"object of kind {kind} in version {api_version} does not implement the protobuf marshalling interface "
            "and cannot be encoded to a protobuf message"
        )
    return encode_message(name, obj)


def encode(obj: Mapping[str, Any]) -> bytes:
    """Return an object in its envelope. Errors as in `encode_raw`."""
    return envelope(obj["apiVersion"], obj["kind"], encode_raw(obj))


def encode_list(api_version: str, kind: str, metadata: Mapping[str, Any], items: Iterable[bytes]) -> bytes:
    """Return a list body from items encoded with `encode_raw`. `kind` is for example "PodList".

    Every Kubernetes list is the message {1: ListMeta, 2: repeated item}, so the items need no decoding.
    """
    made = b"".join(map(list_item, items))
    opening, closing = list_frame(api_version, kind, metadata, len(made))
    return opening + made + closing


def list_item(raw: bytes) -> bytes:
    """Return an object's message as an item of a list."""
    return b"\x12%b%b" % (_size(raw), raw)


def raw_of_item(item: bytes) -> bytes:
    """Return the message in a `list_item`."""
    at = 1
    while item[at] > 0x7F:
        at += 1
    return item[at + 1 :]


def list_frame(api_version: str, kind: str, metadata: Mapping[str, Any], size: int) -> tuple[bytes, bytes]:
    """Return the bytes before and after the items of a list body. ``size``: the bytes of all its `list_item`s."""
    meta = encode_message("meta/v1.ListMeta", metadata)
    begin = b"\n%b%b" % (_size(meta), meta)
    whole = varint(len(begin) + size).encode("latin-1")
    return b"%b\n%b\x12%b%b" % (PREFIX, _sized_type_meta(api_version, kind), whole, begin), _TAIL


def encode_watch_event(kind: str, enveloped: bytes) -> bytes:
    """Return one frame of a watch: a 4-byte big-endian length, then WatchEvent {1: type, 2: RawExtension {1: object}}.

    `kind` is ADDED, MODIFIED, DELETED, BOOKMARK or ERROR. The object is in its envelope, the event is not.
    """
    name = kind.encode()
    extension = b"\n%b%b" % (_size(enveloped), enveloped)
    event = b"\n%b%b\x12%b%b" % (_size(name), name, _size(extension), extension)
    return len(event).to_bytes(4, "big") + event


def _size(data: bytes) -> bytes:
    return varint(len(data)).encode("latin-1")
