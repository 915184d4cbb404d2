"""Audit events (audit.k8s.io/v1 Event): what is known of a request at one stage, and their two written forms.

An event is made of bytes. Objects that are JSON already are spliced in as they were sent; others are converted when the
event is written, in a thread. The last event of a request is made as late as that, too: a thread that makes many in
turn takes half the time for each.

    head   {"kind":"Event",…,"responseStatus":{"metadata":{},"code":200}
           ,"requestObject":{…},"responseObject":{…}
    tail   ,"requestReceivedTimestamp":"…","stageTimestamp":"…","annotations":{…}}

Objects of requests and answers as JSON for an event, from the bytes that were sent.

Most bodies are JSON on one line, and are spliced into the event as they are. Others (YAML, protobuf, pretty-printed or
compressed ones) are converted. All of this runs off the event loop, when the event is written.
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple, Protocol

import orjson

from kubechronicle.api.codecs import negotiate, protobuf, yaml
from kubechronicle.api.codecs.errors import CodecError
from kubechronicle.api.codecs.negotiate import JSON
from kubechronicle.api.errors.field_errors import go_quote

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


TRUNCATED: Final = "audit.k8s.io/truncated"
HEAD: Final = b'{"kind":"Event","apiVersion":"audit.k8s.io/v1",'
"""The beginning of every encoded event."""
OVERHEAD: Final = 256
"""Bytes of an event in memory, beside its texts and objects."""
QUICK: Final = 16 * 1024
"""Bytes of an object that is JSON already, up to which it is spliced in on the event loop."""


Line = bytes
"""An event that needs no conversion: its JSON and the end of its line."""


class FinishedRequest(Protocol):
    """The facts of an event that is made when it is written. They do not change any more.

    ``size``: an estimate of the bytes that they keep in memory.
    """

    @property
    def size(self) -> int: ...

    def made(self) -> AuditEvent | Line: ...


class AuditEvent:
    """An event whose objects may have to be converted: ``request`` and ``response``.

    ``head`` and ``tail``: see the head of this file.
    """

    __slots__ = ("_encoded", "head", "omit_managed_fields", "request", "response", "tail")

    def __init__(
        self,
        head: bytes,
        tail: bytes,
        request: Payload | None = None,
        response: Payload | None = None,
        *,
        omit_managed_fields: bool = False,
    ) -> None:
        self.head = head
        self.tail = tail
        self.request = request
        self.response = response
        self.omit_managed_fields = omit_managed_fields
        self._encoded = b""

    @property
    def size(self) -> int:
        """An estimate of the bytes that the event keeps in memory."""
        size = OVERHEAD + len(self.head) + len(self.tail)
        if self.request is not None:
            size += self.request.size
        if self.response is not None:
            size += self.response.size
        return size

    @classmethod
    def of(cls, event: Offered) -> AuditEvent:
        """Return the event of a line or of finished facts."""
        if not isinstance(event, bytes | AuditEvent):
            event = event.made()
        return cls(event[:-2], b"}") if isinstance(event, bytes) else event

    def facts(self) -> Mapping[str, Any]:
        """Return the fields of the event without its objects."""
        found: dict[str, Any] = orjson.loads(self.head + self.tail)
        for name in OBJECTS:
            found.pop(name, None)
        return found

    def encoded(self) -> bytes:
        """Return the event as JSON on one line, without its end. May take long: call it in a thread."""
        if not self._encoded:
            self._encoded = b"".join(
                (self.head, *objects_of(self.request, self.response, omit=self.omit_managed_fields), self.tail)
            )
        return self._encoded

    def fitted(self, limit: int) -> bytes:
        """Return the event as JSON of at most ``limit`` bytes: without its objects, if it is too long with them.

        Returns b"" if it is too long even so.
        """
        encoded = self.encoded()
        if len(encoded) <= limit:
            return encoded
        facts = self.facts()
        if facts["level"] in ("Request", "RequestResponse"):
            annotations = {**(facts.get("annotations") or {}), TRUNCATED: "true"}
            encoded = orjson.dumps({**facts, "annotations": annotations})
        return encoded if len(encoded) <= limit else b""


Offered = AuditEvent | Line | FinishedRequest
"""An event as backends take it."""
OBJECTS: Final = ("requestObject", "responseObject")


def objects_of(request: Payload | None, response: Payload | None, *, omit: bool = False) -> list[bytes]:
    """Return the fields of the objects. ``omit``: without managedFields."""
    pieces: list[bytes] = []
    for name, payload in ((b',"requestObject":', request), (b',"responseObject":', response)):
        if payload is not None:
            found = json_of(payload, omit_managed_fields=omit)
            if found is not None:
                pieces += (name, found)
    return pieces


def is_quick(payload: Payload | None) -> bool:
    """Tell whether an object is spliced in on the event loop."""
    return payload is None or (
        payload.checked and not payload.gzipped and payload.media_type == JSON and payload.size <= QUICK
    )


def json_bytes(value: Any) -> bytes:
    """Return a value as JSON. Half a surrogate pair becomes a question mark."""
    try:
        return orjson.dumps(value)
    except orjson.JSONEncodeError:
        return orjson.dumps(_cleaned(value))


def _cleaned(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, Mapping):
        return {_cleaned(key): _cleaned(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_cleaned(each) for each in value]
    return value


THOUSAND: Final = tuple(b"%03d" % number for number in range(1000))
"""Three digits each. Two of them are found in less time than six digits are formatted."""


def shown_times(received: float, moment: float) -> bytes:
    """Return the fields of an event's times, which are seconds since the epoch, as metav1.MicroTime."""
    first, second = int(received), int(moment)
    text = second_text(first)
    return b',"requestReceivedTimestamp":"%b%06dZ","stageTimestamp":"%b%06dZ"' % (
        text,
        int((received - first) * 1_000_000),
        text if second == first else second_text(second),
        int((moment - second) * 1_000_000),
    )


