"""Continue tokens of paged lists: the revision of the pages, and the key before the next page.

The form is kube-apiserver's (k8s.io/apiserver/pkg/storage/continue.go), so that errors agree as well: unpadded
base64url of {"v": "meta.k8s.io/v1", "rv": revision, "start": "<namespace>/<name>\\0"}. Clients must treat it as opaque.
Revision -1 continues without consistency, at the newest state (after an expired token).
"""

from __future__ import annotations

import base64
import binascii
import json
from typing import Any, NamedTuple

import orjson

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
    """Decode a continue token. StatusError 400 if it is not valid."""
    token = _content(text)
    if not isinstance(token, dict) or token.get("v") != VERSION:
        version = token.get("v", "") if isinstance(token, dict) else ""
        raise _invalid(f"server does not recognize this encoded version {version}")
    revision, start = token.get("rv"), token.get("start")
    if not isinstance(start, str) or not start:
        raise _invalid("encoded start key empty (version meta.k8s.io/v1)")
    if not isinstance(revision, int) or isinstance(revision, bool) or revision == 0 or revision < INCONSISTENT:
        raise _invalid(f"incorrect encoded start resourceVersion {revision} (version meta.k8s.io/v1)")
    start = start.rstrip("\0")
    namespace, slash, name = start.partition("/")
    if not slash:
        namespace, name = "", start
    if bool(slash) and not namespaced:
        raise _invalid("invalid encoded start key")
    return Continue(revision, (namespace, name))


def _content(text: str) -> Any:
    """Return the contents of a token. This server's tokens take a short path; for others, find the error."""
    padded = text + "=" * (-len(text) % 4)
    try:
        return orjson.loads(binascii.a2b_base64(padded.replace("-", "+").replace("_", "/"), strict_mode=True))
    except ValueError:
        pass
    try:
        raw = base64.b64decode(padded, altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        raise _invalid(f"illegal base64 data at input byte {_first_foreign(text)}") from None
    try:
        return json.loads(raw)
    except (ValueError, RecursionError):
        raise _invalid(_json_complaint(raw)) from None


def _invalid(why: str) -> StatusError:
    return status.bad_request(f"invalid continue token: continue key is not valid: {why}")


def _first_foreign(text: str) -> int:
    alphabet = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_")
    return next((index for index, character in enumerate(text) if character not in alphabet), len(text))


def _json_complaint(raw: bytes) -> str:
    """Return encoding/json's error for bytes that begin no value; Go names the first byte as a Latin-1 character."""
    first = raw.lstrip(b" \t\r\n")[:1]
    if not first:
        return "unexpected end of JSON input"
    character = chr(first[0])
    shown = character if character.isprintable() and ord(character) < 0x7F else f"\\u{ord(character):04x}"
    return f"invalid character '{shown}' looking for beginning of value"
