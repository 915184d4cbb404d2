"""The authenticators in their order. One that finds no credential of its kind passes on; the first success answers;
if none succeeds and one rejected, the request is unauthenticated (401), otherwise it is anonymous."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from kubechronicle.http.authentication.user import ANONYMOUS_USER, Rejected, User, authenticated
from kubechronicle.http.messages import Request


class Authenticator(Protocol):
    def authenticate(self, request: Request) -> User | None:
        """The user, or None if the request carries no credential of this kind. Rejected: it carries a wrong one."""
        ...


@runtime_checkable
class TokenAuthenticator(Authenticator, Protocol):
    """One that knows bearer tokens, wherever they come from."""

    def user_of(self, token: str, audiences: Sequence[str]) -> Identified | None:
        """Whose token this is, None if it is none of this kind. ``audiences``: whom it must be meant for (one of them
        is enough; none: this server). Rejected: it is of this kind and wrong."""
        ...


@dataclass(frozen=True, slots=True)
class Identified:
    """A token's user, and for which of the audiences asked about it holds (none: it knows of no audiences)."""

    user: User
    audiences: tuple[str, ...] = ()


class AuthenticationChain:
    def __init__(self, authenticators: Sequence[Authenticator]) -> None:
        self._authenticators = tuple(authenticators)

    def authenticate(self, request: Request) -> User:
        """Raises Rejected. A request with an Authorization field that nobody could use is rejected as well."""
        rejected = False
        for authenticator in self._authenticators:
            try:
                user = authenticator.authenticate(request)
            except Rejected:
                rejected = True
                continue
            if user is not None:
                return authenticated(user)
        if rejected or request.headers.get("authorization").strip():
            raise Rejected
        return ANONYMOUS_USER

    def authenticate_token(self, token: str, audiences: Sequence[str] = ()) -> Identified:
        """Whose token this is, for a review. Rejected: nobody's, or not for these audiences."""
        for authenticator in self._authenticators:
            if not isinstance(authenticator, TokenAuthenticator):
                continue
            try:
                found = authenticator.user_of(token, audiences)
            except Rejected:
                continue
            if found is not None:
                return Identified(authenticated(found.user), found.audiences)
        raise Rejected
