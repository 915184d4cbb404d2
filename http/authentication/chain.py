"""The chain of authenticators, in kube-apiserver's order (pkg/kubeapiserver/authenticator).

First the authenticating proxy and client certificates (credentials.py), then bearer tokens, then anonymous. The first
success decides. If none succeeds and one rejected its credential, the request is unauthenticated (401). Otherwise it is
anonymous, where that is allowed. NeedsExternalAnswer (user.py) passes through to the caller.
"""

from __future__ import annotations

import base64
import binascii
import csv
import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

from kubechronicle.api.values.caches import kept
from kubechronicle.http.authentication.credentials import STANDARD, ClientCertificates, ProxyHeaders
from kubechronicle.http.authentication.metrics import AuthenticationMetrics
from kubechronicle.http.authentication.user import (
    ANONYMOUS_USER,
    Authenticator,
    CredentialRejected,
    Identified,
    NoCredential,
    NotSeen,
    TokenAuthenticator,
    User,
    authenticated,
)
from kubechronicle.http.authentication.webhook import HasCache
from kubechronicle.http.messages import SUBPROTOCOLS, Request

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


# -- anonymous ---------------------------------------------------------------------------------------------------------
#
# Requests without a credential: system:anonymous, unless --anonymous-auth=false or the paths say otherwise.


class Anonymous:
    """The rule for requests without a credential.

    ``paths``: the only paths on which they are allowed, compared as a whole; empty: every path. They are
    anonymous.conditions[].path of an AuthenticationConfiguration.
    """

    __slots__ = ("_paths", "enabled")

    def __init__(self, enabled: bool = True, paths: Iterable[str] = ()) -> None:
        self.enabled = enabled
        self._paths = frozenset(paths)

    def admits(self, path: str) -> bool:
        """Return whether a request to this decoded path may be anonymous. If not, it is answered with 401."""
        return self.enabled and (not self._paths or path in self._paths)


INVALID: Final = "invalid bearer token"

# Users in the cache. Some authenticators make a new User for each request; the cache is cleared when it is full.
MAX_USERS: Final = 8192


