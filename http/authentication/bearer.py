"""Bearer tokens of requests: in the Authorization field, or in a WebSocket subprotocol.

A browser cannot set header fields on a WebSocket, and so offers the token as a subprotocol (k8s.io/apiserver,
authentication/request/websocket).
"""

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
    """Return the token of an Authorization field, None without one. Text after the token and a space is ignored."""
    words = authorization.strip().split(" ", 2)
    return words[1] or None if len(words) > 1 and words[0].lower() == "bearer" else None


def has_extra_space(authorization: str) -> bool:
    words = authorization.strip().split(" ", 2)
    return len(words) == 3 and words[0].lower() == "bearer" and not words[1]


def subprotocol_token(request: Request) -> str | None:
    """Return the token among the subprotocols that a WebSocket request offers, None without one.

    Raises Rejected if the token can't be decoded, if there are two, or if no other subprotocol is offered: the server
    would have none to choose.
    """
    if request.websocket is None:
        return None
    tokens: list[str] = []
    others = 0
    for offered in request.websocket.subprotocols:
        if offered.startswith(SUBPROTOCOL):
            tokens.append(offered[len(SUBPROTOCOL) :])
        else:
            others += 1
    if not tokens:
        return None
    if len(tokens) > 1 or not _BASE64URL.fullmatch(tokens[0]):
        raise Rejected
    try:
        token = base64.urlsafe_b64decode(tokens[0] + "=" * (-len(tokens[0]) % 4)).decode()
    except (binascii.Error, UnicodeDecodeError):
        raise Rejected from None
    if token and not others:
        raise Rejected
    return token or None
