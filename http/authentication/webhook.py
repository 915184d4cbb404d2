"""The webhook token authenticator: another server authenticates bearer tokens, asked with TokenReviews
(plugin/pkg/authenticator/token/webhook of k8s.io/apiserver).

A token is decided from the cache, or NeedsExternalAnswer is raised. Answers are cached for ``ttl`` seconds. Concurrent
requests with the same token share one TokenReview. With a ``ttl`` of 0, or after an error, the answer is used only for
the requests that waited for it.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from kubechronicle.actors.external_answers import NeedsExternalAnswer, recall_answer, remember_answer
from kubechronicle.http.authentication.interfaces import Identified
from kubechronicle.http.authentication.token_cache import Answer as Known
from kubechronicle.http.authentication.token_cache import NoAnswer, TokenCache
from kubechronicle.http.authentication.user import CredentialRejected, User
from kubechronicle.http.outgoing import reviews
from kubechronicle.http.outgoing.backoff import BACKOFF, Backoff, ask_patiently
from kubechronicle.http.outgoing.client import Answer, AskError, Client, Outgoing
from kubechronicle.http.outgoing.networks import Network
from kubechronicle.http.outgoing.rate_limited_log import RateLimitedLog
from kubechronicle.http.outgoing.remote_server import RemoteServer

log = logging.getLogger(__name__)

KIND: Final = "TokenReview"
GROUP: Final = "authentication.k8s.io"
VERSIONS: Final = ("v1", "v1beta1")
TTL: Final = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenWebhook:
    """Configuration of the webhook. ``ttl`` in seconds."""

    peer: RemoteServer
    version: str = "v1"
    ttl: float = TTL

    def authenticator(self, outgoing: Outgoing, audiences: Sequence[str]) -> WebhookTokens:
        """Return the authenticator. ``audiences``: those of this server."""
        client = outgoing.client(self.peer, network=Network.CONTROL_PLANE)
        return WebhookTokens(client, version=self.version, audiences=audiences, ttl=self.ttl)


class WebhookTokens:
    """The authenticator.

    ``version``: the API version of the reviews it posts
    ``audiences``: those of this server, used where the webhook's answer names none
    ``ttl``: seconds for which answers are cached
    ``clock``: monotonic, in seconds
    """

    def __init__(
        self,
        client: Client,
        *,
        version: str = "v1",
        audiences: Sequence[str] = (),
        ttl: float = TTL,
        backoff: Backoff = BACKOFF,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.cache = TokenCache(success=ttl, failure=ttl, clock=clock)
        self._client = client
        self._api_version = f"{GROUP}/{version}"
        self._audiences = tuple(audiences)
        self._backoff = backoff
        self._error_log = RateLimitedLog(log, "Failed to make webhook authenticator request")

    def user_of(self, token: str, audiences: Sequence[str]) -> Identified | None:
        """Implement TokenAuthenticator."""
        key = self.cache.key(token, audiences)
        recalled = recall_answer((self, key))
        if isinstance(recalled, _TokenAnswer):
            answer = recalled.answer
        else:
            known = self.cache.look(key)
            if known is None:
                raise _ReviewQuestion(self, key, token, tuple(audiences))
            answer = known[0]
        if isinstance(answer, CredentialRejected):
            raise CredentialRejected(answer.why)
        return answer

    async def ask(self, token: str, audiences: Sequence[str]) -> Known:
        """Ask the webhook about a token. Returns None for an unknown token and NoAnswer for an error."""
        spec: dict[str, Any] = {"token": token, **({"audiences": list(audiences)} if audiences else {})}
        body = reviews.review(KIND, self._api_version, spec, {"user": {}})
        try:
            return await ask_patiently(
                self._client, body, lambda answer: self._read(answer, audiences), backoff=self._backoff
            )
        except AskError as error:
            self._error_log.error(str(error))
            return NoAnswer(str(error))

    def _read(self, answer: Answer, audiences: Sequence[str]) -> Known:
        """Return the answer in a TokenReview. Raises AskError."""
        status = reviews.status_of(answer, KIND, self._api_version)
        info = reviews.mapping(status, "user")
        extra = reviews.mapping(info, "extra")
        user = User(
            name=reviews.text(info, "username"),
            uid=reviews.text(info, "uid"),
            groups=reviews.texts(info, "groups"),
            extra={key: reviews.texts(extra, key) for key in extra},
        )
        known, error = reviews.flag(status, "authenticated"), reviews.text(status, "error")
        meant = reviews.texts(status, "audiences") or self._audiences
        both = tuple(audience for audience in audiences if audience in meant)
        if audiences and not both:
            return None
        if not known:
            return NoAnswer(error) if error else None
        if not user.name:
            raise AskError("the answer says that the token is authenticated, and names no user")
        return Identified(user, both)


@dataclass(frozen=True, slots=True)
class _TokenAnswer:
    """The answer to a TokenReview, remembered for the request that asked."""

    answer: Known


class _ReviewQuestion(NeedsExternalAnswer):
    def __init__(self, webhook: WebhookTokens, key: bytes, token: str, audiences: tuple[str, ...]) -> None:
        super().__init__("a webhook has to be asked")
        self._webhook, self._key, self._token, self._audiences = webhook, key, token, audiences

    async def resolve(self) -> None:
        async def question() -> Known:
            return await self._webhook.ask(self._token, self._audiences)

        remember_answer((self._webhook, self._key), _TokenAnswer(await self._webhook.cache.ask(self._key, question)))
