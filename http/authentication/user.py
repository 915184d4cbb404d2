"""The identity of a request, and what an authenticator may answer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

ANONYMOUS = "system:anonymous"
GROUP_UNAUTHENTICATED = "system:unauthenticated"
GROUP_AUTHENTICATED = "system:authenticated"
GROUP_MASTERS = "system:masters"
CREDENTIAL_ID = "authentication.kubernetes.io/credential-id"
"""Key of ``extra``: which certificate or token somebody showed, in words that are no secret."""


@dataclass(frozen=True, slots=True, kw_only=True)
class User:
    """authentication.k8s.io/v1 UserInfo."""

    name: str
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


class Rejected(Exception):
    """A credential was presented and is wrong. ``why``: what a TokenReview tells of a token whose signature is right;
    who shows a wrong credential is never told, and it never holds the credential itself."""

    def __init__(self, why: str = "") -> None:
        super().__init__(why)
        self.why = why


class NoCredential(Rejected):
    """None was presented, where one is needed."""


class NotSeen(Rejected):
    """Rejected for something that is not in this replica's view, or not as the credential says: the view may only be
    behind that of the replica that gave the credential out."""


ANONYMOUS_USER = User(name=ANONYMOUS, groups=(GROUP_UNAUTHENTICATED,))


def authenticated(user: User) -> User:
    """The user with system:authenticated among its groups, as every authenticated request has it. Whom a proxy or
    webhook calls anonymous stays it."""
    if user.name == ANONYMOUS or GROUP_AUTHENTICATED in user.groups or GROUP_UNAUTHENTICATED in user.groups:
        return user
    return User(name=user.name, uid=user.uid, groups=(*user.groups, GROUP_AUTHENTICATED), extra=user.extra)
