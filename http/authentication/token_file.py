"""The static token file (--token-auth-file): CSV lines ``token,user,uid,"group1,group2"``, the last column optional.

Tokens are stored and looked up as SHA-256 digests, so neither timing nor memory reveals a token.
"""

from __future__ import annotations

import csv
import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path

from kubechronicle.http.authentication.interfaces import Identified
from kubechronicle.http.authentication.user import User


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
