"""Objects of requests and answers as JSON for an event, from the bytes that were sent.

Most bodies are JSON on one line, and are spliced into the event as they are. Others (YAML, protobuf, pretty-printed or
compressed ones) are converted. All of this runs off the event loop, when the event is written.
"""

from __future__ import annotations

import gzip
import zlib
from typing import Any, Final, NamedTuple, Protocol

import orjson

from kubechronicle.api.codecs import negotiate, protobuf, yaml
from kubechronicle.api.codecs.errors import CodecError

NULL: Final = b"null"
_MANAGED: Final = b'"managedFields"'
_ENVELOPE: Final = b"k8s\x00"


class Whole(Protocol):
    """A body that is joined when it is needed."""

    length: int

    def whole(self) -> bytes: ...


class Payload(NamedTuple):
    """The bytes of an object as they were sent.

    ``media_type``: of the object. ``gzipped``: the bytes are compressed. ``checked``: they are known to be well-formed.
    """

    body: bytes | Whole
    media_type: str = negotiate.JSON
    gzipped: bool = False
    checked: bool = True

    @property
    def size(self) -> int:
        return len(self.body) if isinstance(self.body, bytes) else self.body.length


def json_of(payload: Payload, *, omit_managed_fields: bool = False) -> bytes | None:
    """Return the object as JSON on one line; None if it has no such form, as the text of a log.

    A body in a patch format may be no JSON; it becomes a JSON string.
    """
    body = payload.body if isinstance(payload.body, bytes) else payload.body.whole()
    if payload.gzipped:
        try:
            body = gzip.decompress(body)
        except (OSError, EOFError, zlib.error):
            return None
    if not body:
        return None
    if payload.media_type == negotiate.PROTOBUF and body.startswith(_ENVELOPE):
        value: Any = _decoded(protobuf.decode, body)
        return None if value is None else _encoded(value, omit_managed_fields=omit_managed_fields)
    if payload.media_type == negotiate.CBOR:
        from kubechronicle.api.codecs import cbor  # only with its feature gate, which is off by default

        value = _decoded(cbor.decode_value, body)
        return None if value is None else _encoded(value, omit_managed_fields=omit_managed_fields)
    if payload.media_type.endswith("yaml") and body.lstrip()[:1] not in (b"{", b"["):
        value = _decoded(yaml.decode, body)
        return _text(body) if value is None else _encoded(value[0], omit_managed_fields=omit_managed_fields)
    if not payload.media_type.endswith(("json", "yaml")):
        return None
    body = body.strip()
    if payload.checked and b"\n" not in body and not (omit_managed_fields and _MANAGED in body):
        return body
    try:
        return _encoded(orjson.loads(body), omit_managed_fields=omit_managed_fields)
    except orjson.JSONDecodeError:
        return _text(body)


def _decoded(decode: Any, body: bytes) -> Any:
    try:
        return decode(body)
    except (CodecError, ValueError):
        return None


def _text(body: bytes) -> bytes:
    return orjson.dumps(body.decode(errors="replace"))


def _encoded(value: Any, *, omit_managed_fields: bool) -> bytes | None:
    if omit_managed_fields:
        _omit(value)
    try:
        return orjson.dumps(value)
    except TypeError:  # a number of more than 64 bits
        return None


def _omit(value: Any) -> None:
    """Remove managedFields from an object, the items of a list, and the rows of a table, in place."""
    if not isinstance(value, dict):
        return
    held = [value, *(value.get("items") or ())]
    held += [row.get("object") for row in value.get("rows") or () if isinstance(row, dict)]
    for obj in held:
        meta = obj.get("metadata") if isinstance(obj, dict) else None
        if isinstance(meta, dict):
            meta.pop("managedFields", None)