class AuthenticationChain:
    """The authenticators of a server.

    ``authenticators``: of connections with a certificate
    ``tokens``: static file, service accounts, bootstrap tokens, JWT issuers, webhook, in this order
    ``audiences``: this server's names in the audiences of tokens (--api-audiences)
    ``proxy``: header fields that an authenticating proxy may set
    """

    def __init__(
        self,
        authenticators: Sequence[Authenticator] = (),
        tokens: Sequence[TokenAuthenticator] = (),
        *,
        audiences: Sequence[str] = (),
        anonymous: Anonymous | None = None,
        proxy: ProxyHeaders = STANDARD,
        metrics: AuthenticationMetrics | None = None,
    ) -> None:
        self._authenticators = tuple(authenticators)
        self._tokens = tuple(tokens)
        self.audiences = tuple(audiences)
        self.metrics = metrics if metrics is not None else AuthenticationMetrics()
        for each in self._authenticators:
            if isinstance(each, ClientCertificates):
                each.remaining = self.metrics.remaining
        self.metrics.caches += [each.cache.metrics for each in tokens if isinstance(each, HasCache)]
        self._users: dict[int, tuple[User, User]] = kept("users")
        self._anonymous = anonymous if anonymous is not None else Anonymous()
        self._credentials = STANDARD.fields | proxy.fields | {"authorization"}
        self._credential_prefixes = tuple({*STANDARD.extra_prefix, *proxy.extra_prefix})

    def authenticate(
        self, request: Request, warnings: list[str] | None = None, notes: dict[str, str] | None = None
    ) -> User:
        """Return the user of the request, and remove the credentials from it, so that no later code can log them.

        Warnings for the client are appended to ``warnings``, annotations for the audit event to ``notes``. Raises
        Rejected, NotSeen if the result may change once the views have caught up, and NeedsExternalAnswer.
        """
        user = self._identify(request, warnings if warnings is not None else [], notes)
        request.headers.remove(self._credentials, self._credential_prefixes)
        if request.upgrade is not None and any(each.startswith(SUBPROTOCOL) for each in request.subprotocols):
            others = [each for each in request.subprotocols if not each.startswith(SUBPROTOCOL)]
            request.headers.replace(SUBPROTOCOLS, ",".join(others))
        return user

    def _identify(self, request: Request, warnings: list[str], notes: dict[str, str] | None) -> User:
        rejected: CredentialRejected | None = None
        for authenticator in self._authenticators if request.peer_certificate is not None else ():
            try:
                user = authenticator.authenticate(request)
            except CredentialRejected as error:
                rejected = _worse(rejected, error)
                continue
            if user is not None:
                return self._authenticated(user)
        authorization = request.headers.first.get("authorization", "")
        try:
            token = bearer_token(authorization) if authorization else None
            if token is not None:
                return self._bearer(token, warnings, notes)
        except CredentialRejected as error:
            rejected = _worse(rejected, error)
        if request.upgrade is not None:
            try:
                token = subprotocol_token(request)
                if token is not None:
                    return self._bearer(token, warnings, notes)
            except CredentialRejected as error:
                rejected = _worse(rejected, error)
        if rejected is not None:
            raise rejected
        # As in kube-apiserver, a field of another scheme (Basic, Negotiate) or without a token is no credential.
        if authorization and has_extra_space(authorization):
            warnings.append(EXTRA_SPACE)
        if not self._anonymous.admits(request.path):
            raise NoCredential
        return ANONYMOUS_USER

    def _authenticated(self, user: User) -> User:
        """Return the user with system:authenticated among its groups, cached by the User object."""
        known = self._users.get(id(user))
        if known is None or known[0] is not user:
            if len(self._users) >= MAX_USERS:
                self._users.clear()
            known = self._users[id(user)] = (user, authenticated(user))
        return known[1]

    def _bearer(self, token: str, warnings: list[str], notes: dict[str, str] | None) -> User:
        """Return the user of a token. Raises Rejected."""
        rejected: CredentialRejected | None = None
        for authenticator in self._tokens:
            try:
                identified = authenticator.user_of(token, self.audiences)
            except CredentialRejected as error:
                if notes is not None:
                    notes.update(error.annotations)
                rejected = _worse(rejected, error)
                continue
            if identified is not None:
                warnings.extend(identified.warnings)
                if identified.annotations and notes is not None:
                    notes.update(identified.annotations)
                return self._authenticated(identified.user)
        raise rejected if rejected is not None else CredentialRejected(INVALID)

    def authenticate_token(self, token: str, audiences: Sequence[str] = ()) -> Identified:
        """Return the user of a token for a TokenReview, and the audiences for which it is valid.

        No ``audiences``: this server's own. Raises Rejected, whose text has the reasons of all authenticators, NotSeen
        and NeedsExternalAnswer as ``authenticate`` does.
        """
        wanted = tuple(audiences) or self.audiences
        ours = tuple(audience for audience in wanted if audience in self.audiences)
        reasons, kind = [INVALID], CredentialRejected
        for authenticator in self._tokens:
            try:
                identified = authenticator.user_of(token, wanted)
            except CredentialRejected as rejected:
                kind = NotSeen if isinstance(rejected, NotSeen) else kind
                reasons += [rejected.why] if rejected.why else []
                continue
            if identified is not None and (identified.audiences or ours or not wanted):
                return Identified(authenticated(identified.user), identified.audiences or ours)
        raise kind(reasons[0] if len(reasons) == 1 else f"[{', '.join(dict.fromkeys(reasons))}]")


def _worse(before: CredentialRejected | None, error: CredentialRejected) -> CredentialRejected:
    """Return the first error, unless the later one may change once the views have caught up."""
    return error if before is None or isinstance(error, NotSeen) else before
