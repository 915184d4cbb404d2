"""The interfaces of authenticators: implemented by the other modules of this folder, called by the chain.

An authenticator decides at once. One that must ask another server raises NeedsExternalAnswer; the caller, in a task,
resolves it and calls again (``decide_with_answers``).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec

from kubechronicle.http.authentication.user import User
from kubechronicle.http.messages import Request


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
    """Authenticates a request by its certificate or its header fields, never by its bearer token."""

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
