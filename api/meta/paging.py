"""Continue tokens of paged lists: the revision of the pages, and the key before the next page.

The form is kube-apiserver's (k8s.io/apiserver/pkg/storage/continue.go), so that errors agree as well: unpadded
base64url of {"v": "meta.k8s.io/v1", "rv": revision, "start": "<namespace>/<name>\\0"}. Clients must treat it as opaque.
Revision -1 continues without consistency, at the newest state (after an expired token).
"""

from __future__ import annotations

import base64
import binascii
import posixpath
import re
import sys
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import orjson

from kubechronicle.api.codecs.errors import DecodeError
from kubechronicle.api.codecs.json import decode_value, go_kind
from kubechronicle.api.errors import status
from kubechronicle.api.errors.status import StatusError

VERSION = "meta.k8s.io/v1"
INCONSISTENT = -1


class Continue(NamedTuple):
    """The revision of the pages (-1: the newest, inconsistently), and the last (namespace, name) returned."""

    revision: int
    after: tuple[str, str]


def encode_continue(token: Continue) -> str:
    namespace, name = token.after
    start = f"{namespace}/{name}\0" if namespace else f"{name}\0"
    text = orjson.dumps({"v": VERSION, "rv": token.revision, "start": start})
    return base64.urlsafe_b64encode(text).rstrip(b"=").decode()


def decode_continue(text: str, *, namespaced: bool) -> Continue:
    """Decode a continue token. StatusError 400 if it is not valid. Any negative revision is INCONSISTENT.

    The page begins at the key of the token. That of a token of our own ends in NUL, so the page begins after its name.
    Text after a NUL sorts before every further name, so it is ignored.
    """
    token = _content(text)
    _check_types(token)
    version, revision, start = token.get("v") or "", token.get("rv") or 0, token.get("start") or ""
    if version != VERSION:
        raise _invalid(f"server does not recognize this encoded version {version}")
    if not revision:
        raise _invalid("incorrect encoded start resourceVersion (version meta.k8s.io/v1)")
    if not start:
        raise _invalid("encoded start key empty (version meta.k8s.io/v1)")
    path = start.removeprefix("/")
    if path and posixpath.normpath("/" + path) != "/" + path:
        raise _invalid(start)
    path, follows, _ = path.partition("\0")
    namespace, _, name = path.partition("/") if namespaced else ("", "", path)
    return Continue(max(revision, INCONSISTENT), (namespace, name if follows else _before(name)))


def _before(name: str) -> str:
    """Return a text that sorts before ``name``, and after every other name that does so."""
    if not name:
        return ""
    last = ord(name[-1]) - 1
    if not last:
        return name[:-1]
    return name[:-1] + chr(last if last != _LAST_SURROGATE else _FIRST_SURROGATE - 1) + chr(sys.maxunicode)


_FIRST_SURROGATE: Final = 0xD800
_LAST_SURROGATE: Final = 0xDFFF


def _content(text: str) -> dict[str, Any]:
    """Return the contents of a token. This server's tokens take a short path; for others, find the error."""
    try:
        padded = text + "=" * (-len(text) % 4)
        token = orjson.loads(binascii.a2b_base64(padded.translate(_STANDARD), strict_mode=True))
        if token.__class__ is dict and token.keys() <= _TYPES.keys() and "=" not in text:
            return dict(token)
    except ValueError:
        pass
    raw = _decoded(text)
    try:
        value, _ = decode_value(raw)
    except DecodeError as error:
        raise _invalid(error.message) from None
    if value is not None and not isinstance(value, dict):
        raise _invalid(f"json: cannot unmarshal {go_kind(value)} into Go value of type storage.continueToken")
    # As encoding/json: names match in upper or lower case, and null changes nothing.
    return {name.lower(): field for name, field in (value or {}).items() if field is not None}


_STANDARD: Final = str.maketrans("-_+/", "+/  ")
_TYPES: Final = {"v": (str, "string"), "rv": (int, "int64"), "start": (str, "string")}


def _check_types(token: Mapping[str, Any]) -> None:
    for name, value in token.items():
        kind, go_type = _TYPES.get(name, (object, ""))
        if value is None or _fits(value, kind):
            continue
        shown = f"number {value}" if name == "rv" and go_kind(value) == "number" else go_kind(value)
        raise _invalid(f"json: cannot unmarshal {shown} into Go struct field continueToken.{name} of type {go_type}")


def _fits(value: object, kind: type) -> bool:
    if kind is not int:
        return isinstance(value, kind)
    return isinstance(value, int) and not isinstance(value, bool) and -(2**63) <= value < 2**63


def _invalid(why: str) -> StatusError:
    return status.bad_request(f"invalid continue token: continue key is not valid: {why}")


def _decoded(text: str) -> bytes:
    """Decode unpadded base64url as Go does, which ignores line ends. StatusError 400 with the first wrong byte."""
    raw = text.encode("utf-8", "surrogatepass")
    kept = raw.translate(None, b"\r\n")
    foreign = _FOREIGN.search(raw)
    if foreign is None and len(kept) % 4 != 1:
        return base64.urlsafe_b64decode(kept + b"=" * (-len(kept) % 4))
    at = foreign.start() if foreign is not None else len(raw) - 1
    raise _invalid(f"illegal base64 data at input byte {at}")


_FOREIGN: Final = re.compile(rb"[^A-Za-z0-9_\r\n-]")
