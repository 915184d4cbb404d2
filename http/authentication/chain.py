"""The authenticators in their order. One that finds no credential of its kind passes on; the first success answers;
if none succeeds and one rejected, the request is unauthenticated (401), otherwise it is anonymous."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol, runtime_checkable

from kubechronicle.http.authentication.user import ANONYMOUS_USER, NotSeen, Rejected, User, authenticated
from kubechronicle.http.messages import Request

INVALID: Final = "invalid bearer token"


class Authenticator(Protocol):
    def authenticate(self, request: Request) -> User | None:
        """The user, or None if the request carries no credential of this kind. Rejected: it carries a wrong one."""
        ...


@runtime_checkable
class TokenAuthenticator(Authenticator, Protocol):
    """One that knows bearer tokens, wherever they come from."""

    def user_of(self, token: str, audiences: Sequence[str]) -> Identified | None:
        """Whose token this is, None if it is none of this kind. ``audiences``: whom it must be meant for (one of them
        is enough). Rejected: it is of this kind and wrong."""
        ...


@dataclass(frozen=True, slots=True)
class Identified:
    """A token's user, and for which of the audiences asked about it holds (none: tokens of its kind are for whoever
    this server is)."""

    user: User
    audiences: tuple[str, ...] = ()


class AuthenticationChain:
    """``audiences``: what this server calls itself where tokens say for whom they are (--api-audiences)."""

    def __init__(self, authenticators: Sequence[Authenticator], *, audiences: Sequence[str] = ()) -> None:
        self._authenticators = tuple(authenticators)
        self._audiences = tuple(audiences)

    def authenticate(self, request: Request) -> User:
        """Raises Rejected; NotSeen if that may be different once the views have caught up. A request with an
        Authorization field that nobody could use is rejected as well."""
        rejected: Rejected | None = None
        for authenticator in self._authenticators:
            try:
                user = authenticator.authenticate(request)
            except Rejected as error:
                rejected = error if rejected is None or isinstance(error, NotSeen) else rejected
                continue
            if user is not None:
                return authenticated(user)
        if rejected is not None:
            raise rejected
        if request.headers.get("authorization").strip():
            raise Rejected
        return ANONYMOUS_USER

    def authenticate_token(self, token: str, audiences: Sequence[str] = ()) -> Identified:
        """Whose token this is, for a review, and for which of the audiences (this server's, if none are asked about).
        Rejected: nobody's, or not for these audiences; with all that is to be told of it. NotSeen as above."""
        asked = tuple(audiences) or self._audiences
        ours = tuple(audience for audience in asked if audience in self._audiences)
        reasons, kind = [INVALID], Rejected
        for authenticator in self._authenticators:
            if not isinstance(authenticator, TokenAuthenticator):
                continue
            try:
                found = authenticator.user_of(token, asked)
            except Rejected as rejected:
                kind = NotSeen if isinstance(rejected, NotSeen) else kind
                reasons += [rejected.why] if rejected.why else []
                continue
            if found is not None and (found.audiences or ours or not asked):
                return Identified(authenticated(found.user), found.audiences or ours)
        raise kind(reasons[0] if len(reasons) == 1 else f"[{', '.join(dict.fromkeys(reasons))}]")
