"""The authenticators in their order. One that finds no credential of its kind passes on; the first success answers;
if none succeeds and one rejected, the request is unauthenticated (401), otherwise it is anonymous."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from kubechronicle.http.authentication.user import ANONYMOUS_USER, Rejected, User, authenticated
from kubechronicle.http.messages import Request


class Authenticator(Protocol):
    def authenticate(self, request: Request) -> User | None:
        """The user, or None if the request carries no credential of this kind. Rejected: it carries a wrong one."""
        ...


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
