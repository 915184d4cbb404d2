"""The identity of a request, and the errors of authenticators."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import msgspec

from kubechronicle.http.messages import Request

ANONYMOUS = "system:anonymous"
ANONYMOUS_GATE = "UnauthenticatedHTTP2DOSMitigation"
"""The gate with which an HTTP/2 connection ends with the first request of an unknown user."""
GROUP_UNAUTHENTICATED = "system:unauthenticated"
GROUP_AUTHENTICATED = "system:authenticated"
GROUP_MASTERS = "system:masters"
CREDENTIAL_ID = "authentication.kubernetes.io/credential-id"
"""Key of ``extra``: the id of the certificate or token, which is no secret."""


@dataclass(frozen=True, slots=True, kw_only=True)
class User:
    """authentication.k8s.io/v1 UserInfo."""

    name: str
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


class CredentialRejected(Exception):
    """A credential was presented and is wrong.

    ``why``: the error of a TokenReview for a token with a valid signature. It never holds the credential. The client
    that presented the credential does not see it.
    ``annotations``: pairs for the audit event of the request.
    """

    def __init__(self, why: str = "", annotations: tuple[tuple[str, str], ...] = ()) -> None:
        super().__init__(why)
        self.why = why
        self.annotations = annotations


class NoCredential(CredentialRejected):
    """No credential was presented, and one is required."""


class NotSeen(CredentialRejected):
    """Rejected because an object is missing from this replica's view or differs from the credential.

    The view may only lag behind that of the replica that issued the credential.
    """


ANONYMOUS_USER = User(name=ANONYMOUS, groups=(GROUP_UNAUTHENTICATED,))


def is_anonymous(user: User) -> bool:
    """Tell whether a user is unknown."""
    return user.name == ANONYMOUS or GROUP_UNAUTHENTICATED in user.groups


def authenticated(user: User) -> User:
    """Return the user with system:authenticated among its groups.

    A user that a proxy or webhook names as anonymous or unauthenticated is returned unchanged.
    """
    if user.name == ANONYMOUS or GROUP_AUTHENTICATED in user.groups or GROUP_UNAUTHENTICATED in user.groups:
        return user
    return User(name=user.name, uid=user.uid, groups=(*user.groups, GROUP_AUTHENTICATED), extra=user.extra)


# -- interfaces --------------------------------------------------------------------------------------------------------
#
# The interfaces of authenticators: implemented by the other modules of this folder, called by the chain.
#
# An authenticator decides at once. One that must ask another server raises NeedsExternalAnswer; the caller, in a task,
# resolves it and calls again (``decide_with_answers``).


class Identified(msgspec.Struct, frozen=True):
    """The user of a token.

    ``audiences``: those of the requested audiences for which the token is valid; none: a token of its kind names none
    ``warnings``: warnings for the client that sent it
    ``annotations``: pairs for the audit event of the request
    """

    user: User
    audiences: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    annotations: tuple[tuple[str, str], ...] = ()


class Authenticator(Protocol):
    """Authenticates a request on a connection with a certificate, by that or by header fields, never by its token."""

    def authenticate(self, request: Request) -> User | None:
        """Return the user, or None if the request has no credential of this kind. Raises Rejected for a wrong one."""
        ...


class TokenAuthenticator(Protocol):
    """Authenticates a bearer token, from a request or from a TokenReview."""

    def user_of(self, token: str, audiences: Sequence[str]) -> Identified | None:
        """Return the token's user, or None for a token of another kind.

        The token must be valid for one of ``audiences``. Raises Rejected for a wrong token of this kind, and
        NeedsExternalAnswer if another server must be asked first.
        """
        ...
