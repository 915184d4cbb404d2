"""Where a request carries a bearer token: its Authorization field, or, from a browser that cannot set fields on a
WebSocket, one of the subprotocols it offers (k8s.io/apiserver, authentication/request/websocket)."""

from __future__ import annotations

import base64
import binascii
import re
from typing import Final

from kubechronicle.http.authentication.user import Rejected
from kubechronicle.http.messages import Request

SUBPROTOCOL: Final = "base64url.bearer.authorization.k8s.io."
SUBPROTOCOL_FIELD: Final = "sec-websocket-protocol"
EXTRA_SPACE: Final = "the provided Authorization header contains extra space before the bearer token, and is ignored"

_BASE64URL: Final = re.compile(r"(?:[A-Za-z0-9_-]{4})*(?:[A-Za-z0-9_-]{2,3})?")


def bearer_token(authorization: str) -> str | None:
    """The token of an Authorization field; None if it holds none. What follows a token and a space is not looked at."""
    words = authorization.strip().split(" ", 2)
    return words[1] or None if len(words) > 1 and words[0].lower() == "bearer" else None


def is_other_scheme(authorization: str) -> bool:
    """Whether the field is a credential of a kind nobody here knows (Basic, Negotiate)."""
    scheme = authorization.strip().partition(" ")[0].lower()
    return bool(scheme) and scheme != "bearer"


def has_extra_space(authorization: str) -> bool:
    words = authorization.strip().split(" ", 2)
    return len(words) == 3 and words[0].lower() == "bearer" and not words[1]


def subprotocol_token(request: Request) -> str | None:
    """The token among the subprotocols a WebSocket request offers; None if there is none. Rejected: it can't be read,
    there are two, or there is nothing beside it, so that nothing would be left to choose."""
    if request.websocket is None:
        return None
    found: list[str] = []
    others = 0
    for offered in request.websocket.subprotocols:
        if offered.startswith(SUBPROTOCOL):
            found.append(offered[len(SUBPROTOCOL) :])
        else:
            others += 1
    if not found:
        return None
    if len(found) > 1 or not _BASE64URL.fullmatch(found[0]):
        raise Rejected
    try:
        token = base64.urlsafe_b64decode(found[0] + "=" * (-len(found[0]) % 4)).decode()
    except (binascii.Error, UnicodeDecodeError):
        raise Rejected from None
    if token and not others:
        raise Rejected
    return token or None