def second_text(second: int) -> bytes:
    """Return ``2026-03-01T12:00:00.``, to which the microseconds are added."""
    return b"%b." % datetime.fromtimestamp(second, UTC).isoformat()[:19].encode()


# -- the legacy format ------------------------------------------------------------------------------------------------


def legacy_line(values: Mapping[str, Any]) -> str:
    """Return an event as the line of text that --audit-log-format=legacy writes (EventString of pkg/audit)."""
    user, impersonated = values.get("user") or {}, values.get("impersonatedUser")
    name = user.get("username") or "<none>"
    groups = _quoted(user["groups"]) if user.get("username") and user.get("groups") else "<none>"
    as_user, as_groups = "<self>", "<lookup>"
    if impersonated is not None:
        as_user = impersonated.get("username", "")
        if impersonated.get("groups"):
            as_groups = _quoted(impersonated["groups"])
    namespace = (values.get("objectRef") or {}).get("namespace") or "<none>"
    status = values.get("responseStatus")
    response = "<deferred>" if status is None else str(status.get("code", 0))
    addresses = values.get("sourceIPs") or ("<unknown>",)
    received = _nanoseconds(values["requestReceivedTimestamp"])
    parts = (
        ("id", values["auditID"]),
        ("stage", values["stage"]),
        ("ip", addresses[0]),
        ("method", values["verb"]),
        ("user", name),
        ("groups", groups),
        ("as", as_user),
        ("asgroups", as_groups),
        ("user-agent", values.get("userAgent", "")),
        ("namespace", namespace),
        ("uri", values["requestURI"]),
    )
    shown = " ".join(f"{key}={go_quote(value)}" for key, value in parts)
    return f'{received} AUDIT: {shown} response="{response}"'


def _nanoseconds(text: str) -> str:
    """Return a MicroTime without the zeros at its end, as Go's RFC3339Nano has it."""
    return text[:-1].rstrip("0").rstrip(".") + "Z"


def _quoted(texts: list[str]) -> str:
    return ",".join(map(go_quote, texts))
