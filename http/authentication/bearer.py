"""Bearer tokens of requests: in the Authorization field, or in a WebSocket subprotocol.

A browser cannot set header fields on a WebSocket, and so offers the token as a subprotocol (k8s.io/apiserver,
authentication/request/websocket).
"""

from __future__ import annotations

import base64
import binascii
import csv
import hashlib
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from kubechronicle.http.authentication.user import CredentialRejected, Identified, User
from kubechronicle.http.messages import Request

# -- token file --------------------------------------------------------------------------------------------------------
#
# The static token file (--token-auth-file): CSV lines ``token,user,uid,"group1,group2"``, the last column optional.
#
# Tokens are stored and looked up as SHA-256 digests, so neither timing nor memory reveals a token.


class TokenFileError(ValueError):
    """The file can't be used. The message names line and reason, never the token."""


def parse_token_file(path: Path) -> dict[bytes, User]:
    """Return the users by the SHA-256 digest of their token. Raises TokenFileError and OSError."""
    users: dict[bytes, User] = {}
    with path.open(newline="", encoding="utf-8") as lines:
        rows = enumerate(csv.reader(lines, skipinitialspace=True), start=1)
        try:
            for number, row in rows:
                _enter(users, row, f"{path}: line {number}")
        except UnicodeDecodeError:
            raise TokenFileError(f"{path}: not UTF-8 text") from None
        except csv.Error as error:
            raise TokenFileError(f"{path}: not CSV: {error}") from None
    return users


def _enter(users: dict[bytes, User], row: list[str], where: str) -> None:
    if not any(column.strip() for column in row):
        return
    if len(row) < 3:
        raise TokenFileError(f"{where}: at least 3 columns needed (token, user name, user uid)")
    token, name, uid = row[0].strip(), row[1].strip(), row[2].strip()
    if not token or not name:
        raise TokenFileError(f"{where}: token and user name must not be empty")
    groups = tuple(group.strip() for group in row[3].split(",") if group.strip()) if len(row) > 3 else ()
    users.setdefault(_digest(token), User(name=name, uid=uid, groups=groups))


def _digest(token: str) -> bytes:
    # Each request comes here, and an error handler takes a quarter of the time, even if it is not called.
    data = token.encode() if token.isascii() else token.encode("utf-8", "surrogateescape")
    return hashlib.sha256(data).digest()


class StaticTokens:
    def __init__(self, users: Mapping[bytes, User]) -> None:
        self._users = {digest: Identified(user) for digest, user in users.items()}

    def user_of(self, token: str, audiences: Sequence[str]) -> Identified | None:
        """Implement TokenAuthenticator. Tokens of the file name no audiences."""
        return self._users.get(_digest(token))


# -- bearer ------------------------------------------------------------------------------------------------------------

SUBPROTOCOL: Final = "base64url.bearer.authorization.k8s.io."
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
    tokens: list[str] = []
    others = 0
    for offered in request.subprotocols:
        if offered.startswith(SUBPROTOCOL):
            tokens.append(offered[len(SUBPROTOCOL) :])
        else:
            others += 1
    if not tokens:
        return None
    if len(tokens) > 1 or not _BASE64URL.fullmatch(tokens[0]):
        raise CredentialRejected
    try:
        token = base64.urlsafe_b64decode(tokens[0] + "=" * (-len(tokens[0]) % 4)).decode()
    except (binascii.Error, UnicodeDecodeError):
        raise CredentialRejected from None
    if token and not others:
        raise CredentialRejected
    return token or None
