"""The authenticators in kube-apiserver's order (pkg/kubeapiserver/authenticator): those that look at the request itself
(the authenticating proxy, client certificates), then those that know bearer tokens, then anonymous.

The first success answers. If none succeeds and one rejected what it was shown, the request is unauthenticated (401);
otherwise it is anonymous, where that is allowed.

An authenticator decides at once. One that must ask somebody outside raises NeedsExternalAnswer; the chain lets it
through, and the caller, in a task, resolves it and calls again (``decide_with_answers``).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from kubechronicle.http.authentication.anonymous import Anonymous
from kubechronicle.http.authentication.bearer import (
    EXTRA_SPACE,
    SUBPROTOCOL,
    SUBPROTOCOL_FIELD,
    bearer_token,
    has_extra_space,
    is_other_scheme,
    subprotocol_token,
)
from kubechronicle.http.authentication.interfaces import Authenticator, Identified, TokenAuthenticator
from kubechronicle.http.authentication.metrics import AuthenticationMetrics
from kubechronicle.http.authentication.request_header import STANDARD, ProxyHeaders
from kubechronicle.http.authentication.token_cache import HasCache
from kubechronicle.http.authentication.user import ANONYMOUS_USER, NoCredential, NotSeen, Rejected, User, authenticated
from kubechronicle.http.authentication.x509 import ClientCertificates
from kubechronicle.http.messages import Request

INVALID: Final = "invalid bearer token"

# Users remembered; some are made anew for each request, and fill it.
MAX_USERS: Final = 8192

_SUBPROTOCOLS: Final = frozenset({SUBPROTOCOL_FIELD})


class AuthenticationChain:
    """``tokens``: static file, service accounts, bootstrap tokens, JWT issuers, webhook, in this order.
    ``audiences``: what this server calls itself where tokens say for whom they are (--api-audiences). ``proxy``: the
    fields that mean something from an authenticating proxy."""

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
        self._audiences = tuple(audiences)
        self.metrics = metrics if metrics is not None else AuthenticationMetrics()
        for each in self._authenticators:
            if isinstance(each, ClientCertificates):
                each.remaining = self.metrics.remaining
        self.metrics.caches += [each.cache.metrics for each in tokens if isinstance(each, HasCache)]
        self._users: dict[int, tuple[User, User]] = {}
        self._anonymous = anonymous if anonymous is not None else Anonymous()
        self._credentials = STANDARD.fields | proxy.fields | {"authorization"}
        self._credential_prefixes = tuple({*STANDARD.extra_prefix, *proxy.extra_prefix})

    def authenticate(self, request: Request, warnings: list[str] | None = None) -> User:
        """Who asks. The credentials are taken off the request, so that nobody further in sees or logs them.
        ``warnings`` gets those for the client. Raises Rejected; NotSeen if that may be different once the views have
        caught up; NeedsExternalAnswer."""
        user = self._identify(request, warnings if warnings is not None else [])
        request.headers.remove(self._credentials, self._credential_prefixes)
        websocket = request.websocket
        if websocket is not None and any(each.startswith(SUBPROTOCOL) for each in websocket.subprotocols):
            websocket.withdraw(SUBPROTOCOL)
            request.headers.remove(_SUBPROTOCOLS)
        return user

    def _identify(self, request: Request, warnings: list[str]) -> User:
        rejected: Rejected | None = None
        for authenticator in self._authenticators:
            try:
                user = authenticator.authenticate(request)
            except Rejected as error:
                rejected = _worse(rejected, error)
                continue
            if user is not None:
                return self._authenticated(user)
        authorization = request.headers.get("authorization")
        try:
            token = bearer_token(authorization) if authorization else None
            if token is not None:
                return self._bearer(token, warnings)
        except Rejected as error:
            rejected = _worse(rejected, error)
        if request.websocket is not None:
            try:
                token = subprotocol_token(request)
                if token is not None:
                    return self._bearer(token, warnings)
            except Rejected as error:
                rejected = _worse(rejected, error)
        if rejected is not None:
            raise rejected
        # kube-apiserver takes whoever shows a credential of a scheme it does not know for anonymous. We don't: whoever
        # shows one wants to be somebody. A Bearer field with no token in it is no credential, here as there.
        if authorization and is_other_scheme(authorization):
            raise Rejected
        if authorization and has_extra_space(authorization):
            warnings.append(EXTRA_SPACE)
        if not self._anonymous.admits(request.path):
            raise NoCredential
        return ANONYMOUS_USER

    def _authenticated(self, user: User) -> User:
        """With system:authenticated among its groups, made once for a user that authenticators remember."""
        known = self._users.get(id(user))
        if known is None or known[0] is not user:
            if len(self._users) >= MAX_USERS:
                self._users.clear()
            known = self._users[id(user)] = (user, authenticated(user))
        return known[1]

    def _bearer(self, token: str, warnings: list[str]) -> User:
        """Rejected: nobody's."""
        rejected: Rejected | None = None
        for authenticator in self._tokens:
            try:
                found = authenticator.user_of(token, self._audiences)
            except Rejected as error:
                rejected = _worse(rejected, error)
                continue
            if found is not None:
                warnings.extend(found.warnings)
                return self._authenticated(found.user)
        raise rejected if rejected is not None else Rejected(INVALID)

    def authenticate_token(self, token: str, audiences: Sequence[str] = ()) -> Identified:
        """Whose token this is, for a review, and for which of the audiences (this server's, if none are asked about).
        Rejected: nobody's, or not for these audiences; with all that is to be told of it. NotSeen,
        NeedsExternalAnswer as above."""
        asked = tuple(audiences) or self._audiences
        ours = tuple(audience for audience in asked if audience in self._audiences)
        reasons, kind = [INVALID], Rejected
        for authenticator in self._tokens:
            try:
                found = authenticator.user_of(token, asked)
            except Rejected as rejected:
                kind = NotSeen if isinstance(rejected, NotSeen) else kind
                reasons += [rejected.why] if rejected.why else []
                continue
            if found is not None and (found.audiences or ours or not asked):
                return Identified(authenticated(found.user), found.audiences or ours)
        raise kind(reasons[0] if len(reasons) == 1 else f"[{', '.join(dict.fromkeys(reasons))}]")


def _worse(before: Rejected | None, error: Rejected) -> Rejected:
    """The first, unless a later one may be different once the views have caught up."""
    return error if before is None or isinstance(error, NotSeen) else before
